"""The quotas of transfers: a project's jobs and targets that have not ended, and its targets and bytes of a day."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from api.batching import COST_FACTOR, KEPT_MAX_SECONDS, UncachedReadByKey
from api.daily_quotas import DAILY_QUOTAS
from api.http.routes import Call
from domain.faults import Invalid
from domain.quotas import OPEN_RETRY_SECONDS, QuotaLimits, SingleQuotaUsage, build_quota_exceeded_fault
from infra.database import Database
from stores.transfers import jobs

OpenJobsAndTargets: TypeAlias = tuple[int, int]

FRESH_SECONDS = 1.0
"""A count that is older is read again before it is used."""
SAVE_SECONDS = 15.0
"""By then after its window a job is saved."""
PROJECTS_MAX = 1_000

TOO_MANY_TARGETS = "too_many_targets"


@dataclass(slots=True)
class _UnsavedJobTargets:
    """The targets that this process let into a job that the database does not show yet."""

    targets: int
    until: float
    """When it is in the database."""


@dataclass(slots=True)
class _ProjectOpenTransfers:
    """What is open of a project."""

    stored: dict[str, int] = field(default_factory=dict)
    """Saved jobs that have not ended, with the number of targets that have not."""
    admitted: dict[str, _UnsavedJobTargets] = field(default_factory=dict)
    fresh_until: float = 0.0
    targets: int = 0
    """All of both."""

    def replace_stored_counts_and_drop_saved_jobs(
        self, stored: dict[str, int], saved: set[str], now: float, fresh_until: float
    ) -> None:
        self.stored, self.fresh_until = stored, fresh_until
        self.admitted = {
            job_id: job
            for job_id, job in self.admitted.items()
            if job_id not in saved and job_id not in stored and job.until > now
        }
        self.targets = sum(stored.values()) + sum(job.targets for job in self.admitted.values())

    def add_admitted_targets(self, job_id: str, targets: int, until: float) -> None:
        job = self.admitted.setdefault(job_id, _UnsavedJobTargets(0, until))
        job.targets += targets
        self.targets += targets

    def remove_admitted_targets(self, job_id: str, targets: int) -> None:
        job = self.admitted.get(job_id)
        if job is None:
            return  # saved meanwhile, and counted there
        job.targets -= targets
        self.targets -= targets
        if job.targets <= 0:
            del self.admitted[job_id]

    @property
    def open_job_count(self) -> int:
        return len(self.stored) + len(self.admitted)


class OpenTransferCounter:
    """The open jobs and targets of each project.

    A process counts what it lets into a window at once. Until the window has ended, other processes do not see it: with
    N processes, a project may have N times its quota in windows that are open.
    What is counted under one job and joins another is moved there.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._known: OrderedDict[str, _ProjectOpenTransfers] = OrderedDict()
        self._reads = UncachedReadByKey(self._load_open_transfers)

    async def count_targets_within_quota(
        self, project_id: str, job_id: str, targets: int, until: float, limits: QuotaLimits
    ) -> None:
        """Count targets that a project sends a file to.

        Args:
            job_id: The job, which is not saved yet.
            until: When it is saved, and counted there, in seconds since 1970.

        Raises:
            Invalid: It may never have so many.
            QuotaExhausted: The project would have more open jobs or targets than it may; nothing is counted.
        """
        known = self._known.get(project_id)
        if known is None or self._clock() > known.fresh_until:
            known = await self._reads.read_anew(project_id)
        is_new_job = job_id not in known.admitted and job_id not in known.stored
        self._require_within_quota(known, targets, limits, is_new_job=is_new_job)
        known.add_admitted_targets(job_id, targets, until)

    def move_targets_to_joined_job(
        self, project_id: str, admitted_job_id: str, job_id: str, targets: int, until: float
    ) -> None:
        """Count admitted targets under the job that they joined: its window may be a later one.

        Args:
            until: When that job is saved.
        """
        known = self._known.get(project_id)
        if known is None or job_id == admitted_job_id:
            return
        known.remove_admitted_targets(admitted_job_id, targets)
        if job_id not in known.stored:
            known.add_admitted_targets(job_id, targets, until)

    def uncount_targets_that_did_not_join(self, project_id: str, job_id: str, targets: int) -> None:
        """Count admitted targets no more, as no job has taken them."""
        known = self._known.get(project_id)
        if known is not None:
            known.remove_admitted_targets(job_id, targets)

    def _require_within_quota(
        self, known: _ProjectOpenTransfers, targets: int, limits: QuotaLimits, *, is_new_job: bool
    ) -> None:
        if targets > limits.transfer_targets_open:
            raise Invalid(
                TOO_MANY_TARGETS,
                f"These are {targets:,} targets, and {limits.transfer_targets_open:,} may be open for this project.",
                "Send fewer at once, or have `transfer_targets_open` raised.",
            )
        if known.targets + targets > limits.transfer_targets_open:
            raise build_quota_exceeded_fault(
                ["transfer_targets_open"],
                f"This project has {known.targets:,} targets that have not ended, and may have "
                f"{limits.transfer_targets_open:,}.",
                "Wait until some have ended, or cancel some.",
                OPEN_RETRY_SECONDS,
            )
        if is_new_job and known.open_job_count >= limits.transfer_jobs_open:
            raise build_quota_exceeded_fault(
                ["transfer_jobs_open"],
                f"This project has {limits.transfer_jobs_open:,} jobs that have not ended, as many as it may.",
                "Wait until one has ended, or cancel one.",
                OPEN_RETRY_SECONDS,
            )

    async def count_open_jobs_and_targets(self, project_id: str) -> OpenJobsAndTargets:
        """Return how many jobs and targets of a project are open."""
        known = await self._reads.read_anew(project_id)
        return known.open_job_count, known.targets

    async def _load_open_transfers(self, project_id: str) -> _ProjectOpenTransfers:
        began = self._clock()
        known = self._known.setdefault(project_id, _ProjectOpenTransfers())
        self._known.move_to_end(project_id)
        # In this order: a job that is saved in between is counted among the stored ones.
        saved = await jobs.filter_saved_job_ids(self._database, list(known.admitted)) if known.admitted else set()
        stored = await jobs.count_unfinished_targets_by_open_job(self._database, project_id)
        now = self._clock()
        known.replace_stored_counts_and_drop_saved_jobs(
            stored, saved, now, now + min(KEPT_MAX_SECONDS, max(FRESH_SECONDS, COST_FACTOR * (now - began)))
        )
        if len(self._known) > PROJECTS_MAX:
            self._known.popitem(last=False)
        return known


