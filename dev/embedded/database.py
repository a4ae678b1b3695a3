"""The embedded database: PostgreSQL 18 from a wheel, our own cluster, TCP with passwords only."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import asyncpg

from dev.embedded import binaries, flags, processes
from dev.embedded.part import NotReady, Part, PartFailed
from dev.embedded.ports import LOOPBACK

NAME = "database"
USER = "haulage"
DATABASE = "haulage"
PROBE_TIMEOUT_SECONDS = 2.0


def part(folder: Path, port: int, password: str, *, for_tests: bool) -> Part:
    """PostgreSQL on a port, its cluster below a folder."""
    cluster = folder / "cluster"

    async def prepare() -> None:
        if cluster.exists():
            _clear_foreign_pid_file(cluster)
            return
        # Built aside and renamed: a cluster that was interrupted half-way is built again.
        draft = _empty_draft(folder)
        await _initialize(folder, draft, password)
        draft.rename(cluster)

    async def ready() -> None:
        await _probe(port, password)

    settings = [f"--{name}={value}" for name, value in flags.database(port, for_tests=for_tests).items()]
    command = [str(binaries.postgres("postgres")), "-D", str(cluster), *settings]
    return Part(
        name=NAME,
        argv=processes.unprivileged(command, signal.SIGQUIT),
        env=_environment(folder),
        folder=folder,
        prepare=prepare,
        ready=ready,
        stop_signal=signal.SIGINT,  # fast shutdown: sessions are ended, a checkpoint is written
        # Immediate shutdown: SIGKILL would leave the back ends and the shared memory behind.
        death_signal=signal.SIGQUIT,
    )


def url(port: int, password: str, database: str = DATABASE) -> str:
    """The address for SQLAlchemy."""
    return f"postgresql+asyncpg://{USER}:{password}@{LOOPBACK}:{port}/{database}"


def _empty_draft(folder: Path) -> Path:
    draft = folder / "cluster.new"
    shutil.rmtree(draft, ignore_errors=True)
    if os.geteuid() == 0:
        os.chown(folder, processes.NOBODY, processes.NOBODY)
    return draft


async def _initialize(folder: Path, draft: Path, password: str) -> None:
    command = [str(binaries.postgres("initdb")), "-D", str(draft), *flags.database_layout(USER), "--pwfile=/dev/stdin"]
    process = await asyncio.create_subprocess_exec(
        *processes.unprivileged(command, signal.SIGKILL),
        env=_environment(folder),
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(f"{password}\n".encode())
    if process.returncode != 0:
        raise PartFailed(NAME, f"initdb ended with exit code {process.returncode}", output.decode(errors="replace"))


def _clear_foreign_pid_file(cluster: Path) -> None:
    """Remove a pid file whose number belongs to another program by now: the server would refuse to start.

    A file that names a PostgreSQL stays: the server itself knows how to tell, and guards its shared memory by it.
    """
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    lines = pid_file.read_text().splitlines()
    command = processes.command(int(lines[0])) if lines and lines[0].isdigit() else ""
    if "postgres" not in command:
        pid_file.unlink()


def _environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C", "TZ": "UTC"}


async def _probe(port: int, password: str) -> None:
    try:
        await _select_one(port, password, DATABASE)
    except asyncpg.InvalidCatalogNameError:
        await _create_database(port, password)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise NotReady(f"PostgreSQL on port {port} does not answer: {error}") from error


async def _select_one(port: int, password: str, database: str) -> None:
    connection = await _connect(port, password, database)
    try:
        await connection.execute("SELECT 1")
    finally:
        connection.terminate()


async def _create_database(port: int, password: str) -> None:
    connection = await _connect(port, password, "postgres")
    try:
        await connection.execute(f'CREATE DATABASE "{DATABASE}"')
    finally:
        await connection.close()


async def _connect(port: int, password: str, database: str) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(
        host=LOOPBACK,
        port=port,
        user=USER,
        password=password,
        database=database,
        ssl=False,
        timeout=PROBE_TIMEOUT_SECONDS,
    )
