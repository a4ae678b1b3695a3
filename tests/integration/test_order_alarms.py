"""Alarms about orders reach their activity again where it is repeated: its worker may be lost with what it returned."""

from __future__ import annotations

from datetime import timedelta

import pytest

from domain.orders.activity_models import BackfillInput, PlatformFaultInput, ServedPlatformsResult
from domain.orders.slices import BackfillProgress
from domain.orders.windows import TimeWindow
from infra.database import Database
from stores.orders import backfills, health, ledger, slices
from stores.tables.orders import OrderPlatform
from stores.tables.shared import Project
from tests.integration.test_order_records import (
    NOON,
    NUMBER,
    PROJECT,
    REFUSED,
    SLICE,
    add,
    build_platform,
    build_slice,
    build_slice_of,
)

pytestmark = pytest.mark.stack

CALL, LATER = "run/1", "run/2"
"""The call of an activity, and another one."""


@pytest.fixture
async def records(database: Database) -> Database:
    """A database with a project and a platform that has an address for alarms."""
    await add(database, Project(project_id=PROJECT, name="", created_at=NOON))
    await add(database, build_platform(notify="sealed"))
    return database


async def test_the_alarm_of_a_backfill_is_returned_again_to_an_activity_that_is_repeated(records: Database) -> None:
    """The worker may be lost after it has closed the record; the watch, which finds it closed, sends no other."""
    window = TimeWindow(start=NOON - SLICE, end=NOON)
    params = BackfillInput(
        platform=NUMBER, project_id=PROJECT, backfill_id="b1", window=window, requested_by="ann", requested_at=NOON
    )
    await backfills.insert_backfill_if_new(records, params, "workflow")

    first, again, other = [
        await backfills.close_and_alarm_if_failed(records, "b1", BackfillProgress(), fault, CALL)
        for fault in (REFUSED, REFUSED, None)
    ]

    assert first is not None
    assert (again, other) == (first, None)
    assert [row.backfill_id for row in await backfills.list_running_backfills(records, CALL)] == ["b1"]
    assert await backfills.list_running_backfills(records, LATER) == []
    assert await backfills.close_as_failed(records, "b1", REFUSED, LATER) is None


async def test_alarms_about_a_platform_are_returned_again_to_an_activity_that_is_repeated(records: Database) -> None:
    """For the same failure; for a later one, which another slice or cycle reports, none is due."""
    first = PlatformFaultInput(platform=NUMBER, asked_at=NOON, fault=REFUSED)
    later = first.model_copy(update={"asked_at": NOON + SLICE})

    clock = [
        (await health.record_unreadable_clock_and_decide_alarm(records, each, patience)).is_due
        for each, patience in ((first, SLICE), (first, timedelta()), (first, timedelta()), (later, timedelta()))
    ]
    refused = [
        await health.record_refused_credentials_and_find_due_alarm(records, each) is not None
        for each in (first, first, later, first)
    ]
    await health.record_clock_skew_and_clear_failure(records, NUMBER, NOON, 1)

    assert clock == [False, True, True, False]
    assert refused == [True, True, False, True]
    assert (await health.record_unreadable_clock_and_decide_alarm(records, later, timedelta())).is_due


async def test_a_platform_that_no_worker_serves_is_returned_again(records: Database) -> None:
    """The next watch returns it no more, whatever it is asked."""
    presence = ServedPlatformsResult(unserved=[NUMBER])
    found = [
        [row.unserved_since for row in await health.record_served_and_find_newly_unserved(records, presence, call)]
        for call in (CALL, CALL, LATER, CALL)
    ]
    assert [len(each) for each in found] == [1, 1, 0, 1]
    assert found[0] == found[1]


async def test_a_stale_slice_is_returned_again(records: Database) -> None:
    """It is marked as reported, and found again by the call that has marked it only."""
    await add(records, build_slice_of(NOON - SLICE, NOON, claimed_at=NOON, attempts=1))

    async def scan(call: str) -> int:
        limit = timedelta(hours=1)
        overdue = await health.list_slices_claimed_too_long_ago(records, limit, 10, not_begun_by=[], call=call)
        ids = [each.slice_id for each in overdue.slices]
        return len((await health.mark_reported_and_load_overdue_platforms(records, overdue, ids, call))[0])

    assert [await scan(call) for call in (CALL, CALL, LATER)] == [1, 1, 0]


async def test_a_sweep_that_has_failed_twice_is_returned_again_and_counted_once(records: Database) -> None:
    """The first failure that is recorded twice is one; that of the second is due for the call that recorded it."""
    row = build_slice(0, done_at=NOON)
    await add(records, row)
    window = ledger.build_window(row)

    async def fail(call: str) -> bool:
        async with records.session() as session:
            platform = await session.get_one(OrderPlatform, NUMBER, with_for_update=True)
            return await slices.record_failed_sweep(session, platform, window, REFUSED, call)

    calls = (CALL, CALL, LATER, LATER, "run/3")
    assert [await fail(call) for call in calls] == [False, False, True, True, False]


async def test_the_alarm_of_a_clock_that_is_off_is_due_until_it_is_recorded(records: Database) -> None:
    """A reading that has saved the skew may fail for good; the next one, by another run too, finds the alarm due."""

    async def is_due(most: float = 60) -> bool:
        return (await health.record_clock_skew_and_clear_failure(records, NUMBER, NOON, most)).is_alarm_due

    unsent = [await is_due(), await is_due()]
    sent = [await health.record_skew_alarm(records, NUMBER, call) is not None for call in (CALL, CALL, LATER)]

    assert (unsent, sent) == ([True, True], [True, True, False])
    assert [await is_due(), await is_due(1e12), await is_due()] == [False, False, True]
