"""The routes of transfers, and what their handlers share in one process: lookups, permissions and task ids.

Tasks and jobs are looked up in the database once a window has ended, and at the engine before that.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from aiohttp import web
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from api.batching import BatchedLookup, UncachedReadByKey
from api.http.auth import SHARED_READ_PAUSE_SECONDS
from api.http.routes import Call, Routes
from api.transfers.joins import JobJoiner
from api.transfers.quotas import OPEN_TRANSFERS, OpenTransferCounter
from domain.faults import Missing
from domain.transfers import names
from domain.transfers import permissions as rules
from domain.transfers.models import JOB_ID_MAX_BYTES, FileByBizAppAndPath, TransferState
from domain.transfers.names import TransferJobKey, TransferTaskKey
from domain.transfers.permissions import TransferPermission
from infra import outages
from services.services import Services
from stores.transfers import jobs, permissions, targets
from stores.transfers.jobs import TargetOutcomeCount, TransferJobIdAndTimes
from stores.transfers.targets import ProjectTarget, TargetDetails
from workflows.transfers import handle as transfers_handle

PERMISSIONS_CACHE_SECONDS = 1.0
TARGETS_AT_A_TIME = 200
COLLECTING_JOBS_MAX = 50
"""The jobs of open windows that a list shows at most."""
RUNNING_CACHE_SECONDS = 0.5
"""How long it is remembered that a job runs, for all callers."""
COLLECTING_CACHE_SECONDS = 2.0
"""How long the list of collecting jobs is remembered: the engine's lists are slow, and throttled."""
ANSWER_TIMEOUT = timedelta(seconds=2)
RETRY_MAX_BYTES = len(".9999")
"""What the id of a retry has beyond that of its window's job."""
CACHE_MAX_ITEMS = 5_000

