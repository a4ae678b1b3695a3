"""The judge of worlds of downloads sees loss, doubling, another order, a cut file, false success, needless failure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from itertools import combinations, product

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import JsonValue

from tests.worlds import verdict
from tests.worlds.downloads import expecting, files, rows
from tests.worlds.downloads.catalogue import CATALOGUE
from tests.worlds.downloads.flaws import KINDS
from tests.worlds.downloads.source import WorldSource
from tests.worlds.downloads.world import (
    DRAWN,
    INLINE,
    OPTIONS,
    PLAIN,
    SHARED,
    TITLES,
    DownloadWorld,
    draw_world,
    pairwise_rows,
)
from tests.worlds.flaws import PASSES, Flaw
from tests.worlds.pairwise import pairs_of
from tests.worlds.verdict import Ending, Outcome

COUNT = 7
Lines = list[list[str]]


def make_world(
    *flaws: str, rows: int = COUNT, passes: bool | None = None, dial: int = 0, **options: JsonValue
) -> DownloadWorld:
    """A world with plain options."""
    return DownloadWorld(
        seed=1,
        rows=rows,
        tells_total=True,
        is_wrapped=False,
        flaws=tuple(
            Flaw(name=name, passes=KINDS[name].passes == PASSES if passes is None else passes, dial=dial)
            for name in flaws
        ),
        options={**PLAIN, "first_page": 0, "type": "csv", "page_size": 100, **options},
    )


def make_lines(world: DownloadWorld) -> Lines:
    """The lines of a right file, heads first."""
    heads = ["id", "name", "amount", "note"]
    guarded = world.options["type"] == "csv"
    cells = [
        {key: rows.read_cell(cell, guarded=guarded) for key, cell in rows.build_row(world, n).items()}
        for n in range(world.rows)
    ]
    return [heads, *([row.get(head, "") for head in heads] for row in cells)]


def write_csv(lines: Lines) -> bytes:
    """A file as the product makes it by default."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(lines)
    return text.getvalue().encode("utf-8-sig")


def write_parquet(lines: Lines) -> bytes:
    """The same as Parquet."""
    out = io.BytesIO()
    heads, *cells = lines
    pq.write_table(pa.table({head: [row[at] for row in cells] for at, head in enumerate(heads)}), out)
    return out.getvalue()


def write_excel(lines: Lines) -> bytes:
    """The same as a book."""
    return _book(lines)


def write_drawn(lines: Lines) -> bytes:
    """The same as a book with all that a template brings."""
    heads, *cells = lines
    above = [[str(DRAWN["title"])], ["PageRequest by", "a world"], [TITLES[head] for head in heads]]
    return _book([*above, *cells, [str(DRAWN["footer"])]])


def _book(lines: Lines) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for line in lines:
        book.active.append(line)
    book.save(out)
    return out.getvalue()


WRITERS = {"csv": write_csv, "parquet": write_parquet, "excel": write_excel}


def judge(
    world: DownloadWorld, content: bytes, fired: tuple[str, ...] = (), warnings: tuple[str, ...] = ()
) -> verdict.Verdict:
    """Think of a file that came out of a world."""
    difference = verdict.differences(rows.list_expected_rows(world), files.read(world, content))
    outcome = Outcome(is_over=True, warnings=warnings, difference=difference)
    return verdict.judge(
        expecting.build_expectation(world), outcome, world.flaw_names, frozenset(fired or world.flaw_names)
    )


def lose(lines: Lines) -> Lines:
    """One row is not there."""
    return lines[:3] + lines[4:]


def double(lines: Lines) -> Lines:
    """One row is there twice."""
    return lines[:3] + lines[2:]


def swap(lines: Lines) -> Lines:
    """Two rows have changed places."""
    return [*lines[:2], lines[3], lines[2], *lines[4:]]


def change(lines: Lines) -> Lines:
    """A cell has another value."""
    return [*lines[:2], [lines[2][0], "somebody else", *lines[2][2:]], *lines[3:]]


