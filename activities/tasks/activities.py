"""Activities of lanes, and housekeeping, which removes old runs, ended tasks, and texts that no task has."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from domain.tasks import names
from domain.tasks.activity_models import CheckpointInput, CloseLaneInput, LanePassedByTypeResult
from domain.tasks.messages import FINAL, Task, TaskLookup, TaskLookupReply, TaskStatus
from domain.tasks.names import LaneName, TaskId, parse_task_id, split_type_id
from infra import log, metrics, outages
from infra.database import Database
from infra.housekeeping import LONGEST_SECONDS, remove_in_batches_within_time
from services.services import Services
from stores.tasks import archive, contents, lanes
from stores.tasks.contents import StoredTextReference

RUNS_MAX: Final = 5_000
"""Runs deleted by one execution; the next one continues."""
BATCH: Final = 1_000
KEYS_PER_QUERY: Final = 500
ASKING_BESIDE_SILENT_LANES_SECONDS: Final = 60.0
UNCHECKED_FOR: Final = timedelta(days=1)
"""After this time a text belongs to its task, or never will."""

LANE_ERRORS: Final = (RPCError, WorkflowQueryFailedError)
"""A lane does not answer: its worker is away, or cannot go on with it."""

_QUERY_TIMEOUT: Final = timedelta(seconds=10)

_log = log.get(__name__)


class LaneActivities:
    """Activities that save what lanes hold."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name="task_save_checkpoint")
    async def save_checkpoint(self, checkpoint: CheckpointInput) -> LanePassedByTypeResult:
        """Save a lane's head and its ended tasks in one transaction."""
        result = await lanes.save_checkpoint(self._database, checkpoint)
        _count_and_log_ended_tasks(checkpoint)
        return result

    @activity.defn(name="task_close_lane")
    async def remove_open_lane(self, lane: CloseLaneInput) -> None:
        """Remove a lane from the open lanes of its type."""
        await lanes.remove_lane_and_advance_type(self._database, lane)
        _log.info("task_lane_closed", type=lane.type, pos=lane.pos)


def _count_and_log_ended_tasks(checkpoint: CheckpointInput) -> None:
    """Count the tasks that a checkpoint has archived, and log them in one line.

    An attempt that is repeated after its transaction counts them once more.
    """
    if not checkpoint.ended:
        return
    counts: Counter[str] = Counter()
    for task in checkpoint.ended:
        state = TaskStatus(task.status).name.lower()
        counts[state] += 1
        metrics.TASK_SECONDS.labels(state).observe((task.modify_time - task.create_time) / 1_000)
    for state, count in counts.items():
        metrics.TASKS_ENDED.labels(state).inc(count)
    project_id, name = split_type_id(checkpoint.type)
    _log.info("tasks_ended", project_id=project_id, type=name, pos=checkpoint.pos, **counts)


class TaskHousekeeping:
    """The activity that removes what is past its retention."""

    def __init__(self, services: Services) -> None:
        self._engine = services.engine
        self._database = services.database
        self._locator = TextReferenceFinder(services.engine, services.database, activity.heartbeat)
        self._runs_retention = timedelta(hours=services.settings.tasks.runs_kept_hours)
        self._archive_retention = timedelta(days=services.settings.tasks.archive_kept_days)

    @activity.defn(name=names.PURGE)
    async def purge_expired_tasks_texts_and_runs(self) -> None:
        """Remove old runs, tasks and texts. Lanes are queried last, because they may not answer."""
        await self._delete_old_lane_runs()
        tasks = 0
        if self._archive_retention:
            tasks = await remove_expired_tasks(
                self._database, self._locator, self._archive_retention, activity.heartbeat
            )
        texts = await remove_unused_texts(self._database, self._locator)
        if tasks or texts:
            _log.info("tasks_removed", tasks=tasks, texts=texts)

    async def _delete_old_lane_runs(self) -> None:
        """Delete the histories of runs that continued as new: each holds every task once for each request about it."""
        before = datetime.now(UTC) - self._runs_retention
        query = (
            f"WorkflowType = 'TaskLane' AND ExecutionStatus = 'ContinuedAsNew' AND CloseTime < '{before.isoformat()}'"
        )
        # Listed before the first is deleted, because a deletion shifts the pages of the list.
        runs = [(each.id, each.run_id) async for each in self._engine.list_workflows(query, limit=RUNS_MAX)]
        for workflow_id, run_id in runs:
            await self._delete_run(WorkflowExecution(workflow_id=workflow_id, run_id=run_id))
            activity.heartbeat()
        if runs:
            _log.info("task_runs_removed", runs=len(runs))

    async def _delete_run(self, run: WorkflowExecution) -> None:
        request = DeleteWorkflowExecutionRequest(namespace=self._engine.namespace, workflow_execution=run)
        try:
            await self._engine.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            # The list shows a deleted run for a while.
            if not outages.is_workflow_or_schedule_missing(error):
                raise


@dataclass(frozen=True, slots=True)
class TextReferences:
    """The references to long texts of each task that exists, by task id, and the tasks whose lanes do not answer."""

    by_task: dict[str, frozenset[str]]
    unanswered: set[str]


