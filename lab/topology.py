"""Topology: which host runs which units, as `deploy/hosts/hosts.toml` says."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
HOSTS_FILE = DEPLOY / "hosts" / "hosts.toml"
NETWORK_BITS = 24


@dataclass(frozen=True)
class HostSpec:
    """A host, its address, and the units that it runs, in the order in which they start."""

    name: str
    address: str
    units: tuple[str, ...]

    @property
    def mac(self) -> str:
        """Return a hardware address that is the same each time, so that neighbours need not learn a new one."""
        return "02:10:" + ":".join(f"{byte:02x}" for byte in ipaddress.ip_address(self.address).packed)


@dataclass(frozen=True)
class Topology:
    """All hosts, and the addresses that move between them, each by its name."""

    addresses: Mapping[str, str]
    hosts: Mapping[str, HostSpec]

    def list_hosts(self, unit: str) -> list[str]:
        """Return the names of the hosts that run a unit; `temporal@` stands for every instance of the template."""
        return [
            host.name
            for host in self.hosts.values()
            if any(each == unit or (unit.endswith("@") and each.startswith(unit)) for each in host.units)
        ]

    def render_hosts_file(self, outside: str) -> str:
        """Return `/etc/hosts`: every name with its address, and the machine outside."""
        names = {
            **self.addresses,
            **{name: host.address for name, host in self.hosts.items()},
            "outside": outside,
        }
        return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names.items())


def load_topology(path: Path = HOSTS_FILE) -> Topology:
    """Read a topology.

    Raises:
        ValueError: Two names have the same address, or one is not an address.
    """
    tree = tomllib.loads(path.read_text())
    hosts = {name: HostSpec(name, host["address"], tuple(host["units"])) for name, host in tree["hosts"].items()}
    topology = Topology(tree["addresses"], hosts)
    used = [*topology.addresses.values(), *(host.address for host in hosts.values())]
    for address in used:
        if used.count(address) > 1:
            raise ValueError(f"{path.name} gives {address} to more than one name. Give each its own.")
        ipaddress.ip_address(address)
    return topology
