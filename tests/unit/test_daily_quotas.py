"""Counts of a day in one process: none is lost to other projects, to an outage, or at the stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from api import daily_quotas
from api.daily_quotas import DAILY_QUOTAS, DailyQuotaCounter
from api.tasks.quotas import OpenTaskQuotaCounter, count_new_tasks_within_quotas
from api.transfers.quotas import OPEN_TRANSFERS, count_targets_within_quotas
from domain.faults import Fault
from domain.limits import UncheckedSpending
from domain.quotas import QuotaLimits, build_day_bucket_name

if TYPE_CHECKING:
    from api.http.routes import Call
    from infra.database import Database

QUOTA = "tasks_per_day"


class CountingLimiter:
    """What the database would have counted; the next `failures` calls fail."""

    def __init__(self) -> None:
        self.saved: Counter[str] = Counter()
        self.failures = 0
        self.asked = 0
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def spend_and_read(self, spending: UncheckedSpending) -> tuple[int, float | None]:
        """As the database does."""
        self.asked += 1
        await self.is_open.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("away")
        self.saved[spending.bucket] += int(spending.amount)
        return self.saved[spending.bucket], None

    async def wait_until_asked(self, times: int) -> None:
        """Return once a call has begun as often as this."""
        async with asyncio.timeout(30):
            while self.asked < times:  # noqa: ASYNC110 - the calls come from a task of the counter
                await asyncio.sleep(0.001)

    def count(self, project_id: str) -> int:
        """What is saved of a project."""
        return self.saved[build_day_bucket_name(QUOTA, project_id)]


@pytest.fixture
def limiter(monkeypatch: pytest.MonkeyPatch) -> CountingLimiter:
    """Instead of the database's, without pauses between saves."""
    counting = CountingLimiter()
    monkeypatch.setattr(daily_quotas, "DatabaseLimiter", lambda _: counting)
    monkeypatch.setattr(daily_quotas, "SAVE_SECONDS", 0.01)
    monkeypatch.setattr(daily_quotas, "FAILURE_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(daily_quotas, "COUNTS_MAX", 3)
    return counting


@pytest.fixture
def counter(limiter: CountingLimiter) -> DailyQuotaCounter:
    """Of one process."""
    return DailyQuotaCounter(cast("Database", None))


async def count(counter: DailyQuotaCounter, *projects: str) -> None:
    """Count a task of each project."""
    for project_id in projects:
        await counter.count_within_quotas(project_id, {QUOTA: 1}, QuotaLimits())


async def test_other_projects_do_not_displace_what_is_not_saved(
    limiter: CountingLimiter, counter: DailyQuotaCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are; afterwards those that were not used for longest go."""
    monkeypatch.setattr(daily_quotas, "SAVE_SECONDS", 60)
    projects = [f"prj_{number}" for number in range(10)]
    await count(counter, *projects)
    await counter.save_all()
    assert {limiter.count(project_id) for project_id in projects} == {1}


async def test_a_save_that_failed_is_tried_again(limiter: CountingLimiter, counter: DailyQuotaCounter) -> None:
    """Though the project sends nothing more."""
    await count(counter, "prj_1")
    limiter.failures = 2
    await limiter.wait_until_asked(times=4)
    await asyncio.sleep(0)
    assert limiter.count("prj_1") == 1


async def test_a_process_that_stops_waits_for_a_save(limiter: CountingLimiter, counter: DailyQuotaCounter) -> None:
    """One that is under way has not saved anything yet."""
    await count(counter, "prj_1")
    limiter.is_open.clear()
    await limiter.wait_until_asked(times=2)
    stopping = asyncio.create_task(counter.save_all())
    await asyncio.sleep(0.01)
    assert not stopping.done()
    limiter.is_open.set()
    await stopping
    assert limiter.count("prj_1") == 1


async def test_a_process_that_stops_saves_what_failed(
    limiter: CountingLimiter, counter: DailyQuotaCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the pause before the next try."""
    monkeypatch.setattr(daily_quotas, "FAILURE_PAUSE_SECONDS", 60)
    await count(counter, "prj_1")
    limiter.failures = 1
    await limiter.wait_until_asked(times=2)
    await counter.save_all()
    assert limiter.count("prj_1") == 1


async def test_what_is_refused_after_it_was_saved_is_given_back(
    limiter: CountingLimiter, counter: DailyQuotaCounter
) -> None:
    """To every process: the refusal took longer than the pause between saves."""
    await count(counter, "prj_1")
    await limiter.wait_until_asked(times=2)
    await asyncio.sleep(0)
    counter.release("prj_1", {QUOTA: 1})
    await counter.save_all()

    assert limiter.count("prj_1") == 0


async def test_what_is_given_back_is_never_more_than_was_used(
    limiter: CountingLimiter, counter: DailyQuotaCounter
) -> None:
    """A day later, the release counts for some minutes longer than what it took back."""
    limiter.saved[build_day_bucket_name(QUOTA, "prj_1")] = -5
    assert (await counter.read_usage("prj_1", QUOTA)).used == 0
    with pytest.raises(Fault, match="may use 3"):
        await counter.count_within_quotas("prj_1", {QUOTA: 4}, QuotaLimits(tasks_per_day=3))


async def test_an_outage_behind_the_count_gives_it_back(limiter: CountingLimiter, counter: DailyQuotaCounter) -> None:
    """No task is created, and no target joins: neither is counted for a day."""

    async def fail(*_: object) -> None:
        raise ConnectionError("away")

    released: list[tuple[object, ...]] = []
    open_tasks = cast("OpenTaskQuotaCounter", SimpleNamespace(count_new_tasks_within_quota=fail))
    request = SimpleNamespace(app={DAILY_QUOTAS: counter})
    call = SimpleNamespace(project_id="prj_1", quotas=QuotaLimits(), request=request)
    with pytest.raises(ConnectionError):
        await count_new_tasks_within_quotas(cast("Call", call), open_tasks, 5)
    await counter.save_all()
    assert limiter.count("prj_1") == 0

    async def admit(*_: object) -> None:
        pass

    request.app = {
        DAILY_QUOTAS: SimpleNamespace(count_within_quotas=fail),
        OPEN_TRANSFERS: SimpleNamespace(
            count_targets_within_quota=admit,
            uncount_targets_that_did_not_join=lambda *uncounted: released.append(uncounted),
        ),
    }
    with pytest.raises(ConnectionError):
        await count_targets_within_quotas(cast("Call", call), "job", 5, 0.0)
    assert released == [("prj_1", "job", 5)]


async def test_a_process_that_stopped_saves_no_more(limiter: CountingLimiter, counter: DailyQuotaCounter) -> None:
    """Its database is closed then: a save would open a connection that is never closed."""
    await count(counter, "prj_1")
    await counter.save_all()
    asked = limiter.asked
    await asyncio.sleep(0.05)

    assert (limiter.count("prj_1"), limiter.asked) == (1, asked)