_PURPOSE = b"haulage transfer task 1"
_SALTS = 2**names.SALT_BITS
_COLLECTING = "HaulageSystem = 'transfers' AND ExecutionStatus = 'Running' AND HaulageState = 'Pending'"

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class TransferPermissionsCache:
    """The permissions of projects, cached for a second, because every request to create a transfer needs them."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._cache: BoundedCache[str, tuple[float, list[TransferPermission] | None]] = BoundedCache()
        self._reads = UncachedReadByKey(self.load_permissions_or_none_if_unrestricted)

    async def require_permission(
        self, project_id: str, file: FileByBizAppAndPath, user: str, folder: str, agent_ids: Collection[str]
    ) -> None:
        """Return if the project may send a file to these hosts; everything is allowed while no project has permissions.

        Raises:
            Forbidden: The project has no permission for some of it.
        """
        permitted = await self.get_permissions_or_none_if_unrestricted(project_id)
        if permitted is not None:
            rules.require_transfers_allowed_to_all_hosts(permitted, file, user, folder, agent_ids)

    async def get_permissions_or_none_if_unrestricted(self, project_id: str) -> list[TransferPermission] | None:
        """Return the permissions of a project; None while no project has any."""
        cached = self._cache.get(project_id)
        if cached and time.monotonic() - cached[0] < PERMISSIONS_CACHE_SECONDS:
            return cached[1]
        return await self._reads.read_anew(project_id)

    def invalidate(self) -> None:
        """Load all permissions anew."""
        self._cache = BoundedCache()

    async def load_permissions_or_none_if_unrestricted(self, project_id: str) -> list[TransferPermission] | None:
        """Load and cache the permissions of a project; None while no project has any."""
        loaded_at = time.monotonic()
        async with self._database.session() as session:
            permitted = await permissions.find_permissions_or_none_if_unrestricted(session, project_id)
        self._cache.put_and_drop_oldest_if_full(project_id, (loaded_at, permitted))
        return permitted


class TransferContext:
    """What handlers share: joining, lookups, permissions, and the issuing and checking of task ids."""

    def __init__(self, services: Services) -> None:
        self.joiner = JobJoiner(services)
        self.lookup = BatchedTransferLookup(services)
        self.job_lists = UnsavedJobListerAndTargetCounter(services)
        self.permissions = TransferPermissionsCache(services)
        self.window_seconds = services.settings.transfers.window_seconds
        peppers = services.settings.secrets.list_peppers()
        self._secrets = [hmac.digest(pepper.encode(), _PURPOSE, hashlib.sha256) for pepper in peppers]
        # Requests for one target get different ids: certainly within this process, very likely among several.
        self._salts = itertools.count(secrets.randbelow(_SALTS))

    def create_task_id(self, job: TransferJobKey, target_key: int, project_id: str) -> str:
        """Return a new id for a task."""
        task = TransferTaskKey(job, target_key, next(self._salts) % _SALTS)
        return names.format_task_id(task, self._secrets[0], project_id)

    def parse_task_id(self, call: Call, task_id: str) -> TransferTaskKey:
        """Return the task that an id names.

        Raises:
            Missing: The id was not issued to this project.
        """
        tasks = (names.parse_task_id(task_id, secret, call.project_id) for secret in self._secrets)
        task = next(filter(None, tasks), None)
        if task is None:
            raise build_missing_transfer_fault("task", "Check the id that POST /v1/transfers answered.")
        return task


CONTEXT = web.AppKey("transfers_context", TransferContext)


def _attach_transfer_context(app: web.Application, services: Services) -> None:
    app[CONTEXT] = TransferContext(services)
    app[OPEN_TRANSFERS] = OpenTransferCounter(services.database)


routes = Routes("transfers", "One file goes to many hosts, over GSE.", attach=_attach_transfer_context)


def get_transfer_context(call: Call) -> TransferContext:
    """Return what the handlers of this process share."""
    return call.request.app[CONTEXT]


def build_missing_transfer_fault(what: str, hint: str) -> Missing:
    """Build the error for an id that names nothing of this project."""
    return Missing("not_found", f"There is no such {what} for this key.", hint)


def build_missing_job_fault() -> Missing:
    """Build the error for the id of a job that the project has no targets in."""
    return build_missing_transfer_fault("job", "Check the id, and whether your project has targets in it.")


class BoundedCache(Generic[Key, Value]):
    """Keeps at most max_items values, evicting the oldest."""

    def __init__(self, max_items: int = CACHE_MAX_ITEMS) -> None:
        self._max_items = max_items
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def put_and_drop_oldest_if_full(self, key: Key, value: Value) -> None:
        """Keep a value."""
        self._values[key] = value
        if len(self._values) > self._max_items:
            self._values.popitem(last=False)


@dataclass(frozen=True, slots=True)
class SavedJobAndOutcomes:
    """A job whose window has ended, as a project sees it."""

    row: TransferJobIdAndTimes
    outcomes: Sequence[TargetOutcomeCount]
    """The number of targets by state, reason and code."""

    @property
    def counts(self) -> dict[TransferState, int]:
        """The number of targets by state."""
        counts = Counter[TransferState]()
        for outcome in self.outcomes:
            counts[outcome.state] += outcome.count
        return dict(counts)


class BatchedTransferLookup:
    """Looks up the states of tasks and jobs, and batches and caches what many callers ask for."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._running: dict[str, asyncio.Task[bool]] = {}
        self._targets = BatchedLookup(self._find_targets, TARGETS_AT_A_TIME, SHARED_READ_PAUSE_SECONDS)
        self._cancelled = BatchedLookup(self._find_cancelled, TARGETS_AT_A_TIME)
        # Of ended jobs: counting 50,000 targets for each page of them would take longer than the page.
        self._outcomes: BoundedCache[tuple[int, str | None], Sequence[TargetOutcomeCount]] = BoundedCache()

    async def find_target(self, job_id: str, key: int, project_id: str) -> TargetDetails | None:
        """Return the state of a target in the database; None before its window has ended, and after its retention."""
        return await self._targets.look_up_in_next_batch((job_id, key, project_id))

    async def _find_targets(self, targets_: Sequence[ProjectTarget]) -> dict[ProjectTarget, TargetDetails]:
        return await targets.find_targets(self._database, targets_)

    async def is_cancelled(self, job_id: str, key: int, project_id: str) -> bool:
        """Return whether a target is cancelled, or was when it ended."""
        return await self._cancelled.look_up_in_next_batch((job_id, key, project_id)) is not None

    async def _find_cancelled(self, targets_: Sequence[ProjectTarget]) -> dict[ProjectTarget, bool]:
        return dict.fromkeys(await targets.filter_cancelled(self._database, targets_), True)

    async def find_job(self, job_id: str, project_id: str | None) -> SavedJobAndOutcomes | None:
        """Return a job in the database, if the project (None for all projects) has targets in it."""
        row = await jobs.find_job(self._database, job_id, project_id)
        if row is None:
            return None
        cached = self._outcomes.get((row.id, project_id))
        outcomes = cached or await jobs.count_outcomes(self._database, row.id, project_id)
        if row.finished_at is not None and row.purged_at is None and not cached:
            self._outcomes.put_and_drop_oldest_if_full((row.id, project_id), outcomes)
        return SavedJobAndOutcomes(row, outcomes)

    async def count_joined_targets(self, job_id: str, project_id: str | None) -> int:
        """Ask a running job for the number of targets of a project, or of all; return 0 if no such job runs."""
        if len(job_id.encode()) > JOB_ID_MAX_BYTES + RETRY_MAX_BYTES:
            return 0  # the engine refuses ids that are longer than any job's
        try:
            return await transfers_handle.count_project_targets(self._engine, job_id, project_id)
        except WorkflowQueryRejectedError:
            return 0
        except RPCError as error:
            if outages.is_workflow_or_schedule_missing(error):
                return 0
            raise

    async def refuse_further_targets(self, job_id: str, project_id: str) -> None:
        """Have a job refuse further targets of a project; do nothing if the job has ended."""
        try:
            await transfers_handle.refuse_further_targets(self._engine, job_id, project_id)
        except RPCError as error:
            if not outages.is_workflow_or_schedule_missing(error):
                raise

    async def is_running(self, job_id: str) -> bool:
        """Return whether the job's workflow runs, or ran within the last half second."""
        check = self._running.get(job_id)
        if check is None:
            check = self._running[job_id] = asyncio.create_task(self._query_is_running(job_id))
            check.add_done_callback(
                lambda _: asyncio.get_running_loop().call_later(RUNNING_CACHE_SECONDS, self._running.pop, job_id, None)
            )
        return await asyncio.shield(check)

    async def _query_is_running(self, job_id: str) -> bool:
        try:
            description = await self._engine.get_workflow_handle(job_id).describe()
        except RPCError as error:
            if outages.is_workflow_or_schedule_missing(error):
                return False
            raise
        return description.status is WorkflowExecutionStatus.RUNNING