def cut(lines: Lines) -> Lines:
    """The end is missing."""
    return lines[:-2]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("plant", "words"),
    [(lose, "1 lost"), (double, "1 doubled"), (swap, "another order"), (change, "1 strange"), (cut, "2 lost")],
)
def test_a_planted_difference_is_found_in_a_file(kind: str, plant: Callable[[Lines], Lines], words: str) -> None:
    """Whatever the file's type; without the plant the file is equal, and no passing flaw excuses one with it."""
    world = make_world("server_error", type=kind, passes=True)
    lines = make_lines(world)
    assert judge(world, WRITERS[kind](lines)).ending is Ending.EQUAL
    found = judge(world, WRITERS[kind](plant(lines)))
    assert found.ending is Ending.SILENT
    assert words in found.why


@pytest.mark.parametrize("plant", [lose, double, swap, change, cut])
def test_a_planted_difference_is_found_in_a_drawn_book(plant: Callable[[Lines], Lines]) -> None:
    """Between the heads of the template and the footer."""
    world = make_world(type="excel").model_copy(update={"is_drawn": True})
    lines = make_lines(world)
    assert judge(world, write_drawn(lines)).ending is Ending.EQUAL
    assert judge(world, write_drawn(plant(lines))).ending is Ending.SILENT


def test_a_drawn_book_without_its_footer_is_found() -> None:
    """As one that was cut there."""
    world = make_world(type="excel").model_copy(update={"is_drawn": True})
    heads, *cells = make_lines(world)
    content = _book([[str(DRAWN["title"]), "a world"], [TITLES[head] for head in heads], *cells])
    assert "footer" in judge(world, content).why


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_file_that_is_cut_off_is_found(kept: float) -> None:
    """At any byte of a CSV file, where rows are lost or the last one is a part of itself."""
    world = make_world(rows=40)
    content = write_csv(make_lines(world))
    assert judge(world, content[: int(len(content) * kept)]).ending is Ending.SILENT