OPEN_TRANSFERS = web.AppKey("open_transfers", OpenTransferCounter)


async def count_targets_within_quotas(call: Call, job_id: str, targets: int, until: float) -> None:
    """Count targets that a project sends a file to, among those of the day and those that are open.

    Args:
        job_id: The job, which is not saved yet.
        until: When it is saved, in seconds since 1970.

    Raises:
        Invalid: It may never have so many.
        QuotaExhausted: The project would have more than it may; nothing is counted.
    """
    limits, transfers = call.quotas, call.request.app[OPEN_TRANSFERS]
    if targets > limits.transfer_targets_per_day:
        raise Invalid(
            TOO_MANY_TARGETS,
            f"These are {targets:,} targets, and {limits.transfer_targets_per_day:,} a day are this project's.",
            "Send fewer at once, or have `transfer_targets_per_day` raised.",
        )
    await transfers.count_targets_within_quota(call.project_id, job_id, targets, until, limits)
    try:
        await call.request.app[DAILY_QUOTAS].count_within_quotas(call.project_id, _build_daily_amounts(targets), limits)
    except BaseException:  # also of an outage: no target joins
        transfers.uncount_targets_that_did_not_join(call.project_id, job_id, targets)
        raise


def uncount_targets_that_no_job_took(call: Call, job_id: str, targets: int) -> None:
    """Count admitted targets no more, as no job has taken them."""
    call.request.app[OPEN_TRANSFERS].uncount_targets_that_did_not_join(call.project_id, job_id, targets)
    release_daily_targets(call, targets)


def release_daily_targets(call: Call, targets: int) -> None:
    """Count targets no more among those of the day."""
    call.request.app[DAILY_QUOTAS].release(call.project_id, _build_daily_amounts(targets))


def _build_daily_amounts(targets: int) -> dict[str, int]:
    # The size of the file is not known yet: workers count it when it has reached its targets.
    return {"transfer_targets_per_day": targets, "transfer_bytes_per_day": 0}


async def read_usage(call: Call, project_id: str, _limits: QuotaLimits) -> list[SingleQuotaUsage]:
    """Return how much of its quotas a project has used."""
    open_jobs, open_targets = await call.request.app[OPEN_TRANSFERS].count_open_jobs_and_targets(project_id)
    return [
        SingleQuotaUsage("transfer_jobs_open", open_jobs),
        SingleQuotaUsage("transfer_targets_open", open_targets),
        *[await call.request.app[DAILY_QUOTAS].read_usage(project_id, name) for name in _build_daily_amounts(0)],
    ]
