"""The hosts behind a stand-in GSE: tasks and their targets, what happens to them in time, and the bytes they get."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from math import log2
from pathlib import Path

from sims.gse.disks import Disks
from sims.gse.scenario import (
    CALL_ACTIONS,
    TARGET_ACTIONS,
    TERMINATE_ACTIONS,
    UPLOAD_ACTIONS,
    Action,
    Call,
    Rule,
    Scenario,
    draw,
)
from sims.gse.tasks import DONE, RUNNING, TERMINATED, TIMED_OUT, UNREADABLE, Key, Received, Spot, Target, Task

TICK_SECONDS = 0.02


class _Kind(IntEnum):
    UPLOAD = 0
    UPLOAD_FAIL = 1
    SHOW = 2
    TARGET = 3
    TERMINATE = 4
    TIMEOUT = 5


_Event = tuple[float, int, _Kind, Task, Target | None, int | str]


class World:
    """Everything that a GSE knows.

    Args:
        disks: Where targets get their files; None where nobody looks at bytes.
        name: Part of the ids of its tasks, where several worlds answer behind one address; by default the seed.
    """

    def __init__(self, scenario: Scenario, disks: Disks | None = None, name: str = "") -> None:
        self.disks = disks
        self.scenario = scenario
        self._name = name
        self._turns = asyncio.Lock()
        self._numbers = 0
        self._begin(0.0)
        self.restart()
        self.clear()

    def set(self, scenario: Scenario) -> None:
        """Begin another scenario; what goes wrong is counted anew. Tasks under way keep their course."""
        now = self.now
        self.scenario = scenario
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._zero, self._offset, self._set_at = time.monotonic(), now, now
        self._occurrences: Counter[tuple[object, ...]] = Counter()
        self.fired: Counter[int] = Counter()
        """How often each rule of the scenario came into play."""

    def clear(self) -> None:
        """Forget what was counted."""
        self.calls: Counter[Call] = Counter()
        self.sends: Counter[Spot] = Counter()
        self.received: Counter[Spot] = Counter()
        self.refused_keys = 0

    def restart(self) -> None:
        """Lose every task, as a GSE that was restarted."""
        self.tasks: dict[str, Task] = {}
        self.forgotten: list[Task] = []
        self._events: list[_Event] = []

    @property
    def now(self) -> float:
        """The simulator's clock."""
        return (time.monotonic() - self._zero) * self.scenario.speed + self._offset

    def fault(self, call: Call) -> Rule | None:
        """What goes wrong with the call that has just come."""
        for index, rule in enumerate(self.scenario.rules):
            if rule.action in CALL_ACTIONS and call in rule.calls and self._due(index, call.value):
                return rule
        return None

    def transfer(self, source: Spot, targets: Sequence[Spot], timeout_seconds: int) -> Task:
        """Begin a task."""
        self._numbers += 1
        now = self.now
        number = f"GSE:{self._name or self.scenario.seed}:{self._numbers:06}"
        task = Task(number, source, timeout_seconds, now, time.time())
        self.tasks[task.id] = task
        task.upload_fault = self._target_fault(source, UPLOAD_ACTIONS)
        self._plan(now + self.scenario.upload_seconds, _Kind.UPLOAD, task)
        if task.upload_fault and task.upload_fault.action is Action.UPLOAD_FAIL:
            self._plan(now + task.upload_fault.seconds, _Kind.UPLOAD_FAIL, task)
        self._plan(now + timeout_seconds, _Kind.TIMEOUT, task)
        for place, spot in enumerate(targets):
            self.sends[spot] += 1
            task.targets[spot.agent, spot.container] = self._target(task, spot, place)
        return task

    def terminate(self, task: Task, keys: Iterable[Key]) -> None:
        """Give up these targets, a little later."""
        for key in keys:
            if target := task.targets.get(key):
                self._plan(self.now + self.scenario.terminate_seconds, _Kind.TERMINATE, task, target)

    def refusal(self, keys: Iterable[Key]) -> Rule | None:
        """What keeps these targets from being terminated."""
        spots = (Spot(agent, container, "", "") for agent, container in keys)
        return next(filter(None, (self._target_fault(spot, TERMINATE_ACTIONS) for spot in spots)), None)

    def forget(self, task_id: str) -> None:
        """Lose a task, as a GSE that was restarted; what had not arrived does not arrive."""
        if task := self.tasks.pop(task_id, None):
            task.halted, task.gone_at = True, time.time()
            self.forgotten.append(task)

    async def run(self) -> None:
        """Let time pass, until cancelled."""
        while True:
            await self.turn()
            await asyncio.sleep(TICK_SECONDS)

    async def advance(self, seconds: float) -> None:
        """Let this much time pass at once."""
        self._offset += seconds
        await self.turn()

    async def turn(self) -> None:
        """Let happen what is due."""
        async with self._turns:
            arriving: list[tuple[Task, Target]] = []
            while self._events and self._events[0][0] <= self.now:
                _, _, kind, task, target, code = heapq.heappop(self._events)
                if kind is _Kind.TARGET and target and target.end == DONE:
                    arriving.append((task, target))
                else:
                    await self._happen(kind, task, target, code)
            if arriving:
                await asyncio.to_thread(self._deliver, arriving)

    def _target(self, task: Task, spot: Spot, place: int) -> Target:
        scenario = self.scenario
        jitter = scenario.jitter_seconds * draw(scenario.seed, task.id, place)
        takes = scenario.upload_seconds + scenario.download_seconds * (1 + scenario.swarm * log2(place + 1)) + jitter
        target = Target(spot, task.created + takes)
        rule = self._target_fault(spot, TARGET_ACTIONS)
        match rule and rule.action:
            case Action.STUCK:
                return target
            case Action.MISSING:
                target.told = False
            case Action.LOSE:
                target.file = Received.NOTHING
            case Action.SPOIL:
                target.file = Received.OTHER
            case Action.FAIL if rule:
                target.end, target.end_message = rule.code, rule.message
            case Action.FLAP if rule:
                self._plan(task.created + takes * 0.4, _Kind.SHOW, task, target, rule.code)
                self._plan(task.created + takes * 0.7, _Kind.SHOW, task, target, RUNNING)
        self._plan(target.due, _Kind.TARGET, task, target)
        return target

    def _target_fault(self, spot: Spot, actions: frozenset[Action]) -> Rule | None:
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

    def _plan(self, when: float, kind: _Kind, task: Task, target: Target | None = None, code: int | str = 0) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (when, self._numbers, kind, task, target, code))

    async def _happen(self, kind: _Kind, task: Task, target: Target | None, code: int | str) -> None:
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

    def _upload(self, task: Task) -> None:
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

    def _fail_upload(self, task: Task, code: int | str, message: str) -> None:
        task.upload_code, task.upload_message, task.upload_ended, task.halted = code, message, self.now, True
        task.gone_at = time.time()

    def _deliver(self, arriving: Sequence[tuple[Task, Target]]) -> None:
        now = self.now
        for task, target in arriving:
            if task.halted or target.ended is not None:
                continue
            if task.copied and self.disks and target.file is not Received.NOTHING:
                self.disks.write(task.copied, target.spot, spoiled=target.file is Received.OTHER)
            self.received[target.spot] += target.file is not Received.NOTHING
            target.finish(DONE, "", now)
