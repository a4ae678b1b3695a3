"""A platform's orders: what is true, what its queries show of it, and how both change as its clock goes on."""

from __future__ import annotations

import heapq
import random
import time
from dataclasses import dataclass, field
from typing import Final

from sortedcontainers import SortedList

from sims.platforms.clock import MICRO, Clock
from sims.platforms.scenario import PlatformScenario

_NUMBER_BITS: Final = 24
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of the shown orders, in the order of their modification: a place and the place after the last."""

    low: int
    high: int

    def __len__(self) -> int:
        return max(0, self.high - self.low)


@dataclass(slots=True)
class Orders:
    """A column for each property; an order is its place in them. Times are microseconds."""

    modified: list[int] = field(default_factory=list)
    version: list[int] = field(default_factory=list)


class Market:
    """Orders by seed. Numbers of orders stay below 2**24."""

    def __init__(self, scenario: PlatformScenario, grain_us: int) -> None:
        self.scenario = scenario
        self.grain_us = grain_us
        self.chance = random.Random(scenario.seed)
        self.created: list[int] = []
        self.truth = Orders()
        self.shown = Orders()
        """What queries list; version 0 of an order is not visible yet."""
        self.changes = 0
        """How often what is shown has changed."""
        self.late_most_us = 0
        self._pending: list[tuple[int, int, int, int]] = []
        self._frozen = False
        start_us = int(scenario.start.timestamp()) * MICRO
        end_us = start_us + scenario.span_seconds * MICRO
        if scenario.skew_seconds is not None:
            end_us = int((time.time() + scenario.skew_seconds) * MICRO)
            start_us = end_us - scenario.span_seconds * MICRO
        self.clock = Clock(end_us, scenario.speed if scenario.skew_seconds is None else 1.0)
        self._begin(start_us, end_us)
        self._next_change_us = end_us
        self._plan_next()

    def _begin(self, start_us: int, end_us: int) -> None:
        scenario, draw = self.scenario, self.chance.random
        crowd_us, span_us = scenario.crowd_seconds * MICRO, end_us - start_us
        created, modified = self.created, self.truth.modified
        for _ in range(scenario.orders):
            at = start_us + int(draw() * span_us)
            if scenario.crowd_share and draw() < scenario.crowd_share:
                at = max(start_us, at - at % crowd_us)
            created.append(at - at % self.grain_us)
            modified.append(at - at % self.grain_us)
        created.sort()
        modified.sort()
        self.truth.version = [1] * scenario.orders
        self.shown = Orders(list(modified), list(self.truth.version))
        self.index: SortedList = SortedList(at << _NUMBER_BITS | n for n, at in enumerate(modified))

    @property
    def now_us(self) -> int:
        """The platform's time."""
        return self.clock.now_us()

    def tick(self) -> int:
        """Let happen what is due; returns the time."""
        now_us = self.clock.now_us()
        while self._next_change_us <= now_us:
            self._show_due(self._next_change_us)
            self._change(self._next_change_us, None)
            self._plan_next()
        self._show_due(now_us)
        return now_us

    def stir(self, window: Range) -> None:
        """Apply the changes that happen before a page is answered."""
        changes = self.scenario.changes
        while not self._frozen and changes.per_page and self.chance.random() < changes.per_page:
            hits = len(window) and self.chance.random() < changes.in_window_share
            self._change(self.now_us, self.pick(window) if hits else None)

    def freeze(self) -> None:
        """Let no order change any more, and let all be shown."""
        self.tick()
        self._frozen = True
        self._next_change_us = 1 << 62
        self._show_due(1 << 62)

    def range(self, first_us: int, last_us: int) -> Range:
        """The shown orders modified from one moment to another, both included."""
        low = self.index.bisect_left(first_us << _NUMBER_BITS)
        return Range(low, max(low, self.index.bisect_left((last_us + 1) << _NUMBER_BITS)))

    def everything(self) -> Range:
        """All shown orders."""
        return Range(0, len(self.index))

    def ascending(self, window: Range, offset: int, count: int) -> list[int]:
        """Orders, the ones modified first first."""
        low = min(window.high, window.low + offset)
        return [key & _NUMBER_MASK for key in self.index[low : min(window.high, low + count)]]

    def descending(self, window: Range, offset: int, count: int) -> list[int]:
        """Orders, the ones modified last first."""
        high = max(window.low, window.high - offset)
        return [key & _NUMBER_MASK for key in reversed(self.index[max(window.low, high - count) : high])]

    def after(self, window: Range, key: int, count: int) -> list[int]:
        """Orders of a window behind a key, the ones modified first first."""
        low = max(window.low, self.index.bisect_right(key))
        return self.ascending(Range(low, window.high), 0, count)

    def key(self, number: int) -> int:
        """Return the sort key of an order among the visible ones."""
        return self.shown.modified[number] << _NUMBER_BITS | number

    def pick(self, window: Range) -> int:
        """Some order of a window."""
        place = window.low + self.chance.randrange(len(window))
        return int(self.index[place]) & _NUMBER_MASK

    def create(self, at_us: int, late_us: int = 0) -> int:
        """A new order."""
        number = len(self.created)
        self.created.append(at_us - at_us % self.grain_us)
        for orders in (self.truth, self.shown):
            orders.modified.append(0)
            orders.version.append(0)
        self.modify(number, at_us, late_us)
        return number

    def modify(self, number: int, at_us: int, late_us: int = 0) -> None:
        """An order is changed, and shown so at once or later."""
        self.truth.modified[number] = max(at_us - at_us % self.grain_us, self.truth.modified[number])
        self.truth.version[number] += 1
        self.late_most_us = max(self.late_most_us, late_us)
        change = (at_us + late_us, number, self.truth.version[number], self.truth.modified[number])
        heapq.heappush(self._pending, change)
        self._show_due(self.now_us)

    def _change(self, at_us: int, number: int | None) -> None:
        changes, draw = self.scenario.changes, self.chance.random
        late_us = int(draw() * changes.late_seconds * MICRO) if draw() < changes.late_share else 0
        if number is None and (draw() < changes.created_share or not self.created):
            self.create(at_us, late_us)
        else:
            self.modify(self.chance.randrange(len(self.created)) if number is None else number, at_us, late_us)

    def _plan_next(self) -> None:
        rate = self.scenario.changes.per_second
        if self._frozen or not rate:
            self._next_change_us = 1 << 62
        else:
            self._next_change_us += int(self.chance.expovariate(rate) * MICRO)

    def _show_due(self, now_us: int) -> None:
        while self._pending and self._pending[0][0] <= now_us:
            _, number, version, at_us = heapq.heappop(self._pending)
            if version > self.shown.version[number]:
                self._show(number, version, at_us)

    def _show(self, number: int, version: int, at_us: int) -> None:
        if self.shown.version[number]:
            self.index.remove(self.key(number))
        self.shown.version[number], self.shown.modified[number] = version, at_us
        self.index.add(self.key(number))
        self.changes += 1
