"""Large pages are worked on in pieces; what comes out is the same, and so is what is said of a wrong one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.downloads import pages
from domain.downloads.models import TextEncoding
from domain.downloads.pages import NewColumnsFound, read_first_page
from domain.downloads.shape import EncodedPage, PageEncoder, TableShape
from domain.downloads.sinks.csv import CsvSink
from domain.faults import SourceFault

COLUMNS = ["id", "text", "more"]
ROWS = 100
LARGE_BYTES, PIECE_BYTES = 4_000, 1_000

Row = dict[str, Any]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of some thousand bytes are large."""
    monkeypatch.setattr(pages, "LARGE_BYTES", LARGE_BYTES)
    monkeypatch.setattr(pages, "PIECE_BYTES", PIECE_BYTES)


def build_body(rows: list[Row], *, wrapped: bool = False) -> bytes:
    """A page of these rows."""
    page = {"total": 900, "force_continue": True, "data": rows}
    return json.dumps({"status": 200, "msg": "", "data": page} if wrapped else page, ensure_ascii=False).encode()


def build_rows() -> list[Row]:
    """Rows with all columns."""
    return [{"id": n, "text": f"行 {n} " + "x" * (n % 37), "more": None} for n in range(ROWS)]


def encode_page(page: bytes, shape: TableShape | None = None) -> EncodedPage:
    """What is staged of a page."""
    return PageEncoder(shape or TableShape(columns=COLUMNS), CsvSink(TextEncoding.UTF_8, guard_formulas=True)).encode(
        page
    )


def change_row(place: int, **cells: Any) -> list[Row]:
    """The plain rows with other cells in one of them."""
    rows = build_rows()
    rows[place] |= cells
    return rows


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "rows",
    [
        build_rows(),
        change_row(77, more={"a": [1, "2"]}),
        change_row(99, text="=1+1"),
        [{"id": n} for n in range(1_000)],
    ],
)
def test_a_large_page_is_staged_as_a_small_one(rows: list[Row], wrapped: bool, request: pytest.FixtureRequest) -> None:
    """Whichever of its rows are flat."""
    page = build_body(rows, wrapped=wrapped)
    assert len(page) > LARGE_BYTES
    whole, look = encode_page(page), read_first_page(page)
    request.getfixturevalue("small_limits")
    assert encode_page(page) == whole
    assert read_first_page(page) == look


@pytest.mark.usefixtures("small_limits")
def test_a_page_is_cut_into_pieces_of_whole_rows() -> None:
    """None is lost, and none is longer than a row over its size."""
    opened = pages.read_undecoded_page(build_body(build_rows()))
    pieces = list(pages.split_rows_into_pieces(opened.data))
    assert len(pieces) > 3
    assert [row for piece in pieces for row in json.loads(piece)] == build_rows()
    assert max(map(len, pieces)) < PIECE_BYTES + 200


@pytest.mark.usefixtures("small_limits")
def test_wrong_rows_are_named_as_the_page_counts() -> None:
    """Not as the piece does that they are in."""
    rows: list[Any] = build_rows()
    rows[88] = 7
    for read in (encode_page, read_first_page):
        with pytest.raises(SourceFault, match=r"data\[88\]"):
            read(build_body(rows))
    with pytest.raises(NewColumnsFound) as found:
        encode_page(build_body(change_row(66, other=1) + change_row(1, another=2)))
    assert (found.value.names, found.value.place) == (["other", "another"], "data[66]")


@pytest.mark.usefixtures("small_limits")
def test_keys_that_come_twice_are_noticed_in_any_piece() -> None:
    """And reported once."""
    text = build_body(build_rows()).replace(b'{"id": 9', b'{"id": 8, "id": 9')
    page = encode_page(text)
    assert page.repeated_keys == ("id",)
    assert page.data == encode_page(build_body(build_rows())).data


@pytest.mark.usefixtures("small_limits")
def test_rows_in_groups_are_read_as_before() -> None:
    """They are Excel's alone, and bounded by what a book may hold."""
    shape = TableShape(columns=["id", "row"], left_out=["text", "more"], row_head="row")
    groups = {"one": build_rows(), "two": build_rows()[:3]}
    page = encode_page(json.dumps({"total": 103, "data": groups}).encode(), shape)
    assert page.rows == ROWS + 3
