"""A world of downloads: what the source has, what it does to who asks, and what is asked of us; all from a seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from api.downloads.tables import CSV_FIELDS, PAGE_FIELDS
from tests.worlds import dice, pairwise
from tests.worlds.downloads.flaws import KINDS, DownloadFlaws
from tests.worlds.flaws import Flaw, draw_flaws
from tests.worlds.pairwise import Options, Row

ROWS_AT_THE_EDGES = (0, 1, -1, 0, 1, 2)
HEADER = "X-Secret"
TABLES_MAX = 3
SEARCH_DEPTH = 10_000
"""Beyond this depth many search engines answer nothing."""
URL, INLINE = "url", "inline"
SHARED = "lists with shared headers"
"""Must be refused: a host that receives headers of another learns its secrets."""


class DownloadWorld(BaseModel):
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
    """How the tables are asked for: as one with headers, as sheets, as lists, or as lists with one set of headers for
    all; or the rows come along."""
    counts_from: int = 0
    """What the source calls its first page."""
    is_drawn: bool = False
    """Whether the request says how the book looks."""
    wants_callback: bool = False

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
        told |= {"callback": str(self.wants_callback), "drawn": str(self.is_drawn)}
        is_one = not self.tables and self.asked_as != INLINE
        return told | {"rows_from": URL if is_one else f"{len(self.tables)} as {self.asked_as}"}

    @property
    def is_inline(self) -> bool:
        """Whether the rows come with the request."""
        return self.asked_as == INLINE

    @property
    def is_refused(self) -> bool:
        """Whether the request must be refused: one secret for several hosts, or several tables and no book."""
        return self.asked_as == SHARED or (len(self.tables) > 1 and self.options["type"] != "excel")

    def flaw(self, name: str) -> Flaw | None:
        """A flaw, if the world has it."""
        return next((flaw for flaw in self.flaws if flaw.name == name), None)

    def has(self, *names: str) -> bool:
        """Whether it has one of some flaws."""
        return any(flaw.name in names for flaw in self.flaws)


OPTIONS: Options = {
    "force_continue": ("no", "yes"),
    "first_page": ("0", "1"),
    "allow_repeats": ("no", "yes"),
    "columns": ("closed", "open"),
    "type": ("csv", "parquet", "excel", "drawn"),
    "encoding": ("utf-8-bom", "utf-8", "gb18030"),
    "formula_guard": ("yes", "no"),
    "time_zone": ("UTC", "Asia/Shanghai"),
    "page_size": ("100", "101", "250", "500", "1000"),
    "rows_from": (URL, "headers", "sheets", "lists", SHARED, INLINE),
    "callback": ("no", "yes"),
}
"""All that a request may say of rows and file, the plainest value first; a drawn book has all that Excel has."""
SEVERAL = ("sheets", "lists", SHARED)
SENT_ALONG = ("long_numbers", "strange_letters", "long_texts", "late_column", "missing_keys", "retyped")
"""Flaws that rows may have which come with the request."""
TITLES = {"id": "Number", "name": "Who", "amount": "Sum", "note": "Remark"}
DRAWN: dict[str, JsonValue] = {
    "title": "All of them",
    "summary": "As <b>they</b> came",
    "header": {"PageRequest by": "a world", "For": "a test"},
    "footer": "The end of the table",
    "template": dict(TITLES),
}
LOOKS: dict[str, JsonValue] = {
    "default_width": 14,
    "default_height": 18,
    "col_align": "left",
    "freeze": False,
    "filter": False,
}


@cache
def pairwise_rows() -> tuple[Row, ...]:
    """Rows of options that together hold every pair of values of two options."""
    return pairwise.pairwise_rows(OPTIONS)


def draw_world(
    seed: int, family: Iterable[str] | None = None, rows_from: Sequence[str] = OPTIONS["rows_from"]
) -> DownloadWorld:
    """The world of a seed. Worlds of consecutive seeds have all pairs of options, and most have one flaw after another.

    Args:
        seed: The same makes the same world.
        family: Flaws of which it has one at least; by default it may have any, or none.
        rows_from: Where its rows may come from; by default from anywhere.
    """
    row = dict(pairwise_rows()[seed % len(pairwise_rows())])
    if row["rows_from"] not in rows_from or (family is not None and row["rows_from"] in (SHARED, INLINE)):
        row["rows_from"] = dice.pick([each for each in rows_from if each not in (SHARED, INLINE)] or rows_from, seed)
    if row["rows_from"] == SHARED and len(rows_from) > 1 and dice.share(seed, "shared") < 0.5:
        row["rows_from"] = "lists"
    if row["rows_from"] in SEVERAL and dice.share(seed, "refused") < 0.8:
        row["type"] = dice.pick(("excel", "drawn"), seed, "type")
    if family is None and dice.share(seed, "in_turn") < 0.85:
        # Each round has them in another order, so that a flaw does not always meet the same options.
        turn, place = divmod(seed, len(KINDS))
        family = (dice.stream(turn, "turns").sample(sorted(KINDS), len(KINDS))[place],)
    return _build_world(seed, row, draw_flaws(seed, KINDS, list(DownloadFlaws), family))


def _build_world(seed: int, row: Row, flaws: tuple[Flaw, ...]) -> DownloadWorld:
    size = int(row["page_size"])
    pages = dice.pick((0, 1, 1, 2, 3, 4, 7), seed, "pages")
    rows = max(0, pages * size + dice.pick((*ROWS_AT_THE_EDGES, size // 3, size // 5), seed, "rows"))
    if any(flaw.name.startswith("deep_") for flaw in flaws) and size >= 500 and dice.share(seed, "deep") < 0.5:
        rows = SEARCH_DEPTH + dice.pick((1, size, size + 1), seed, "rows")
    is_inline = row["rows_from"] == INLINE
    first_page = int(row["first_page"])
    world = DownloadWorld(
        seed=seed,
        rows=rows,
        tells_total=dice.share(seed, "tells_total") < 0.6,
        is_wrapped=dice.share(seed, "is_wrapped") < 0.3,
        flaws=tuple(flaw for flaw in flaws if flaw.name in SENT_ALONG) if is_inline else flaws,
        options={
            **{name: row[name] == "yes" for name in ("force_continue", "allow_repeats", "formula_guard")},
            **{name: row[name] for name in ("columns", "encoding", "time_zone")},
            "first_page": first_page,
            "type": "excel" if row["type"] == "drawn" else row["type"],
            "page_size": size,
        },
        tables=_choose_tables(seed, row["rows_from"]),
        asked_as=row["rows_from"] if row["rows_from"] != URL else "sheets",
        counts_from=_choose_first_page(seed, first_page, flaws),
        is_drawn=row["type"] == "drawn",
        wants_callback=row["callback"] == "yes",
    )
    # Of a request that is refused no source is asked.
    return world.model_copy(update={"flaws": ()}) if world.is_refused else world


def _choose_first_page(seed: int, first_page: int, flaws: tuple[Flaw, ...]) -> int:
    """What the source calls its first page, beside a flaw that has it count from 1 whatever it says."""
    is_said = dice.share(seed, "counts_from") < 0.85
    # A few requests say that the source counts from 1, and it does not.
    return first_page if is_said and not any(flaw.name == "counts_from_1" for flaw in flaws) else 0


def _choose_tables(seed: int, rows_from: str) -> tuple[bool, ...]:
    """Whether the source of each table wants headers; one of several does at least."""
    if rows_from == "headers":
        return (True,)
    if rows_from not in SEVERAL:
        return ()
    count = dice.pick((2, 2, TABLES_MAX), seed, "tables")
    wanting = dice.stream(seed, "wanting").randrange(count)
    return tuple(table == wanting or dice.share(seed, "wants", table) < 0.5 for table in range(count))


def draw_with_headers(seed: int) -> DownloadWorld:
    """The world of a seed as a book of several tables, whose sources want different headers, or none."""
    return draw_world(seed, rows_from=(SEVERAL[seed % len(SEVERAL)],))


PLAIN: dict[str, JsonValue] = {
    "force_continue": False,
    "allow_repeats": False,
    "columns": "closed",
    "encoding": "utf-8-bom",
    "formula_guard": True,
    "time_zone": "UTC",
}
"""Options as they are by default, of those that can be changed without changing what else the world is."""


def shrink_world(world: DownloadWorld) -> list[DownloadWorld]:
    """Worlds that are a step smaller: without one of the flaws, with fewer rows, with an option as it is by default."""
    without = [
        world.model_copy(update={"flaws": world.flaws[:at] + world.flaws[at + 1 :]}) for at in range(len(world.flaws))
    ]
    fewer = [world.rows // 2, world.rows - world.page_size, world.rows - 1]
    plainer = [
        world.model_copy(update={"options": {**world.options, name: value}})
        for name, value in PLAIN.items()
        if world.options[name] != value
    ]
    without_looks = [world.model_copy(update={"is_drawn": False})] if world.is_drawn else []
    untold = [world.model_copy(update={"wants_callback": False})] if world.wants_callback else []
    shorter = [world.model_copy(update={"rows": rows}) for rows in dict.fromkeys(fewer) if 0 <= rows < world.rows]
    bare = [world.model_copy(update={"is_wrapped": False})] if world.is_wrapped else []
    single = [world.model_copy(update={"tables": world.tables[:-1]})] if len(world.tables) > 2 else []
    return [*without, *shorter, *plainer, *bare, *single, *without_looks, *untold]


def build_header(table: int) -> dict[str, str]:
    """What the source of a table wants to be sent, if it wants anything."""
    return {HEADER: f"secret of table {table}"}


def build_request(world: DownloadWorld, urls: Sequence[str], callback: str | None = None) -> dict[str, Any]:
    """The request, without rows that are sent along.

    Args:
        urls: Of the source of each table.
        callback: The receiver of the result.
    """
    drawn = DRAWN if world.is_drawn else {}
    # A field that nothing of the download would heed is refused.
    unheeded = {*(PAGE_FIELDS if world.is_inline else ()), *(CSV_FIELDS if world.options["type"] != "csv" else ())}
    options = {name: value for name, value in world.options.items() if name not in unheeded}
    body = {**options, **(LOOKS if world.is_drawn else {}), **({"callback": callback} if callback else {})}
    headers = [build_header(table) if wants else None for table, wants in enumerate(world.tables)]
    match world.asked_as:
        case "lists":
            return {"multi": "tab", "source_url": list(urls), "headers": headers, **drawn, **body}
        case _ if world.asked_as == SHARED:
            shared = next(filter(None, headers))
            return {"multi": "tab", "source_url": list(urls), "headers": shared, **drawn, **body}
        case "headers":
            return {"source_url": urls[0], "headers": headers[0], **drawn, **body}
        case _ if world.is_inline:
            return {**drawn, **body}
        case _ if world.tables:
            sheets = [{"source_url": url, "headers": own, **drawn} for url, own in zip(urls, headers, strict=True)]
            return {"sheets": sheets, **body}
    return {"source_url": urls[0], **drawn, **body}
