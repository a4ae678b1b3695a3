"""The catalogue of a system: how other sides are known to behave, and which flaw plays each behaviour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.worlds.flaws import Kind, See

ROOT = Path(__file__).parents[2]
MARKS_ADR = ROOT / "docs" / "adr" / "0017-marks-of-worlds.md"
"""Names each flaw whose mark is not that of its row, and says why."""


@dataclass(frozen=True)
class Row:
    """A behaviour of the other side, or of those who read what we deliver."""

    behaviour: str
    see: See = See.WIRE
    flaws: tuple[str, ...] = ()
    """Kinds of flaws that play it, each variant of its own."""
    reason: str = ""
    """Why no flaw plays it, as a sentence; empty where one does."""
    shown_by: tuple[str, ...] = ()
    """Tests that show the behaviour instead, as `tests/folder/test_file.py::test_name`."""


Catalogue = Mapping[int, Row]


def list_gaps(catalogue: Catalogue, kinds: Mapping[str, Kind], adr: str | None = None) -> list[str]:
    """Return a sentence for each place where a catalogue and the kinds of flaws do not agree; none if they do.

    Args:
        catalogue: The rows of a system by their numbers, which count from 1 without a gap.
        kinds: All flaws of that system.
        adr: The text that names changed marks; by default that of `MARKS_ADR`.
    """
    changed = MARKS_ADR.read_text() if adr is None and MARKS_ADR.exists() else adr or ""
    gaps = [*_list_numbers(catalogue), *_list_strangers(catalogue, kinds)]
    for number, row in catalogue.items():
        gaps += [f"row {number}: {gap}" for gap in (*_list_row(row, kinds), *_list_marks(row, kinds, changed))]
    return gaps


def _list_numbers(catalogue: Catalogue) -> Iterator[str]:
    if [*catalogue] != [*range(1, len(catalogue) + 1)]:
        yield f"rows are numbered {[*catalogue]}: number them from 1, in order"


def _list_strangers(catalogue: Catalogue, kinds: Mapping[str, Kind]) -> Iterator[str]:
    for name, kind in kinds.items():
        row = catalogue.get(kind.number)
        if row is None or name not in row.flaws:
            yield f"flaw {name} is of row {kind.number}, which does not list it"


def _list_row(row: Row, kinds: Mapping[str, Kind]) -> Iterator[str]:
    if not row.flaws and not row.reason:
        yield f"no flaw plays {row.behaviour!r}: add one, or say in a sentence why none is needed"
    if row.flaws and row.reason:
        yield "a flaw plays it, and a reason says why none does"
    if row.reason and not re.fullmatch(r"[A-Z].{20,}\.", row.reason, re.DOTALL):
        yield f"the reason {row.reason!r} is no sentence"
    yield from (f"flaw {name} does not exist" for name in row.flaws if name not in kinds)
    yield from (f"test {test} does not exist" for test in row.shown_by if not _exists(test))


def _list_marks(row: Row, kinds: Mapping[str, Kind], changed: str) -> Iterator[str]:
    for name in row.flaws:
        if name in kinds and kinds[name].see is not row.see and f"`{name}`" not in changed:
            yield f"flaw {name} is marked {kinds[name].see}, the row {row.see}: mend it, or name it in {MARKS_ADR.name}"


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return bool(name) and (ROOT / path).exists() and f"def {name}(" in (ROOT / path).read_text()
