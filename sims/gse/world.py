"""The world of a stand-in GSE: tasks and their targets, the events in them by time, and the files they receive."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from math import log2
from pathlib import Path

from sims.gse.disks import HostDisks
from sims.gse.scenario import (
    CALL_ACTIONS,
    TARGET_ACTIONS,
    TERMINATE_ACTIONS,
    UPLOAD_ACTIONS,
    GseAction,
    GseCall,
    GseRule,
    GseScenario,
    draw,
)
from sims.gse.tasks import (
    DONE,
    RUNNING,
    TERMINATED,
    TIMED_OUT,
    UNREADABLE,
    FileSpot,
    Key,
    ReceivedFile,
    SimulatedTarget,
    SimulatedTask,
)

TICK_SECONDS = 0.02


class _Kind(IntEnum):
    UPLOAD = 0
    UPLOAD_FAIL = 1
    SHOW = 2
    TARGET = 3
    TERMINATE = 4
    TIMEOUT = 5


_Event = tuple[float, int, _Kind, SimulatedTask, SimulatedTarget | None, int | str]


class GseWorld:
    """The state of a stand-in GSE.

    Args:
        disks: The disks of the targets; None if no files are written.
        name: Part of the ids of its tasks, if several worlds answer at one address; by default the seed.
    """

    def __init__(self, scenario: GseScenario, disks: HostDisks | None = None, name: str = "") -> None:
        self.disks = disks
        self.scenario = scenario
        self._name = name
        self._lies = False
        self._turns = asyncio.Lock()
        self._numbers = 0
        self._begin(0.0)
        self.restart()
        self.clear()

    def set(self, scenario: GseScenario) -> None:
        """Begin another scenario with new counts of faults; running tasks continue as before."""
        now = self.now
        self.scenario = scenario
        self._begin(now)

    def set_lying(self, lies: bool) -> None:
        """Begin or end to tell successes of hosts that have other bytes."""
        self._lies = lies

    def _begin(self, now: float) -> None:
        self._zero, self._offset, self._set_at = time.monotonic(), now, now
        self._occurrences: Counter[tuple[object, ...]] = Counter()
        self.fired: Counter[int] = Counter()
        """How often each rule of the scenario applied."""

    def clear(self) -> None:
        """Reset all counts."""
        self.calls: Counter[GseCall] = Counter()
        self.sends: Counter[FileSpot] = Counter()
        self.received: Counter[FileSpot] = Counter()
        self.refused_keys = 0

    def restart(self) -> None:
        """Lose every task, as a restarted GSE does."""
        self.tasks: dict[str, SimulatedTask] = {}
        self.forgotten: list[SimulatedTask] = []
        self._events: list[_Event] = []

    @property
    def now(self) -> float:
        """The simulator's clock."""
        return (time.monotonic() - self._zero) * self.scenario.speed + self._offset

    def fault(self, call: GseCall) -> GseRule | None:
        """Return the fault of a call, or None."""
        for index, rule in enumerate(self.scenario.rules):
            if rule.action in CALL_ACTIONS and call in rule.calls and self._due(index, call.value):
                return rule
        return None

    def transfer(self, source: FileSpot, targets: Sequence[FileSpot], timeout_seconds: int) -> SimulatedTask:
        """Begin a task."""
        self._numbers += 1
        now = self.now
        number = f"GSE:{self._name or self.scenario.seed}:{self._numbers:06}"
        task = SimulatedTask(number, source, timeout_seconds, now, time.time())
        self.tasks[task.id] = task
        task.upload_fault = self._target_fault(source, UPLOAD_ACTIONS)
        self._plan(now + self.scenario.upload_seconds, _Kind.UPLOAD, task)
        if task.upload_fault and task.upload_fault.action is GseAction.UPLOAD_FAIL:
            self._plan(now + task.upload_fault.seconds, _Kind.UPLOAD_FAIL, task)
        self._plan(now + timeout_seconds, _Kind.TIMEOUT, task)
        for place, spot in enumerate(targets):
            self.sends[spot] += 1
            task.targets[spot.agent, spot.container] = self._target(task, spot, place)
        return task

    def terminate(self, task: SimulatedTask, keys: Iterable[Key]) -> None:
        """Terminate these targets, a little later."""
        for key in keys:
            if target := task.targets.get(key):
                self._plan(self.now + self.scenario.terminate_seconds, _Kind.TERMINATE, task, target)

    def refusal(self, keys: Iterable[Key]) -> GseRule | None:
        """Return the rule that refuses to terminate these targets, or None."""
        spots = (FileSpot(agent, container, "", "") for agent, container in keys)
        return next(filter(None, (self._target_fault(spot, TERMINATE_ACTIONS) for spot in spots)), None)

    def forget(self, task_id: str) -> None:
        """Lose a task, as a restarted GSE does; its unfinished targets get no file."""
        if task := self.tasks.pop(task_id, None):
            task.halted, task.gone_at = True, time.time()
            self.forgotten.append(task)

    async def run(self) -> None:
        """Execute due events until cancelled."""
        while True:
            await self.turn()
            await asyncio.sleep(TICK_SECONDS)

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and execute the events that are due then."""
        self._offset += seconds
        await self.turn()

    async def turn(self) -> None:
        """Execute the events that are due."""
        async with self._turns:
            arriving: list[tuple[SimulatedTask, SimulatedTarget]] = []
            while self._events and self._events[0][0] <= self.now:
                _, _, kind, task, target, code = heapq.heappop(self._events)
                if kind is _Kind.TARGET and target and target.end == DONE:
                    arriving.append((task, target))
                else:
                    await self._execute(kind, task, target, code)
            if arriving:
                await asyncio.to_thread(self._deliver, arriving)

    def _target(self, task: SimulatedTask, spot: FileSpot, place: int) -> SimulatedTarget:
        scenario = self.scenario
        jitter = scenario.jitter_seconds * draw(scenario.seed, task.id, place)
        takes = scenario.upload_seconds + scenario.download_seconds * (1 + scenario.swarm * log2(place + 1)) + jitter
        target = SimulatedTarget(spot, task.created + takes)
        rule = self._target_fault(spot, TARGET_ACTIONS)
        match rule and rule.action:
            case GseAction.STUCK:
                return target
            case GseAction.MISSING:
                target.is_reported = False
            case GseAction.LOSE:
                target.file = ReceivedFile.NOTHING
            case GseAction.SPOIL:
                target.file = ReceivedFile.OTHER
            case GseAction.FAIL if rule:
                target.end, target.end_message = rule.code, rule.message
            case GseAction.FLAP if rule:
                self._plan(task.created + takes * 0.4, _Kind.SHOW, task, target, rule.code)
                self._plan(task.created + takes * 0.7, _Kind.SHOW, task, target, RUNNING)
        self._plan(target.due, _Kind.TARGET, task, target)
        return target

    def _target_fault(self, spot: FileSpot, actions: frozenset[GseAction]) -> GseRule | None:
        for index, rule in enumerate(self.scenario.rules):
            if (
                rule.action in actions
                and rule.concerns(spot.agent, spot.container)
                and self.scenario.rolls(index, spot.agent, spot.container)
                and self._due(index, spot, rolled=True)
            ):
                return rule
        return None

    def _due(self, index: int, what: object, *, rolled: bool = False) -> bool:
        rule, key = self.scenario.rules[index], (index, what)
        occurrence = self._occurrences[key]
        self._occurrences[key] += 1
        in_turn = rule.counts(occurrence, self.now - self._set_at)
        is_due = in_turn and (rolled or self.scenario.rolls(index, what, occurrence))
        self.fired[index] += is_due
        return is_due

    def _plan(
        self, when: float, kind: _Kind, task: SimulatedTask, target: SimulatedTarget | None = None, code: int | str = 0
    ) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (when, self._numbers, kind, task, target, code))

    async def _execute(self, kind: _Kind, task: SimulatedTask, target: SimulatedTarget | None, code: int | str) -> None:
        now = self.now
        match kind:
            case _Kind.UPLOAD:
                await asyncio.to_thread(self._upload, task)
            case _Kind.UPLOAD_FAIL if task.upload_fault:
                self._fail_upload(task, task.upload_fault.code, task.upload_fault.message)
            case _Kind.SHOW if target and target.ended is None:
                target.show(code, "")
            case _Kind.TARGET if target and not task.halted:
                target.finish(target.end, target.end_message, now)
            case _Kind.TERMINATE if target:
                target.finish(TERMINATED, "terminated", now)
            case _Kind.TIMEOUT:
                for each in task.targets.values():
                    each.finish(TIMED_OUT, "timeout", now)
            case _:
                return

    def _upload(self, task: SimulatedTask) -> None:
        if task.halted:
            return
        if self.disks:
            try:
                task.copied, task.bytes = self.disks.copy(Path(task.source.folder) / task.source.name)
            except OSError as error:
                self._fail_upload(task, UNREADABLE, str(error))
                return
        if task.upload_fault is None:
            task.upload_code, task.upload_ended = DONE, self.now

    def _fail_upload(self, task: SimulatedTask, code: int | str, message: str) -> None:
        task.upload_code, task.upload_message, task.upload_ended, task.halted = code, message, self.now, True
        task.gone_at = time.time()

    def _deliver(self, arriving: Sequence[tuple[SimulatedTask, SimulatedTarget]]) -> None:
        now = self.now
        for task, target in arriving:
            if task.halted or target.ended is not None:
                continue
            if task.copied and self.disks and target.file is not ReceivedFile.NOTHING:
                is_spoiled = self._lies or target.file is ReceivedFile.OTHER
                self.disks.write(task.copied, target.spot, spoiled=is_spoiled)
            self.received[target.spot] += target.file is not ReceivedFile.NOTHING
            target.finish(DONE, "", now)
