"""Records of orders in PostgreSQL alone: who may change a slice, what is due, and what is counted."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event
from sqlmodel import col, select

from domain.faults import FaultRecord, Missing
from domain.orders.activity_models import (
    BackfillInput,
    ClaimSlicesInput,
    PlatformFaultInput,
    ReadSliceInput,
    ServedPlatformsResult,
)
from domain.orders.config import DEFAULT_LEVEL
from domain.orders.slices import SliceReadPurpose
from domain.orders.windows import TimeWindow
from infra.database import Database
from stores.orders import attempts, backfills, health, ledger, order_copies, platforms, slices
from stores.orders.ledger import SliceStateWhenTaken
from stores.orders.order_copies import OrderFilter
from stores.tables.orders import OrderPlatform, OrderSlice
from stores.tables.shared import Project

pytestmark = pytest.mark.stack

NUMBER, PROJECT = "shop-1", "prj_1"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SLICE = timedelta(minutes=10)
REFUSED = FaultRecord(code="platform_refused", message="It is older than what is listed.")
SOON_SECONDS = 60.0
"""Far longer than a busy machine takes for a few statements; who waits for a lock here waits without end."""


def build_platform(number: str = NUMBER, **values: Any) -> OrderPlatform:
    """A platform whose history has been read to noon."""
    marks = dict.fromkeys(("starts_at", "history_to", "live_from", "claimed_to", "complete_to"), NOON)
    return OrderPlatform(
        platform=number,
        project_id=PROJECT,
        kind="shopify",
        shop="shop",
        base_url="https://shop.example.com",
        created_at=NOON,
        **{**marks, **values},
    )


def build_slice(number: int, platform: str = NUMBER, **values: Any) -> OrderSlice:
    """The slice of this number before noon."""
    start = NOON - (number + 1) * SLICE
    return build_slice_of(start, start + SLICE, platform=platform, **values)


def build_slice_of(start: datetime, end: datetime, **values: Any) -> OrderSlice:
    """The slice of a time."""
    return OrderSlice(start_at=start, end_at=end, track="history", **{"platform": NUMBER, **values})


@pytest.fixture
async def records(database: Database) -> Database:
    """A database with a project and a platform."""
    await add(database, Project(project_id=PROJECT, name="", created_at=NOON))
    await add(database, build_platform())
    return database


async def add(database: Database, *rows: Any) -> None:
    """Insert rows."""
    async with database.session() as session:
        session.add_all(rows)


async def list_slices(database: Database) -> list[OrderSlice]:
    """All slices, the latest first."""
    async with database.session() as session:
        return list(await slices.list_slice_page_plus_one(session, slices.SliceFilter(NUMBER), None, 100))


async def take(database: Database, row: OrderSlice, holder: str) -> ReadSliceInput:
    """Have an attempt take a slice again that had failed."""
    async with database.session() as session:
        settings = (await platforms.load_platform_with_settings(session, NUMBER)).settings
    params = ReadSliceInput(
        platform=NUMBER,
        window=ledger.build_window(row),
        purpose=SliceReadPurpose.AGAIN,
        settings=settings,
        holder=holder,
    )
    taken = await attempts.take_slice_unless_ended_or_refused(database, params)
    assert taken.taken is SliceStateWhenTaken.OPEN
    return params


async def test_a_slice_that_was_skipped_is_not_split_by_an_attempt(records: Database) -> None:
    """A skip is final: the redo that was under way does not bring the slice back as halves below `complete_to`."""
    await add(records, build_slice(0, failed_at=NOON))
    [row] = await list_slices(records)
    params = await take(records, row, "redo/1")
    async with records.session() as session:
        await slices.mark_slice_skipped(session, await session.get_one(OrderSlice, row.slice_id), "the shop was closed")

    halves = params.window.split_in_halves()
    assert halves is not None
    assert await attempts.replace_slice_by_halves_unless_lost(records, params, halves) is None

    [row] = await list_slices(records)
    assert (row.split_at, row.reason) == (None, "the shop was closed")


async def test_a_split_waits_for_what_acts_on_the_platform_and_locks_nothing_meanwhile(records: Database) -> None:
    """An operator's action has the platform and asks for its slices: none of the two waits for the other."""
    await add(records, build_slice(0, failed_at=NOON))
    [row] = await list_slices(records)
    params = await take(records, row, "redo/1")
    halves = params.window.split_in_halves()
    assert halves is not None

    async with asyncio.timeout(SOON_SECONDS), records.session() as session:
        await platforms.load_platform_with_settings(session, NUMBER, lock=True)
        splitting = asyncio.create_task(attempts.replace_slice_by_halves_unless_lost(records, params, halves))
        await asyncio.sleep(0.2)
        filters = slices.SliceFilter(NUMBER, windows=[params.window])
        assert len(await slices.lock_oldest_matching_slices(session, filters, 10)) == 1
    jobs = await splitting
    assert jobs is not None
    assert [job.window for job in jobs] == list(halves)


