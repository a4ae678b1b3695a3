"""A world of orders: a platform, what goes wrong there, how it is configured and steered; all from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, field_validator

from tests.worlds import dice
from tests.worlds.flaws import Flaw, draw_flaw, draw_flaws
from tests.worlds.orders.flaws import KINDS, NEEDS, Group
from tests.worlds.orders.options import OPTIONS, pairwise_rows, plain_row

SPAN_SECONDS = 1_200
PAGE_SIZES = (3, 4, 5)
ROWS_MAX = 12
"""The rows of a query that are listed where there is such a bound."""
EVENTS_MAX = 6


class World(BaseModel):
    """All that decides what comes out."""

    model_config = ConfigDict(frozen=True)

    seed: int
    orders: int
    page_size: int
    events: int = 0
    """Orders that come or change between two cycles."""
    flaws: tuple[Flaw, ...] = ()
    options: dict[str, str]

    @field_validator("options")
    @classmethod
    def _whole(cls, options: Mapping[str, str]) -> dict[str, str]:
        """Give options that were added after a world was kept their plainest value."""
        return {**plain_row(), **options}

    @property
    def flaw_names(self) -> list[str]:
        """What goes wrong in it."""
        return [flaw.name for flaw in self.flaws]

    @property
    def choices(self) -> dict[str, str]:
        """Its options."""
        return self.options

    def flaw(self, *names: str) -> Flaw | None:
        """Return the flaw with one of these names, if the world has it."""
        return next((flaw for flaw in self.flaws if flaw.name in names), None)

    def has(self, *names: str) -> bool:
        """Whether it has one of some flaws."""
        return self.flaw(*names) is not None

    def group(self, group: Group) -> Flaw | None:
        """Return the flaw of a group, if the world has one."""
        return next((flaw for flaw in self.flaws if KINDS[flaw.name].group is group), None)

    @staticmethod
    def group_of(flaw: Flaw) -> StrEnum:
        """Return the group that a flaw belongs to."""
        return KINDS[flaw.name].group

    def is_so(self, option: str, *values: str) -> bool:
        """Whether an option has one of some values."""
        return self.options[option] in values

    def number(self, option: str) -> int:
        """Return the value of an option that is a number."""
        return int(self.options[option])

    @property
    def tells_total(self) -> bool:
        """Whether the platform says how many rows a window holds."""
        return not self.is_so("total", "none")


class Family(BaseModel):
    """Worlds that show the same promise."""

    model_config = ConfigDict(frozen=True)

    flaws: tuple[str, ...]
    """What goes wrong in each of them."""
    options: dict[str, str]
    orders: int = 0
    """The least number."""


def draw_world(seed: int, family: Family | None = None) -> World:
    """Draw the world of a seed.

    Args:
        seed: The same makes the same world.
        family: What it must have; by default it may have any flaws, or none.
    """
    rows = pairwise_rows()
    drawn, fixed = dict(rows[dice.stream(seed, "row").randrange(len(rows))]), set[str]()
    candidates, flaws = draw_flaws(seed, KINDS, list(Group), None), list[Flaw]()
    if family is not None:
        groups = {KINDS[name].group for name in family.flaws}
        needed = [draw_flaw(seed, name, KINDS[name]) for name in family.flaws]
        candidates = (*needed, *(flaw for flaw in candidates if KINDS[flaw.name].group not in groups))
        drawn |= family.options
        fixed |= family.options.keys()
    for flaw in candidates:
        if (wanted := _fit(seed, flaw.name, drawn, fixed)) is not None:
            drawn |= wanted
            fixed |= wanted.keys()
            flaws.append(flaw)
    size = dice.pick(PAGE_SIZES, seed, "page_size")
    pages = dice.pick((0, 1, 2, 4, 6, 8), seed, "pages")
    return World(
        seed=seed,
        orders=max(family.orders if family else 0, pages * size + dice.pick((0, 1, -1, 2), seed, "rows")),
        page_size=size,
        events=dice.stream(seed, "events").randint(0, EVENTS_MAX),
        flaws=tuple(flaws),
        options=drawn,
    )


def _fit(seed: int, flaw: str, drawn: dict[str, str], fixed: set[str]) -> dict[str, str] | None:
    """Return what options must become so that a flaw shows; None where another one has fixed them otherwise."""
    needed = {}
    for option, values in NEEDS.get(flaw, {}).items():
        if drawn[option] in values:
            needed[option] = drawn[option]
        elif option in fixed:
            return None
        else:
            needed[option] = dice.pick(values, seed, flaw, option)
    return needed


def list_smaller(world: World) -> list[World]:
    """List worlds that are a step smaller: a flaw less, fewer orders, no events, a plainer option."""
    flaws = [
        world.model_copy(update={"flaws": world.flaws[:at] + world.flaws[at + 1 :]}) for at in range(len(world.flaws))
    ]
    counts = dict.fromkeys((world.orders // 2, world.orders - world.page_size, world.orders - 1))
    fewer = [world.model_copy(update={"orders": count}) for count in counts if 0 <= count < world.orders]
    quiet = [world.model_copy(update={"events": world.events // 2})] if world.events else []
    needed = {option for flaw in world.flaws for option in NEEDS.get(flaw.name, {})}
    plainer = [
        world.model_copy(update={"options": {**world.options, name: value}})
        for name, value in plain_row().items()
        if world.options[name] != value and name not in needed
    ]
    return [*flaws, *fewer, *quiet, *plainer]


assert all(set(needs) <= set(OPTIONS) for needs in NEEDS.values())
