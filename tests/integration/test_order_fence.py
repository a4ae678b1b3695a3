"""An attempt at a slice that was taken for dead: whatever it holds when it wakes, it changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.orders import slice_attempts
from activities.orders.activities import OrderActivities, PlatformActivities
from clients.platforms import ReplayableAnswerLog
from domain.faults import FaultRecord
from domain.orders import names
from domain.orders.activity_models import (
    ClaimSlicesInput,
    FailSliceInput,
    PlatformInput,
    ReadSliceInput,
    ReadSliceResult,
)
from domain.orders.slices import SliceReadOutcome, SliceReadPurpose, SliceResumePoint
from infra.settings import Settings
from sims.platforms.clock import MICRO
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.platform import Platform
from sims.platforms.scenario import PlatformScenario
from stores.orders import ledger
from tests.support.orders import NUMBER, Orders, count_findings, running_orders, since
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
NOTHING = dict.fromkeys(("lost", "stale", "duplicated", "invented", "regressed"), 0)

Attempt = Callable[..., Coroutine[Any, Any, ReadSliceResult]]
"""Reads the slice as the holder of a name, by default for the first time."""


class HeldUp:
    """Hold up the first attempt when it has read all and is about to commit.

    Args:
        beside: Takes the other attempts; by default they go on.
    """

    def __init__(self, beside: HeldUp | None = None) -> None:
        self.is_waiting = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self._beside = beside

    async def keep(self, *arguments: Any) -> None:
        """Replace `raw.keep`, the last step before the transaction."""
        if self.is_waiting.is_set() and self._beside is not None:
            await self._beside.keep(*arguments)
            return
        if not self.is_waiting.is_set():
            self.is_waiting.set()
            await self.may_go_on.wait()
        await KEEP(*arguments)


KEEP = slice_attempts.store_raw_pages_as_parquet


@pytest.fixture
async def orders(settings: Settings) -> AsyncIterator[Orders]:
    """API and worker; no worker serves the platform, so that only the test reads it."""
    async with running_orders(settings, queues=[names.QUEUE]) as running:
        yield running


async def claim_one(orders: Orders, platform: Platform) -> Attempt:
    """Claim the one slice of a platform; return what reads it as the holder of a name."""
    await orders.set_up()
    await orders.configure(starttime=since(platform, seconds=SPAN_SECONDS), interval=SPAN_SECONDS - 100)
    steps, environment = OrderActivities(orders.services), ActivityEnvironment
    skew = platform.market.now_us / MICRO - time.time()
    claimed = await environment().run(steps.claim_slices, ClaimSlicesInput(platform=NUMBER, skew_seconds=skew))
    [job] = claimed.jobs
    settings = await environment().run(steps.load_settings, PlatformInput(platform=NUMBER))
    reader = PlatformActivities(orders.services)

    def attempt(
        holder: str,
        purpose: SliceReadPurpose = SliceReadPurpose.FIRST,
        resume_point: SliceResumePoint | None = None,
        send_heartbeat: Callable[..., None] = lambda *_: None,
    ) -> Coroutine[Any, Any, ReadSliceResult]:
        order = ReadSliceInput(
            platform=NUMBER,
            window=job.window,
            purpose=purpose,
            settings=settings,
            resume_point=resume_point,
            holder=f"slice/{holder}",
        )
        running = environment()
        running.on_heartbeat = send_heartbeat
        return running.run(reader.read_and_commit_slice, order)

    return attempt


async def test_what_it_read_is_not_written(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    """O9: an order moves on while it sleeps; the attempt that took its place did not see it in the slice any more."""
    held_up = HeldUp()
    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", held_up.keep)
    platform = orders.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
    attempt = await claim_one(orders, platform)
    sleeping = asyncio.create_task(attempt("sleeping"))
    await held_up.is_waiting.wait()

    # The first order of the slice is modified after its end: it belongs to a slice that has not been read.
    market = platform.market
    market.clock.advance(30)
    market.modify(0, market.now_us)
    market.tick()
    taken_over = await attempt("awake")
    before = await orders.read_orders(), await orders.slices(), await orders.row()
    held_up.may_go_on.set()
    woken = await sleeping

    assert (await orders.read_orders(), await orders.slices(), await orders.row()) == before
    assert count_findings(await orders.findings()) == NOTHING
    assert (taken_over.ending, woken.ending) == (SliceReadOutcome.DONE, SliceReadOutcome.OVER)


async def test_what_it_read_is_not_written_before_its_successor_has_ended(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes while the attempt that took its place is about to commit."""
    awake_held_up = HeldUp()
    held_up = HeldUp(beside=awake_held_up)
    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", held_up.keep)
    platform = orders.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
    attempt = await claim_one(orders, platform)
    sleeping = asyncio.create_task(attempt("sleeping"))
    await held_up.is_waiting.wait()
    awake = asyncio.create_task(attempt("awake"))
    await awake_held_up.is_waiting.wait()
    held_up.may_go_on.set()
    woken = await sleeping
    written = await orders.read_orders()
    awake_held_up.may_go_on.set()
    taken_over = await awake

    assert written == []
    assert count_findings(await orders.findings()) == NOTHING
    assert (taken_over.ending, woken.ending) == (SliceReadOutcome.DONE, SliceReadOutcome.OVER)


