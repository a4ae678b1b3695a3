"""The orders of a world's platform: which there are, when they changed, and how each is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sims.platforms.clock import MICRO
from sims.platforms.market import Market
from sims.platforms.scenario import PlatformScenario
from tests.worlds import dice
from tests.worlds.orders.record import row_moments
from tests.worlds.orders.world import SPAN_SECONDS, World

FIRST_ID = 2**53 + 1
"""Ids that a reader of floats could not distinguish."""
FUTURE = timedelta(days=3_650)
OLDER = timedelta(seconds=100)
LINES = 3
ZONE_SECONDS = 300
"""How far a filter of another zone is off at least; the worlds last minutes, not days."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(us: int) -> datetime:
    """Microseconds since 1970 as a moment."""
    return _EPOCH + timedelta(microseconds=us)


def as_us(when: datetime) -> int:
    """Return a moment as microseconds since 1970."""
    return (when - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class OrderTruth:
    """An order as it is now."""

    order_id: str
    found_at: datetime
    """The time by which a window finds it."""
    revision: int
    text: str
    """As the platform answers with it now."""


class Goods:
    """The orders of a platform, whose clock only moves when it is set."""

    def __init__(self, world: World) -> None:
        self.world = world
        scenario = PlatformScenario(
            seed=world.seed % 2**32,
            orders=world.orders,
            span_seconds=SPAN_SECONDS,
            crowd_share=0.8 if world.has("crowd", "unstable_ties") else 0,
            crowd_seconds=SPAN_SECONDS // 2,
        )
        self.market = Market(scenario, MICRO if world.is_so("kept", "seconds") else 1_000)
        self.ids_are_texts = dice.share(world.seed, "ids") < 0.5
        for number in range(world.orders):
            revision = 1 + dice.stream(world.seed, "revision", number).randrange(3)
            self.market.truth.version[number] = self.market.shown.version[number] = revision
        self._moments = row_moments(world)
        self.questions = 0
        """Asked so far: orders of the same moment come in another order each time where ties are unstable."""
        self.stored: dict[int, int] = {}
        """Orders that are known to be stored, at which revision: a replica may show those as they were before."""

    @property
    def now_us(self) -> int:
        """The platform's time."""
        return self.market.now_us

    def find(self, first_us: int, last_us: int) -> list[int]:
        """List the orders that a window shows, both ends included, sorted as the platform sorts them."""
        everything = self.world.has("filter_ignored")
        if flaw := self.world.flaw("filter_zone"):
            shift_us = (ZONE_SECONDS + flaw.dial % 300) * MICRO * (1 if flaw.dial % 2 else -1)
            first_us, last_us = first_us + shift_us, last_us + shift_us
        found = [
            number
            for number, version in enumerate(self.market.shown.version)
            if version and (everything or first_us <= self.found_at_us(number) <= last_us)
        ]
        return sorted(found, key=self.sort_key)

    def found_at_us(self, number: int) -> int:
        """Return the time by which windows find an order."""
        by_created = self.world.is_so("field", "created")
        return self.market.created[number] if by_created else self.market.shown.modified[number]

    def sort_key(self, number: int) -> tuple[int, int]:
        """Return an order's place among all."""
        modified = self.market.shown.modified[number]
        if self.world.has("unstable_ties"):
            tie = dice.stream(self.world.seed, "tie", self.questions, number).randrange(1 << 30)
            return (-modified if self.world.is_so("sort", "newest_first") else modified), tie
        match self.world.options["sort"]:
            case "newest_first":
                return -modified, -number
            case "oldest_first":
                return modified, number
            case _:
                return 0, number

    def order_id(self, number: int) -> str:
        """Return the id of an order."""
        return f"A-{number:05}" if self.ids_are_texts else str(FIRST_ID + number)

    def number_of(self, order_id: str) -> int:
        """Return the order of an id; raises ValueError where there is none."""
        number = int(order_id.removeprefix("A-")) - (0 if self.ids_are_texts else FIRST_ID)
        if not 0 <= number < len(self.market.created) or not self.market.shown.version[number]:
            raise ValueError(order_id)
        return number

    def write_listed(self, number: int, *, without_id: bool = False, older: bool = False) -> str:
        """Write an order as in lists: a part of it, where there is a call for the whole."""
        cells = self._cells(number, *self._state(number, older=older))
        if without_id:
            cells["id"] = None
        return json.dumps(cells, ensure_ascii=False)

    def whole(self, number: int, *, older: bool = False) -> str:
        """Write an order whole, or as it was before its last change."""
        version, modified = self._state(number, older=older)
        lines = self.lines(number, version)
        return json.dumps({**self._cells(number, version, modified), "lines": lines}, ensure_ascii=False)

    def write_composed(self, number: int) -> str:
        """Write an order as it is stored when its lines were asked for in pages."""
        version, modified = self._state(number)
        cells = {**self._cells(number, version, modified), "lines": self.lines(number, version)}
        return json.dumps(cells, ensure_ascii=False, separators=(",", ":"))

    def lines(self, number: int, version: int) -> list[str]:
        """List what an order holds."""
        return [f"{number}/{version}/{line}" for line in range(LINES)]

    def _state(self, number: int, *, older: bool = False) -> tuple[int, int]:
        """Return an order's version and when it was modified, or those before its last change."""
        version, modified = self.market.shown.version[number], self.market.shown.modified[number]
        if older and version > 1:
            return version - 1, modified - int(OLDER.total_seconds()) * MICRO
        return version, modified

    def is_undated(self, number: int) -> bool:
        """Whether an order is listed without the time of its modification."""
        return self.world.has("undated") and dice.share(self.world.seed, "undated", number) < 0.4

    def is_future(self, number: int) -> bool:
        """Whether an order is listed as modified years from now."""
        return self.world.has("future") and dice.share(self.world.seed, "future", number) < 0.3

    def _cells(self, number: int, version: int, modified_us: int) -> dict[str, object]:
        at = moment(modified_us) + (FUTURE if self.is_future(number) else timedelta())
        written: object = self._moments.format_time(at)
        if self._moments.form.value.startswith("epoch"):
            written = int(str(written))
        cells: dict[str, object] = {
            "id": self.order_id(number) if self.ids_are_texts else FIRST_ID + number,
            "modified": None if self.is_undated(number) else written,
            "status": ("paid", "packed", "shipped", "delivered")[min(version, 4) - 1],
            "revision": version,
            "city": ("深圳", "København", "Berlin")[number % 3],
        }
        return cells | ({"version": version} if self.world.is_so("version", "sent") else {})

    def truth(self) -> list[OrderTruth]:
        """List all orders as they are, once all is shown."""
        writers = {"call": self.whole, "pages": self.write_composed}
        write = writers.get(self.world.options["detail"], self.write_listed)
        return [
            OrderTruth(
                self.order_id(number),
                moment(self.found_at_us(number)),
                self.market.shown.version[number],
                write(number),
            )
            for number in range(len(self.market.created))
        ]
