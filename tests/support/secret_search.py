"""Everything that a deployment keeps or shows, as bytes: where tests look for secrets that they planted."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from dev.local import list_api_names, list_worker_names
from tests.support.deployment import Deployment

ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)
MEANT = ("secrets.json", "environment")
"""Files that are meant to hold secrets; only their owner reads them."""


async def collect_places(deployment: Deployment, since: datetime = ALWAYS) -> dict[str, bytes]:
    """Histories (unpacked), tables, figures and every file: of the components, of the store, and all logs.

    Args:
        since: When the first secret was planted: histories of runs that had ended by then cannot have it, and there are
            very many in a deployment that other tests used.
    """
    return {
        "histories": await read_histories(deployment, since),
        "tables": await _read_tables(deployment),
        "figures": await _read_figures(deployment),
        **_read_files(deployment),
    }


def find_secrets(planted: Mapping[str, str], places: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Which secret is where, as it is or in base64 or as a part of a URL."""
    return [
        (what, place)
        for what, secret in planted.items()
        for place, text in places.items()
        if any(form in text for form in _list_forms(secret))
    ]


def _list_forms(secret: str) -> set[bytes]:
    """A secret as it may be written; of base64 the middle, which does not depend on what stands beside it."""
    raw = secret.encode()
    shifted = [base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)]
    return {raw, quote(secret, safe="").encode(), *(form for form in shifted if len(form) > 12)}


async def read_histories(deployment: Deployment, since: datetime) -> bytes:
    """All texts of all histories of runs that had not ended at a time, and of what the engine says of each run."""
    engine = await deployment.engine()
    texts: list[bytes] = []
    query = f"ExecutionStatus = 'Running' OR CloseTime >= '{since:%Y-%m-%dT%H:%M:%SZ}'"
    async for execution in engine.list_workflows(query):
        handle = engine.get_workflow_handle(execution.id, run_id=execution.run_id)
        texts += list_texts(json.loads((await handle.fetch_history()).to_json()))
        texts.append((await handle.describe()).raw_description.SerializeToString())
    return b"\n".join(texts)


def list_texts(value: Any) -> Iterator[bytes]:
    """All texts of a history; payloads are base64 in its JSON form."""
    match value:
        case {"data": str() as data, "metadata": _}:
            yield base64.b64decode(data)
        case dict():
            for each in value.values():
                yield from list_texts(each)
        case list():
            for each in value:
                yield from list_texts(each)
        case _:
            yield str(value).encode()


async def _read_tables(deployment: Deployment) -> bytes:
    names = await deployment.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = [await deployment.fetch(f'SELECT t::text FROM "{name[0]}" t') for name in names]  # noqa: S608
    return repr(rows).encode()


async def find_sealed_columns(deployment: Deployment) -> set[tuple[str, str]]:
    """Return each table and column that holds a sealed value, whatever its table says of it."""
    columns = await deployment.fetch(
        "SELECT table_name, column_name FROM information_schema.columns JOIN pg_tables ON tablename = table_name "
        "WHERE schemaname = 'public' AND data_type IN ('text', 'jsonb', 'ARRAY')"
    )
    sealed = "gAAAA[A-Za-z0-9_-]{60}"  # how a Fernet token begins
    return {
        (table, column)
        for table, column in columns
        if await deployment.fetch(f'SELECT 1 FROM "{table}" WHERE "{column}"::text ~ \'{sealed}\' LIMIT 1')  # noqa: S608
    }


async def _read_figures(deployment: Deployment) -> bytes:
    ports = [deployment.installation.stack.ports.by_name[name] for name in (*list_api_names(), *list_worker_names())]
    pages = [f"http://127.0.0.1:{port}/metrics" for port in ports]
    async with aiohttp.ClientSession() as session:
        texts = [await (await session.get(page)).read() for page in pages]
    assert all(b"haulage_" in text and b"temporal_" in text for text in texts)
    return b"\n".join(texts)


def _read_files(deployment: Deployment) -> dict[str, bytes]:
    """Every file of the components and, below `work/`, of the processes, but those that are meant to hold secrets.

    These are two that only their owner reads, and the credentials that an operator lays down.
    """
    meant = [deployment.settings.orders.credentials_folder, deployment.settings.addresses.credentials_folder]
    credentials = {path for folder in meant for path in folder.glob("*.json")}
    places = {"": deployment.data_dir, "work/": deployment.settings.data_dir}
    return {
        f"{place}{path.relative_to(folder)}": path.read_bytes()
        for place, folder in places.items()
        for path in (Path(root) / name for root, _, names in os.walk(folder) for name in names)
        if path.is_file() and path.name not in MEANT and path not in credentials
    }
