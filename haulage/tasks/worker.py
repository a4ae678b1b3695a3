"""The worker: holds as many tasks as it has room for, does them stage by stage, and says what became of each."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from haulage.errors import HaulageError
from haulage.tasks.handlers import Handler, TaskFailed
from haulage.tasks.models import HeldTask, Outcome, RegisteredType, Result, Status
from haulage.tasks.prefetch import Prefetch
from haulage.tasks.reports import Receiver, Reports

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
LOG_ENTRIES = 3
LOG_ERROR_CHARACTERS = 256

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
    cancelled.

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
        self._has_room = asyncio.Event()
        self._held: dict[asyncio.Task[None], HeldTask] = {}
        self._begun: set[asyncio.Task[None]] = set()
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
        """Hold, do and tell, until `stop`."""
        beating = asyncio.create_task(self._beat())
        try:
            while not self._stopping.is_set():
                await self._wait_for_room()
                if not self._stopping.is_set():
                    await self._pause(await self._hold())
            await self._finish()
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
            _log.warning("no tasks of %s could be held: %s", self._type, error)
            return self._interval_seconds()
        for task in held:
            doing = asyncio.create_task(self._do(task))
            self._held[doing] = task
            doing.add_done_callback(self._ended)
        if self._keeps_interval:
            return self._interval_seconds()
        has_waited = time.monotonic() - began >= EARLY_SECONDS
        return 0.0 if held or has_waited else min(EARLY_SECONDS, config.schedule_interval)

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
        del self._held[doing]
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
                raise HaulageError(f"There is no type {self._type!r} in this project. Register it first.")
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
                self._begun.add(doing)
                result = await self._attempt(task)
        except asyncio.CancelledError:
            if doing in self._lost:
                return
            # Not begun, or not done when the worker stops: that is no failure.
            result = _said(task, Status.PENDING)
        self._reported.add(doing)
        self._prefetch.note_done()
        self._has_room.set()
        await self._tell(task, result)

    async def _attempt(self, task: HeldTask) -> Result:
        began = time.monotonic()
        try:
            next_ = await self._handler(task)(task)
        except TaskFailed as error:
            return _said(task, Status.FAILED, schedule_log=_logged(task, error, began))
        except Exception as error:  # noqa: BLE001 - whatever it was, the task is retried as its type says
            _log.warning("task %s failed: %r", task.task_id, error)
            log = _logged(task, error, began)
            return _said(task, Status.PENDING, crt_retry_num=task.crt_retry_num + 1, schedule_log=log)
        if next_ is None:
            return _said(task, Status.SUCCESS)
        return _said(task, Status.PENDING, task_stage=next_.stage, task_content=next_.content)

    def _handler(self, task: HeldTask) -> Handler:
        if task.stage not in self._handlers:
            known = ", ".join(map(repr, self._handlers))
            raise LookupError(f"no handler for the stage {task.stage!r}; this worker has {known}")
        return self._handlers[task.stage]

    async def _tell(self, task: HeldTask, result: Result) -> None:
        try:
            outcome = await self._reports.send(result)
        except HaulageError as error:
            _log.warning("task %s: %s was not taken: %s", task.task_id, result.status.name, error)
        else:
            if not outcome.good:
                _log.warning("task %s: %s was not taken: %s", task.task_id, result.status.name, outcome.msg)

    async def _beat(self) -> None:
        """Renew all leases, several times in each; what is lost is given up."""
        while True:
            seconds = self._config.max_processing_time if self._config else 1.0
            await asyncio.sleep(seconds / BEATS_PER_LEASE)
            held = list(self._held.items())
            if not held:
                continue
            try:
                outcomes = await self._tasks.heartbeat([task for _, task in held])
            except HaulageError as error:
                _log.warning("no heartbeat for %d tasks of %s: %s", len(held), self._type, error)
                continue
            for (doing, task), outcome in zip(held, outcomes, strict=True):
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


def _said(task: HeldTask, status: Status, **more: Any) -> Result:
    return Result(task_id=task.task_id, lease=task.lease, status=status, **more)


def _logged(task: HeldTask, error: Exception, began: float) -> str:
    """The task's log with this attempt, the last few kept."""
    try:
        before = json.loads(task.schedule_log)
    except ValueError:
        before = []
    entry = {
        "attempt": task.crt_retry_num + 1,
        "stage": task.stage,
        "error": f"{type(error).__name__}: {error}"[:LOG_ERROR_CHARACTERS],
        "seconds": round(time.monotonic() - began, 3),
    }
    return json.dumps([*(before if isinstance(before, list) else []), entry][-LOG_ENTRIES:], ensure_ascii=False)
