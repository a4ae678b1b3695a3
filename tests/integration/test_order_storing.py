"""Orders in PostgreSQL: the newest copy stays, what it replaced is kept, and nothing is half written."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from sqlalchemy import text
from sqlmodel import col, select

from domain.orders.access import Account
from domain.orders.capability import PlatformOrder
from infra.database import Database
from stores.orders import order_copies
from stores.orders.fetched_orders import COLUMNS, FetchedOrder, encode_rows_for_copy
from stores.orders.order_copies import ChangedOrderTimes
from stores.tables.orders import Order as OrderRow
from stores.tables.orders import ReplacedOrderRevision

pytestmark = pytest.mark.stack

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OURS, OTHERS = Account("7", "shop", "http://a"), Account("8", "shop", "http://b")


def copy(order_id: str, modified: int = 0, version: int = 1, asked: int = 0, raw: str = "{}") -> FetchedOrder:
    """A copy, its times in seconds."""
    moment = NOON + timedelta(seconds=modified)
    return FetchedOrder(
        PlatformOrder("7", "shop", order_id, moment, version, raw.encode()), NOON + timedelta(seconds=asked)
    )


async def merge(
    database: Database, revision: int, copies: list[FetchedOrder], account: Account = OURS
) -> list[ChangedOrderTimes]:
    """In a transaction of its own."""
    async with database.session() as session:
        return await order_copies.write_copies_newer_than_stored(session, account, revision, copies)


async def read_orders(database: Database, account: Account = OURS) -> dict[str, tuple[datetime, int, str, int]]:
    """What is there."""
    async with database.session() as session:
        rows = await session.exec(select(OrderRow).where(OrderRow.platform == account.platform))
        return {row.order_id: (row.modified_at, row.version, row.raw, row.revision) for row in rows}


@pytest.mark.parametrize("seed", range(5))
async def test_the_newest_copy_stays_in_whatever_order_they_come(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As plain Python keeps it, in batches of any size; what was replaced is kept, with the time it was in force."""
    monkeypatch.setattr(order_copies, "BATCH", 3)
    chance = random.Random(seed)
    kept: dict[str, tuple[FetchedOrder, int]] = {}
    replaced: set[tuple[str, int, int, str]] = set()
    for revision in range(1, 15):
        ids = chance.sample("abcdefgh", chance.randint(0, 8))
        batch = [
            copy(each, chance.randint(0, 2), chance.randint(0, 2), revision, f'{{"n":{chance.randint(0, 3)}}}')
            for each in ids
        ]
        expected = []
        for each in batch:
            before = kept.get(each.order.order_id)
            if before and (before[0].order.raw == each.order.raw or before[0].version_rank >= each.version_rank):
                continue
            if before:
                replaced.add((each.order.order_id, before[1], revision, before[0].order.raw.decode()))
            expected.append(ChangedOrderTimes(each.order.modified_at, before[0].order.modified_at if before else None))
            kept[each.order.order_id] = (each, revision)
        changes = await merge(database, revision, batch)
        assert sorted(changes, key=str) == sorted(expected, key=str)
    assert await read_orders(database) == {
        order_id: (each.order.modified_at, each.order.version, each.order.raw.decode(), revision)
        for order_id, (each, revision) in kept.items()
    }
    async with database.session() as session:
        rows = (await session.exec(select(ReplacedOrderRevision).order_by(col(ReplacedOrderRevision.order_id)))).all()
    assert {(row.order_id, row.revision, row.until_revision, row.raw) for row in rows} == replaced


async def test_the_same_again_changes_nothing(database: Database) -> None:
    """Not even its revision, however often a slice is read."""
    batch = [copy(f"o{number}", number) for number in range(50)]
    assert len(await merge(database, 1, batch)) == 50
    before = await read_orders(database)
    assert await merge(database, 2, batch) == []
    assert await merge(database, 3, [copy(f"o{number}", number, asked=9) for number in range(50)]) == []
    assert await read_orders(database) == before


async def test_an_account_that_is_new_to_the_planner_is_read_by_its_key(database: Database) -> None:
    """Its statistics are older than the account: it must not be taken for empty and read whole each time."""
    await merge(database, 1, [copy(str(10**15 + number), number) for number in range(3_000)], OTHERS)
    async with database.session() as session:
        await session.execute(text("ANALYZE orders"))
    await merge(database, 1, [copy(str(10**15 + number), number) for number in range(3_000, 6_000)])
    asked = [str(10**15 + number) for number in range(6_000, 8_000)]
    async with database.session() as session:
        explained = text(f"EXPLAIN {order_copies._KNOWN.text}").bindparams(*order_copies._KNOWN._bindparams.values())
        plan = await session.execute(explained, {"platform": "7", "shop": "shop", "ids": asked})
        scans = [line for (line,) in plan if "orders" in line]
    assert len(scans) == 1
    assert "using pk_orders" in scans[0]


