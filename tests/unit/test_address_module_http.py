"""The handler's HTTP side: authentication, unreadable requests, and a database that is down."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import aiohttp
import pytest
from aiohttp import web

from haulage.address_module import MYSQL, SQLITE, Connection, Transaction, build_address_module
from haulage.address_module.database import Database, DatabaseUnreachable
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
async def running_contract(
    connect: Callable[[], Connection],
    in_flight: Callable[[Transaction, int], bool] = nothing_in_flight,
    **options: Any,
) -> AsyncIterator[aiohttp.ClientSession]:
    """The contract below /haulage, and a client with the token."""
    app = web.Application()
    app.add_subapp(
        "/haulage",
        build_address_module(connect, SQLITE, in_flight, **{"token": "s3cret", "threads": 1, **options}),
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


async def test_a_page_of_large_records_is_refused_before_it_is_loaded(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """413, so that fewer are requested, over the same connection to the database; one alone may be larger."""
    opened: list[Connection] = []

    def connect() -> Connection:
        opened.append(opens(file)())
        return opened[-1]

    monkeypatch.setattr("haulage.address_module.addresses.PAGE_MAX_BYTES", 1_000, raising=False)
    monkeypatch.setattr("haulage.address_module.addresses.ROWS_PER_STATEMENT", 2, raising=False)
    large = [
        {**UPSERT, "op_id": str(seq), "seq": seq, "uprn": seq, "record": {"a": "x" * size}}
        for seq, size in enumerate((10, 10, 10, 2_000, 2_000), 1)
    ]
    async with running_contract(connect) as session:
        await apply_each(session, large, is_batch=True)
        pages = {}
        for after, limit in ((0, 3), (0, 4), (0, 5_000), (3, 1), (4, 1), (5, 1)):
            async with session.get(f"addresses?after={after}&limit={limit}") as answer:
                found = [each["uprn"] for each in (await answer.json())["addresses"]] if answer.status == 200 else []
                pages[after, limit] = (answer.status, found)
    assert pages == {
        (0, 3): (200, [1, 2, 3]),
        (0, 4): (413, []),
        (0, 5_000): (413, []),
        (3, 1): (200, [4]),
        (4, 1): (200, [5]),
        (5, 1): (200, []),
    }
    assert len(opened) == 1


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


class Breakable(sqlite3.Connection):
    """A connection that its database closes, and whose driver says so when it is closed once more."""

    is_broken = False

    def close(self) -> None:
        """See base class."""
        super().close()
        if self.is_broken:
            raise sqlite3.InterfaceError("Already closed")


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("PUT", "operations/1", UPSERT, "applied"),
        ("POST", "operations", {"operations": [UPSERT]}, "applied"),
        ("GET", "addresses", None, "addresses"),
        ("POST", "lookup", {"uprns": [1], "op_ids": ["1"]}, "live"),
    ],
)
async def test_connections_that_went_bad_are_replaced(
    file: Path, method: str, path: str, body: object, said: str
) -> None:
    """After a restart of the database no call fails: an operation that did would have cost its message a try."""
    opened: list[Breakable] = []

    def connect() -> Connection:
        opened.append(sqlite3.connect(file, isolation_level=None, check_same_thread=False, factory=Breakable))
        return opened[-1]

    async with running_contract(connect, threads=3) as session:
        await asyncio.gather(*(_read_addresses(session) for _ in range(9)))
        for each in opened:
            sqlite3.Connection.close(each)
            each.is_broken = True
        async with session.request(method, path, json=body) as answer:
            assert (answer.status, said in await answer.text()) == (200, True), await answer.text()
    assert not opened[-1].is_broken


async def _read_addresses(session: aiohttp.ClientSession) -> None:
    async with session.get("addresses") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("is_batch", [False, True])
async def test_an_operation_whose_connection_breaks_is_applied_on_another(file: Path, is_batch: bool) -> None:
    """A database that is restarted in the middle of it: nothing was committed, so it is begun anew."""
    left = [1]

    def breaks_once(transaction: Transaction, address_id: int) -> bool:
        if left:
            left.pop()
            raise sqlite3.OperationalError("server closed the connection unexpectedly")
        return False

    async with running_contract(opens(file), in_flight=breaks_once) as session:
        await apply_each(session, [UPSERT], is_batch=False)
        other = {**UPSERT, "op_id": "2", "seq": 2, "address_id": 12}
        assert await apply_each(session, [other], is_batch=is_batch) == ["applied"]
    assert left == []


async def apply_each(session: aiohttp.ClientSession, operations: list[dict[str, Any]], *, is_batch: bool) -> list[str]:
    """Send operations alone or as a batch; their outcomes."""
    if is_batch:
        async with session.post("operations", json={"operations": operations}) as answer:
            return [each["outcome"] for each in (await answer.json())["results"]]
    found = []
    for each in operations:
        async with session.put(f"operations/{each['op_id']}", json=each) as answer:
            found.append((await answer.json())["outcome"])
    return found


async def test_a_database_that_begins_no_transaction_is_away(file: Path) -> None:
    """As behind a pooler whose server is down, or where another program holds the file: no operation has failed."""
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        connect = lambda: sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)  # noqa: E731
        async with running_contract(connect) as session, session.put("operations/1", json=UPSERT) as answer:
            assert (answer.status, "locked" in await answer.text()) == (503, True)
        other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize("named", ["autocommit", "get_autocommit"])
async def test_connections_that_commit_each_statement_are_refused(named: str) -> None:
    """Drivers of PostgreSQL have an attribute, those of MySQL a method; half of an operation must not be kept."""
    connection = MagicMock(autocommit=lambda _: None, spec=["cursor", "commit", "close", "autocommit", named])
    if named == "autocommit":
        connection.autocommit = True
    else:
        connection.get_autocommit.return_value = True
    database = Database(lambda: connection, MYSQL, 1)
    with pytest.raises(DatabaseUnreachable, match="autocommit mode"):
        await database.run(lambda transaction: transaction.fetch_row("SELECT 1"))
    database.close()
    connection.cursor.assert_not_called()
    connection.close.assert_called_once()


async def test_a_header_of_any_bytes_is_refused(file: Path) -> None:
    """A stranger causes no fault of the server."""
    async with running_contract(opens(file)) as session:
        base = session._base_url
        assert base is not None
        assert base.host is not None
        reader, writer = await asyncio.open_connection(base.host, base.port)
        writer.write(
            b"GET /haulage/addresses HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer \xff\r\nConnection: close\r\n\r\n"
        )
        status = await reader.readline()
        writer.close()
    assert b" 401 " in status
