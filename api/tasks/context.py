"""Routes of tasks, and what their handlers share in this process: lanes, heads, types, keys and texts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from aiohttp import web
from prometheus_client import Counter
from temporalio.service import RPCError

from api.batching import BatchedLookup, UncachedReadByKey
from api.http import problems
from api.http.problems import RETRY_AFTER_SECONDS, Problem, QuotaProblem
from api.http.routes import JSON, Call, Routes
from api.tasks.lane_caches import LaneHeadCache
from api.tasks.lanes import LANES_MAX, CancelOperation, LaneClient
from api.tasks.quotas import OpenTaskQuotaCounter
from api.tasks.responses import PROBLEM_CODES, SET_REFUSED, TASK_UNKNOWN, ResponseCode, build_failure_fields
from api.tasks.storage import TYPE_UNKNOWN, CachedTaskType, ChosenTaskIdStore, LongTextStore, TypeCache
from domain.faults import Conflict, Missing
from domain.tasks.activity_models import LaneInput
from domain.tasks.messages import (
    CreateOperation,
    HeartbeatOperation,
    LaneHead,
    OperationCode,
    OperationCodeText,
    SetOperation,
    Task,
    TaskTypeRules,
)
from domain.tasks.names import LaneName, TaskId, TaskIdText, build_type_id, parse_task_id, split_type_id
from domain.tasks.state import get_code_for_late_set
from infra import log
from services.services import Services
from stores.tasks import archive
from workflows.tasks import handle
from workflows.tasks.handle import LaneClosed

EARLY_START_PERCENT = 60
"""Fill level of a lane at which the next one is started. A type with thousands of creates a second fills the rest in
200 ms."""
ARCHIVED_TASKS_PER_READ = 500
PRIORITY_FIELDS = ("task_priority", "priority")

TASKS = Counter("haulage_tasks", "Tasks by what this process did with them.", ["project", "type", "event"])

_REASONS = {
    OperationCode.FINAL: "has ended already, and its state is final",
    OperationCode.STALE: "is not held under this lease: the lease has expired, or was never granted",
    OperationCode.NO_ROOM: "has no room for so long a text right now",
    OperationCode.NO_LEASE: "is of a type that takes no result without a lease",
}
_HINTS = {OperationCode.NO_LEASE: "Send the lease that hold_tasks returned with the task."}
_DEFAULT_HINT = "Stop working on it, and hold another one."
_log = log.get(__name__)


class TaskContext:
    """State of one API process, and the operations that several handlers need."""

    def __init__(self, services: Services) -> None:
        self.database = services.database
        self.heads = LaneHeadCache(services.database)
        self.lanes = LaneClient(services.engine, self._update_head_and_start_next_lane_early)
        self.types = TypeCache(services.database, services.settings.tasks.lane_max_tasks)
        self.texts = LongTextStore(services.database)
        self._archived = BatchedLookup(partial(archive.find_archived_tasks, services.database), ARCHIVED_TASKS_PER_READ)
        self.keys = ChosenTaskIdStore(services.database)
        self.open_tasks = OpenTaskQuotaCounter(services.database)
        self._engine = services.engine
        self._openings = UncachedReadByKey(self._advance_type_to_lane_and_start_it_unless_past)
        self._starts: dict[LaneName, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._counters: dict[tuple[str, str], Counter] = {}

    def add_to_task_metric(self, type_: str, event: str, tasks: int = 1) -> None:
        """Add to the metric `haulage_tasks`."""
        counter = self._counters.get((type_, event))
        if counter is None:
            # Looking up the labels takes longer than counting.
            counter = self._counters[type_, event] = TASKS.labels(*split_type_id(type_), event)
        counter.inc(tasks)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what the caller of a request does not wait for."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def parse_task_id_and_type(self, call: Call, task_id: str) -> tuple[TaskId, CachedTaskType]:
        """Parse a task id, and return it with the type of the task.

        Raises:
            Missing: It is not the id of a task of the caller's project.
        """
        parsed = parse_task_id(task_id)
        task_type = parsed and await self.find_type_of_task(parsed, call.project_filter)
        if not parsed or not task_type:
            raise build_unknown_task_fault(task_id)
        return parsed, task_type

    async def find_type_of_task(self, task_id: TaskId, scope: str | None) -> CachedTaskType | None:
        """Return the type of a task, if the project has it and it has reached the task's lane."""
        if scope is None:
            return await self._find_type_in_any_project(task_id)
        task_type = self.types.get_cached_unless_stale(task_id.name, scope)
        if task_type is None or task_type.end_pos < task_id.pos:
            task_type = await self.types.reload_type(build_type_id(scope, task_id.name))
        return task_type if task_type and task_type.end_pos >= task_id.pos else None

    async def _find_type_in_any_project(self, task_id: TaskId) -> CachedTaskType | None:
        """Return the type of a task; of several projects with a type of that name, the one that has the task."""
        candidates = [
            each for each in await self.types.list_types_with_name(task_id.name, None) if each.end_pos >= task_id.pos
        ]
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        archived_type = await archive.find_type_of_archived_task(self.database, str(task_id))
        for task_type in candidates:
            if task_type.type == archived_type or await self.find_in_lane(task_id, task_type):
                return task_type
        return None

    async def find_in_lane_or_archive(self, task_id: TaskId, task_type: CachedTaskType) -> Task | None:
        """Find a task in its lane, or else in the archive."""
        return await self.find_in_lane(task_id, task_type) or await self.find_in_archive(str(task_id), task_type)

    async def find_in_lane(self, task_id: TaskId, task_type: CachedTaskType) -> Task | None:
        """Find a task in its lane."""
        if task_id.pos >= task_type.begin_pos:
            with suppress(LaneClosed):
                return await self.lanes.read_task((task_type.type, task_id.pos), task_id.key)
        return None

    async def find_in_archive(self, task_id: TaskIdText, task_type: CachedTaskType) -> Task | None:
        """Find an ended task of this type; another project may have a type of the same name."""
        return await self._archived.look_up_in_next_batch((task_type.type, task_id))

    async def create_task_unless_type_removed(
        self, lane: LaneName, task_type: CachedTaskType, new: CreateOperation
    ) -> OperationCodeText:
        """Create a task in its lane, also if the lane has the rules of a removal that did not remove the type.

        Raises:
            LaneClosed: The lane is closed, or was not started.
            Missing: The type was removed.
        """
        while (code := await self.lanes.create_task(lane, task_type.rules, new)) == OperationCode.REMOVED:
            current = await self.types.replace_removal_rules(task_type)
            if current is None:
                raise Missing(
                    TYPE_UNKNOWN, f"The type {task_type.name!r} was removed.", "Register it again to keep it."
                )
            task_type = current
        return code

    async def change_task(
        self,
        task_type: CachedTaskType,
        task_id: TaskId,
        operation: SetOperation | HeartbeatOperation | CancelOperation,
    ) -> OperationCodeText:
        """Change a task in its lane; return the `OperationCode`, `MISSING` if the lane is closed."""
        try:
            return await self.lanes.change_task((task_type.type, task_id.pos), task_type.rules, operation)
        except LaneClosed:
            return OperationCode.MISSING

    async def get_code_for_archived_task(
        self, task_id: TaskIdText, task_type: CachedTaskType, set_operation: SetOperation
    ) -> OperationCodeText:
        """Return the code for a set of a task that is not in its lane: one whose response got lost may be repeated."""
        archived = await self.find_in_archive(task_id, task_type)
        if archived is None:
            return OperationCode.MISSING
        return get_code_for_late_set(archived, set_operation)

    async def apply_rules_in_open_lanes(self, type_: str, rules: TaskTypeRules) -> None:
        """Return when all open lanes of a type apply these rules or newer ones."""

        async def send_rules_or_forget_closed_lane(pos: int) -> None:
            try:
                await self.lanes.send_rules_and_wait_until_applied((type_, pos), rules)
            except LaneClosed:
                self.heads.remove_lane((type_, pos))

        await asyncio.gather(*map(send_rules_or_forget_closed_lane, await self.heads.list_open_lanes(type_)))

    async def open_next_lane(self, task_type: CachedTaskType, pos: int) -> CachedTaskType:
        """Open a lane behind a full one, unless it is open; return the type with its current positions."""
        if self.types.get_last_pos(task_type.type) <= pos:
            current = await self.types.reload_type(task_type.type)
            if current is not None and current.end_pos == pos:
                await self.open_lane_unless_past((task_type.type, pos + 1))
        name, project_id = task_type.name, task_type.project_id
        return self.types.get_cached_unless_stale(name, project_id) or await self.types.require_type(name, project_id)

    async def open_lane_unless_past(self, lane: LaneName) -> None:
        """Add a lane to its type and start it, unless the type has gone past it."""
        await self._openings.read_anew(lane)

    async def _advance_type_to_lane_and_start_it_unless_past(self, lane: LaneName) -> None:
        if not await self.types.advance_to_lane_unless_past(*lane):
            return
        # An early start is relied on once: if the lane is not found later, it is started again.
        start = self._starts.pop(lane, None) or asyncio.create_task(self._start_lane(lane))
        await start

    def _update_head_and_start_next_lane_early(self, lane: LaneName, head: LaneHead) -> None:
        """Learn a head from a reply, and start the next lane before this one is full, so that no request waits."""
        type_, pos = lane
        self.heads.update_and_announce_newly_due(lane, head)
        following = (type_, pos + 1)
        is_last = self.types.get_last_pos(type_) == pos
        if head.fill_percent >= EARLY_START_PERCENT and is_last and following not in self._starts:
            if len(self._starts) >= LANES_MAX:
                self._starts = {lane: start for lane, start in self._starts.items() if not start.done()}
            self._starts[following] = asyncio.create_task(self._start_lane_early_or_log_failure(following))

    async def _start_lane_early_or_log_failure(self, lane: LaneName) -> None:
        try:
            await self._start_lane(lane)
        except (RPCError, OSError) as error:
            # It is started when it is needed.
            self._starts.pop(lane, None)
            _log.warning("lane_start_failed", type=lane[0], pos=lane[1], error=repr(error))

    async def _start_lane(self, lane: LaneName) -> None:
        type_, pos = lane
        # Rules of version 0: the first batch carries the current ones.
        lane_input = LaneInput(type=type_, pos=pos, rules=TaskTypeRules())
        await handle.start_lane(self._engine, lane_input, f"lane {pos} of {split_type_id(type_)[1]}")


