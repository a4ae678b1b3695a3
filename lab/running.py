"""A running lab: brings the hosts up in order, and does what an operator does when one is lost."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from lab.configuration import OUTSIDE, BuildLocal, Configuration
from lab.hosts import BRIDGE, Host, HostFailed, run_command
from lab.inside import connect_machine
from lab.tools import FOLDER
from lab.topology import NETWORK_BITS, Topology
from lab.units import load_unit

DATABASE_UNIT = "postgresql"
DISK, DISK_UNITS = "1500M", {DATABASE_UNIT, "seaweedfs-volume"}
DATA = "/var/lib/postgresql/haulage"
SCRIPTS = "/opt/haulage/deploy"
READY_SECONDS = 120.0
POLL_SECONDS = 0.25
TEMPORAL_PATH = "/opt/temporal/bin:/usr/bin:/bin"

Say = Callable[[str], None]


class Lab:
    """All hosts, and what runs on them.

    Args:
        configuration: Writes the files of each host.
        programs: The folder of programs that are not Debian's.
        say: Takes a line about each step.
    """

    def __init__(self, configuration: Configuration, programs: Path, say: Say) -> None:
        self.topology: Topology = configuration.topology
        self.configuration = configuration
        self.primary = self.topology.list_hosts(DATABASE_UNIT)[0]
        """The host that has the address `database`."""
        self._programs = programs
        self.hosts = self._build_hosts()
        self._say = say
        self._began = time.monotonic()

    @property
    def api(self) -> str:
        """The address of the API behind the proxies."""
        return f"http://{self.topology.addresses['haulage']}:8080"

    @property
    def _proxy(self) -> str:
        return f"http://{self.topology.addresses['haulage']}:8404"

    async def start(self) -> None:
        """Bring everything up: hosts, the database, the store and the engine, then Haulage."""
        await self._make_bridge()
        await connect_machine(BRIDGE)
        await self._start_database_and_store()
        await self.start_engine()
        await self._make_namespace()
        await self.start_haulage()

    async def start_empty(self) -> None:
        """Start new hosts with an empty database and store, for a restore: no service of Temporal or Haulage runs yet.

        The hosts of before were destroyed; secrets and certificates are the same.
        """
        self.hosts = self._build_hosts()
        self.primary = self.topology.list_hosts(DATABASE_UNIT)[0]
        await self._start_database_and_store()

    async def destroy(self) -> None:
        """Lose all hosts and their disks."""
        await self.stop()
        shutil.rmtree(FOLDER / "hosts")

    async def stop(self) -> None:
        """End all hosts; what they wrote is removed by `running_lab`."""
        await asyncio.gather(*(host.lose() for host in self.hosts.values()), return_exceptions=True)

    async def start_host(self, name: str) -> None:
        """Start a host that was lost: a host of the database joins as a standby first."""
        host = self.hosts[name]
        await host.start()
        if DATABASE_UNIT in host.spec.units:
            await self.join_standby(name)
        for unit in host.spec.units:
            if not host.is_running(unit):
                await host.start_unit(unit)
        await self.wait_for_host(name)

    async def promote(self, name: str) -> None:
        """Make a standby the primary, as an operator does: the old primary is off or cut off by then."""
        old, address = self.hosts[self.primary], self.topology.addresses["database"]
        if old.is_up:
            # Fencing, over a way that the cut does not reach, as a management controller has it.
            await old.stop_unit(DATABASE_UNIT, kill=True)
            await old.run("ip", "address", "delete", f"{address}/{NETWORK_BITS}", "dev", "eth0")
        await self.hosts[name].run("sh", f"{SCRIPTS}/hosts/promote.sh")
        self.primary = name

    async def find_best_standby(self) -> str:
        """Return the standby that has received most of the primary's log."""
        received: dict[str, int] = {}
        for name in self.topology.list_hosts(DATABASE_UNIT):
            if name != self.primary and self.hosts[name].is_running(DATABASE_UNIT):
                answer = await self.query("SELECT pg_last_wal_receive_lsn() - '0/0'", host=name)
                received[name] = int(answer or 0)
        return max(received, key=lambda name: received[name])

    async def join_standby(self, name: str) -> None:
        """Make a host a standby of the primary, with a fresh copy of its data, and start it."""
        secrets = self.configuration.secrets.for_databases
        host = self.hosts[name]
        await host.run("install", "--directory", "--owner=postgres", "/var/lib/postgresql", "/run/postgresql")
        await host.run("sh", f"{SCRIPTS}/hosts/join-standby.sh", user="postgres", environment=secrets)
        await host.start_unit(DATABASE_UNIT)

    async def wait_for_host(self, name: str) -> None:
        """Wait until every unit of a host serves."""
        for unit in self.hosts[name].spec.units:
            if check := _CHECKS.get(unit.partition("@")[0]):
                await self._wait_for(f"{unit} on {name}", check(self, self.hosts[name], unit))

    async def query(self, statement: str, database: str = "postgres", host: str = "") -> str:
        """Run a statement on the primary, or on another host of the database, as its superuser."""
        options = ["--no-psqlrc", "--tuples-only", "--no-align", "--dbname", database, "--command", statement]
        return (await self.hosts[host or self.primary].run("psql", *options, user="postgres", seconds=20)).strip()

    async def run_haulage(self, *arguments: str) -> str:
        """Run a command of Haulage on a host of the API, as its user and with its settings; return its lines."""
        host = self.hosts[self.topology.list_hosts("haulage-api")[0]]
        unit = load_unit("haulage-api", host.name)
        environment = unit.build_environment(host.read)
        command = ["env", "--chdir", unit.working_directory, ".venv/bin/python", "-m", "cli", *arguments]
        return await host.run(*command, user=unit.user, environment=environment)

    def _build_hosts(self) -> dict[str, Host]:
        return {
            name: Host(
                spec, FOLDER / "hosts" / name, self._programs, DISK if DISK_UNITS.intersection(spec.units) else ""
            )
            for name, spec in self.topology.hosts.items()
        }

    async def _start_database_and_store(self) -> None:
        """Start the hosts, PostgreSQL with Temporal's empty tables, SeaweedFS and the proxies."""
        for host in self.hosts.values():
            self.configuration.write(host)
        await asyncio.gather(*(host.start() for host in self.hosts.values()))
        self._tell(f"{len(self.hosts)} hosts")
        await asyncio.gather(self._start_database(), self._start_everywhere("seaweedfs-master", "seaweedfs-volume"))
        await self._start_everywhere("haproxy", "keepalived", "seaweedfs-filer")
        self._tell("PostgreSQL, a primary and its standbys")
        await self._wait_for("a proxy with the address `haulage`", _answers(self._proxy, "/metrics"))
        await asyncio.gather(self._make_engine_tables(), self._start_store())

    async def _make_bridge(self) -> None:
        await run_command("ip", "link", "add", BRIDGE, "type", "bridge")
        await run_command("ip", "address", "add", f"{OUTSIDE}/{NETWORK_BITS}", "dev", BRIDGE)
        await run_command("ip", "link", "set", BRIDGE, "up")
        # Stand-ins listen on the loopback address: hosts reach them as `outside`.
        await run_command("sysctl", "--quiet", "--write", f"net.ipv4.conf.{BRIDGE}.route_localnet=1")
        rule = ["--destination", OUTSIDE, "--protocol", "tcp", "--jump", "DNAT", "--to-destination", "127.0.0.1"]
        for chain in ("PREROUTING", "OUTPUT"):
            await run_command("iptables", "--table", "nat", "--append", chain, *rule)

    async def _start_database(self) -> None:
        primary = self.hosts[self.primary]
        await primary.run("install", "--directory", "--owner=postgres", "/var/lib/postgresql", "/run/postgresql")
        options = ["--auth-local=peer", "--auth-host=reject", "--locale=C.UTF-8", "--encoding=UTF8"]
        await primary.run("initdb", "--pgdata", DATA, "--username", "postgres", *options, user="postgres")
        await primary.start_unit(DATABASE_UNIT)
        await self.wait_for_host(self.primary)
        # No standby has joined yet, so that no commit may wait for one.
        environment = {**self.configuration.secrets.for_databases, "PGOPTIONS": "-c synchronous_commit=local"}
        await primary.run("sh", f"{SCRIPTS}/hosts/databases.sh", user="postgres", environment=environment)
        address = self.topology.addresses["database"]
        await primary.run("ip", "address", "add", f"{address}/{NETWORK_BITS}", "dev", "eth0")
        standbys = [name for name in self.topology.list_hosts(DATABASE_UNIT) if name != self.primary]
        await asyncio.gather(*(self.join_standby(name) for name in standbys))
        await asyncio.gather(*(self.wait_for_host(name) for name in standbys))

    async def _start_store(self) -> None:
        for name in self.topology.list_hosts("seaweedfs-volume"):
            await self._wait_for_units(name, "seaweedfs-master", "seaweedfs-volume", "seaweedfs-filer")
        await self._start_everywhere("seaweedfs-s3")
        for name in self.topology.list_hosts("seaweedfs-s3"):
            await self._wait_for_units(name, "seaweedfs-s3")
        self._tell("SeaweedFS, three masters and volume servers, two filers and gateways")

    async def _make_engine_tables(self) -> None:
        host = self.hosts[self.topology.list_hosts("temporal@")[0]]
        sql = {
            "SQL_PLUGIN": "postgres12",
            "SQL_HOST": "database",
            "SQL_PORT": "5432",
            "SQL_USER": "temporal",
            "SQL_PASSWORD": self.configuration.secrets.engine_database,
            "SQL_TLS": "true",
            "SQL_TLS_CA_FILE": "/etc/haulage/tls/ca.pem",
            "SQL_TLS_SERVER_NAME": "database",
            "PATH": TEMPORAL_PATH,
        }
        await host.run("sh", f"{SCRIPTS}/temporal/schema.sh", user="temporal", environment=sql)
        self._tell("Temporal's schemas")

    async def start_engine(self) -> None:
        """Start Temporal's services."""
        names = self.topology.list_hosts("temporal@")
        await asyncio.gather(*(self._start_units_of(name) for name in names))
        await asyncio.gather(*(self.wait_for_host(name) for name in names))
        self._tell("Temporal, two of each service")

    async def _make_namespace(self) -> None:
        host = self.hosts[self.topology.list_hosts("temporal@")[0]]
        client = load_unit("haulage-migrate", host.name).build_environment(host.read)
        client |= {"PATH": TEMPORAL_PATH, "HOME": "/tmp"}  # noqa: S108 - the host's own
        script = ["sh", f"{SCRIPTS}/temporal/namespace.sh"]
        # A frontend listens before it serves, and the proxies find it after two checks.
        await self._wait_for("Temporal", lambda: host.run(*script, user="haulage", environment=client))
        self._tell("the namespace")

    async def start_haulage(self) -> None:
        """Migrate, then start API, workers and Prometheus."""
        await self._wait_for("the namespace", self._migrate)
        self._tell("the migration")
        later = [*self.topology.list_hosts("haulage-api"), *self.topology.list_hosts("haulage-worker@")]
        later += self.topology.list_hosts("prometheus")
        await asyncio.gather(*(self._start_units_of(name) for name in later))
        await asyncio.gather(*(self.wait_for_host(name) for name in later))
        await self._wait_for("the API behind the proxies", _answers(self.api, "/readyz"))
        self._tell("Haulage, its API and workers; Prometheus")

    async def _migrate(self) -> None:
        """Run the migration; Temporal knows a new namespace only some seconds after it was made."""
        host = self.hosts[self.topology.list_hosts("haulage-api")[0]]
        unit = load_unit("haulage-migrate", host.name)
        environment = unit.build_environment(host.read)
        command = ["env", "--chdir", unit.working_directory, *unit.build_stand_in_arguments(environment)]
        await host.run(*command, user=unit.user, environment=environment)

    async def _start_units_of(self, name: str) -> None:
        for unit in self.hosts[name].spec.units:
            await self.hosts[name].start_unit(unit)

    async def _start_everywhere(self, *units: str) -> None:
        starting = [self.hosts[name].start_unit(unit) for unit in units for name in self.topology.list_hosts(unit)]
        await asyncio.gather(*starting)

    async def _wait_for_units(self, name: str, *units: str) -> None:
        host = self.hosts[name]
        for unit in units:
            if unit in host.spec.units:
                await self._wait_for(f"{unit} on {name}", _CHECKS[unit](self, host, unit))

    async def _wait_for(self, what: str, check: Callable[[], Awaitable[object]]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                await check()
            except (OSError, HostFailed, aiohttp.ClientError, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise HostFailed(f"{what} does not serve after {READY_SECONDS:.0f} s: {error}") from error
                await asyncio.sleep(POLL_SECONDS)
            else:
                return

    def _tell(self, what: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  {what}")


Check = Callable[[], Awaitable[object]]


def _answers(base: str, path: str) -> Check:
    async def ask() -> None:
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(base + path) as answer:
            answer.raise_for_status()

    return ask


def _answers_on(port: int, path: str) -> Callable[[Lab, Host, str], Check]:
    return lambda _lab, host, _unit: _answers(f"http://{host.spec.address}:{port}", path)


def _accepts_on(ports: Mapping[str, int]) -> Callable[[Lab, Host, str], Check]:
    def build(_lab: Lab, host: Host, unit: str) -> Check:
        async def connect() -> None:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.spec.address, ports[unit]), 3)
            writer.close()

        return connect

    return build


def _serves_metrics(_lab: Lab, host: Host, unit: str) -> Check:
    environment = load_unit(unit, host.name).build_environment(host.read)
    return _answers(f"http://{host.spec.address}:{environment['HAULAGE_WORKER__METRICS_PORT']}", "/livez")


def _takes_queries(lab: Lab, host: Host, _unit: str) -> Check:
    return lambda: lab.query("SELECT 1", host=host.name)


_CHECKS: Mapping[str, Callable[[Lab, Host, str], Check]] = {
    "postgresql": _takes_queries,
    "temporal": _accepts_on(
        {"temporal@frontend": 7233, "temporal@history": 7234, "temporal@matching": 7235, "temporal@worker": 7239}
    ),
    "seaweedfs-master": _answers_on(9333, "/cluster/healthz"),
    "seaweedfs-volume": _answers_on(8080, "/healthz"),
    "seaweedfs-filer": _answers_on(8888, "/healthz"),
    "seaweedfs-s3": _answers_on(8333, "/healthz"),
    "haproxy": _answers_on(8404, "/metrics"),
    "haulage-api": _answers_on(8080, "/livez"),
    "haulage-worker": _serves_metrics,
    "prometheus": _answers_on(9090, "/-/ready"),
}
"""How each kind of unit is seen to serve."""


@asynccontextmanager
async def running_lab(topology: Topology, programs: Path, say: Say, build_local: BuildLocal) -> AsyncIterator[Lab]:
    """Run a lab as long as the block lasts; what its hosts wrote is removed, but for their logs.

    Args:
        build_local: Returns the variables for the processes of Haulage on a host.
    """
    shutil.rmtree(FOLDER / "hosts", ignore_errors=True)
    lab = Lab(Configuration(topology, build_local), programs, say)
    try:
        await lab.start()
        yield lab
    finally:
        await lab.stop()
        _keep_logs_only(lab)


def _keep_logs_only(lab: Lab) -> None:
    kept = FOLDER / "logs"
    shutil.rmtree(kept, ignore_errors=True)
    for host in lab.hosts.values():
        if host.logs.is_dir():
            shutil.copytree(host.logs, kept / host.name)
    shutil.rmtree(FOLDER / "hosts", ignore_errors=True)
