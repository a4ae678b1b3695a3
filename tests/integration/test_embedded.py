"""The embedded parts: on loopback only, restarted with nothing lost, and nobody left behind."""

from __future__ import annotations

import asyncio
import io
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import psutil
import pytest
from minio import Minio
from minio.error import S3Error
from temporalio.client import Client

from dev.embedded import components, processes
from dev.embedded.run_file import read_run_state
from dev.embedded.stack import EmbeddedStack, run_stack
from dev.embedded.supervisor import NotReady
from domain import faults
from infra import log
from infra.component_settings import EmbeddedPortSettings
from tests.support import stack as parts
from tests.support import waiting
from tests.support.pace import measure_pace

ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"
READY_SECONDS = 5.0
COLD_READY_SECONDS = 10.0
"""The first start of a folder also makes a database cluster and the engine's tables."""
STARTS = 3

_log = log.get(__name__)

SUPERVISE = """
import asyncio, sys
from pathlib import Path
from infra import log
from dev.embedded.stack import run_stack
from tests.support.stack import ANY_PORTS

async def main():
    log.configure_json_logging("INFO")
    async with run_stack(Path(sys.argv[1]), ui=False, ports=ANY_PORTS):
        print("up", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A data folder that only its owner may enter."""
    path = Path(tempfile.mkdtemp(prefix="haulage-embedded-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
async def own(folder: Path) -> AsyncIterator[EmbeddedStack]:
    """Parts of this module's own, to be killed, with the Web UI."""
    async with run_stack(folder, ui=True, ports=parts.ANY_PORTS) as running:
        yield running


@pytest.fixture
def bucket(own: EmbeddedStack) -> Minio:
    """A client of the module's own object store."""
    return client_of(own, own.secrets.object_secret_key)


def client_of(stack: EmbeddedStack, secret_key: str) -> Minio:
    """A client of an object store."""
    address = stack.addresses["store"].removeprefix("http://")
    return Minio(address, "haulage", secret_key, secure=False, region=components.REGION)


def listeners(pids: list[int]) -> set[tuple[str, int]]:
    """Where processes and all their descendants listen on TCP, or are bound on UDP."""
    tree = [psutil.Process(pid) for pid in pids]
    tree += [child for process in tree for child in process.children(recursive=True)]
    found: set[tuple[str, int]] = set()
    for process in tree:
        with suppress(psutil.NoSuchProcess):  # a back end that ended meanwhile
            for s in process.net_connections("inet"):
                if s.status == psutil.CONN_LISTEN or s.type == socket.SOCK_DGRAM:
                    found.add((s.laddr.ip, s.laddr.port))
    return found


async def test_everything_listens_on_the_loopback_alone(own: EmbeddedStack) -> None:
    """No part opens a port to the network, named or not, TCP or UDP."""

    def complete() -> set[tuple[str, int]]:
        found = listeners([os.getpid()]) | listeners(list(own.list_pids().values()))
        assert set(own.ports.by_name.values()) <= {port for _, port in found}
        return found

    # The last inner listener of the store opens after it serves.
    assert {address for address, _ in await waiting.eventually(complete)} == {LOOPBACK}


async def test_nothing_is_written_outside_the_folder(own: EmbeddedStack) -> None:
    """Files, logs and sockets are below it; only the sockets whose path is built into SeaweedFS are elsewhere."""

    def list_written() -> set[str]:
        tree = [psutil.Process(pid) for pid in own.list_pids().values()]
        tree += [child for process in tree for child in process.children(recursive=True)]
        found: set[str] = set()
        for process in tree:
            with suppress(psutil.NoSuchProcess):  # a back end that ended meanwhile
                found |= {file.path for file in process.open_files() if file.mode != "r"}
                found |= {str(s.laddr) for s in process.net_connections("unix") if s.laddr}
        return found

    written = await asyncio.to_thread(list_written)
    outside = {path for path in written if not (own.data_dir / path).is_relative_to(own.data_dir)}
    built_in = re.compile(r"(/tmp/seaweedfs-\w+-grpc-\d+\.sock|/dev/.*|/memfd:.*|/\[.*)")
    assert written != outside
    assert {path for path in outside if not built_in.fullmatch(path)} == set()


async def test_a_killed_database_comes_back_with_its_rows(own: EmbeddedStack) -> None:
    """What was committed is there, under the same address."""
    address = own.build_database_url().replace("+asyncpg", "")
    connection = await asyncpg.connect(address)
    await connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    connection.terminate()

    await kill(own, "database")

    connection = await asyncpg.connect(address)
    assert await connection.fetchval("SELECT sum(n) FROM kept") == 500_500
    await connection.close()


async def test_a_killed_store_comes_back_with_its_objects(own: EmbeddedStack, bucket: Minio) -> None:
    """What was put is there, under the same address, and what is put afterwards overwrites none of it."""
    bodies = {f"kept/{number}": secrets.token_bytes(100_000) for number in range(20)}
    for number, (key, body) in enumerate(bodies.items()):
        if number in {5, 10}:
            await kill(own, "store")
        bucket.put_object(components.BUCKET, key, io.BytesIO(body), len(body))

    assert {key: bucket.get_object(components.BUCKET, key).read() for key in bodies} == bodies


async def test_a_killed_engine_comes_back_with_its_workflows(own: EmbeddedStack) -> None:
    """What was started is there, under the same address, also for a client that stayed connected."""
    client = await Client.connect(own.addresses["engine"])
    started = await client.start_workflow("Nobody", id="kept", task_queue="nobody")

    await kill(own, "engine")

    assert (await started.describe()).run_id == started.first_execution_run_id


async def kill(stack: EmbeddedStack, name: str) -> None:
    """Kill a part and wait until another process serves in its place."""
    address, pid = stack.addresses[name], stack.list_pids()[name]
    began = time.monotonic()
    stack.kill_and_let_restart(name)
    await asyncio.wait_for(stack.wait_until_ready(name), waiting.PATIENCE_SECONDS)
    _log.info("measured_restart", part=name, seconds=round(time.monotonic() - began, 2))
    assert stack.list_pids()[name] != pid
    assert read_run_state(stack.data_dir / "run.json").parts[name].pid == stack.list_pids()[name]
    assert stack.addresses[name] == address


@pytest.mark.long
async def test_probes_that_overlap_create_one_database(own: EmbeddedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was cancelled may still create it: the others find no fault in that, and are made again."""
    monkeypatch.setattr(components, "DATABASE_NAME", "probed")

    async def probe() -> None:
        port = own.ports.by_name["database"]
        await components._require_server_and_create_database(port, [own.secrets.database_password])

    ends = await asyncio.gather(*(probe() for _ in range(3)), return_exceptions=True)

    assert {type(end) for end in ends} <= {type(None), NotReady}
    await probe()


async def test_the_database_asks_for_the_password(own: EmbeddedStack) -> None:
    """Every local user reaches the port; none gets in without the password."""
    wrong = own.build_database_url().replace("+asyncpg", "").replace(own.secrets.database_password, "guessed")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(wrong)


async def test_the_database_knows_case_beyond_ascii(own: EmbeddedStack) -> None:
    """Searches for names ignore case in every script, whatever the machine's locale."""
    connection = await asyncpg.connect(own.build_database_url().replace("+asyncpg", ""))
    assert await connection.fetchval("SELECT lower('ÉÑЖ')") == "éñж"
    await connection.close()


@pytest.mark.parametrize(
    ("secret_key", "bucket_name", "code"),
    [("guessed", components.BUCKET, "SignatureDoesNotMatch"), (None, "misspelt", "NoSuchBucket")],
)
async def test_the_store_refuses(own: EmbeddedStack, secret_key: str | None, bucket_name: str, code: str) -> None:
    """A wrong key and a bucket that nobody made are errors, as on any S3."""
    client = client_of(own, secret_key or own.secrets.object_secret_key)
    with pytest.raises(S3Error) as refused:
        client.put_object(bucket_name, "any", io.BytesIO(b"x"), 1)
    assert refused.value.code == code


async def test_a_second_start_on_the_folder_is_refused(own: EmbeddedStack) -> None:
    """The sentence names the holder; the parts that run are not touched."""
    before = own.list_pids()
    with pytest.raises(faults.Conflict, match=f"held by process {os.getpid()} since"):
        async with run_stack(own.data_dir, ui=False, ports=parts.ANY_PORTS):
            pass
    assert own.list_pids() == before


@pytest.mark.long
async def test_a_second_installation_moves_aside(own: EmbeddedStack, tmp_path: Path) -> None:
    """Wished ports that are taken are left to their owner."""
    taken = own.ports.by_name
    wishes = EmbeddedPortSettings(
        engine_port=taken["engine"], ui_port=0, database_port=taken["database"], store_port=taken["store"]
    )
    async with run_stack(tmp_path, ui=False, ports=wishes) as second:
        assert set(second.ports.by_name.values()).isdisjoint(taken.values())
        connection = await asyncpg.connect(second.build_database_url().replace("+asyncpg", ""))
        await connection.close()


def _listens(path: Path) -> bool:
    """Whether a process serves a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


async def test_a_start_takes_seconds_and_keeps_addresses(tmp_path: Path) -> None:
    """Cold, with a new cluster, and again with data: each in its time, under the same addresses, all ended afterwards.

    A machine that is busy with other things takes as much longer as it takes for anything.
    """
    addresses: list[dict[str, str]] = []
    seconds: list[float] = []
    limits: list[float] = []
    pids: list[int] = []
    ports: set[int] = set()
    first_began = time.time()
    for limit in (COLD_READY_SECONDS, *[READY_SECONDS] * (STARTS - 1)):
        pace, began = measure_pace(), time.monotonic()
        async with run_stack(tmp_path, ui=True, ports=parts.ANY_PORTS) as running:
            seconds.append(time.monotonic() - began)
            limits.append(limit * max(pace, measure_pace()))
            addresses.append(running.addresses)
            ports |= set(running.ports.by_name.values())
            pids += running.list_pids().values()
    _log.info("measured_start", cold_seconds=round(seconds[0], 2), warm_seconds=round(seconds[1], 2))
    assert addresses == [addresses[0]] * STARTS
    assert not any(processes.read_process_identity(pid) for pid in pids)
    left = [path for port in ports for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")]
    # Another store may have, or have had before it was killed, one of these ports.
    assert not [path for path in left if path.stat().st_mtime >= first_began and not _listens(path)]
    late = [each for each in zip(seconds, limits, strict=True) if each[0] >= each[1]]
    assert late == [], seconds


@asynccontextmanager
async def another_supervisor(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that keeps the parts of a folder running, until it is killed."""
    supervisor = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SUPERVISE, str(folder)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert supervisor.stdout
        assert await asyncio.wait_for(supervisor.stdout.readline(), waiting.PATIENCE_SECONDS) == b"up\n"
        yield supervisor
    finally:
        supervisor.kill()
        await supervisor.wait()


async def test_no_orphan_survives_a_killed_supervisor_and_a_new_start(tmp_path: Path) -> None:
    """The parts die with their supervisor; the next start finds ports and data free."""
    async with another_supervisor(tmp_path) as supervisor:
        left = read_run_state(tmp_path / "run.json")
        family = psutil.Process(supervisor.pid).children(recursive=True)
    assert {recorded.pid for recorded in left.parts.values()} <= {process.pid for process in family}

    async with run_stack(tmp_path, ui=False, ports=parts.ANY_PORTS) as again:
        assert not [process for process in family if processes.read_process_identity(process.pid)]
        assert again.ports.by_name == left.ports
        assert set(again.list_pids()) == set(left.parts)


@pytest.mark.long
async def test_programs_below_a_closed_folder_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may clone into a folder that it alone may enter; PostgreSQL, which never runs as root, starts there too."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    installed = components.find_postgres_program("postgres").parents[2]
    for package in (installed, installed.with_name(f"{installed.name}.libs")):
        await asyncio.to_thread(shutil.copytree, package, closed / package.name)
    programs = closed / installed.name / "pginstall18" / "bin"
    monkeypatch.setattr(components, "find_postgres_program", lambda program: programs / program)

    async with run_stack(closed / "data", ui=False, ports=parts.ANY_PORTS) as running:
        process = psutil.Process(running.list_pids()["database"])
        assert Path(process.exe()) == programs / "postgres"
        assert process.uids().effective != 0
