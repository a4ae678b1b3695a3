"""The handler on the databases of module owners, with the tables and the example of their page."""

from __future__ import annotations

import asyncio
import getpass
import json
import random
import secrets
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pymysql
import pytest
from aiohttp import web

from clients.modules import ModulesClient
from dev.embedded.stack import EmbeddedStack
from domain.addresses.operations import UPRN_MAX, AddressEntry, Module, Operation
from haulage.address_module import Connection
from infra.address_settings import AddressSettings, AllModulesSettings, ModuleSettings
from tests.support import module_page
from tests.support.address_oracle import ModuleOracle
from tests.support.module_tables import delete, purge, swap, upsert
from tests.support.modules import list_outcomes
from tests.support.requirements import MARIADB
from tests.support.stack import own_database
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

IM = Module.IM
ORDERS = "CREATE TABLE orders (address_id bigint, closed_at date)"
# What the page has owners change in its example.
ON_MYSQL = (
    ("import psycopg\n", "import json\n\nimport pymysql\n"),
    ("psycopg.Connection", "pymysql.Connection"),
    ('psycopg.connect(os.environ["MODULE_DATABASE"])', 'pymysql.connect(**json.loads(os.environ["MODULE_DATABASE"]))'),
    ("POSTGRESQL", "MYSQL"),
)
ON_SQLITE = (
    ("import psycopg\n", "import sqlite3\n"),
    ("psycopg.Connection", "sqlite3.Connection"),
    (
        'psycopg.connect(os.environ["MODULE_DATABASE"])',
        'sqlite3.connect(os.environ["MODULE_DATABASE"], timeout=30, isolation_level=None, check_same_thread=False)',
    ),
    ("POSTGRESQL", "SQLITE"),
)
SMALL = "ALTER TABLE haulage_addresses ADD CONSTRAINT small CHECK (address_id < 1000)"
SMALL_ON_SQLITE = """
    CREATE TRIGGER small BEFORE INSERT ON haulage_addresses WHEN new.address_id >= 1000
    BEGIN SELECT RAISE(ABORT, 'small'); END
    """


@dataclass(frozen=True)
class ModuleCopy:
    """A database of a module owner's."""

    example: str
    connect: Callable[[], Connection]
    small: str = SMALL
    """The statement after which no address may have a large id."""

    def run(self, *statements: str) -> None:
        """Change something in it."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def close_other_connections(self) -> None:
        """Have the database close all connections but its own; SQLite has none to close."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            match connection:
                case psycopg.Connection():
                    cursor.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                case pymysql.Connection():
                    others = (
                        "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
                    )
                    cursor.execute(others)
                    for (number,) in cursor.fetchall():
                        cursor.execute(f"KILL {number}")


@asynccontextmanager
async def on_postgresql(stack: EmbeddedStack, patch: pytest.MonkeyPatch) -> AsyncIterator[ModuleCopy]:
    """The example, unchanged."""
    async with own_database(stack) as url:
        dsn = url.replace("+asyncpg", "")
        patch.setenv("MODULE_DATABASE", dsn)
        yield ModuleCopy(module_page.example(), lambda: psycopg.connect(dsn))


