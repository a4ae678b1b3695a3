"""A world of downloads: what the source has, what it does to who asks, and what is asked of us; all from a seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from tests.worlds import dice
from tests.worlds.downloads.flaws import KINDS, Group
from tests.worlds.flaws import Flaw, draw_flaws

PAGE_SIZES = (100, 101, 250, 500, 1_000)
ROWS_AT_THE_EDGES = (0, 1, -1, 0, 1, 2)
HEADER = "X-Secret"
TABLES_MAX = 3
SHARED = "lists with shared headers"
"""Must be refused: whoever is sent headers that are another's learns them."""


class World(BaseModel):
    """All that decides what comes out."""

    model_config = ConfigDict(frozen=True)

    seed: int
    rows: int
    tells_total: bool
    is_wrapped: bool
    """Whether pages come in an envelope."""
    flaws: tuple[Flaw, ...]
    options: dict[str, JsonValue]
    """Of the request, beside its address."""
    tables: tuple[bool, ...] = ()
    """Whether the source of each table wants headers, where a book has several. Each is a host with the same rows."""
    asked_as: str = "sheets"
    """How several tables are asked for: as sheets, as lists, or as lists with one set of headers for all."""

    @property
    def page_size(self) -> int:
        """How many rows are asked for at a time."""
        size = self.options["page_size"]
        assert isinstance(size, int)
        return size

    @property
    def flaw_names(self) -> list[str]:
        """What goes wrong in it."""
        return [flaw.name for flaw in self.flaws]

    @property
    def choices(self) -> dict[str, str]:
        """The options of its request, as texts."""
        told = {name: str(value) for name, value in self.options.items()}
        return told | ({"tables": f"{len(self.tables)} as {self.asked_as}"} if self.tables else {})

    def flaw(self, name: str) -> Flaw | None:
        """A flaw, if the world has it."""
        return next((flaw for flaw in self.flaws if flaw.name == name), None)

    def has(self, *names: str) -> bool:
        """Whether it has one of some flaws."""
        return any(flaw.name in names for flaw in self.flaws)


OPTIONS: dict[str, tuple[JsonValue, ...]] = {
    "force_continue": (False, False, True),
    "first_page": (*[0] * 11, 1),
    "allow_repeats": (False, False, False, True),
    "columns": ("closed", "open"),
    "type": ("csv", "csv", "parquet", "excel"),
    "encoding": ("utf-8-bom", "utf-8", "gb18030"),
    "formula_guard": (True, False),
    "time_zone": ("UTC", "Asia/Shanghai"),
}
"""What is drawn of each option; what stands more than once comes more often."""


def drawn(seed: int, family: Iterable[str] | None = None) -> World:
    """The world of a seed.

    Args:
        seed: The same makes the same world.
        family: Flaws of which it has one at least; by default it may have any, or none.
    """
    options: dict[str, JsonValue] = {name: dice.pick(values, seed, name) for name, values in OPTIONS.items()}
    size = options["page_size"] = dice.pick(
        PAGE_SIZES[: 3 if dice.share(seed, "sizes") < 0.8 else None], seed, "page_size"
    )
    pages = dice.pick((0, 1, 1, 2, 3, 4, 7), seed, "pages")
    rows = max(0, pages * size + dice.pick((*ROWS_AT_THE_EDGES, size // 3, size // 5), seed, "rows"))
    flaws = draw_flaws(seed, KINDS, list(Group), family)
    if any(flaw.name == "counts_from_1" for flaw in flaws) and dice.share(seed, "knows") < 0.5:
        options["first_page"] = 1
    return World(
        seed=seed,
        rows=rows,
        tells_total=dice.share(seed, "tells_total") < 0.6,
        is_wrapped=dice.share(seed, "is_wrapped") < 0.3,
        flaws=flaws,
        options=options,
    )


def with_headers(seed: int) -> World:
    """The world of a seed as a book of several tables, whose sources want different headers, or none."""
    world = drawn(seed)
    count = dice.pick((2, 2, TABLES_MAX), seed, "tables")
    wanting = dice.stream(seed, "wanting").randrange(count)
    tables = tuple(table == wanting or dice.share(seed, "wants", table) < 0.5 for table in range(count))
    return world.model_copy(
        update={
            "options": {**world.options, "type": "excel"},
            "tables": tables,
            "asked_as": dice.pick(("sheets", "lists", SHARED), seed, "asked_as"),
        }
    )


def smaller(world: World) -> list[World]:
    """Worlds that are a step smaller: without one of the flaws, with fewer rows, with an option as it is by default."""
    without = [
        world.model_copy(update={"flaws": world.flaws[:at] + world.flaws[at + 1 :]}) for at in range(len(world.flaws))
    ]
    fewer = [world.rows // 2, world.rows - world.page_size, world.rows - 1]
    defaults = {name: values[0] for name, values in OPTIONS.items()}
    plainer = [
        world.model_copy(update={"options": {**world.options, name: value}})
        for name, value in defaults.items()
        if world.options[name] != value
    ]
    shorter = [world.model_copy(update={"rows": rows}) for rows in dict.fromkeys(fewer) if 0 <= rows < world.rows]
    bare = [world.model_copy(update={"is_wrapped": False})] if world.is_wrapped else []
    single = [world.model_copy(update={"tables": world.tables[:-1]})] if len(world.tables) > 2 else []
    return [*without, *shorter, *plainer, *bare, *single]


def header(table: int) -> dict[str, str]:
    """What the source of a table wants to be sent, if it wants anything."""
    return {HEADER: f"secret of table {table}"}


def request(world: World, urls: Sequence[str]) -> dict[str, Any]:
    """What is asked of us.

    Args:
        urls: Of the source of each table.
    """
    if not world.tables:
        return {"source_url": urls[0], **world.options}
    headers = [header(table) if wants else None for table, wants in enumerate(world.tables)]
    if world.asked_as == SHARED:
        return {"multi": "tab", "source_url": list(urls), "headers": next(filter(None, headers)), **world.options}
    if world.asked_as == "lists":
        return {"multi": "tab", "source_url": list(urls), "headers": headers, **world.options}
    sheets = [{"source_url": url, "headers": own} for url, own in zip(urls, headers, strict=True)]
    return {"sheets": sheets, **world.options}