async def test_what_is_known_need_not_be_asked_for_whole(database: Database) -> None:
    """Those that are there at least as new, by their time and version.

    One that was read in the second in which it was modified may have been modified again in that second.
    """
    await merge(database, 1, [*(copy(name, 5, 2, asked=8) for name in "abc"), copy("e", 5, 2, asked=5)])
    asked = [copy("a", 5, 2, asked=9), copy("b", 5, 3), copy("c", 4, 9), copy("d", 1), copy("e", 5, 2, asked=60)]

    assert await order_copies.list_ids_stored_at_least_as_new(database, OURS, asked) == {"a", "c"}


async def test_a_copy_of_a_former_declaration_gives_way(database: Database) -> None:
    """Its times were read in another zone: by them a later change would seem older, and be dropped."""
    await merge(database, 1, [copy("a", 28_800, raw='{"n":1}'), copy("b", 28_800, raw='{"n":1}')])
    again = [copy("a", 0, raw='{"n":1}'), copy("b", 60, raw='{"n":2}')]
    assert await order_copies.list_ids_stored_at_least_as_new(database, OURS, again, 1) == set()
    async with database.session() as session:
        changes = await order_copies.write_copies_newer_than_stored(session, OURS, 2, again, 1)
    stored = await read_orders(database)
    assert len(changes) == 2
    assert {order_id: (row[0], row[2]) for order_id, row in stored.items()} == {
        "a": (NOON, '{"n":1}'),
        "b": (NOON + timedelta(seconds=60), '{"n":2}'),
    }
    async with database.session() as session:
        older = [copy("a", -5, raw='{"n":0}'), copy("b", 60, raw='{"n":2}')]
        assert await order_copies.write_copies_newer_than_stored(session, OURS, 3, older, 1) == []


async def test_details_of_a_former_declaration_are_fetched_once(database: Database) -> None:
    """Also where they are the same: what is stored says then that it was read by the declaration of today."""
    same = [copy("a", 5, asked=60)]
    await merge(database, 1, same)
    async with database.session() as session:
        await order_copies.write_copies_newer_than_stored(session, OURS, 2, same, 1, rewrites_same=True)
    assert await order_copies.list_ids_stored_at_least_as_new(database, OURS, same, 1) == {"a"}


async def test_accounts_do_not_see_each_others_orders(database: Database) -> None:
    """The same id at two platforms is two orders."""
    await merge(database, 1, [copy("a", 5, raw='{"at":7}')])
    assert await merge(database, 1, [copy("a", 1, raw='{"at":8}')], OTHERS) == [
        ChangedOrderTimes(NOON + timedelta(seconds=1), None)
    ]
    assert (await read_orders(database))["a"][2] == '{"at":7}'
    assert (await read_orders(database, OTHERS))["a"][2] == '{"at":8}'


async def test_a_merge_whose_transaction_fails_leaves_nothing(database: Database) -> None:
    """Neither what was copied in nor what was replaced."""
    await merge(database, 1, [copy("a", 1, raw='{"old":1}')])

    async def merge_and_fail() -> None:
        async with database.session() as session:
            await order_copies.write_copies_newer_than_stored(
                session, OURS, 2, [copy("a", 2, raw='{"new":1}'), copy("b")]
            )
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await merge_and_fail()
    assert {order_id: row[2] for order_id, row in (await read_orders(database)).items()} == {"a": '{"old":1}'}


async def test_a_copy_belongs_to_its_transaction_from_the_first_statement(database: Database) -> None:
    """Also where nothing came before it."""

    async def copy_and_fail() -> None:
        async with database.session() as session:
            await session.copy_rows_into("orders", COLUMNS, encode_rows_for_copy(OURS, 1, [copy("a")]))
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await copy_and_fail()
    assert await read_orders(database) == {}


async def test_a_broken_copy_breaks_its_session_alone(database: Database) -> None:
    """An order twice in one batch is our defect; the next one gets a sound connection, and no value is shown."""
    with pytest.raises(asyncpg.UniqueViolationError) as broken:
        await merge(database, 1, [copy("secret-1"), copy("secret-1")])
    assert broken.value.detail is None
    for _ in range(database.settings.pool_size + 1):
        assert await merge(database, 1, [copy("a")]) in ([ChangedOrderTimes(NOON, None)], [])
    assert set(await read_orders(database)) == {"a"}
