"""The handler's HTTP side: authentication, unreadable requests, and a database that is down."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from haulage.address_module import SQLITE, Connection, Transaction, build_address_module
from sims.oss.module import TABLES

TOKEN = {"Authorization": "Bearer s3cret"}
UPSERT = {"op_id": "1", "seq": 1, "kind": "upsert", "uprn": 1, "address_id": 11, "record": {}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with the tables."""
    path = tmp_path / "module.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(TABLES)
    connection.close()
    return path


def opens(file: Path) -> Callable[[], Connection]:
    """Connections to it."""
    return lambda: sqlite3.connect(file, isolation_level=None, check_same_thread=False)


def nothing_in_flight(transaction: Transaction, address_id: int) -> bool:
    """No orders."""
    return False


@asynccontextmanager
async def running_contract(connect: Callable[[], Connection], **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """The contract below /haulage, and a client with the token."""
    app = web.Application()
    app.add_subapp(
        "/haulage",
        build_address_module(connect, SQLITE, nothing_in_flight, **{"token": "s3cret", "threads": 1, **options}),
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession(f"http://{host}:{port}/haulage/", headers=TOKEN) as session:
            yield session
    finally:
        await runner.cleanup()


async def test_only_who_shows_the_token_is_served(file: Path) -> None:
    """Reading, too."""
    async with running_contract(opens(file)) as session:
        for shown in ("", "Bearer", "Bearer other", "s3cret", "Basic s3cret"):
            async with session.get("addresses", headers={"Authorization": shown}) as answer:
                assert (answer.status, shown) == (401, shown)
        async with session.get("addresses") as answer:
            assert (answer.status, await answer.json()) == (200, {"addresses": []})


async def test_without_a_token_somebody_else_looks_after_that(file: Path) -> None:
    """As behind a gateway."""
    async with running_contract(opens(file), token="") as session, session.get("addresses") as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "operations/1", {**UPSERT, "kind": "explode"}, "kind: Input should be 'swap'"),
        (
            "PUT",
            "operations/1",
            {**UPSERT, "record": None},
            "the request: a upsert needs uprn, address_id, record; record is not there",
        ),
        ("PUT", "operations/1", {**UPSERT, "uprn": 0}, "uprn: Input should be greater than or equal to 1"),
        ("PUT", "operations/2", UPSERT, "operation"),
        ("POST", "operations", {"operations": []}, "operations: List should have at least 1 item"),
        ("POST", "operations", {"operations": [UPSERT] * 501}, "operations: List should have at most 500 items"),
        ("POST", "operations", {"operations": [{}] * 2}, "operations[0].op_id: Field required"),
        ("POST", "operations", {"operations": [{}] * 2}, "; and 5 more like these"),
        ("POST", "operations", [], "the request: Input should be an object"),
        ("POST", "in-flight", {"address_ids": [1] * 1_001}, "address_ids: List should have at most 1000 items"),
        ("POST", "lookup", {"uprns": [1] * 1_001, "op_ids": []}, "uprns: List should have at most 1000 items"),
        ("GET", "addresses?limit=5001", None, "5000"),
        ("GET", "addresses?after=x", None, "after: Input should be a valid integer"),
    ],
)
async def test_what_it_cannot_read_is_refused(file: Path, method: str, path: str, body: object, said: str) -> None:
    """Nothing is applied, and the answer says what was wrong in a sentence."""
    async with running_contract(opens(file)) as session:
        async with session.request(method, path, json=body) as answer:
            assert (answer.status, said in await answer.text()) == (422, True), await answer.text()
        async with session.get("addresses") as answer:
            assert await answer.json() == {"addresses": []}


async def test_without_its_database_it_is_away(tmp_path: Path) -> None:
    """503, so that everything is sent again; nothing counts as failed by itself."""

    def refuse() -> Connection:
        raise sqlite3.OperationalError("no database today")

    async with running_contract(refuse) as session:
        for method, path, body in (
            ("PUT", "operations/1", UPSERT),
            ("POST", "operations", {"operations": [UPSERT]}),
            ("GET", "addresses", None),
        ):
            async with session.request(method, path, json=body) as answer:
                assert (answer.status, "no database today" in await answer.text()) == (503, True)


async def test_connections_that_went_bad_are_replaced(file: Path) -> None:
    """When the database was restarted, the first call after it fails, and the next does not."""
    opened: list[sqlite3.Connection] = []

    def connect() -> Connection:
        opened.append(sqlite3.connect(file, isolation_level=None, check_same_thread=False))
        return opened[-1]

    async with running_contract(connect) as session:
        async with session.get("addresses") as answer:
            assert answer.status == 200
        opened[0].close()
        async with session.put("operations/1", json=UPSERT) as answer:
            assert (await answer.json())["outcome"] == "failed"
        async with session.put("operations/1", json=UPSERT) as answer:
            assert (await answer.json())["outcome"] == "applied"
    assert len(opened) == 2