CONTEXT = web.AppKey("tasks_context", TaskContext)


def get_task_context(call: Call) -> TaskContext:
    """Return the context of the process."""
    return call.request.app[CONTEXT]


def _attach_task_context_and_background_loops(app: web.Application, services: Services) -> None:
    context = app[CONTEXT] = TaskContext(services)

    async def run_loops_while_serving(_app: web.Application) -> AsyncIterator[None]:
        heads = context.heads
        loops = (
            heads.sum_lanes_by_type_and_set_gauges_forever(),
            heads.follow_notifications(),
            heads.send_announcements_forever(),
        )
        running = [asyncio.create_task(each) for each in loops]
        yield
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    app.cleanup_ctx.append(run_loops_while_serving)


def _render_problem_as_envelope(problem: Problem) -> web.Response:
    """Render a problem as an envelope with HTTP 200, or 429 beyond a quota; 401 looks as on every other route."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return problems.render_problem(problem)
    body = build_failure_fields(_choose_response_code(problem), problem.detail)
    if problem.errors:
        body["errors"] = [error.model_dump() for error in problem.errors]
    response = web.Response(body=json.dumps(body, ensure_ascii=False).encode(), content_type=JSON)
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(problem, QuotaProblem):
        # flowSvr's client looks at the envelope alone; all others know the status.
        response.set_status(problem.status)
        response.headers["Retry-After"] = str(problem.retry_after_seconds)
    return response


def _choose_response_code(problem: Problem) -> ResponseCode:
    if problem.code in PROBLEM_CODES:
        return PROBLEM_CODES[problem.code]
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ResponseCode.PROCESS
    if problem.errors and all(error.path.rpartition(".")[2] in PRIORITY_FIELDS for error in problem.errors):
        return ResponseCode.PRIORITY
    return ResponseCode.INPUT


routes = Routes(
    "tasks",
    "Queues of tasks for external workers, which hold tasks, do them and report the results.",
    render=_render_problem_as_envelope,
    attach=_attach_task_context_and_background_loops,
    headerless=True,
)


def build_unknown_task_fault(task_id: str) -> Missing:
    """Build the error for an id that names no task of the project."""
    return Missing(
        TASK_UNKNOWN, f"There is no task {task_id!r} for this key.", "Check the id that create_task answered."
    )


def raise_if_code_is_failure(code: OperationCodeText, task_id: str) -> None:
    """Raise the error of an `OperationCode`; nothing for a code of success."""
    if code == OperationCode.MISSING:
        raise build_unknown_task_fault(task_id)
    if code in _REASONS:
        raise Conflict(SET_REFUSED, f"The task {task_id} {_REASONS[code]}.", _HINTS.get(code, _DEFAULT_HINT))
