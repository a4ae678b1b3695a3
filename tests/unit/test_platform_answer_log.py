"""A reading that had to stop goes on where it was: answers are not requested again, and nothing is lost by it."""

from __future__ import annotations

import time
import zlib
from typing import Any

import pytest

from clients.platforms import AttemptTimeUsedUp, PlatformRefused, ReplayableAnswerLog
from clients.platforms.permits import READING_SHARE, WAITING_SHARE, AttemptTimeBudget
from sims.platforms import checker
from sims.platforms.scenario import Changes, Kind, PlatformFaults
from tests.support.platforms import KINDS, newest_copies, running_connector

CROWDED: dict[str, Any] = {"orders": 3_000, "span_seconds": 7_200, "crowd_share": 0.2, "crowd_seconds": 600}


def store_and_load(answers: ReplayableAnswerLog) -> ReplayableAnswerLog:
    """As another process finds it."""
    return ReplayableAnswerLog.decode(answers.encode())


@pytest.mark.parametrize("kind", KINDS)
async def test_each_page_is_asked_for_once_however_often_a_reading_stops(kind: Kind) -> None:
    """It stops after each page, its answers go through the store, and another process goes on."""
    async with running_connector(kind=kind, **CROWDED) as here:
        window = here.window(1_200, until_seconds_ago=600)
        await here.read(window)  # until a page was full, the page behind a short one is read, too
        before = here.platform.calls["told"]
        whole = await here.read(window)
        asked, answers, pages = here.platform.calls["told"] - before, ReplayableAnswerLog(), 0
        done = False
        while not done:
            connector, pages = here.again(store_and_load(answers)), pages + 1
            seen = []
            async for page in connector.iterate_pages(window, await connector.fetch_row_count(window)):
                seen.append(page)
                if len(seen) == pages:
                    break
            done, answers = len(seen) < pages, connector.answer_log
        assert [page.body for page in seen] == [page.body for page in whole]
        assert here.platform.calls["told"] - before == 2 * asked


@pytest.mark.parametrize("seed", range(5))
async def test_orders_that_leave_between_two_attempts_take_no_other_with_them(seed: int) -> None:
    """Numbered pages from the last to the first are safe however long a pass takes."""
    changes = Changes(per_page=0.7, created_share=0, in_window_share=1)
    async with running_connector(seed=seed, changes=changes, **CROWDED) as here:
        window = here.window(1_200, until_seconds_ago=600)
        here.connector._client.uncapped_page_sizes.add(here.connector.capability.paging.size)
        walk = here.connector.iterate_pages(window, await here.connector.fetch_row_count(window))
        first = [await anext(walk) for _ in range(3)]
        connector = here.again(store_and_load(here.connector.answer_log))
        pages = [page async for page in connector.iterate_pages(window, await connector.fetch_row_count(window))]
        known = checker.truth(here.platform.ledger())
        findings = checker.check(here.truth(window), newest_copies(pages), known=known)
        assert [page.body for page in pages[:3]] == [page.body for page in first]
        assert (findings.lost, findings.invented) == ([], [])


async def test_a_token_that_has_expired_is_refused() -> None:
    """By the platform itself: what was kept leads nowhere, and the reading must begin again."""
    async with running_connector(kind="amazon", faults=PlatformFaults(page_token_seconds=60), **CROWDED) as here:
        window = here.window(3_600)
        await anext(here.connector.iterate_pages(window, await here.connector.fetch_row_count(window)))
        here.platform.market.clock.advance(61)
        with pytest.raises(PlatformRefused, match="NextToken has expired"):
            [page async for page in here.again(store_and_load(here.connector.answer_log)).iterate_pages(window, None)]
        assert await here.read(window)


@pytest.mark.parametrize(
    "body", [b"", b"no zlib", zlib.compress(b"\0"), zlib.compress(b"\x91\x94\xa1q"), zlib.compress(b"\0\0\0\1x")]
)
def test_a_log_of_another_version_is_unreadable(body: bytes) -> None:
    """The attempt that finds it requests everything itself."""
    with pytest.raises(ValueError, match="cannot be read"):
        ReplayableAnswerLog.decode(body)


async def test_an_attempt_stops_before_it_is_ended() -> None:
    """Its answers so far are in its log, with the times of the requests."""
    async with running_connector(**CROWDED) as here:
        window = here.window(1_200)
        walk = here.connector.iterate_pages(window, await here.connector.fetch_row_count(window))
        page = await anext(walk)
        here.connector.budget.until = 0.0  # its time is over
        with pytest.raises(AttemptTimeUsedUp):
            await anext(walk)
        again = here.again(store_and_load(here.connector.answer_log))
        here.platform.market.clock.advance(1_000)
        assert (await anext(again.iterate_pages(window, await again.fetch_row_count(window)))).asked_at == page.asked_at


async def test_a_request_ends_with_the_time_of_its_attempt() -> None:
    """However long the platform may take by itself: what was received before is stored, and the next one asks again."""
    async with running_connector(**CROWDED) as here:
        window = here.window(1_200)
        walk = here.connector.iterate_pages(window, await here.connector.fetch_row_count(window))
        await anext(walk)
        here.platform.set(here.platform.scenario.model_copy(update={"faults": PlatformFaults(slow_ms=10_000)}))
        here.connector.budget.until = (began := time.monotonic()) + 1
        with pytest.raises(AttemptTimeUsedUp):
            await anext(walk)
        assert time.monotonic() - began < 8
        assert here.connector.answer_log.has_logged_answers


async def test_the_time_of_an_attempt_is_shared_out() -> None:
    """Half of it may go by waiting for turns, and a part is left for the commit."""
    budget = AttemptTimeBudget.for_attempt(100, time.monotonic())
    assert budget.patience_seconds == 100 * WAITING_SHARE
    assert budget.seconds_left == pytest.approx(100 * READING_SHARE, abs=5)
    for waited in (30, 30):
        budget.subtract_wait_from_patience(time.monotonic() - waited)
    assert budget.patience_seconds == pytest.approx(20, abs=5), "both waits were at the same time"
    budget.waited_until = 0.0
    budget.subtract_wait_from_patience(time.monotonic() - 30)
    assert budget.patience_seconds == 0


@pytest.mark.parametrize(("used", "end"), [(1, 10), (30, 30), (80, 10), (96, 2)])
def test_an_attempt_ends_in_as_much_time_as_it_took_to_begin(used: float, end: float) -> None:
    """A tenth at least, and half of what is left at most; its time counts from its beginning."""
    began = time.monotonic() - used
    budget = AttemptTimeBudget.for_attempt(100, began)
    assert budget.until - began == pytest.approx(100 - end, abs=2)


def test_no_request_begins_that_may_end_too_late() -> None:
    """It is supposed to take as long as the slowest one so far."""
    budget = AttemptTimeBudget.for_attempt(100, time.monotonic())
    before = budget.seconds_left
    budget.slowest_answer_seconds = 40
    with budget.record_slowest_answer():
        pass
    assert budget.seconds_left == pytest.approx(before - 40, abs=5)
    budget.slowest_answer_seconds = 95
    assert budget.seconds_left < 0