class TextReferenceFinder:
    """Finds tasks in open lanes first and then in the archive, so that one archived meanwhile is not missed.

    Args:
        heartbeat: Called after each reply of a lane.
    """

    def __init__(self, engine: Client, database: Database, heartbeat: Callable[[], object]) -> None:
        self._engine = engine
        self._database = database
        self._heartbeat = heartbeat

    async def list_text_references(self, task_ids: Collection[str]) -> TextReferences:
        """Return the references to long texts of each task that exists, as far as its lane answers.

        Where lanes do not, the others have a minute: each that is silent costs seconds, and an attempt has minutes.
        """
        found, unanswered = dict[str, frozenset[str]](), set[str]()
        asked_until = time.monotonic() + ASKING_BESIDE_SILENT_LANES_SECONDS
        for lane, ids in (await self._group_by_open_lane(task_ids)).items():
            if unanswered and time.monotonic() > asked_until:
                unanswered.update(map(str, ids))
                continue
            try:
                found |= await self._query_lane_text_references(lane, ids)
            except LANE_ERRORS as error:
                _log.warning("task_texts_not_checked", type=lane[0], pos=lane[1], error=repr(error))
                unanswered.update(map(str, ids))
                self._heartbeat()
        rest = [each for each in task_ids if each not in found]
        return TextReferences(found | await archive.list_text_references(self._database, rest), unanswered)

    async def list_live_text_references(self, task_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the references to long texts of each task that is in a lane, by task id."""
        found: dict[str, frozenset[str]] = {}
        for lane, ids in (await self._group_by_open_lane(task_ids)).items():
            found |= await self._query_lane_text_references(lane, ids)
        return found

    async def _query_lane_text_references(self, lane: LaneName, ids: Sequence[TaskId]) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for at in range(0, len(ids), KEYS_PER_QUERY):
            async for task in self._query_lane_tasks(lane, [each.key for each in ids[at : at + KEYS_PER_QUERY]]):
                task_id = str(TaskId(task.key, split_type_id(lane[0])[1], lane[1]))
                found[task_id] = archive.get_references_of_long_texts(task.content, task.log, task.flags)
        return found

    async def _group_by_open_lane(self, task_ids: Collection[str]) -> dict[LaneName, list[TaskId]]:
        """Group ids by the open lanes that may have them, in any project; a closed lane has no task left."""
        by_name: dict[tuple[str, int], list[TaskId]] = defaultdict(list)
        for each in filter(None, map(parse_task_id, task_ids)):
            by_name[each.name, each.pos].append(each)
        rows = await lanes.list_open_lanes_by_name(self._database, {name for name, _ in by_name})
        return {(row.type, row.pos): by_name[row.name, row.pos] for row in rows if (row.name, row.pos) in by_name}

    async def _query_lane_tasks(self, lane: LaneName, keys: Sequence[str]) -> AsyncIterator[Task]:
        handle = self._engine.get_workflow_handle(names.build_lane_workflow_id(lane))
        while keys:
            try:
                reply = await handle.query(
                    names.LOOK_UP, TaskLookup(list(keys)), result_type=TaskLookupReply, rpc_timeout=_QUERY_TIMEOUT
                )
            except RPCError as error:
                # It has closed meanwhile, or is not started yet.
                if outages.is_workflow_or_schedule_missing(error):
                    return
                raise
            self._heartbeat()
            for task in filter(None, reply.tasks):
                yield task
            keys = keys[len(reply.tasks) :]


async def remove_expired_tasks(
    database: Database, locator: TextReferenceFinder, retention: timedelta, heartbeat: Callable[[], object]
) -> int:
    """Remove archived tasks that ended longer ago than the retention; return how many. Counts of tasks stay."""
    before = round((datetime.now(UTC) - retention).timestamp() * 1_000)
    # Not by `remove_in_batches_within_time`: all types share the time, and a batch that lanes still have is no end.
    until = time.monotonic() + LONGEST_SECONDS
    removed = 0
    for type_ in await archive.list_all_types(database):
        for status in FINAL:
            since, is_over = 0, False
            while not is_over and time.monotonic() < until:
                expired = await archive.list_expired_archived_tasks(database, type_, int(status), since, before, BATCH)
                try:
                    count = await _remove_tasks_not_in_lanes(database, locator, [each.task_id for each in expired])
                except LANE_ERRORS as error:
                    _log.warning("expired_tasks_kept", type=type_, error=repr(error))
                    break  # the other types do not wait for a lane of this one
                finally:
                    heartbeat()
                is_over = len(expired) < BATCH or (not count and expired[-1].create_time == since)
                since = expired[-1].create_time if expired else since
                removed += count
    return removed


async def _remove_tasks_not_in_lanes(database: Database, locator: TextReferenceFinder, task_ids: Sequence[str]) -> int:
    # A lane that still has an archived task archives it again, and it would be counted twice.
    live = await locator.list_live_text_references(task_ids)
    archived = [task_id for task_id in task_ids if task_id not in live]
    if archived:
        await archive.delete_tasks_texts_and_keys(database, archived)
    return len(archived)


async def remove_unused_texts(database: Database, locator: TextReferenceFinder) -> int:
    """Remove texts that no task refers to, because it was not created or has another text by now; return how many.

    Those of a lane that does not answer are checked a day later, and hold up no others.
    """
    before = datetime.now(UTC) - UNCHECKED_FOR
    removed = 0

    async def check_batch(limit: int) -> int:
        """Return how many texts were looked at, as those that are in use are not looked at again."""
        nonlocal removed
        texts = await contents.list_unchecked_texts(database, before, limit)
        removed += await _remove_unreferenced_texts(database, locator, texts, before)
        return len(texts)

    await remove_in_batches_within_time(check_batch, BATCH)
    return removed


async def _remove_unreferenced_texts(
    database: Database, locator: TextReferenceFinder, texts: Sequence[StoredTextReference], before: datetime
) -> int:
    if not texts:
        return 0
    references = await locator.list_text_references({each.task_id for each in texts})
    unanswered = [each for each in texts if each.task_id in references.unanswered]
    unused = [
        each
        for each in texts
        if each.task_id not in references.unanswered and each.ref not in references.by_task.get(each.task_id, ())
    ]
    await contents.delete_unused_texts(database, unused, unanswered, before, texts[-1].written_at)
    return len(unused)
