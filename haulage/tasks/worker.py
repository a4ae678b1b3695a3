"""The worker: holds as many tasks as it has room for, does them stage by stage, and says what became of each."""

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

from haulage.errors import HaulageError, Refused
from haulage.tasks.handlers import Handler, Next, TaskFailed
from haulage.tasks.models import HeldTask, Outcome, RegisteredType, Result, Status
from haulage.tasks.prefetch import Prefetch
from haulage.tasks.refusals import TaskRefused
from haulage.tasks.reports import Receiver, Reports
from haulage.tasks.results import LOG_ERROR_CHARACTERS, build_failure, build_result, describe_error, extend_log

JITTER_SECONDS = 0.5
CONFIG_SECONDS = 10.0
"""How old the type's configuration may be."""
WAIT_SECONDS = 10.0
"""How long a hold waits for a task; with the age of the configuration, how late a change of the type is heeded."""
EARLY_SECONDS = 1.0
"""An answer without a task that comes sooner has not waited: then the next hold does."""
BEATS_PER_LEASE = 3
REPORTS_MAX = 1_000
"""Results that may be under way before no more tasks are held."""
UNUSABLE = 8020
"""A result has a field that the API does not take, as a stage of more than 32 bytes."""
TYPE_UNKNOWN = 8045
NO_HAULAGE_API = "no_haulage_api"

_log = logging.getLogger(__name__)


class Queue(Receiver, Protocol):
    """What a worker needs of `Tasks`."""

    async def types(self) -> list[RegisteredType]:
        """The types of the project."""

    async def hold(self, task_type: str, *, limit: int | None = None, wait_seconds: float = 0.0) -> list[HeldTask]:
        """Tasks to do."""

    async def heartbeat(self, held: Sequence[HeldTask]) -> list[Outcome]:
        """They are still being done."""