async def claim(database: Database) -> list[TimeWindow]:
    """What a cycle reads next."""
    params = ClaimSlicesInput(platform=NUMBER, skew_seconds=None)
    claimed = await ledger.claim_slices(database, params, is_paused=False, slices_ahead=64)
    return [job.window for job in claimed.jobs]


async def test_sweeps_that_fail_for_ever_keep_no_other_from_its_turn(records: Database) -> None:
    """Those of a time that is no longer listed, more than are tried at once: the newer ones are swept, too."""
    old = [build_slice(number, done_at=NOON - timedelta(hours=2)) for number in range(20, 40)]
    await add(records, *old, build_slice(0, done_at=NOON - timedelta(hours=1)))
    newest = ledger.build_window(build_slice(0))
    seen = list[TimeWindow]()

    for turn in range(8):
        due = await claim(records)
        seen += due
        async with records.session() as session:
            platform = await session.get_one(OrderPlatform, NUMBER, with_for_update=True)
            for window in due:
                await slices.record_failed_sweep(session, platform, window, REFUSED, f"call-{turn}")
        # A quarter of an hour later, each that has failed is due again.
        async with records.session() as session:
            for row in await session.exec(select(OrderSlice).where(col(OrderSlice.failed_at).is_not(None))):
                row.failed_at = (row.failed_at or NOON) - timedelta(minutes=16)
                session.add(row)

    assert newest in seen


@pytest.mark.parametrize("span", [timedelta(seconds=1), timedelta(microseconds=1)])
async def test_a_time_line_of_an_instant_shows_the_slice_that_holds_it(records: Database, span: timedelta) -> None:
    """In a thousand parts, each far shorter than the slice of a month."""
    month = build_slice_of(NOON - ledger.SLICE_MAX, NOON, done_at=NOON)
    await add(records, month)
    found = await slices.count_slices_by_bucket(records, NUMBER, NOON - span, NOON, 1_000)
    assert [(each.number, each.done) for each in found] == [(number, 1) for number in range(1_000)]


@pytest.mark.parametrize("after", [NOON - 3 * SLICE, NOON - 3 * SLICE - timedelta(seconds=1)])
async def test_slices_of_a_time_are_found_whatever_their_length(records: Database, after: datetime) -> None:
    """One of a month that reaches into the time, and one of ten minutes; not the one that ends as the time begins."""
    month = build_slice_of(after - ledger.SLICE_MAX + timedelta(seconds=1), after + timedelta(seconds=1), done_at=NOON)
    before = build_slice_of(after - SLICE, after, done_at=NOON)
    await add(records, month, before, build_slice(0, done_at=NOON))
    async with records.session() as session:
        filters = slices.SliceFilter(NUMBER, ends_after=after)
        listed = await slices.list_slice_page_plus_one(session, filters, None, 10)
        again = await ledger.list_rereadable_slices(session, NUMBER, after, NOON, 10)
    assert [row.start_at for row in listed] == [NOON - SLICE, month.start_at]
    assert [job.window.start for job in again] == [month.start_at, NOON - SLICE]


