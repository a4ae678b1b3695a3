"""The open transfers of a project: each accepted target is counted once, in the job that has it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from api.transfers.quotas import OpenTransferCounter
from domain.faults import QuotaExhausted
from domain.quotas import QuotaLimits
from infra.database import Database
from stores.transfers import jobs

LIMITS = QuotaLimits(transfer_jobs_open=2, transfer_targets_open=10)
PROJECT = "prj_1"


class Tables:
    """What the database says, and the time."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}
        self.now = 100.0
        self.read_seconds = 0.0

    async def count_open(self, _database: Any, _project_id: str) -> dict[str, int]:
        """Act as the store."""
        self.now += self.read_seconds
        return dict(self.open)

    async def filter_saved_job_ids(self, _database: Any, job_ids: list[str]) -> set[str]:
        """Act as the store."""
        return self.open.keys() & set(job_ids)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Tables:
    """An empty database."""
    tables = Tables()
    monkeypatch.setattr(jobs, "count_unfinished_targets_by_open_job", tables.count_open)
    monkeypatch.setattr(jobs, "filter_saved_job_ids", tables.filter_saved_job_ids)
    return tables


@pytest.fixture
def transfers(tables: Tables) -> OpenTransferCounter:
    """The open transfers in that database."""
    return OpenTransferCounter(cast("Database", None), lambda: tables.now)


async def test_what_joins_a_later_window_is_counted_there(transfers: OpenTransferCounter) -> None:
    """Its first window counts it no more, and keeps what others have joined there."""
    await transfers.count_targets_within_quota(PROJECT, "job:1", 3, 120.0, LIMITS)
    await transfers.count_targets_within_quota(PROJECT, "job:1", 2, 120.0, LIMITS)
    transfers.move_targets_to_joined_job(PROJECT, "job:1", "job:2", 3, 122.0)
    assert await transfers.count_open_jobs_and_targets(PROJECT) == (2, 5)
    transfers.move_targets_to_joined_job(PROJECT, "job:1", "job:2", 2, 122.0)
    assert await transfers.count_open_jobs_and_targets(PROJECT) == (1, 5)


async def test_what_joined_the_expected_window_stays(transfers: OpenTransferCounter) -> None:
    """Nothing is moved."""
    await transfers.count_targets_within_quota(PROJECT, "job:1", 3, 120.0, LIMITS)
    transfers.move_targets_to_joined_job(PROJECT, "job:1", "job:1", 3, 120.0)
    assert await transfers.count_open_jobs_and_targets(PROJECT) == (1, 3)


async def test_what_no_job_has_taken_makes_room(transfers: OpenTransferCounter) -> None:
    """A request that is refused after it was counted leaves nothing."""
    await transfers.count_targets_within_quota(PROJECT, "job:1", 10, 120.0, LIMITS)
    with pytest.raises(QuotaExhausted):
        await transfers.count_targets_within_quota(PROJECT, "job:2", 1, 120.0, LIMITS)
    transfers.uncount_targets_that_did_not_join(PROJECT, "job:1", 10)
    assert await transfers.count_open_jobs_and_targets(PROJECT) == (0, 0)
    await transfers.count_targets_within_quota(PROJECT, "job:2", 10, 120.0, LIMITS)


async def test_a_job_that_is_saved_before_its_request_is_answered_counts_once(
    transfers: OpenTransferCounter, tables: Tables
) -> None:
    """As the database has it."""
    await transfers.count_targets_within_quota(PROJECT, "job:1", 3, 120.0, LIMITS)
    tables.open["job:2"] = 3
    tables.now += 5
    await transfers.count_targets_within_quota(
        PROJECT, "job:3", 1, 120.0, LIMITS.model_copy(update={"transfer_jobs_open": 3})
    )
    transfers.move_targets_to_joined_job(PROJECT, "job:1", "job:2", 3, 122.0)
    with pytest.raises(QuotaExhausted):
        await transfers.count_targets_within_quota(PROJECT, "job:3", 7, 120.0, LIMITS)
    await transfers.count_targets_within_quota(PROJECT, "job:3", 6, 120.0, LIMITS)
    assert await transfers.count_open_jobs_and_targets(PROJECT) == (2, 10)


async def test_a_count_that_took_long_to_read_is_read_again_within_a_minute(
    transfers: OpenTransferCounter, tables: Tables
) -> None:
    """It waited for a database that hung: targets that have ended since make room."""
    tables.open, tables.read_seconds = {"job:1": 10}, 30.0
    with pytest.raises(QuotaExhausted):
        await transfers.count_targets_within_quota(PROJECT, "job:2", 1, 900.0, LIMITS)
    tables.open, tables.read_seconds = {}, 0.0
    tables.now += 61
    await transfers.count_targets_within_quota(PROJECT, "job:2", 1, 900.0, LIMITS)
