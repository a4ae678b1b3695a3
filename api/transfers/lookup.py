"""Where tasks and jobs stand: read from the database once a window has ended, and from the engine before that."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError, RPCStatusCode

from api.shared_reads import BatchedLookup
from domain.transfers import names
from domain.transfers.models import State
from domain.transfers.names import Job
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


class TransferLookup:
    """Where tasks and jobs stand."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._looks: dict[str, asyncio.Task[bool]] = {}
        self._targets = BatchedLookup(self._find, TARGETS_AT_A_TIME)
        self._cancelled = BatchedLookup(self._find_cancelled, TARGETS_AT_A_TIME)
        # Of jobs that are over: to count 50,000 targets for each page of them would take longer than the page.
        self._ends: BoundedCache[tuple[int, str | None], Sequence[EndCount]] = BoundedCache()

    async def target(self, job_id: str, key: int, project_id: str) -> TargetOfJob | None:
        """What is written of a target; nothing before its window has ended, nor when its time is over."""
        return await self._targets.get((job_id, key, project_id))

    async def _find(self, wanted: Sequence[ProjectTarget]) -> dict[ProjectTarget, TargetOfJob]:
        return await targets.find(self._database, wanted)

    async def is_cancelled(self, job_id: str, key: int, project_id: str) -> bool:
        """Whether a target is no longer wanted, or was not when it ended."""
        return await self._cancelled.get((job_id, key, project_id)) is not None

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


WAITING_MAX = 50
"""Jobs of open windows that a list shows at most."""
LOOK_SECONDS = 2.0
"""For how long it is good enough which jobs collect: the engine's own lists are slow, and throttled."""
ANSWER_TIMEOUT = timedelta(seconds=2)

_COLLECTING = "HaulageSystem = 'transfers' AND ExecutionStatus = 'Running' AND HaulageState = 'Pending'"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that targets still join, or that is about to be written down."""

    job: Job
    targets: int


class CollectingJobs:
    """Lists of jobs. Where no project is named, they are everybody's."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._looks: dict[str | None, tuple[float, asyncio.Task[list[Waiting]]]] = {}
        # Of jobs that are over: nothing changes them any more.
        self._counts: BoundedCache[tuple[int, str | None], dict[State, int]] = BoundedCache()

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
        named = [job async for each in running if (job := names.read_job(each.id))]
        counts = await asyncio.gather(*(self._targets(str(job), project_id) for job in named))
        found = [Waiting(job, count) for job, count in zip(named, counts, strict=True) if count]
        return sorted(found, key=lambda each: (-each.job.bucket, str(each.job)))

    async def _targets(self, job_id: str, project_id: str | None) -> int:
        """How many have joined; none where the job does not answer now: whose it is, only itself can say."""
        try:
            return await transfers_handle.count_joined(self._engine, job_id, project_id, ANSWER_TIMEOUT)
        except (RPCError, WorkflowQueryRejectedError, WorkflowQueryFailedError):
            return 0


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

KEPT_MAX = 5_000


class BoundedCache(Generic[Key, Value]):
    """So many values; what was kept first goes first."""

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """What was kept, if it still is."""
        return self._values.get(key)

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value."""
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)
