"""Configuration: `/etc` of each host: the files of `deploy/hosts/etc` as they are, and what is each lab's own.

The latter are secrets, certificates, names of hosts, and settings that make a small machine enough.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.certificates import Authority
from lab.hosts import Host
from lab.topology import DEPLOY, HostSpec, Topology

OUTSIDE = "10.99.0.254"
"""The machine itself, where callers and stand-ins are."""
HISTORY_SHARDS = 16
"""512 are for machines with more than a share of two cores."""
USERS = {"haulage": 10001, "temporal": 10002, "seaweedfs": 10003}
"""Users that no package of Debian brings."""
OWNERS = {"postgresql": "postgres", "temporal": "temporal", "seaweedfs": "seaweedfs", "haulage": "haulage"}
"""Who may read the secrets below a folder of /etc; all else is root's."""

BuildLocal = Callable[[HostSpec], Mapping[str, str]]


def _draw() -> str:
    return secrets.token_hex(24)


def _draw_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


@dataclass(frozen=True)
class Secrets:
    """The passwords and keys of one lab."""

    database: str = field(default_factory=_draw)
    engine_database: str = field(default_factory=_draw)
    store_database: str = field(default_factory=_draw)
    replication: str = field(default_factory=_draw)
    store_key: str = field(default_factory=_draw)
    admin_key: str = field(default_factory=_draw)
    pepper: str = field(default_factory=_draw)
    seal: str = field(default_factory=_draw_key)

    @property
    def for_databases(self) -> dict[str, str]:
        """Return the variables of `databases.sh` and `join-standby.sh`."""
        return {
            "DATABASE_PASSWORD": self.database,
            "ENGINE_DATABASE_PASSWORD": self.engine_database,
            "STORE_DATABASE_PASSWORD": self.store_database,
            "REPLICATION_PASSWORD": self.replication,
        }


class Configuration:
    """Writes the files of hosts.

    Args:
        build_local: Returns this lab's own variables for the processes of Haulage on a host.
    """

    def __init__(self, topology: Topology, build_local: BuildLocal) -> None:
        self.topology = topology
        self.secrets = Secrets()
        self._build_local = build_local
        self._authority = Authority()
        database = ["database", topology.addresses["database"], *topology.list_hosts("postgresql")]
        self._certificates = {
            "postgresql/tls/postgresql": self._authority.issue(*database),
            "temporal/tls/internode": self._authority.issue("temporal-internode"),
            "temporal/tls/frontend": self._authority.issue("temporal-frontend", "haulage"),
            "haulage/tls/client": self._authority.issue("haulage-client"),
        }
        self._edge = self._authority.issue("haulage", topology.addresses["haulage"])

    @property
    def authority(self) -> str:
        """Return the certificate that all of this lab's certificates are signed by."""
        return self._authority.certificate

    def write(self, host: Host) -> None:
        """Write everything below /etc of a host."""
        self._write_users(host)
        self._write_shipped(host)
        self._write_certificates(host)
        host.write("/etc/hosts", self.topology.render_hosts_file(OUTSIDE))
        # Outside, nobody knows the names of the lab.
        public = f"http://{self.topology.addresses['haulage']}"
        bases = {"HAULAGE_OBJECTS__PUBLIC_BASE": f"{public}:8333", "HAULAGE_API__PUBLIC_BASE": f"{public}:8080"}
        local = {"HOST_ADDRESS": host.spec.address, **bases, **self._build_local(host.spec)}
        host.write("/etc/haulage/host.env", _render(local))
        for path, (owner, variables) in self._list_secret_files().items():
            host.write(path, _render(variables), owner, 0o600)
        host.write("/etc/seaweedfs/s3.json", self._render_identities(), "seaweedfs", 0o600)

    def _write_users(self, host: Host) -> None:
        added = "".join(f"{name}:x:{number}:{number}::/nonexistent:/bin/sh\n" for name, number in USERS.items())
        host.write("/etc/passwd", Path("/etc/passwd").read_text() + added)
        groups = "".join(f"{name}:x:{number}:\n" for name, number in USERS.items())
        host.write("/etc/group", Path("/etc/group").read_text() + groups)

    def _write_shipped(self, host: Host) -> None:
        folder = DEPLOY / "hosts" / "etc"
        for path in folder.rglob("*"):
            if path.is_file():
                host.write(f"/etc/{path.relative_to(folder)}", path.read_text())
        host.write("/etc/temporal/dynamicconfig.yaml", (DEPLOY / "temporal" / "dynamicconfig.yaml").read_text())
        host.write("/etc/prometheus/rules.yaml", (DEPLOY / "observability" / "rules.yaml").read_text())

    def _write_certificates(self, host: Host) -> None:
        host.write("/etc/haulage/tls/ca.pem", self._authority.certificate)
        for path, (certificate, key) in self._certificates.items():
            owner = OWNERS[path.partition("/")[0]]
            host.write(f"/etc/{path}.pem", certificate)
            host.write(f"/etc/{path}.key", key, owner, 0o600)
        host.write("/etc/haproxy/tls/haulage.pem", "".join(self._edge), mode=0o600)

    def _list_secret_files(self) -> dict[str, tuple[str, Mapping[str, str]]]:
        drawn = self.secrets
        return {
            "/etc/temporal/secrets.env": (
                "temporal",
                {"ENGINE_DATABASE_PASSWORD": drawn.engine_database, "HISTORY_SHARDS": str(HISTORY_SHARDS)},
            ),
            "/etc/seaweedfs/secrets.env": ("seaweedfs", {"WEED_POSTGRES2_PASSWORD": drawn.store_database}),
            "/etc/haulage/secrets.env": (
                "haulage",
                {
                    "HAULAGE_DATABASE__URL": f"postgresql://haulage:{drawn.database}@database:5432/haulage",
                    "HAULAGE_OBJECTS__SECRET_KEY": drawn.store_key,
                    # Quoted, so that a shell reads the file as systemd does.
                    "HAULAGE_SECRETS__SEAL": f"'{json.dumps([drawn.seal])}'",
                },
            ),
            "/etc/haulage/api-secrets.env": (
                "haulage",
                {"HAULAGE_API__ADMIN_KEY": drawn.admin_key, "HAULAGE_SECRETS__PEPPER": drawn.pepper},
            ),
        }

    def _render_identities(self) -> str:
        credentials = [{"accessKey": "haulage", "secretKey": self.secrets.store_key}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        return json.dumps({"identities": [{"name": "haulage", "credentials": credentials, "actions": actions}]})


def _render(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())
