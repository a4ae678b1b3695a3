"""Lanes, asked in groups: requests for one lane wait a few milliseconds for each other and go over as one message.

One message of a lane is under way at a time. A group has a number, so that it is safe to hand it over again when nobody
knows whether it arrived, and while the lane continues as new. What only reads goes as a query, which costs the engine
no history, or along with the next group.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from temporalio.client import Client

from api.batching import BatchItem, RetryWindow
from api.tasks import calls, figures
from api.tasks.calls import Closing, Unanswered
from api.tasks.grouping import Gathering, checked, is_new
from api.tasks.resting import LaneName, Mark, Resting
from domain.tasks import ids, names
from domain.tasks.messages import (
    Beat,
    Code,
    Found,
    Group,
    GroupReply,
    Head,
    Hold,
    Look,
    NewTask,
    Rules,
    Search,
    Seen,
    Setting,
    Task,
)
from infra import log
from infra.outages import EngineUnresponsive

SPACING_SECONDS = 0.03
"""From one group of many to the next of a lane: each costs engine and worker 8 ms, however large it is."""
CROWD = 120
CROWD_FACTOR = 2
"""Where so many are in a group, there is more to do than time: fewer groups leave more of it."""
SPACING_MAX_SECONDS = 0.2
"""The same while many lanes are asked at once."""
LANES_AT_ONCE = 2
"""So many lanes are asked without the others being thought of; those that rest cost little."""
LANES_KEPT = 1_000

Learn: TypeAlias = Callable[[str, int, Head], None]
Reply = TypeVar("Reply")
Requests: TypeAlias = list[BatchItem[Any, Any]]

_log = log.get(__name__)


class NotTaken(EngineUnresponsive):
    """No lane answered in time; the caller may ask again."""


@dataclass(frozen=True, slots=True)
class Cancelling:
    """Nobody needs this task any more."""

    key: str


@dataclass(frozen=True, slots=True)
class Reading:
    """How does this task stand?"""

    key: str


class Lanes:
    """Asks the lanes, for everybody in this process.

    Args:
        learn: Is told how a lane stands whenever one says so.
    """

    def __init__(self, engine: Client, learn: Learn) -> None:
        self._engine = engine
        self._learn = learn
        self._lanes: dict[LaneName, Gathering] = {}
        self._serving: set[LaneName] = set()
        self._resting = Resting(self._mark, self.search)
        self._sender = uuid.uuid4().hex
        self._numbers = itertools.count(1)

    async def create(self, lane: LaneName, rules: Rules, task: NewTask) -> str:
        """Have a task created; what became of it, once that is durable."""
        known = self._lanes.get(lane)
        if known is not None and known.is_full and is_new(task):
            return Code.FULL
        code: str = await self._ask(lane, task, rules)
        return code

    async def hold(self, lane: LaneName, rules: Rules, wish: Hold) -> list[Task]:
        """Up to so many tasks that are due."""
        tasks: list[Task] = await self._ask(lane, wish, rules)
        return tasks

    async def change(self, lane: LaneName, rules: Rules, wish: Setting | Beat | Cancelling) -> str:
        """Have a task set, its lease begun anew, or cancelled; what became of it."""
        code: str = await self._ask(lane, wish, rules)
        return code

    async def read(self, lane: LaneName, key: str) -> Task | None:
        """How a task stands; None if it is not in this lane any more."""
        task: Task | None = await self._ask(lane, Reading(key))
        return task

    async def teach(self, lane: LaneName, rules: Rules) -> None:
        """Tell a lane the rules, if it does not know them; returns when it does."""
        await self._ask(lane, rules, rules)

    async def search(self, lane: LaneName, wanted: Search) -> Found:
        """The live tasks of a lane with some properties."""
        found = await self._patiently(lambda: self._query(lane, "search", wanted, Found))
        self._learn(*lane, found.head)
        return found

    async def head(self, lane: LaneName) -> Head:
        """How a lane stands."""
        seen = await self._patiently(lambda: self._query(lane, "look", Look(keys=[]), Seen))
        self._learn(*lane, seen.head)
        return seen.head

    def _ask(self, name: LaneName, what: Any, rules: Rules | None = None) -> asyncio.Future[Any]:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Gathering(name, self._hand_over, self._spacing, self._rest)
        if rules is not None and rules.version > lane.version:
            lane.rules = rules
        answer = lane.submit(what, checked(what))
        self._serving.add(name)
        return answer

    def _rest(self, name: LaneName) -> None:
        self._serving.discard(name)
        if len(self._lanes) > LANES_KEPT:
            self._lanes = {name: each for name, each in self._lanes.items() if each.sending}

    def _spacing(self, lane: Gathering) -> float:
        awake = sum(not self._resting.rests(name) for name in self._serving)
        spacing = SPACING_SECONDS * (CROWD_FACTOR if lane.taken >= CROWD else 1)
        return min(spacing * max(1.0, awake / LANES_AT_ONCE), SPACING_MAX_SECONDS)

    async def _hand_over(self, lane: Gathering, requests: Requests) -> None:
        figures.GROUPS.labels(*ids.split_type(lane.type)).observe(len(requests))
        by_kind: dict[type, Requests] = defaultdict(list)
        for request in requests:
            by_kind[type(request.value)].append(request)
        if by_kind.keys() == {Reading}:
            await self._look(lane, requests)
        else:
            await self._act(lane, by_kind)

    async def _look(self, lane: Gathering, readings: Requests) -> None:
        name = (lane.type, lane.pos)
        keys = [request.value.key for request in readings]
        tasks = await self._resting.tasks(name)
        if tasks is not None:
            _answer(readings, [tasks.get(key) for key in keys])
            return
        seen = await self._patiently(lambda: self._query(name, "look", Look(keys=keys), Seen))
        self._learn(*name, seen.head)
        self._resting.note(name, seen.head.number)
        lane.requeue(_answer(readings, seen.tasks))

    async def _act(self, lane: Gathering, by_kind: dict[type, Requests]) -> None:
        changes = {kind: [request.value for request in by_kind[kind]] for kind in (NewTask, Hold, Setting, Beat)}
        group = Group(
            sender=self._sender,
            number=next(self._numbers),
            creates=changes[NewTask],
            holds=changes[Hold],
            sets=changes[Setting],
            beats=changes[Beat],
            cancels=[request.value.key for request in by_kind[Cancelling]],
            reads=[request.value.key for request in by_kind[Reading]],
            rules=lane.rules,
        )
        reply = await self._patiently(lambda: self._update(lane, group))
        if reply.late:
            raise NotTaken(f"a group to {lane.type}/{lane.pos} was overtaken by a later one")
        lane.version = max(lane.version, reply.version)
        if reply.head.full and not lane.is_full:
            lane.fill()
        if lane.rules and lane.rules.version <= lane.version:
            lane.rules = None
        self._learn(lane.type, lane.pos, reply.head)
        _answer(by_kind[NewTask], reply.creates)
        _answer(by_kind[Setting], reply.sets)
        _answer(by_kind[Beat], reply.beats)
        _answer(by_kind[Cancelling], reply.cancels)
        _answer(by_kind[Rules], [reply.version] * len(by_kind[Rules]))
        lane.requeue(_answer(by_kind[Hold], reply.holds) + _answer(by_kind[Reading], reply.reads))

    async def _update(self, lane: Gathering, group: Group) -> GroupReply:
        # The same number is the same group to the lane, whichever of its runs it reaches.
        update_id = f"{group.sender}-{group.number}"
        return await calls.update(self._engine, names.lane_id(lane.type, lane.pos), "act", update_id, group, GroupReply)

    async def _mark(self, lane: LaneName) -> Mark:
        return await self._patiently(lambda: calls.mark(self._engine, names.lane_id(*lane)))

    async def _query(self, lane: LaneName, name: str, argument: object, reply: type[Reply]) -> Reply:
        return await calls.query(self._engine, names.lane_id(*lane), name, argument, reply)

    async def _patiently(self, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """What the lane says, asked until it says something."""
        patience = RetryWindow("a lane", NotTaken)
        while True:
            try:
                return await ask()
            except Closing as error:
                await patience.wait(error, soon=True)
            except Unanswered as error:
                _log.warning("lane_asked_again", error=str(error))
                await patience.wait(error)


def _answer(requests: Requests, answers: Sequence[object]) -> Requests:
    """Give each its answer; those that there was no room for are left."""
    for request, answer in zip(requests, answers, strict=False):
        request.resolve(answer)
    return requests[len(answers) :]