async def test_a_reading_that_fails_leaves_the_slice_to_another_that_reads_it(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the workflow whose attempt holds a slice can move it into the failed set."""
    held_up = HeldUp()
    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", held_up.keep)
    platform = orders.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
    attempt = await claim_one(orders, platform)
    reading = asyncio.create_task(attempt("reading"))
    await held_up.is_waiting.wait()
    [row] = await orders.slices()
    failure = FailSliceInput(
        platform=NUMBER,
        window=ledger.build_window(row),
        purpose=SliceReadPurpose.FIRST,
        fault=FaultRecord(code="platform_failed", message="It answers another with 500.", retryable=True),
        reader="another",
        attempts=1,
    )
    steps = OrderActivities(orders.services)
    await ActivityEnvironment().run(steps.record_failed_slice_or_sweep, failure)
    [after] = await orders.slices()
    held_up.may_go_on.set()

    assert (after.failed_at, after.holder) == (None, "slice/reading")
    assert (await reading).ending is SliceReadOutcome.DONE


async def test_what_it_read_is_not_requested_again(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost in its commit: its heartbeats said where its answers are, and the next attempt replays them."""
    held_up, saved_at = HeldUp(), list[SliceResumePoint]()
    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", held_up.keep)
    monkeypatch.setattr(slice_attempts, "SAVE_SECONDS", 0.05)
    platform = orders.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
    attempt = await claim_one(orders, platform)
    lost = asyncio.create_task(attempt("lost", send_heartbeat=lambda *details: saved_at.extend(details)))
    await held_up.is_waiting.wait()
    requests = platform.calls["told"]
    objects = orders.services.objects

    async def has_saved_all() -> bool:
        return bool(saved_at) and count_answers(await objects.get(saved_at[-1].key)) == requests

    await eventually(has_saved_all)
    lost.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lost
    ended = await attempt("next", resume_point=saved_at[-1])

    assert ended.ending is SliceReadOutcome.DONE
    assert platform.calls["told"] == requests
    assert await objects.list(names.STAGING) == []
    assert count_findings(await orders.findings()) == NOTHING


def count_answers(log: bytes) -> int:
    """Return the number of answers in a stored log."""
    return len(ReplayableAnswerLog.decode(log)._kept)


@pytest.mark.parametrize("purpose", [SliceReadPurpose.AGAIN, SliceReadPurpose.SWEEP])
async def test_what_it_read_of_a_complete_slice_is_not_written(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, purpose: SliceReadPurpose
) -> None:
    """Orders show up while it sleeps; what the attempt that took its place found and noted stays as it is."""
    held_up = HeldUp()
    platform = orders.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
    attempt = await claim_one(orders, platform)
    await attempt("first")
    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", held_up.keep)
    sleeping = asyncio.create_task(attempt("sleeping", purpose))
    await held_up.is_waiting.wait()

    show_late(platform)
    taken_over = await attempt("awake", purpose)
    before = await orders.read_orders(), await orders.slices(), await orders.row()
    held_up.may_go_on.set()
    woken = await sleeping

    assert (await orders.read_orders(), await orders.slices(), await orders.row()) == before
    assert count_findings(await orders.findings()) == NOTHING
    assert (taken_over.missed, before[1][0].missed) == (1, 1 if purpose is SliceReadPurpose.SWEEP else None)
    assert (taken_over.ending, woken.ending) == (SliceReadOutcome.DONE, SliceReadOutcome.OVER)


@pytest.mark.parametrize("purpose", [SliceReadPurpose.AGAIN, SliceReadPurpose.SWEEP])
async def test_one_that_was_given_up_does_not_come_back(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, purpose: SliceReadPurpose
) -> None:
    """Its workflow has noted that it failed, and why: an attempt that wakes later does not take that back."""
    held_up = HeldUp()
    platform = orders.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
    attempt = await claim_one(orders, platform)
    await attempt("first")
    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", held_up.keep)
    show_late(platform)
    sleeping = asyncio.create_task(attempt("sleeping", purpose))
    await held_up.is_waiting.wait()

    [row] = await orders.slices()
    fault = FaultRecord(code="worker_lost", message="The worker that read the slice was lost.", retryable=True)
    given_up = FailSliceInput(
        platform=NUMBER, window=ledger.build_window(row), purpose=purpose, fault=fault, reader="slice", attempts=1
    )
    await ActivityEnvironment().run(OrderActivities(orders.services).record_failed_slice_or_sweep, given_up)
    before = await orders.read_orders(), await orders.slices(), await orders.row()
    held_up.may_go_on.set()
    woken = await sleeping

    noted = before[1][0].reread_fault if purpose is SliceReadPurpose.AGAIN else before[1][0].fault
    assert (noted or {})["code"] == "worker_lost"
    assert (await orders.read_orders(), await orders.slices(), await orders.row()) == before
    assert woken.ending is SliceReadOutcome.OVER


@pytest.mark.parametrize(
    ("rows", "revisions", "goes_back"),
    [({"version": None}, 1, False), ({"version": None}, 1, True), ({}, 0, False)],
    ids=["rows", "rows and back", "pages"],
)
async def test_what_was_read_by_a_former_declaration_is_not_written(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, rows: dict[str, Any], revisions: int, goes_back: bool
) -> None:
    """It was changed while the slice was read, perhaps because that is read wrongly: the slice is read again."""
    held_up = HeldUp()
    platform = orders.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
    attempt = await claim_one(orders, platform)
    await attempt("first")
    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", held_up.keep)
    reading = asyncio.create_task(attempt("reading", SliceReadPurpose.AGAIN))
    await held_up.is_waiting.wait()
    paging, known = PLAIN.paging.model_copy(update={"size": 50}), PLAIN.rows.model_copy(update=rows)
    for capability in (PLAIN.model_copy(update={"paging": paging, "rows": known}), *([PLAIN] if goes_back else ())):
        await orders.set_up(capability=capability)
    held_up.may_go_on.set()
    with pytest.raises(ApplicationError, match="was changed while the slice"):
        await reading
    [row], standing = await orders.slices(), await orders.row()
    assert row.reread_at is None
    assert (standing.zone_checked_at, standing.revision, standing.declared_revision) == (None, 1, revisions)
    assert (await attempt("again", SliceReadPurpose.AGAIN)).ending is SliceReadOutcome.DONE


def show_late(platform: Platform) -> None:
    """Let an order of the slice show up that was not listed before."""
    market = platform.market
    market.create(market.now_us - SPAN_SECONDS * MICRO // 2, late_us=SPAN_SECONDS * MICRO // 2 + MICRO)
    market.clock.advance(30)
    market.tick()
