"""Peers that speak TLS: a relay in front of the engine and the store, and a PostgreSQL of the distribution."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from dev.embedded import processes
from dev.embedded.ports import reserve_ports
from tests.support.certificates import Authority, Certificate
from tests.support.requirements import POSTGRES
from tests.support.waiting import eventually

CHUNK_BYTES = 64 * 1024
PASSWORD = "a-password-of-the-test"
SSL_OFF = "SSL is not supported"


@asynccontextmanager
async def running_relay(address: str, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Terminate TLS in front of an address; yields the port on 127.0.0.1. Without a context it only relays."""
    host, _, port = address.rpartition(":")
    busy: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        with suppress(OSError, asyncio.CancelledError):
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        busy.discard(task)

    if context is not None:
        # The engine's client speaks HTTP/2 only.
        context.set_alpn_protocols(["h2", "http/1.1"])
    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(busy):
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        return
    finally:
        with suppress(OSError, RuntimeError):
            writer.close()


@dataclass(frozen=True)
class TlsDatabase:
    """A PostgreSQL that takes TLS alone from us."""

    folder: Path
    port: int
    server: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        """The address for us."""
        return f"postgresql://haulage:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    async def use(self, authority: Authority, certificate: Certificate, *, wants_client: bool) -> None:
        """Show this certificate from now on, and want one of clients, signed by the authority, or none."""
        before = await self._read_load_time()
        for name, content in (
            ("server.pem", certificate.cert_file.read_bytes()),
            ("server.key", certificate.key_file.read_bytes()),
            ("ca.pem", authority.ca_file.read_bytes()),
        ):
            _write(self.folder / name, content)
        clients = " clientcert=verify-ca" if wants_client else ""
        rules = f"local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256{clients}\n"
        (self.folder / "cluster" / "pg_hba.conf").write_text(rules)
        self.server.send_signal(signal.SIGHUP)

        async def has_loaded() -> bool:
            return await self._read_load_time() != before

        await eventually(has_loaded)

    async def wait(self) -> None:
        """Wait until it answers; the test is skipped where it was built without TLS."""

        async def answers() -> bool:
            if self.server.returncode is not None:
                said = (self.folder / "log").read_text()
                if SSL_OFF in said:
                    POSTGRES.miss("PostgreSQL was built without TLS")
                raise RuntimeError(said)
            try:
                return bool(await self._read_load_time())
            except (OSError, asyncpg.CannotConnectNowError):
                return False

        await eventually(answers)

    async def _read_load_time(self) -> object:
        """When it read its files; a session that begins later has all that it read."""
        connection = await asyncpg.connect(host=str(self.folder), port=self.port, user="haulage", database="postgres")
        try:
            return await connection.fetchval("SELECT pg_conf_load_time()")
        finally:
            await connection.close()


@asynccontextmanager
async def running_database(authority: Authority, certificate: Certificate) -> AsyncIterator[TlsDatabase]:
    """A PostgreSQL with this certificate. The test is skipped where there is none with TLS."""
    program = Path(POSTGRES.require()).resolve()
    # The path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="haulage-tls-") as name:
        folder = Path(name)
        for file, held in (
            ("server.pem", certificate.cert_file),
            ("server.key", certificate.key_file),
            ("ca.pem", authority.ca_file),
        ):
            _write(folder / file, held.read_bytes())
        _write(folder / "password", PASSWORD.encode())
        if os.geteuid() == 0:
            os.chown(folder, processes.NOBODY_ID, processes.NOBODY_ID)
        arguments = ["--username=haulage", "--auth=scram-sha-256", "--auth-local=trust", "--no-sync"]
        password = f"--pwfile={folder / 'password'}"
        await _run([str(program.with_name("initdb")), "-D", str(folder / "cluster"), *arguments, password], folder)
        with reserve_ports({}) as ports:
            port = ports.reserve("database")
        options = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": folder,
            "fsync": "off",
            "ssl": "on",
            "ssl_cert_file": folder / "server.pem",
            "ssl_key_file": folder / "server.key",
            "ssl_ca_file": folder / "ca.pem",
        }
        command = [str(program), "-D", str(folder / "cluster"), *(f"--{key}={value}" for key, value in options.items())]
        with (folder / "log").open("wb") as log:
            server = await asyncio.create_subprocess_exec(
                *processes.wrap_as_nobody_if_root(command, signal.SIGQUIT),
                cwd=folder,
                env=_environment(folder),
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
            )
        try:
            database = TlsDatabase(folder, port, server)
            await database.wait()
            yield database
        finally:
            if server.returncode is None:
                server.send_signal(signal.SIGINT)
            await server.wait()


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, processes.NOBODY_ID, processes.NOBODY_ID)


async def _run(command: list[str], folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *processes.wrap_as_nobody_if_root(command, signal.SIGKILL),
        cwd=folder,
        env=_environment(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C", "TZ": "UTC"}
