"""What a source has: its rows, and how they read in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from tests.worlds import dice
from tests.worlds.downloads.world import TITLES, DownloadWorld

FIRST_ID = 1_001
NAMES = ("王伟", "Jens Ågård", "O'Neil, Pat", 'Ann "Annie" Lee', "Ring twice\nGround floor", "=1+1", "-7", "@home")
STRANGE = ("a\tb", "😀 𝄞", "x=y", "+49 30", "'quoted", "back\\slash", "line\r\nline", "\u0007bell", "")
FORMULA_STARTS = "=+-@\t\r\n\0"
LONG_TEXT_CHARACTERS = 33_000
CELL_CHARACTERS_MAX = 32_767
NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
FIRST_OF_TWO = '"note":"the first of two",'
HALF_CHARACTER = re.compile("[\ud800-\udfff]")

Cells = Mapping[str, str]
"""The cells of a row as JSON, by key."""

FROM_A_ROW_ON: Mapping[str, Callable[[int], Cells]] = {
    "late_column": lambda n: {"late": str(n)},
    "retyped": lambda n: {"amount": json.dumps(f"about {n}")},
    "keys_twice": lambda n: {"note": json.dumps(f"the last of two {n}")},
}
"""What a flaw makes of cells of a row and of all behind it, by the row's number."""
IN_A_ROW: Mapping[str, Callable[[int], Cells]] = {
    "not_a_number": lambda _: {"amount": "NaN"},
    "infinity": lambda dial: {"amount": NO_NUMBERS[1 + dial % 2]},
    "long_texts": lambda dial: {"name": json.dumps(f"{dial} " + "x" * LONG_TEXT_CHARACTERS)},
}
"""What a flaw makes of cells of one row, by its dial."""


def build_row(world: DownloadWorld, n: int) -> Cells:
    """Row n of the source, from 0 on."""
    cells = {
        "id": str(FIRST_ID + n),
        "name": json.dumps(dice.pick(NAMES, world.seed, "name", n), ensure_ascii=n % 2 == 0),
        "amount": f"{dice.stream(world.seed, 'amount', n).randrange(1_000_000) / 100:.2f}",
        "note": "null" if n % 3 else json.dumps(f"note {n}"),
    }
    return _bend_cells(world, n, cells)


def _bend_cells(world: DownloadWorld, n: int, cells: dict[str, str]) -> Cells:
    """The same with what the world's contents have that not every source has."""
    for flaw in world.flaws:
        place = flaw.dial % max(1, world.rows)
        if flaw.name in FROM_A_ROW_ON and n >= place:
            cells |= FROM_A_ROW_ON[flaw.name](n)
        if flaw.name in IN_A_ROW and n == place:
            cells |= IN_A_ROW[flaw.name](flaw.dial)
        match flaw.name:
            case "long_numbers":
                cells["amount"] = f"{10**17 + n}" if n % 2 else f"0.{10**17 + n}"
            case "strange_letters":
                cells["name"] = json.dumps(dice.pick(STRANGE, world.seed, "strange", n))
            case "lone_surrogates" if n % 2 == 0:
                cells["name"] = f'"cut \\ud83d in the middle {n}"'
            case "missing_keys" if n and dice.share(world.seed, "missing", n) < 0.3:
                del cells["note"]
    return cells


def is_kept(world: DownloadWorld, n: int) -> bool:
    """Whether a source that filters what it has paged leaves the row in."""
    flaw = world.flaw("filtered")
    return flaw is None or dice.share(world.seed, "kept", n) < 0.1 + 0.85 * flaw.share


def write_row(world: DownloadWorld, n: int) -> str:
    """A row as the source answers it."""
    flaw = world.flaw("keys_twice")
    is_twice = flaw is not None and n >= flaw.dial % max(1, world.rows)
    cells = ",".join(f"{json.dumps(key)}:{cell}" for key, cell in build_row(world, n).items())
    return "{" + (FIRST_OF_TWO if is_twice else "") + cells + "}"


def is_bent(world: DownloadWorld, n: int) -> bool:
    """Whether a flaw of the contents shows in a row."""
    return write_row(world, n) != write_row(world.model_copy(update={"flaws": ()}), n)


def is_shown(world: DownloadWorld, key: str) -> bool:
    """Whether the file has a column of a key: a template says which ones."""
    return not world.is_drawn or key in TITLES


def list_expected_rows(world: DownloadWorld) -> list[str]:
    """All rows that the file must have, in order, as texts that can be compared."""
    guarded = world.options["type"] == "csv" and bool(world.options["formula_guard"])
    most = CELL_CHARACTERS_MAX if world.options["type"] == "excel" else None
    return [
        normalize_row(
            {key: read_cell(cell, guarded)[:most] for key, cell in build_row(world, n).items() if is_shown(world, key)}
        )
        for n in range(world.rows)
        if is_kept(world, n)
    ]


def read_cell(cell: str, guarded: bool) -> str:
    """A cell as a reader of the file has it.

    Args:
        cell: As JSON.
        guarded: Whether a text that a spreadsheet would take for a formula has a quote before it.
    """
    if cell in NO_NUMBERS:
        return cell
    value = json.loads(cell, parse_float=str, parse_int=str)
    if value is None:
        return ""
    value = HALF_CHARACTER.sub("\ufffd", value)
    if guarded and cell.startswith('"') and value[:1] and value[0] in FORMULA_STARTS:
        return f"'{value}"
    return str(value)


def normalize_row(cells: Mapping[str, str]) -> str:
    """A row as a text: its cells by name, without those that are empty; numbers are equal that have the same value."""
    return " ".join(f"{key}={_plain(value)!r}" for key, value in sorted(cells.items()) if value != "")


def _plain(value: str) -> str:
    try:
        number = Decimal(value)
    except InvalidOperation:
        return value
    return format(number.normalize(), "f") if number.is_finite() else value


def build_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a file, as texts that can be compared."""
    return [
        normalize_row(dict(zip(heads, line, strict=False)))
        + ("" if len(line) == len(heads) else f", {len(line)} cells")
        for line in lines
    ]