@pytest.mark.parametrize("kind", ["parquet", "excel"])
def test_a_file_that_cannot_be_read_is_no_success(kind: str) -> None:
    """It is cut off in the middle, and its reader gives up."""
    world = make_world(type=kind)
    content = WRITERS[kind](make_lines(world))
    found = judge(world, content[: len(content) // 2])
    assert found.ending is Ending.SILENT


@pytest.mark.parametrize("name", [name for name, (_, meets) in expecting.CAUSES.items() if meets is expecting.always])
def test_a_flaw_that_stays_and_succeeds_with_less_is_false_success(name: str) -> None:
    """No such flaw excuses a loss without a word."""
    world = make_world(name, passes=False)
    assert judge(world, write_csv(lose(make_lines(world)))).ending is Ending.SILENT


@pytest.mark.parametrize(
    ("flaws", "passes", "cause", "ending"),
    [
        (("server_error",), False, "source_status", Ending.FAILED),
        (("server_error",), True, "source_status", Ending.NEEDLESS),
        (("server_error",), False, "source_cut_off", Ending.WRONG_CAUSE),
        (("cut_body", "long_numbers"), True, "source_cut_off", Ending.NEEDLESS),
        (("stall",), False, "source_timeout", Ending.FAILED),
        (("large_pages_time_out",), False, "source_timeout", Ending.NEEDLESS),
        (("retry_differs",), True, "source_cut_off", Ending.NEEDLESS),
        ((), False, "source_status", Ending.NEEDLESS),
    ],
)
def test_a_failure_needs_a_right_cause(flaws: tuple[str, ...], passes: bool, cause: str, ending: Ending) -> None:
    """What passes must end equal; what stays, by its own cause."""
    world = make_world(*flaws, passes=passes)
    outcome = Outcome(is_over=True, cause=cause)
    assert verdict.judge(expecting.build_expectation(world), outcome, flaws, frozenset(flaws)).ending is ending


def test_what_never_ends_is_late() -> None:
    """Whatever is wrong with the source."""
    world = make_world("stall", passes=False)
    found = verdict.judge(expecting.build_expectation(world), Outcome(is_over=False), ["stall"], frozenset({"stall"}))
    assert found.ending is Ending.LATE


@pytest.mark.parametrize(
    ("world", "warning"),
    [
        (make_world("keys_twice"), "has the key `note` twice"),
        (make_world("long_texts", type="excel"), "Texts that were cut, as they were longer: 1."),
    ],
)
def test_a_warning_that_must_come_is_missed(world: DownloadWorld, warning: str) -> None:
    """All rows are there, and something was lost all the same."""
    content = WRITERS[str(world.options["type"])](make_lines(world))
    if world.has("long_texts"):
        content = write_excel([[cell[: rows.CELL_CHARACTERS_MAX] for cell in line] for line in make_lines(world)])
    assert judge(world, content, warnings=(warning,)).ending is Ending.EQUAL
    assert judge(world, content).ending is Ending.SILENT


@pytest.mark.parametrize(
    ("world", "warning", "ending"),
    [
        (make_world("cached", allow_repeats=True), "Pages of the source have the same rows: 0 and 1.", Ending.WARNED),
        (make_world("cached", allow_repeats=True), "", Ending.SILENT),
        (make_world("deep_nothing", rows=300, force_continue=True), "", Ending.SILENT),
        (make_world("deep_nothing", rows=300, force_continue=True), "pages have no rows, although", Ending.WARNED),
        (make_world("rows_leave"), "", Ending.INVISIBLE),
    ],
)
def test_a_difference_that_a_client_can_see_must_be_told(world: DownloadWorld, warning: str, ending: Ending) -> None:
    """Only what cannot be detected may pass silently."""
    assert judge(world, write_csv(lose(make_lines(world))), warnings=(warning,)).ending is ending


def test_a_flaw_that_did_not_fire_shows_nothing() -> None:
    """Equal or not, such a world is no evidence."""
    world = make_world("server_error", passes=False)
    outcome = Outcome(is_over=True)
    assert (
        verdict.judge(expecting.build_expectation(world), outcome, world.flaw_names, frozenset()).ending
        is Ending.UNKNOWN
    )


def test_rows_of_options_hold_every_pair() -> None:
    """And worlds of consecutive seeds have all of these rows."""
    every = {
        frozenset({(one, value), (other, beside)})
        for one, other in combinations(OPTIONS, 2)
        for value in OPTIONS[one]
        for beside in OPTIONS[other]
    }
    assert set().union(*map(pairs_of, pairwise_rows())) == every
    worlds = [draw_world(7_000_000 + number) for number in range(2 * len(pairwise_rows()))]
    assert {world.options["page_size"] for world in worlds} == {100, 101, 250, 500, 1_000}
    assert {world.asked_as for world in worlds} == {"sheets", "lists", "headers", SHARED, INLINE}
    assert {world.is_drawn for world in worlds} == {world.wants_callback for world in worlds} == {True, False}
    assert sum(world.is_refused for world in worlds) < len(worlds) * 0.3


def test_a_run_of_the_suite_draws_nearly_all_flaws() -> None:
    """Of any seed, the fixed one of CI among them."""
    for seed in (20_261_120, 1, 2, 3):
        drawn_flaws = {name for number in range(64) for name in draw_world(seed * 1_000_000 + number).flaw_names}
        assert len(drawn_flaws) > 0.75 * len(KINDS)


@pytest.mark.parametrize("name", [name for row in CATALOGUE.values() for name in row.flaws])
def test_every_flaw_can_fire(name: str) -> None:
    """A source with it answers otherwise than one without, be it later, on some page of some size."""
    for dial in range(8):
        source = WorldSource(make_world(name, rows=450, dial=dial))
        for page, size in product(range(7), (1, 100)):
            source.ask(page, size)
            if name in source.fired:
                return
    pytest.fail(f"{name} never fired")