@asynccontextmanager
async def on_mysql(socket: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[ModuleCopy]:
    """The example with what is said of MySQL."""
    server = {"unix_socket": str(socket), "user": getpass.getuser()}
    name = f"test_{secrets.token_hex(6)}"
    ModuleCopy("", lambda: pymysql.connect(**server)).run(f"CREATE DATABASE {name}")
    patch.setenv("MODULE_DATABASE", json.dumps({**server, "database": name}))
    yield ModuleCopy(_build_example(ON_MYSQL), lambda: pymysql.connect(**server, database=name))


@asynccontextmanager
async def on_sqlite(file: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[ModuleCopy]:
    """The example with what is said of SQLite."""
    patch.setenv("MODULE_DATABASE", str(file))
    yield ModuleCopy(
        _build_example(ON_SQLITE), lambda: sqlite3.connect(file, timeout=30, isolation_level=None), SMALL_ON_SQLITE
    )


def _build_example(changes: Sequence[tuple[str, str]]) -> str:
    example = module_page.example()
    for here, there in changes:
        assert here in example
        example = example.replace(here, there)
    return example


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Path | None]:
    """The socket of a MariaDB, where one is installed: as near to MySQL as this gets."""
    daemon, installer = MARIADB.find(), shutil.which("mariadb-install-db")
    if not daemon or not installer:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="haulage-mariadb-"))
    common = ["--no-defaults", f"--datadir={folder / 'data'}", f"--user={getpass.getuser()}"]
    subprocess.run(
        [installer, "--auth-root-authentication-method=socket", *common],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    server = subprocess.Popen(
        [daemon, *common, f"--socket={folder / 's'}", "--skip-networking"], stderr=subprocess.DEVNULL
    )
    try:
        yield folder / "s"
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


@pytest.fixture(params=["PostgreSQL", "MySQL", "SQLite"])
async def module_copy(
    request: pytest.FixtureRequest,
    stack: EmbeddedStack,
    mariadb: Path | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[ModuleCopy]:
    """A database with the tables of the page, and with orders."""
    if request.param == "MySQL" and not mariadb:
        MARIADB.miss()
    if mariadb:
        await eventually(mariadb.exists)
    monkeypatch.setenv("MODULE_TOKEN", "s3cret")
    async with AsyncExitStack() as exits:
        match request.param:
            case "MySQL":
                assert mariadb
                module_copy = await exits.enter_async_context(on_mysql(mariadb, monkeypatch))
            case "SQLite":
                module_copy = await exits.enter_async_context(on_sqlite(tmp_path / "module.sqlite", monkeypatch))
            case _:
                module_copy = await exits.enter_async_context(on_postgresql(stack, monkeypatch))
        module_copy.run(*module_page.tables(request.param), ORDERS)
        yield module_copy


@asynccontextmanager
async def module(module_copy: ModuleCopy, folder: Path, batch: int = 500) -> AsyncIterator[ModulesClient]:
    """The module of the page, and the client that Haulage calls it with."""
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(module_copy.example, "example", "exec"), namespace)  # noqa: S102 - our own page
    runner = web.AppRunner(namespace["app"], access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        (folder / "im.json").write_text(json.dumps({"token": "s3cret"}))
        settings = ModuleSettings(base_url=f"http://{host}:{port}/haulage", credentials="im", batch=batch, retries=0)
        known = AddressSettings(credentials_folder=folder, modules=AllModulesSettings(im=settings))
        async with ModulesClient(known) as client:
            yield client
    finally:
        await runner.cleanup()


async def live(client: ModulesClient) -> dict[int, tuple[int, object]]:
    """The live addresses, as an oracle has them."""
    entries: list[AddressEntry] = (await client.list_addresses(IM, 0, 5_000)).addresses
    return {each.uprn: (each.address_id, each.record) for each in entries}


@pytest.mark.parametrize("batch", [1, 500])
async def test_the_example_does_what_the_oracle_does(module_copy: ModuleCopy, tmp_path: Path, batch: int) -> None:
    """Any history, with repeats, one operation at a time."""
    dice, book = random.Random(11), ModuleOracle()
    history = _history(dice, 150)
    repeated = [each for operation in history for each in [operation] * dice.choice((1, 1, 2))]

    async with module(module_copy, tmp_path, batch) as client:
        for operation in repeated:
            assert list_outcomes(await client.apply_operations(IM, [operation])) == [book.apply(operation).value], (
                operation
            )
        assert await live(client) == book.live


async def test_orders_in_flight_keep_an_address(module_copy: ModuleCopy, tmp_path: Path) -> None:
    """Until the last one is closed, in the transaction that looks."""
    async with module(module_copy, tmp_path) as client:
        await client.apply_operations(IM, [upsert(1, 1, 11, street="a"), upsert(2, 2, 12, street="b")])
        module_copy.run("INSERT INTO orders VALUES (11, NULL), (12, CURRENT_DATE)")

        assert await client.list_addresses_with_open_orders(IM, [11, 12]) == {11}
        assert list_outcomes(await client.apply_operations(IM, [delete(3, 1), delete(4, 2)])) == ["logical", "applied"]
        assert list_outcomes(await client.apply_operations(IM, [purge(3, 1, 11, 1)])) == ["logical"]
        module_copy.run("UPDATE orders SET closed_at = CURRENT_DATE")
        assert list_outcomes(await client.apply_operations(IM, [purge(3, 1, 11, 2)])) == ["applied"]
        assert (await client.list_addresses(IM, 0, 10)).addresses == []


async def test_the_same_operations_at_the_same_time_act_once(module_copy: ModuleCopy, tmp_path: Path) -> None:
    """A call that was given up may still run while it is made again."""
    addresses = [upsert(seq, seq, 1_000 + seq, street=seq) for seq in range(1, 41)]
    swaps = [swap(40 + seq, seq, seq + 20) for seq in range(1, 21)]

    async with module(module_copy, tmp_path) as one, module(module_copy, tmp_path) as other:
        await one.apply_operations(IM, addresses)
        answers = await asyncio.gather(*(client.apply_operations(IM, swaps) for client in (one, other, one, other)))
        after = await live(one)

    for results in zip(*answers, strict=True):
        assert sorted(list_outcomes(results)) == ["already"] * 3 + ["applied"]
    assert after == {uprn: (1_001 + (uprn + 19) % 40, {"street": 1 + (uprn + 19) % 40}) for uprn in range(1, 41)}


async def test_calls_that_cross_each_other_end_well(module_copy: ModuleCopy, tmp_path: Path) -> None:
    """Batches that lock the same UPRNs in opposite orders: one may break, and is applied apart."""
    addresses = [upsert(seq, seq, 1_000 + seq, street=seq) for seq in range(1, 41)]
    forth = [upsert(100 + seq, seq, 1_000 + seq, street="forth") for seq in range(1, 41)]
    back = [upsert(200 + seq, seq, 1_000 + seq, street="back") for seq in range(40, 0, -1)]

    async with module(module_copy, tmp_path) as one, module(module_copy, tmp_path) as other:
        await one.apply_operations(IM, addresses)
        gone, came = await asyncio.gather(one.apply_operations(IM, forth), other.apply_operations(IM, back))
        after = await live(one)

    assert set(list_outcomes(gone)) <= {"applied", "stale"}
    assert list_outcomes(came) == ["applied"] * 40
    assert {record["street"] for _, record in after.values() if isinstance(record, dict)} == {"back"}


async def test_what_the_database_refuses_fails_alone(module_copy: ModuleCopy, tmp_path: Path) -> None:
    """The transaction of its batch is lost with it; the others are applied apart."""
    operations = [upsert(1, 1, 11, street="a"), upsert(2, 2, 2**63 - 1, street="b"), upsert(3, 3, 13, street="c")]
    async with module(module_copy, tmp_path) as client:
        module_copy.run(module_copy.small)
        results = await client.apply_operations(IM, operations)

    assert list_outcomes(results) == ["applied", "failed", "applied"]
    assert "small" in results[1].error


async def test_what_comes_is_kept_exactly(module_copy: ModuleCopy, tmp_path: Path) -> None:
    """Nothing is rounded, cut, folded or put in another order."""
    record = {
        "street": "Ünïcode 😀 straße",
        "b": 10**30,
        "a": {"fraction": 0.1, "zero": 1.0, "none": None},
        "text": "x" * 100_000,
        "deep": json.loads("[" * 97 + "]" * 97),
    }
    first = msgspec.structs.replace(upsert(1, UPRN_MAX, UPRN_MAX, **record), op_id="a")
    second = msgspec.structs.replace(upsert(2, UPRN_MAX - 1, 1, **record), op_id="A")

    async with module(module_copy, tmp_path) as client:
        assert list_outcomes(await client.apply_operations(IM, [first, second])) == ["applied", "applied"]
        after = await live(client)
        lookup = await client.look_up_operations(IM, [second])

    assert json.dumps(list(after.items())) == json.dumps([(UPRN_MAX - 1, (1, record)), (UPRN_MAX, (UPRN_MAX, record))])
    assert (set(lookup.live), set(lookup.applied)) == ({UPRN_MAX - 1}, {"A"})


async def test_connections_that_the_database_closed_are_replaced(module_copy: ModuleCopy, tmp_path: Path) -> None:
    """As a restart does, and a limit of idle time: no operation fails because of it."""
    async with module(module_copy, tmp_path, batch=1) as client:
        await client.apply_operations(IM, [upsert(seq, seq, 10 + seq) for seq in range(1, 9)])
        module_copy.close_other_connections()
        results = await client.apply_operations(IM, [upsert(10 + seq, seq, 20 + seq) for seq in range(1, 9)])
        module_copy.close_other_connections()
        found = await live(client)

    assert list_outcomes(results) == ["applied"] * 8
    assert [address_id for address_id, _ in found.values()] == list(range(21, 29))


async def test_the_first_operations_of_uprns_may_come_at_the_same_time(module_copy: ModuleCopy, tmp_path: Path) -> None:
    """Their rows were never locked before."""
    creates = [upsert(seq, seq, 1_000 + seq, street=seq) for seq in range(1, 41)]

    async with module(module_copy, tmp_path) as one, module(module_copy, tmp_path) as other:
        for start in range(0, 40, 4):
            some = creates[start : start + 4]
            answers = await asyncio.gather(*(client.apply_operations(IM, some) for client in (one, other, one, other)))
            for results in zip(*answers, strict=True):
                assert sorted(list_outcomes(results)) == ["already"] * 3 + ["applied"]
        assert len(await live(one)) == len(creates)


def _history(dice: random.Random, length: int) -> list[Operation]:
    """Operations on few addresses."""
    kinds = (
        lambda seq: upsert(seq, dice.randint(1, 6), dice.randint(11, 18), street=seq),
        lambda seq: swap(seq, dice.randint(1, 6), dice.randint(1, 6), delete_after=dice.random() < 0.2),
        lambda seq: delete(seq, dice.randint(1, 6)),
    )
    return [dice.choices(kinds, (5, 4, 1))[0](seq) for seq in range(1, length + 1)]
