"""The handler on the databases of module owners, from the page that tells them how: their tables, their example."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiohttp import web

from domain.addresses.operations import AddressEntry, Module, Operation, OperationResult
from infra.modules import Modules
from infra.settings import AddressSettings, ModuleSettings, ModulesSettings
from tests import module_page
from tests.address_oracle import Book
from tests.unit.module_tables import delete, purge, swap, upsert

pytestmark = pytest.mark.stack

IM = Module.IM
ORDERS = "CREATE TABLE orders (address_id bigint, closed_at timestamptz)"


@pytest.fixture
async def dsn(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the tables of the page, and with orders."""
    dsn = empty_database_url.replace("+asyncpg", "")
    with psycopg.connect(dsn) as connection:
        for statement in (*module_page.tables("PostgreSQL"), ORDERS):
            connection.execute(statement.encode())
    monkeypatch.setenv("MODULE_DATABASE", dsn)
    monkeypatch.setenv("MODULE_TOKEN", "s3cret")
    return dsn


@asynccontextmanager
async def example(folder: Path, batch: int = 500) -> AsyncIterator[Modules]:
    """The module of the page, and the client that Haulage calls it with."""
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(module_page.example(), "example", "exec"), namespace)  # noqa: S102 - our own page
    runner = web.AppRunner(namespace["app"], access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        (folder / "im.json").write_text(json.dumps({"token": "s3cret"}))
        settings = ModuleSettings(base_url=f"http://{host}:{port}/haulage", credentials="im", batch=batch, retries=0)
        known = AddressSettings(credentials_folder=folder, modules=ModulesSettings(im=settings))
        async with Modules(known) as client:
            yield client
    finally:
        await runner.cleanup()


async def live(client: Modules) -> dict[int, tuple[int, object]]:
    """The live addresses, as an oracle has them."""
    entries: list[AddressEntry] = (await client.addresses(IM, 0, 5_000)).addresses
    return {each.uprn: (each.address_id, each.record) for each in entries}


def outcomes(results: Sequence[OperationResult]) -> list[str]:
    """Only what became of them."""
    return [each.outcome.value for each in results]


@pytest.mark.parametrize("batch", [1, 500])
async def test_the_example_does_what_the_oracle_does(dsn: str, tmp_path: Path, batch: int) -> None:
    """Any history, with repeats, one operation at a time."""
    dice, book = random.Random(11), Book()
    history = _history(dice, 150)
    repeated = [each for operation in history for each in [operation] * dice.choice((1, 1, 2))]

    async with example(tmp_path, batch) as client:
        for operation in repeated:
            assert outcomes(await client.apply(IM, [operation])) == [book.apply(operation).value], operation
        assert await live(client) == book.live


async def test_orders_in_flight_keep_an_address(dsn: str, tmp_path: Path) -> None:
    """Until the last one is closed, in the transaction that looks."""
    async with example(tmp_path) as client:
        await client.apply(IM, [upsert(1, 1, 11, street="a"), upsert(2, 2, 12, street="b")])
        with psycopg.connect(dsn) as connection:
            connection.execute("INSERT INTO orders VALUES (11, NULL), (12, now())")

        assert await client.in_flight(IM, [11, 12]) == {11}
        assert outcomes(await client.apply(IM, [delete(3, 1), delete(4, 2)])) == ["logical", "applied"]
        assert outcomes(await client.apply(IM, [purge(3, 1, 11, 1)])) == ["logical"]
        with psycopg.connect(dsn) as connection:
            connection.execute("UPDATE orders SET closed_at = now()")
        assert outcomes(await client.apply(IM, [purge(3, 1, 11, 2)])) == ["applied"]
        assert (await client.addresses(IM, 0, 10)).addresses == []


async def test_the_same_operations_at_the_same_time_act_once(dsn: str, tmp_path: Path) -> None:
    """A call that was given up may still run while it is made again."""
    addresses = [upsert(seq, seq, 1_000 + seq, street=seq) for seq in range(1, 41)]
    swaps = [swap(40 + seq, seq, seq + 20) for seq in range(1, 21)]

    async with example(tmp_path) as one, example(tmp_path) as other:
        await one.apply(IM, addresses)
        answers = await asyncio.gather(*(client.apply(IM, swaps) for client in (one, other, one, other)))
        after = await live(one)

    for results in zip(*answers, strict=True):
        assert sorted(outcomes(results)) == ["already"] * 3 + ["applied"]
    assert after == {uprn: (1_001 + (uprn + 19) % 40, {"street": 1 + (uprn + 19) % 40}) for uprn in range(1, 41)}


async def test_calls_that_cross_each_other_end_well(dsn: str, tmp_path: Path) -> None:
    """Batches that lock the same UPRNs in opposite orders: one may break, and is applied apart."""
    addresses = [upsert(seq, seq, 1_000 + seq, street=seq) for seq in range(1, 41)]
    forth = [upsert(100 + seq, seq, 1_000 + seq, street="forth") for seq in range(1, 41)]
    back = [upsert(200 + seq, seq, 1_000 + seq, street="back") for seq in range(40, 0, -1)]

    async with example(tmp_path) as one, example(tmp_path) as other:
        await one.apply(IM, addresses)
        gone, came = await asyncio.gather(one.apply(IM, forth), other.apply(IM, back))
        after = await live(one)

    assert set(outcomes(gone)) <= {"applied", "stale"}
    assert outcomes(came) == ["applied"] * 40
    assert {record["street"] for _, record in after.values() if isinstance(record, dict)} == {"back"}


async def test_what_the_database_refuses_fails_alone(dsn: str, tmp_path: Path) -> None:
    """The transaction of its batch is lost with it; the others are applied apart."""
    operations = [upsert(1, 1, 11, street="a"), upsert(2, 2, 2**63 - 1, street="b"), upsert(3, 3, 13, street="c")]
    async with example(tmp_path) as client:
        with psycopg.connect(dsn) as connection:
            connection.execute("ALTER TABLE haulage_addresses ADD CHECK (address_id < 1000)")
        results = await client.apply(IM, operations)

    assert outcomes(results) == ["applied", "failed", "applied"]
    assert "CheckViolation" in results[1].error


def _history(dice: random.Random, length: int) -> list[Operation]:
    """Operations on few addresses."""
    kinds = (
        lambda seq: upsert(seq, dice.randint(1, 6), dice.randint(11, 18), street=seq),
        lambda seq: swap(seq, dice.randint(1, 6), dice.randint(1, 6), delete_after=dice.random() < 0.2),
        lambda seq: delete(seq, dice.randint(1, 6)),
    )
    return [dice.choices(kinds, (5, 4, 1))[0](seq) for seq in range(1, length + 1)]