class Worker:
    """Does the tasks of one type until it is told to stop.

    It asks for tasks whenever it has room, never for more than that, and waits at the queue while there is none. Leases
    are renewed as long as a task waits or runs here. A task that is lost meanwhile, as by a cancel, has its handler
    cancelled. It ends by itself where no answer can get better: with a key that opens nothing, without a type, or with
    a handler that is not async.

    Args:
        tasks: The client.
        task_type: Which tasks.
        handlers: What to do, by stage; new tasks have the stage that they were created with, "" if none was given.
        concurrency: How many tasks run at a time.
        backlog: How many more may wait here for their turn, so that nothing idles while the next are fetched; 0 where
            another worker could begin them at once. None: as many as may run, or as are done in a quarter of a second.
        keep_interval: Ask every `schedule_interval` of the type, whether or not there is something to do, instead of
            waiting at the queue.
        stop_seconds: How long `stop` lets running tasks go on; what is not done then goes back to the queue.
        jitter_seconds: By how much that interval varies, so that many workers do not ask at once.

    Raises:
        ValueError: There is no handler, or a number with which no task would ever be done.
    """

    def __init__(
        self,
        tasks: Queue,
        task_type: str,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        backlog: int | None = None,
        keep_interval: bool = False,
        stop_seconds: float = 30.0,
        jitter_seconds: float = JITTER_SECONDS,
    ) -> None:
        _check_options(handlers, concurrency, backlog, stop_seconds)
        self._tasks = tasks
        self._type = task_type
        self._handlers = handlers
        self._concurrency = concurrency
        self._prefetch = Prefetch(concurrency, backlog)
        self._keeps_interval = keep_interval
        self._turns = asyncio.Semaphore(concurrency)
        self._reports = Reports(tasks)
        self._stop_seconds = stop_seconds
        self._jitter_seconds = jitter_seconds
        self._stopping = asyncio.Event()
        self._broken: Exception | None = None
        """Why no task can be held or done any more."""
        self._has_room = asyncio.Event()
        self._held: dict[asyncio.Task[None], HeldTask] = {}
        self._begun: set[asyncio.Task[None]] = set()
        self._leased_until: dict[asyncio.Task[None], float] = {}
        """Until when, by this process's monotonic clock, the lease of each task lasts at least."""
        self._reported: set[asyncio.Task[None]] = set()
        """Those whose handlers are over and whose results are on their way."""
        self._lost: set[asyncio.Task[None]] = set()
        self._config: RegisteredType | None = None
        self._config_read_at = float("-inf")

    def stop(self) -> None:
        """Hold no more; `run` ends when what is here is done or given back. Fit for a signal handler."""
        self._stopping.set()
        self._has_room.set()

    async def run(self) -> None:
        """Hold, do and tell, until `stop`.

        Raises:
            Refused: The key opens nothing, or there is no API at the address.
            TaskRefused: The project has no such type.
            TypeError: A handler returned something that cannot be awaited.
        """
        beating = asyncio.create_task(self._beat())
        try:
            while not self._stopping.is_set():
                await self._wait_for_room()
                if not self._stopping.is_set():
                    await self._pause(await self._hold())
            await self._finish()
            if self._broken:
                raise self._broken
        finally:
            beating.cancel()
            for doing in self._held:
                doing.cancel()
            await asyncio.gather(beating, *self._held, return_exceptions=True)

    def _room(self) -> int:
        """How many tasks may be held more."""
        if len(self._reported) >= REPORTS_MAX:
            return 0
        return self._concurrency + self._prefetch.size() - (len(self._held) - len(self._reported))

    async def _wait_for_room(self) -> None:
        """Wait until half of what may wait here has begun: one hold for many tasks costs little more than for one."""
        while not self._stopping.is_set() and self._room() < max(1, (self._prefetch.size() + 1) // 2):
            self._has_room.clear()
            await self._has_room.wait()

    async def _hold(self) -> float:
        """Take what there is room for; return after how many seconds to ask again."""
        try:
            config = await self._current()
            began = time.monotonic()
            held = await self._ask(min(self._room(), config.schedule_limit))
        except HaulageError as error:
            if self._is_final(error):
                self._give_up(error)
                return 0.0
            _log.warning("no tasks of %s could be held: %s", self._type, error)
            return self._interval_seconds()
        for task in held:
            doing = asyncio.create_task(self._do(task))
            self._held[doing] = task
            self._leased_until[doing] = time.monotonic() + config.max_processing_time
            doing.add_done_callback(self._ended)
        if self._keeps_interval:
            return self._interval_seconds()
        has_waited = time.monotonic() - began >= EARLY_SECONDS
        return 0.0 if held or has_waited else min(EARLY_SECONDS, config.schedule_interval)

    def _is_final(self, error: HaulageError) -> bool:
        """Whether asking again cannot help: the request itself is refused, and will be as long as nobody acts."""
        if isinstance(error, TaskRefused):
            return error.code in (UNUSABLE, TYPE_UNKNOWN)
        if not isinstance(error, Refused) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return False
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            return False
        # A proxy may answer for an API that is being replaced; one that was never heard of is at another address.
        return error.code != NO_HAULAGE_API or self._config is None

    def _give_up(self, error: Exception) -> None:
        """Hold no more, and have `run` raise why once what runs here has ended."""
        _log.error("the worker for %s ends: %s", self._type, error)
        self._broken = self._broken or error
        self.stop()

    async def _ask(self, limit: int) -> list[HeldTask]:
        """Hold tasks; a stop breaks it off, and the API gives nothing to whoever has hung up."""
        wait_seconds = 0.0 if self._keeps_interval else WAIT_SECONDS
        asking = asyncio.create_task(self._tasks.hold(self._type, limit=limit, wait_seconds=wait_seconds))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else []
        finally:
            asking.cancel()
            stopping.cancel()
            await asyncio.gather(asking, stopping, return_exceptions=True)

    def _ended(self, doing: asyncio.Task[None]) -> None:
        del self._held[doing], self._leased_until[doing]
        for marked in (self._lost, self._begun, self._reported):
            marked.discard(doing)
        self._has_room.set()
        if not doing.cancelled() and (error := doing.exception()):
            _log.error("what became of a task of %s could not be told: %r", self._type, error)

    async def _current(self) -> RegisteredType:
        """The type as it is configured now, or was a moment ago."""
        if self._config is None or self._config_read_at + CONFIG_SECONDS < time.monotonic():
            found = {each.task_type: each for each in await self._tasks.types()}
            if self._type not in found:
                raise TaskRefused(
                    TYPE_UNKNOWN,
                    f"There is no type {self._type!r} in this project. Register it, then start the worker.",
                )
            self._config, self._config_read_at = found[self._type], time.monotonic()
        return self._config

    def _interval_seconds(self) -> float:
        interval = self._config.schedule_interval if self._config else 1.0
        return max(0.0, interval + random.uniform(-self._jitter_seconds, self._jitter_seconds))

    async def _do(self, task: HeldTask) -> None:
        """One attempt at one stage."""
        doing = asyncio.current_task()
        assert doing  # noqa: S101 - this is one
        try:
            async with self._turns:
                if not await self._is_leased(doing, task):
                    return
                self._begun.add(doing)
                result = await self._attempt(task)
        except asyncio.CancelledError:
            if doing in self._lost:
                return
            # Not begun, or not done when the worker stops: that is no failure.
            result = build_result(task, Status.PENDING)
        self._reported.add(doing)
        self._prefetch.note_done()
        self._has_room.set()
        if refusal := await self._tell(task, result):
            await self._tell(task, build_failure(task, ValueError(f"the API did not take its result: {refusal}"), 0.0))

    async def _is_leased(self, doing: asyncio.Task[None], task: HeldTask) -> bool:
        """Whether a task that has waited here may begin.

        A process that was stopped or starved for longer than a lease must not begin what others have by now: the
        lease is renewed first.
        """
        if time.monotonic() < self._leased_until[doing]:
            return True
        try:
            [outcome] = await self._tasks.heartbeat([task])
        except HaulageError as error:
            _log.warning("task %s is lost: its lease ran out before it could begin: %s", task.task_id, error)
            return False
        if not outcome.good:
            _log.warning("task %s is lost: %s", task.task_id, outcome.msg)
        return outcome.good

    async def _attempt(self, task: HeldTask) -> Result:
        began = time.monotonic()
        try:
            next_ = await self._begin(task)
            if next_ is not None and not isinstance(next_, Next):
                raise TypeError(f"the handler returned {next_!r:.100}; let it return None or Next(stage, content)")
        except TaskFailed as error:
            return build_result(task, Status.FAILED, schedule_log=extend_log(task, error, time.monotonic() - began))
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # Something of its own that the handler waited for was cancelled: an error like any other.
            _log.warning("task %s failed: its handler raised CancelledError", task.task_id)
            return build_failure(task, error, time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - whatever it was, the task is retried as its type says
            _log.warning("task %s failed: %s", task.task_id, describe_error(error)[:LOG_ERROR_CHARACTERS])
            return build_failure(task, error, time.monotonic() - began)
        if next_ is None:
            return build_result(task, Status.SUCCESS)
        return build_result(task, Status.PENDING, task_stage=next_.stage, task_content=next_.content)

    def _begin(self, task: HeldTask) -> Awaitable[Next | None]:
        """Call a task's handler; one that is not async would have every task done and count it as failed."""
        begun: object = self._handler(task)(task)
        if not isawaitable(begun):
            error = TypeError(
                f"the handler for the stage {task.stage!r} is not async: it returned {begun!r:.100}, which cannot be "
                "awaited. Define it with `async def`, and let `await asyncio.to_thread(…)` do what computes or blocks."
            )
            self._give_up(error)
            raise error
        return begun

    def _handler(self, task: HeldTask) -> Handler:
        if task.stage not in self._handlers:
            known = ", ".join(map(repr, self._handlers))
            raise LookupError(f"no handler for the stage {task.stage!r}; this worker has {known}")
        return self._handlers[task.stage]

    async def _tell(self, task: HeldTask, result: Result) -> str:
        """Send a result; return why the API can never take it, or an empty text."""
        try:
            outcome = await self._reports.send(result)
        except HaulageError as error:
            _log.warning("task %s: %s was not taken: %s", task.task_id, result.status.name, error)
        else:
            if not outcome.good:
                _log.warning("task %s: %s was not taken: %s", task.task_id, result.status.name, outcome.msg)
                return outcome.msg if outcome.code == UNUSABLE else ""
        return ""

    async def _beat(self) -> None:
        """Renew all leases, several times in each; what is lost is given up."""
        while True:
            seconds = self._config.max_processing_time if self._config else 1.0
            await asyncio.sleep(seconds / BEATS_PER_LEASE)
            held = list(self._held.items())
            if not held:
                continue
            began = time.monotonic()
            try:
                outcomes = await self._tasks.heartbeat([task for _, task in held])
            except HaulageError as error:
                _log.warning("no heartbeat for %d tasks of %s: %s", len(held), self._type, error)
                continue
            for (doing, task), outcome in zip(held, outcomes, strict=True):
                if outcome.good and doing in self._held:
                    self._leased_until[doing] = began + seconds
                # What was done meanwhile is its holder's no more because it was done: the answer to its result counts.
                if not outcome.good and doing in self._held and doing not in self._reported:
                    _log.warning("task %s is lost: %s", task.task_id, outcome.msg)
                    self._lost.add(doing)
                    doing.cancel()

    async def _finish(self) -> None:
        """Let what runs end; what waits or takes too long goes back to the queue."""
        for doing in self._held.keys() - self._begun:
            doing.cancel()
        if self._held:
            await asyncio.wait(list(self._held), timeout=self._stop_seconds)
        for doing in self._held.keys() - self._reported:
            doing.cancel()
        if self._held:
            await asyncio.wait(list(self._held))

    async def _pause(self, seconds: float) -> None:
        if not seconds:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def _is_cancelled() -> bool:
    """Whether somebody wants the current task to end."""
    doing = asyncio.current_task()
    return doing is not None and doing.cancelling() > 0


def _check_options(handlers: Mapping[str, Handler], concurrency: int, backlog: int | None, stop_seconds: float) -> None:
    if not handlers:
        raise ValueError("A worker without handlers would fail every task. Give one for each stage, as {'': handler}.")
    for name, value, least in (("concurrency", concurrency, 1), ("backlog", backlog, 0)):
        if value is not None and (not isinstance(value, int) or value < least):
            raise ValueError(f"{name} is {value!r}. Give a whole number from {least}.")
    if not stop_seconds >= 0:
        raise ValueError(f"stop_seconds is {stop_seconds!r}. Give a number from 0.")
