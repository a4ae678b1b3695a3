"""A worker: holds as many tasks as it can run, runs their stages, and reports the results."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from inspect import isawaitable
from typing import Protocol

from haulage.errors import HaulageError, RequestRefused
from haulage.tasks.client import UNAVAILABLE
from haulage.tasks.handlers import Handler, NextStage, TaskFailed
from haulage.tasks.models import HeldTask, RegisteredType, Status, TaskEntryOutcome, TaskResult
from haulage.tasks.prefetch import PrefetchSizeEstimator
from haulage.tasks.refusals import TaskRequestRefused
from haulage.tasks.reports import ResultReceiver, ResultSender
from haulage.tasks.results import (
    LOG_ERROR_CHARACTERS,
    append_attempt_to_log,
    build_failed_attempt_result,
    build_result,
    describe_error,
)
from haulage.transport import NO_HAULAGE_API

JITTER_SECONDS = 0.5
CONFIG_SECONDS = 10.0
"""Maximum age of the type's configuration."""
WAIT_SECONDS = 10.0
"""How long a hold waits for a task. A change of the type takes effect after this time and the configuration's age."""
EARLY_SECONDS = 1.0
"""An empty response that arrives sooner did not wait at the queue, so the worker pauses before the next hold."""
HEARTBEATS_PER_LEASE = 3
REPORTS_MAX = 1_000
"""Results being sent at which the worker holds no more tasks."""
UNUSABLE = 8020
"""Code: a result has a field that the API refuses, for example a stage of more than 32 bytes."""
TYPE_UNKNOWN = 8045

_log = logging.getLogger(__name__)


class TaskQueueClient(ResultReceiver, Protocol):
    """The part of `Tasks` that a worker uses."""

    async def types(self) -> list[RegisteredType]:
        """Return the types of the project."""

    async def hold(self, task_type: str, *, limit: int | None = None, wait_seconds: float = 0.0) -> list[HeldTask]:
        """Hold due tasks."""

    async def heartbeat(self, held: Sequence[HeldTask]) -> list[TaskEntryOutcome]:
        """Renew leases."""