async def test_orders_that_only_sweeps_found_are_counted(records: Database) -> None:
    """Over all slices; how late they were, of those that were swept of late."""
    now = datetime.now(UTC)
    await add(
        records,
        build_slice(0, done_at=NOON, swept_at=now, missed=2, late_seconds=70.0),
        build_slice(1, done_at=NOON, swept_at=now - timedelta(days=8), missed=3, late_seconds=700.0),
        build_slice(2, done_at=NOON, swept_at=now, missed=0),
        build_slice(3),
    )
    async with records.session() as session:
        found = await slices.load_late_orders_from_sweeps(session, NUMBER, now)
    assert found == slices.LateOrdersFoundBySweeps(missed=5, late_seconds=70.0)


async def remove(database: Database) -> None:
    """Remove the platform."""
    async with database.session() as session:
        await platforms.delete_platform_data_and_blank_row(session, await platforms.require_platform(session, NUMBER))


async def test_nothing_is_recorded_of_a_platform_that_was_removed_meanwhile(records: Database) -> None:
    """While its workers, its clock or its credentials were asked for: no alarm, and no concern that stays for ever."""
    await remove(records)
    failed = PlatformFaultInput(platform=NUMBER, asked_at=NOON, fault=REFUSED)
    presence = ServedPlatformsResult(unserved=[NUMBER])

    assert await health.record_served_and_find_newly_unserved(records, presence, "call") == []
    for recording in (
        health.record_unreadable_clock_and_decide_alarm(records, failed, timedelta()),
        health.record_refused_credentials_and_find_due_alarm(records, failed),
        health.record_clock_skew_and_clear_failure(records, NUMBER, NOON, 1),
        health.record_skew_alarm(records, NUMBER, "call"),
    ):
        with pytest.raises(Missing, match="There is no platform"):
            await recording

    assert (await health.count_workloads(records)) == {}
    async with records.session() as session:
        row = await session.get_one(OrderPlatform, NUMBER)
    assert (row.unserved_since, row.clock_failed_since, row.credentials_failed_since, row.skew_at) == (None,) * 4


async def test_a_platform_without_a_worker_is_recorded_once_until_it_is_served(records: Database) -> None:
    """By those that are not: one is lost, and lost again after it was back."""
    await add(records, build_platform("shop-2"))
    numbers = itertools.count()

    async def record(*unserved: str) -> list[str]:
        served = [each for each in (NUMBER, "shop-2") if each not in unserved]
        presence = ServedPlatformsResult(served=served, unserved=list(unserved))
        lost = await health.record_served_and_find_newly_unserved(records, presence, f"call-{next(numbers)}")
        return [row.platform for row in lost]

    assert [await record(*each) for each in ([], [NUMBER], [NUMBER], [], [NUMBER, "shop-2"])] == [
        [],
        [NUMBER],
        [],
        [],
        [NUMBER, "shop-2"],
    ]


async def test_a_busy_platform_holds_up_no_other_in_the_watch(records: Database) -> None:
    """One commits, which takes long; that its worker answers as before is nothing to wait for."""
    await add(records, build_platform("shop-2"))
    async with asyncio.timeout(SOON_SECONDS), records.session() as session:
        await platforms.require_platform(session, NUMBER, lock=True)
        presence = ServedPlatformsResult(served=[NUMBER], unserved=["shop-2"])
        lost = await health.record_served_and_find_newly_unserved(records, presence, "call")
    assert [row.platform for row in lost] == ["shop-2"]


async def test_a_backfill_of_a_removed_platform_ends(records: Database) -> None:
    """Its record is gone with the platform; the workflow that closes it does not try for ever."""
    window = TimeWindow(start=NOON - SLICE, end=NOON)
    params = BackfillInput(
        platform=NUMBER, project_id=PROJECT, backfill_id="b1", window=window, requested_by="ann", requested_at=NOON
    )
    await backfills.insert_backfill_if_new(records, params, "workflow")
    await remove(records)

    assert await backfills.close_as_failed(records, "b1", REFUSED, "call") is None