@dataclass(frozen=True, slots=True)
class UnsavedJob:
    """A job whose window is open, or that is about to be saved."""

    job: TransferJobKey
    targets: int


class UnsavedJobListerAndTargetCounter:
    """Lists jobs of a project, or of all projects."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._collecting: dict[str | None, tuple[float, asyncio.Task[list[UnsavedJob]]]] = {}
        # Of ended jobs, which do not change any more.
        self._counts: BoundedCache[tuple[int, str | None], dict[TransferState, int]] = BoundedCache()

    async def count_targets_by_state(
        self, rows: Sequence[TransferJobIdAndTimes], project_id: str | None
    ) -> dict[int, dict[TransferState, int]]:
        """Return the number of targets by state for each job."""
        cached = {row.id: counts for row in rows if (counts := self._counts.get((row.id, project_id)))}
        missing = {row.id: row for row in rows if row.id not in cached}
        loaded = await jobs.count_targets_by_state(self._database, list(missing), project_id) if missing else {}
        for id_, counts in loaded.items():
            if missing[id_].finished_at is not None:
                self._counts.put_and_drop_oldest_if_full((id_, project_id), counts)
        return cached | loaded

    async def list_jobs_not_saved_yet(self, project_id: str | None, search: str) -> list[UnsavedJob]:
        """Return the jobs that are not in the database yet; the engine's list may be two seconds old."""
        since, query = self._collecting.get(project_id, (0.0, None))
        now = time.monotonic()
        if query is None or now - since > COLLECTING_CACHE_SECONDS:
            self._collecting = {
                key: each for key, each in self._collecting.items() if now - each[0] < COLLECTING_CACHE_SECONDS
            }
            query = asyncio.create_task(self._list_running_jobs_and_count_joined_targets(project_id))
            self._collecting[project_id] = (now, query)
        collecting = await asyncio.shield(query)
        job_ids = [str(each.job) for each in collecting]
        saved = await jobs.filter_saved_job_ids(self._database, job_ids) if job_ids else set()
        return [each for each in collecting if str(each.job) not in saved and search.lower() in str(each.job).lower()]

    async def _list_running_jobs_and_count_joined_targets(self, project_id: str | None) -> list[UnsavedJob]:
        running = self._engine.list_workflows(_COLLECTING, limit=COLLECTING_JOBS_MAX)
        keys = [job async for each in running if (job := names.parse_job_id(each.id))]
        counts = await asyncio.gather(*(self._count_joined_targets_or_zero(str(job), project_id) for job in keys))
        collecting = [UnsavedJob(job, count) for job, count in zip(keys, counts, strict=True) if count]
        return sorted(collecting, key=lambda each: (-each.job.window_number, str(each.job)))

    async def _count_joined_targets_or_zero(self, job_id: str, project_id: str | None) -> int:
        # A job that does not answer is left out: only the job itself knows whose targets it has.
        try:
            return await transfers_handle.count_project_targets(self._engine, job_id, project_id, ANSWER_TIMEOUT)
        except (RPCError, WorkflowQueryRejectedError, WorkflowQueryFailedError):
            return 0


def is_expired(expires_at: datetime) -> bool:
    """Return whether a retention has ended."""
    return expires_at <= datetime.now(UTC)
