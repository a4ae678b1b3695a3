"""The API as a process: when it starts, when it refuses to, and how it ends."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from dev.embedded.ports import reserve_ports
from infra.component_settings import DatabaseSettings
from infra.database import Database
from stores.migrate import get_head_revision
from tests.support.selecting import mark_long_except

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
PLANTED = "planted-secret-that-no-log-may-hold"


@asynccontextmanager
async def start_api(
    environment: Mapping[str, str], *options: str, port: int = 0
) -> AsyncIterator[asyncio.subprocess.Process]:
    """An API process, by default on a free port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cli",
        "api",
        *options,
        cwd=ROOT,
        env={**environment, "HAULAGE_API__PORT": str(port)},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def entry(process: asyncio.subprocess.Process, event: str) -> dict[str, Any]:
    """Read the log up to an event."""
    assert process.stderr is not None
    async for line in process.stderr:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == event:
            return found
    raise AssertionError(f"the process ended without {event}")


async def test_it_serves_until_it_is_told_to_stop(environment: dict[str, str]) -> None:
    """SIGTERM ends it with success; its log is JSON, names requests by id and holds no credential."""
    async with start_api(environment) as process:
        address = (await entry(process, "api_ready"))["address"]
        headers = {"Authorization": f"Bearer {PLANTED}", "X-Request-Id": "ticket-1234"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{address}/v1/projects?cursor={PLANTED}", headers=headers) as reply,
        ):
            assert reply.status == 401
        served = await entry(process, "request_served")
        process.terminate()
        assert process.stderr is not None
        rest = await process.stderr.read()
        code = await process.wait()
    assert code == 0
    assert (served["route"], served["status"], served["request_id"]) == ("GET /v1/projects", 401, "ticket-1234")
    assert PLANTED not in json.dumps(served) + rest.decode()


@pytest.mark.parametrize(
    "command", mark_long_except([("api",), ("worker", "--queues=tasks"), ("migrate",)], [("api",)]), ids=" ".join
)
async def test_another_revision_is_refused_in_one_sentence(
    environment: dict[str, str], command: tuple[str, ...]
) -> None:
    """It says what to do, without a traceback, and the process fails."""
    database = Database(DatabaseSettings(url=SecretStr(environment["HAULAGE_DATABASE__URL"])))
    async with database.session() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '0027'"))
    await database.close()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *command), cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, output = await process.communicate()

    assert process.returncode == 1
    [sentence] = [line for line in output.decode().splitlines() if not line.startswith("{")]
    needed = get_head_revision()
    assert sentence.startswith(f"haulage: The database is at revision 0027, this version of Haulage needs {needed}.")
    assert sentence.endswith("start with a new data folder or database.")


@asynccontextmanager
async def two(environment: Mapping[str, str]) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, list[str]]]:
    """Two API processes on one port, once both serve; their address, and the own one of each."""
    with reserve_ports({}) as ports:
        port = ports.reserve("api")
        async with start_api(environment, "--processes=2", port=port) as parent:
            ready = [await entry(parent, "api_ready") for _ in range(2)]
            assert {each["address"] for each in ready} == {f"http://127.0.0.1:{port}"}
            yield parent, f"http://127.0.0.1:{port}", [each["own"] for each in ready]


@pytest.mark.long
async def test_several_serve_one_port_and_stop_together(environment: dict[str, str]) -> None:
    """Each takes its share of connections, and SIGTERM to the first of all ends all of them with success."""
    async with two(environment) as (parent, address, own):
        family = psutil.Process(parent.pid).children()
        for _ in range(60):
            async with aiohttp.ClientSession() as session, session.get(f"{address}/livez") as reply:
                assert reply.status == 200
        pages = [await _text(f"{each}/metrics") for each in own]
        parent.terminate()
        code = await parent.wait()

    assert len(pages) == 2
    assert all('haulage_request_seconds_count{route="GET /livez",status="200"}' in page for page in pages)
    assert code == 0
    assert not [each for each in family if each.is_running()]


@pytest.mark.long
async def test_when_one_of_several_dies_all_end(environment: dict[str, str]) -> None:
    """Who watches the first of all starts them anew; half a door is not left open in silence."""
    async with two(environment) as (parent, _, _):
        one, other = psutil.Process(parent.pid).children()
        one.kill()
        code = await parent.wait()

    assert code == 9
    assert not other.is_running()


async def _text(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        return await reply.text()


async def refusal(environment: Mapping[str, str]) -> str:
    """What a process says that refuses to start."""
    async with start_api(environment) as process:
        _, errors = await process.communicate()
    assert process.returncode == 1
    return errors.decode()


@pytest.mark.long
async def test_it_refuses_a_database_without_this_version_s_tables(
    environment: dict[str, str], empty_database_url: str
) -> None:
    """It does not serve what it cannot store, and says what to run."""
    said = await refusal({**environment, "HAULAGE_DATABASE__URL": empty_database_url})
    assert "haulage migrate" in said


@pytest.mark.long
async def test_it_refuses_to_hash_keys_without_a_pepper(environment: dict[str, str]) -> None:
    """A weak setting is told in one sentence, before the first key is made."""
    said = await refusal({**environment, "HAULAGE_SECRETS__PEPPER": "short"})
    assert "has fewer than 32 characters, so that hashes of keys would be weak" in said
    assert "Traceback" not in said
