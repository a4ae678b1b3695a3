"""Listing: jobs from the database, those that are not written down yet from the engine, and how many stand where."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from api.transfers.kept import Kept
from domain.transfers import ids
from domain.transfers.ids import Job
from domain.transfers.states import State
from services.services import Services
from stores.transfers import jobs
from stores.transfers.jobs import JobRow
from workflows.transfers import handle as transfers_handle

WAITING_MAX = 50
"""Jobs of open windows that a list shows at most."""
LOOK_SECONDS = 2.0
"""For how long it is good enough which jobs collect: the engine's own lists are slow, and throttled."""
ANSWER_TIMEOUT = timedelta(seconds=2)

_COLLECTING = "HaulageRoom = 'transfers' AND ExecutionStatus = 'Running' AND HaulageState = 'Pending'"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that targets still join, or that is about to be written down."""

    job: Job
    targets: int


class Listing:
    """Lists of jobs. Where no project is named, they are everybody's."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._looks: dict[str | None, tuple[float, asyncio.Task[list[Waiting]]]] = {}
        # Of jobs that are over: nothing changes them any more.
        self._counts: Kept[tuple[int, str | None], dict[State, int]] = Kept()

    async def counts(self, rows: Sequence[JobRow], project_id: str | None) -> dict[int, dict[State, int]]:
        """How many targets of each job stand where."""
        known = {row.id: counts for row in rows if (counts := self._counts.get((row.id, project_id)))}
        unknown = {row.id: row for row in rows if row.id not in known}
        fresh = await jobs.count_states(self._database, list(unknown), project_id) if unknown else {}
        for id_, counts in fresh.items():
            if unknown[id_].finished_at is not None:
                self._counts.keep((id_, project_id), counts)
        return known | fresh

    async def waiting(self, project_id: str | None, search: str) -> list[Waiting]:
        """Jobs that nothing is written of yet; two seconds ago is good enough."""
        since, look = self._looks.get(project_id, (0.0, None))
        if look is None or time.monotonic() - since > LOOK_SECONDS:
            self._looks = {key: each for key, each in self._looks.items() if time.monotonic() - each[0] < LOOK_SECONDS}
            look = asyncio.create_task(self._look(project_id))
            self._looks[project_id] = (time.monotonic(), look)
        found = await asyncio.shield(look)
        written = await jobs.list_recorded(self._database, [str(each.job) for each in found]) if found else set()
        return [each for each in found if str(each.job) not in written and search.lower() in str(each.job).lower()]

    async def _look(self, project_id: str | None) -> list[Waiting]:
        running = self._engine.list_workflows(_COLLECTING, limit=WAITING_MAX)
        named = [job async for each in running if (job := ids.read_job(each.id))]
        counts = await asyncio.gather(*(self._targets(str(job), project_id) for job in named))
        found = [Waiting(job, count) for job, count in zip(named, counts, strict=True) if count]
        return sorted(found, key=lambda each: (-each.job.bucket, str(each.job)))

    async def _targets(self, job_id: str, project_id: str | None) -> int:
        """How many have joined; none where the job does not answer now: whose it is, only itself can say."""
        try:
            return await transfers_handle.count_joined(self._engine, job_id, project_id, ANSWER_TIMEOUT)
        except (RPCError, WorkflowQueryRejectedError, WorkflowQueryFailedError):
            return 0
