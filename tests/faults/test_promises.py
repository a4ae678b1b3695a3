"""Promises about a whole house at work: memory stays flat, and secrets stay secret."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import psutil

from cli.house import House, api_names, worker_names
from infra import temporal
from tests.exports import expected, parsed
from tests.faults.client import client

MEMORY_MAX_BYTES = 400 * 1024 * 1024
SAMPLE_SECONDS = 0.2


async def test_memory_stays_flat_over_a_million_rows(running: House) -> None:
    """An export of 1,000,000 rows keeps every process of ours under 400 MB, and is right."""
    ours = (*api_names(), *worker_names())
    peaks = dict.fromkeys(ours, 0)

    async def sample() -> None:
        while True:
            for name in ours:
                peaks[name] = max(peaks[name], psutil.Process(running.stack.pids()[name]).memory_info().rss)
            await asyncio.sleep(SAMPLE_SECONDS)

    async with client(running) as caller:
        sampling = asyncio.create_task(sample())
        status = await caller.ended(await caller.start(f"{running.source}/rows?rows=1000000&seed=6", page_size=1000))
        sampling.cancel()

        assert (status["state"], status["rows"]) == ("succeeded", 1_000_000)
        assert parsed(await caller.file(status["task_id"])) == expected(6, range(1_000_000))
    assert all(0 < peak < MEMORY_MAX_BYTES for peak in peaks.values()), peaks


async def test_secrets_are_nowhere_in_clear(running: House) -> None:
    """A token in a source URL and the keys appear in no history, log, table, page of figures, or byte on the disk."""
    token, control = f"canary{secrets.token_hex(16)}", f"control{secrets.token_hex(16)}"
    async with client(running) as caller:
        header, callback = f"header{secrets.token_hex(16)}", f"callback{secrets.token_hex(16)}"
        good = await caller.start(
            f"{running.source}/rows?rows=500&token={token}",
            page_size=100,
            file_name=control,
            headers={"X-Token": header},
            callback=f"{running.source}/stats?token={callback}",
        )
        bad = await caller.start(f"{running.source}/rows?rows=500&token={token}&faults=not_json&rate=1", page_size=100)
        for task_id in (good, bad):
            await caller.ended(task_id)
        key = caller.session.headers["Authorization"].removeprefix("Bearer ")
        told = await caller.call("POST", f"/v1/projects/{caller.project_id}/webhook-secret", 201, json={})
        signing = (await told.json())["secret"].removeprefix("whsec_")
        planted = {
            "token": token,
            "header": header,
            "callback": callback,
            "signing": signing,
            "project key": key,
            "key's secret": key.rpartition("_")[2],
        }
        planted["admin key"] = running.admin_key

        places = {
            "histories": await _histories(running),
            "tables": await _tables(running),
            "figures": await _figures(running),
            "answers": await _answers(caller.session, [good, bad]),
            **_files(running.settings.data_dir),
        }

    # What is no secret is seen wherever it belongs, so the search looks at the right bytes.
    seen = {place for place, text in places.items() if control.encode() in text}
    assert seen >= {"histories", "tables", "answers"}
    assert any(place.startswith("engine/") for place in seen)
    assert good.encode() in places["logs/worker-1.log"] + places["logs/worker-2.log"]
    assert b"POST /v1/downloads" in b"".join(places[f"logs/{name}.log"] for name in api_names())
    found = [
        (what, place) for what, secret in planted.items() for place, text in places.items() if secret.encode() in text
    ]
    assert found == []
    for name in ("secrets.json", "environment"):
        assert (running.settings.data_dir / name).stat().st_mode & 0o077 == 0


async def _histories(running: House) -> bytes:
    engine = await temporal.connect(running.stack.environment(running.settings))
    texts: list[bytes] = []
    async for execution in engine.list_workflows():
        history = await engine.get_workflow_handle(execution.id).fetch_history()
        texts += _plain(json.loads(history.to_json()))
    return b"\n".join(texts)


def _plain(value: Any) -> Iterator[bytes]:
    """All texts of a history; payloads are base64 in its JSON form."""
    match value:
        case {"data": str() as data, "metadata": _}:
            yield base64.b64decode(data)
        case dict():
            for each in value.values():
                yield from _plain(each)
        case list():
            for each in value:
                yield from _plain(each)
        case _:
            yield str(value).encode()


async def _tables(running: House) -> bytes:
    connection = await asyncpg.connect(running.stack.database_url().replace("+asyncpg", ""))
    try:
        names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [await connection.fetch(f'SELECT t::text FROM "{name[0]}" t') for name in names]  # noqa: S608
    finally:
        await connection.close()
    return repr(rows).encode()


async def _figures(running: House) -> bytes:
    ports = [running.stack.ports.chosen[name] for name in (*api_names(), *worker_names())]
    pages = [f"http://127.0.0.1:{port}/metrics" for port in ports]
    async with aiohttp.ClientSession() as session:
        texts = [await (await session.get(page)).read() for page in pages]
    assert all(b"haulage_" in text and b"temporal_" in text for text in texts)
    return b"\n".join(texts)


async def _answers(session: aiohttp.ClientSession, task_ids: list[str]) -> bytes:
    return b"\n".join([await (await session.get(f"/v1/downloads/{task_id}")).read() for task_id in task_ids])


def _files(folder: Path) -> dict[str, bytes]:
    """Every file below the data folder but the two that are meant to hold secrets, and that only their owner reads."""
    paths = [Path(root) / name for root, _, names in os.walk(folder) for name in names]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.is_file() and path.name not in ("secrets.json", "environment")
    }
