"""Looking up where tasks and jobs stand: in the database once a window has ended, from the engine before that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.client import WorkflowExecutionStatus, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from api.together import Gathered
from api.transfers.kept import Kept
from domain.transfers.states import State
from services.services import Services
from stores.transfers import jobs, targets
from stores.transfers.jobs import EndCount, JobRow
from stores.transfers.targets import ProjectTarget, TargetOfJob
from workflows.transfers import handle as transfers_handle

TARGETS_AT_A_TIME = 200
LOOK_SECONDS = 0.5
"""For how long it is good enough that a job was running, whoever wants to know."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job whose window has ended, as a project sees it."""

    row: JobRow
    ends: Sequence[EndCount]
    """How many targets stand where, and why."""

    @property
    def counts(self) -> dict[State, int]:
        """How many targets stand where."""
        counts = Counter[State]()
        for each in self.ends:
            counts[each.state] += each.count
        return dict(counts)


class Lookup:
    """Where tasks and jobs stand."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._looks: dict[str, asyncio.Task[bool]] = {}
        self._targets = Gathered(self._find, TARGETS_AT_A_TIME)
        self._cancelled = Gathered(self._find_cancelled, TARGETS_AT_A_TIME)
        # Of jobs that are over: to count 50,000 targets for each page of them would take longer than the page.
        self._ends: Kept[tuple[int, str | None], Sequence[EndCount]] = Kept()

    async def target(self, job_id: str, key: int, project_id: str) -> TargetOfJob | None:
        """What is written of a target; nothing before its window has ended, nor when its time is over."""
        return await self._targets.ask((job_id, key, project_id))

    async def _find(self, wanted: Sequence[ProjectTarget]) -> dict[ProjectTarget, TargetOfJob]:
        return await targets.find(self._database, wanted)

    async def is_cancelled(self, job_id: str, key: int, project_id: str) -> bool:
        """Whether a target is no longer wanted, or was not when it ended."""
        return await self._cancelled.ask((job_id, key, project_id)) is not None

    async def _find_cancelled(self, wanted: Sequence[ProjectTarget]) -> dict[ProjectTarget, bool]:
        return dict.fromkeys(await targets.list_cancelled(self._database, wanted), True)

    async def job(self, job_id: str, project_id: str | None) -> EndedJob | None:
        """What is written of a job, if the project has targets in it; None is for all projects."""
        row = await jobs.find(self._database, job_id, project_id)
        if row is None:
            return None
        known = self._ends.get((row.id, project_id))
        ends = known or await jobs.count_ends(self._database, row.id, project_id)
        if row.finished_at is not None and row.purged_at is None and not known:
            self._ends.keep((row.id, project_id), ends)
        return EndedJob(row, ends)

    async def joined(self, job_id: str, project_id: str | None) -> int:
        """How many targets a project, or all of them, have in a job that is running; asked of the job itself."""
        try:
            return await transfers_handle.count_joined(self._engine, job_id, project_id)
        except WorkflowQueryRejectedError:
            return 0
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return 0
            raise

    async def close_to(self, job_id: str, project_id: str) -> None:
        """Let no more targets of the project into a job; one that is over lets nobody in anyway."""
        try:
            await transfers_handle.close_to(self._engine, job_id, project_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def is_running(self, job_id: str) -> bool:
        """Whether the job's workflow runs; half a second ago is good enough."""
        look = self._looks.get(job_id)
        if look is None:
            look = self._looks[job_id] = asyncio.create_task(self._describe(job_id))
            look.add_done_callback(
                lambda _: asyncio.get_running_loop().call_later(LOOK_SECONDS, self._looks.pop, job_id, None)
            )
        return await asyncio.shield(look)

    async def _describe(self, job_id: str) -> bool:
        try:
            description = await self._engine.get_workflow_handle(job_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return description.status is WorkflowExecutionStatus.RUNNING


def is_over(expires_at: datetime) -> bool:
    """Whether the time is over for which this is kept."""
    return expires_at <= datetime.now(UTC)