async def test_an_order_is_found_by_its_key_and_not_among_all_of_its_platform(records: Database) -> None:
    """Whose number is all that the request names; a platform of years has millions of them."""
    statements = list[tuple[str, Any]]()

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    async with records.session() as session:
        engine = (await session.connection()).sync_engine
        event.listen(engine, "before_cursor_execute", note)
        try:
            await order_copies.list_order_page(session, OrderFilter(platform=NUMBER, order_id="7"), None, 10)
        finally:
            event.remove(engine, "before_cursor_execute", note)
        [(statement, parameters)] = statements
        connection = await session.connection()
        await connection.exec_driver_sql(
            "INSERT INTO orders SELECT 'shop-1', 'shop', n::text, now() - n * interval '1 s', 0, '', '{}', now(), 1 "
            "FROM generate_series(1, 5000) AS n"
        )
        await connection.exec_driver_sql("ANALYZE orders")
        plan = [row[0] for row in await connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)]
    assert [line for line in plan if "Index Cond" in line and "order_id" in line and "shop" in line], plan


async def test_a_page_of_large_orders_ends_before_its_limit(records: Database) -> None:
    """Two hundred orders of megabytes each took the memory of an API process; all of them are found, page by page."""
    async with records.session() as session:
        await (await session.connection()).exec_driver_sql(
            "INSERT INTO orders SELECT 'shop-1', 'shop', n::text, now() - n * interval '1 s', 0, '', "
            "'{\"text\":\"' || repeat('x', 100) || '\"}', now(), 1 FROM generate_series(1, 7) AS n"
        )
        pages, after = list[list[str]](), None
        while not pages or after is not None:
            page = await order_copies.list_order_page(session, OrderFilter(platform=NUMBER), after, 3, max_bytes=150)
            pages.append([row.order_id for row in page.rows])
            last = page.rows[-1]
            after = (last.modified_at, last.order_id, last.platform, last.shop) if page.has_more else None
    assert pages == [["1", "2"], ["3", "4"], ["5", "6"], ["7"]]


async def test_a_slice_of_the_time_to_come_is_swept_once_that_has_settled(records: Database) -> None:
    """The clock was ahead when it was read; set back, it says that the slice's time is not over."""
    now = datetime.now(UTC).replace(microsecond=0)
    early = build_slice_of(now, now + SLICE, done_at=now - timedelta(hours=1))
    await add(records, early)

    async def list_due(skew: timedelta) -> list[TimeWindow]:
        params = ClaimSlicesInput(platform=NUMBER, skew_seconds=skew.total_seconds(), heeds_pause=False)
        async with records.session() as session:
            state = await platforms.load_platform_with_settings(session, NUMBER)
            return [job.window for job in await ledger._list_due_sweeps(session, state, params, 10)]

    assert await list_due(timedelta()) == []
    assert await list_due(SLICE) == []
    assert await list_due(SLICE + timedelta(minutes=4)) == [ledger.build_window(early)]


async def test_a_busy_platform_holds_up_no_change_of_the_options_of_all(records: Database) -> None:
    """What it began with is fixed; one that has not begun is locked, so that it does not begin meanwhile."""
    await add(records, OrderPlatform(**{**build_platform("shop-2").model_dump(), "starts_at": None}))
    async with asyncio.timeout(SOON_SECONDS), records.session() as busy, records.session() as session:
        await platforms.require_platform(busy, NUMBER, lock=True)
        await platforms.lock_options_until_commit(session)
        rows = await platforms.list_platforms_affected_by_level(session, DEFAULT_LEVEL)
        beginning = asyncio.create_task(platforms.require_platform(busy, "shop-2", lock=True))
        await asyncio.sleep(0.2)
        assert not beginning.done()
        await session.commit()
        await beginning
    assert [row.platform for row in rows] == [NUMBER, "shop-2"]


async def test_a_declaration_that_is_valid_no_longer_holds_up_no_other_platform(
    records: Database,
) -> None:
    """It was stored by the rules of an earlier version."""
    async with records.session() as session:
        session.add(build_platform("shop-2", capability={"kind": "plain"}))
    assert set(await platforms.load_threads_by_platform(records)) == {NUMBER}