class Worker:
    """Runs the tasks of one type until `stop` is called.

    It holds tasks whenever it has capacity, and waits at the queue while none is due. Leases are renewed as long as a
    task waits or runs here. If a lease is lost, for example because the task was cancelled, the handler is cancelled.
    The worker ends by itself on errors that retries cannot resolve: an invalid key, an unknown type, or a handler that
    is not async.

    Args:
        tasks: The client.
        task_type: The type of the tasks.
        handlers: Handlers by stage; new tasks have the stage that they were created with, "" by default.
        concurrency: Number of tasks that run at a time.
        backlog: Number of tasks to hold ahead, so that the worker is never idle; 0 if another worker could begin them
            at once. None: the concurrency, or as many as finish in a quarter of a second.
        keep_interval: Hold tasks every `schedule_interval` of the type instead of waiting at the queue.
        stop_seconds: How long running tasks may continue after `stop`; the others return to the queue.
        jitter_seconds: Variation of the interval, so that many workers do not hold at the same time.

    Raises:
        ValueError: There is no handler, or an option is out of range.
    """

    def __init__(
        self,
        tasks: TaskQueueClient,
        task_type: str,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        backlog: int | None = None,
        keep_interval: bool = False,
        stop_seconds: float = 30.0,
        jitter_seconds: float = JITTER_SECONDS,
    ) -> None:
        _require_valid_options(handlers, concurrency, backlog, stop_seconds)
        self._tasks = tasks
        self._type = task_type
        self._handlers = handlers
        self._concurrency = concurrency
        self._prefetch = PrefetchSizeEstimator(concurrency, backlog)
        self._keeps_interval = keep_interval
        self._turns = asyncio.Semaphore(concurrency)
        self._sender = ResultSender(tasks)
        self._stop_seconds = stop_seconds
        self._jitter_seconds = jitter_seconds
        self._stopping = asyncio.Event()
        self._broken: Exception | None = None
        """The error that `run` raises."""
        self._has_capacity = asyncio.Event()
        self._held: dict[asyncio.Task[None], HeldTask] = {}
        self._begun: set[asyncio.Task[None]] = set()
        self._leased_until: dict[asyncio.Task[None], float] = {}
        """Earliest expiry of each lease, by the monotonic clock of this process."""
        self._reported: set[asyncio.Task[None]] = set()
        """Tasks whose handlers have ended and whose results are being sent."""
        self._lost: set[asyncio.Task[None]] = set()
        self._config: RegisteredType | None = None
        self._config_read_at = float("-inf")

    def stop(self) -> None:
        """Hold no more tasks; `run` returns when none is left here. It may be called from a signal handler."""
        self._stopping.set()
        self._has_capacity.set()

    async def run(self) -> None:
        """Hold tasks, run them and report their results until `stop` is called.

        Raises:
            RequestRefused: The key is invalid, or there is no API at the address.
            TaskRequestRefused: The project has no such type.
            TypeError: A handler is not async.
        """
        heartbeats = asyncio.create_task(self._renew_leases_and_cancel_lost())
        try:
            while not self._stopping.is_set():
                await self._wait_until_half_prefetch_is_free()
                if not self._stopping.is_set():
                    await self._sleep_unless_stopped(await self._hold_and_start_tasks())
            await self._finish_or_return_tasks()
            if self._broken:
                raise self._broken
        finally:
            heartbeats.cancel()
            for asyncio_task in self._held:
                asyncio_task.cancel()
            await asyncio.gather(heartbeats, *self._held, return_exceptions=True)

    def _count_free_places(self) -> int:
        """Return how many more tasks the worker may hold."""
        if len(self._reported) >= REPORTS_MAX:
            return 0
        return self._concurrency + self._prefetch.get_size() - (len(self._held) - len(self._reported))

    async def _wait_until_half_prefetch_is_free(self) -> None:
        """Wait until half of the tasks held ahead have begun: a hold for many tasks costs little more than for one."""
        while not self._stopping.is_set() and self._count_free_places() < max(1, (self._prefetch.get_size() + 1) // 2):
            self._has_capacity.clear()
            await self._has_capacity.wait()

    async def _hold_and_start_tasks(self) -> float:
        """Hold as many tasks as there is capacity for; return the seconds until the next hold."""
        try:
            config = await self._get_recent_type_config()
            began = time.monotonic()
            # Fewer may be held ahead than when the capacity was awaited; a limit of 0 would be the type's.
            if (limit := min(self._count_free_places(), config.schedule_limit)) < 1:
                return 0.0
            held = await self._hold_until_stopped(limit)
        except HaulageError as error:
            if self._is_refused_for_good(error):
                self._stop_with_error(error)
                return 0.0
            _log.warning("hold_failed: type %s: %s", self._type, error)
            return self._compute_jittered_interval()
        for task in held:
            asyncio_task = asyncio.create_task(self._run_attempt_and_send_result(task))
            self._held[asyncio_task] = task
            self._leased_until[asyncio_task] = time.monotonic() + config.max_processing_time
            asyncio_task.add_done_callback(self._forget_ended_task)
        if self._keeps_interval:
            return self._compute_jittered_interval()
        has_waited = time.monotonic() - began >= EARLY_SECONDS
        return 0.0 if held or has_waited else min(EARLY_SECONDS, config.schedule_interval)

    def _is_refused_for_good(self, error: HaulageError) -> bool:
        """Return whether a retry cannot help, because the request itself is refused."""
        if isinstance(error, TaskRequestRefused):
            return error.code in (UNUSABLE, TYPE_UNKNOWN)
        if not isinstance(error, RequestRefused) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return False
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            return False
        # A proxy may answer while an API is being replaced; without a response before, the address is wrong.
        return error.code != NO_HAULAGE_API or self._config is None

    def _stop_with_error(self, error: Exception) -> None:
        """Hold no more tasks, and let `run` raise the error when the running ones have ended."""
        _log.error("worker_ended: type %s: %s", self._type, error)
        self._broken = self._broken or error
        self.stop()

    async def _hold_until_stopped(self, limit: int) -> list[HeldTask]:
        """Hold tasks, or return none if the worker stops; the API returns tasks of an aborted request to the queue."""
        wait_seconds = 0.0 if self._keeps_interval else WAIT_SECONDS
        holding = asyncio.create_task(self._tasks.hold(self._type, limit=limit, wait_seconds=wait_seconds))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((holding, stopping), return_when=asyncio.FIRST_COMPLETED)
            return holding.result() if holding.done() else []
        finally:
            holding.cancel()
            stopping.cancel()
            await asyncio.gather(holding, stopping, return_exceptions=True)

    def _forget_ended_task(self, asyncio_task: asyncio.Task[None]) -> None:
        del self._held[asyncio_task], self._leased_until[asyncio_task]
        for marked in (self._lost, self._begun, self._reported):
            marked.discard(asyncio_task)
        self._has_capacity.set()
        if not asyncio_task.cancelled() and (error := asyncio_task.exception()):
            _log.error("task_result_lost: type %s: %r", self._type, error)

    async def _get_recent_type_config(self) -> RegisteredType:
        """Return the type's configuration, at most `CONFIG_SECONDS` old."""
        if self._config is None or self._config_read_at + CONFIG_SECONDS < time.monotonic():
            found = {each.task_type: each for each in await self._tasks.types()}
            if self._type not in found:
                raise TaskRequestRefused(
                    TYPE_UNKNOWN,
                    f"There is no type {self._type!r} in this project. Register it, then start the worker.",
                )
            self._config, self._config_read_at = found[self._type], time.monotonic()
        return self._config

    def _compute_jittered_interval(self) -> float:
        interval = self._config.schedule_interval if self._config else 1.0
        return max(0.0, interval + random.uniform(-self._jitter_seconds, self._jitter_seconds))

    async def _run_attempt_and_send_result(self, task: HeldTask) -> None:
        """Run one attempt of one stage and report its result."""
        asyncio_task = asyncio.current_task()
        assert asyncio_task  # noqa: S101 - this runs in a task
        try:
            async with self._turns:
                if not await self._renew_lease_if_expired(asyncio_task, task):
                    return
                self._begun.add(asyncio_task)
                result = await self._run_attempt(task)
        except asyncio.CancelledError:
            if asyncio_task in self._lost:
                return
            # Not begun, or still running when the worker stops: no failure is counted.
            result = build_result(task, Status.PENDING)
        self._reported.add(asyncio_task)
        self._prefetch.count_finished_task()
        self._has_capacity.set()
        if refusal := await self._send_result_and_get_refusal(task, result):
            await self._send_result_and_get_refusal(
                task, build_failed_attempt_result(task, ValueError(f"the API did not take its result: {refusal}"), 0.0)
            )

    async def _renew_lease_if_expired(self, asyncio_task: asyncio.Task[None], task: HeldTask) -> bool:
        """Return whether a task that was held ahead may begin: its lease has not expired, or was renewed.

        A process that was stopped for longer than a lease must not begin a task that another worker holds by now, so an
        expired lease is renewed first.
        """
        if time.monotonic() < self._leased_until[asyncio_task]:
            return True
        try:
            [outcome] = await self._tasks.heartbeat([task])
        except HaulageError as error:
            _log.warning("task_lost: task %s: the lease expired before the task began: %s", task.task_id, error)
            return False
        if not outcome.good:
            _log.warning("task_lost: task %s: %s", task.task_id, outcome.msg)
        return outcome.good

    async def _run_attempt(self, task: HeldTask) -> TaskResult:
        began = time.monotonic()
        try:
            next_ = await self._call_handler_or_stop_worker(task)
            if next_ is not None and not isinstance(next_, NextStage):
                raise TypeError(f"the handler returned {next_!r:.100}; let it return None or NextStage(stage, content)")
            if next_ is None:
                return build_result(task, Status.SUCCESS)
            return build_result(task, Status.PENDING, task_stage=next_.stage, task_content=next_.content)
        except TaskFailed as error:
            return build_result(
                task, Status.FAILED, schedule_log=append_attempt_to_log(task, error, time.monotonic() - began)
            )
        except asyncio.CancelledError as error:
            if _is_current_task_cancelled():
                raise
            # The handler awaited something that was cancelled: an error like any other.
            _log.warning("task_failed: task %s: its handler raised CancelledError", task.task_id)
            return build_failed_attempt_result(task, error, time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - any error of a handler fails the attempt
            reason = describe_error(error)[:LOG_ERROR_CHARACTERS]
            _log.warning("task_failed: task %s, attempt %d: %s", task.task_id, task.crt_retry_num + 1, reason)
            return build_failed_attempt_result(task, error, time.monotonic() - began)

    def _call_handler_or_stop_worker(self, task: HeldTask) -> Awaitable[NextStage | None]:
        """Call a task's handler. One that is not async would do the work and count every task as failed."""
        begun: object = self._find_handler(task)(task)
        if not isawaitable(begun):
            error = TypeError(
                f"the handler for the stage {task.stage!r} is not async: it returned {begun!r:.100}, which cannot be "
                "awaited. Define it with `async def`, and let `await asyncio.to_thread(…)` do what computes or blocks."
            )
            self._stop_with_error(error)
            raise error
        return begun

    def _find_handler(self, task: HeldTask) -> Handler:
        if task.stage not in self._handlers:
            known = ", ".join(map(repr, self._handlers))
            raise LookupError(f"no handler for the stage {task.stage!r}; this worker has {known}")
        return self._handlers[task.stage]

    async def _send_result_and_get_refusal(self, task: HeldTask, result: TaskResult) -> str:
        """Send a result; return why the API can never accept it, or an empty text."""
        try:
            outcome = await self._sender.send(result)
        except HaulageError as error:
            _log.warning("task_result_failed: task %s: status %s: %s", task.task_id, result.status.name, error)
        else:
            if not outcome.good:
                _log.warning(
                    "task_result_refused: task %s: status %s: %s", task.task_id, result.status.name, outcome.msg
                )
                return outcome.msg if outcome.code == UNUSABLE else ""
        return ""

    async def _renew_leases_and_cancel_lost(self) -> None:
        """Renew all leases several times before they expire, and cancel the handlers of lost ones."""
        while True:
            seconds = self._config.max_processing_time if self._config else 1.0
            await asyncio.sleep(seconds / HEARTBEATS_PER_LEASE)
            held = list(self._held.items())
            if not held:
                continue
            began = time.monotonic()
            try:
                outcomes = await self._tasks.heartbeat([task for _, task in held])
                answered = list(zip(held, outcomes, strict=True))
            except Exception as error:  # noqa: BLE001 - whatever it is, the leases must be renewed the next time
                _log.warning("heartbeat_failed: %d tasks of type %s: %r", len(held), self._type, error)
                continue
            for (asyncio_task, task), outcome in answered:
                if outcome.good and asyncio_task in self._held:
                    self._leased_until[asyncio_task] = began + seconds
                if outcome.code == UNAVAILABLE:
                    _log.warning("heartbeat_failed: task %s: %s", task.task_id, outcome.msg)
                # A task that has ended meanwhile is no longer held because of its result, whose response decides.
                elif not outcome.good and asyncio_task in self._held and asyncio_task not in self._reported:
                    _log.warning("task_lost: task %s: %s", task.task_id, outcome.msg)
                    self._lost.add(asyncio_task)
                    asyncio_task.cancel()

    async def _finish_or_return_tasks(self) -> None:
        """Let running tasks end; return those that wait or take too long to the queue."""
        for asyncio_task in self._held.keys() - self._begun:
            asyncio_task.cancel()
        if self._held:
            await asyncio.wait(list(self._held), timeout=self._stop_seconds)
        for asyncio_task in self._held.keys() - self._reported:
            asyncio_task.cancel()
        if self._held:
            await asyncio.wait(list(self._held))

    async def _sleep_unless_stopped(self, seconds: float) -> None:
        if not seconds:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def _is_current_task_cancelled() -> bool:
    """Return whether the current asyncio task itself is being cancelled."""
    asyncio_task = asyncio.current_task()
    return asyncio_task is not None and asyncio_task.cancelling() > 0


def _require_valid_options(
    handlers: Mapping[str, Handler], concurrency: int, backlog: int | None, stop_seconds: float
) -> None:
    if not handlers:
        raise ValueError("A worker without handlers would fail every task. Give one for each stage, as {'': handler}.")
    for name, value, least in (("concurrency", concurrency, 1), ("backlog", backlog, 0)):
        if value is not None and (not isinstance(value, int) or value < least):
            raise ValueError(f"{name} is {value!r}. Give a whole number from {least}.")
    if not stop_seconds >= 0:
        raise ValueError(f"stop_seconds is {stop_seconds!r}. Give a number from 0.")
