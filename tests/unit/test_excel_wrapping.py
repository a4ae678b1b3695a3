"""Texts of several lines: how many lines they take in a column, and how high their rows are."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pytest

from excel.sizes import count_lines, encode_row_heights
from excel.template.models import TablesOnOneSheetOrTabs, TableTextsAndTemplate, WorkbookLayout
from excel.workbook import Workbook

Row = dict[str, Any]
ROW_HEADS: Any = {
    "col": [{"name": "v", "title": "V"}],
    "row": [
        {"title": "one\ntwo\nthree\nfour", "children": [{"name": "a"}, {"name": "b"}]},
        {"name": "c", "title": "five\nsix"},
    ],
}


def count_estimated_lines(*texts: str | None, width: float = 20, wraps: bool = False) -> list[int]:
    """How many lines each text takes."""
    found = count_lines(pa.array(texts, pa.string()), width, wraps=wraps)
    return [1] * len(texts) if found is None else found.tolist()


def make_book(*tables: tuple[TableTextsAndTemplate, Sequence[Row]], size: int = 100, **look: Any) -> bytes:
    """A workbook of tables, whose rows are added in batches of a size."""
    made = Workbook(WorkbookLayout(tables=[table for table, _ in tables], **look), time_zone="UTC")
    for table, rows in tables:
        keys = list(rows[0])
        body = made.begin_table(table, keys)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            cells = ([json.dumps(row[key], ensure_ascii=False).encode() for row in part] for key in keys)
            body.add(pa.record_batch([pa.array(column, pa.binary()) for column in cells], names=keys))
    out = io.BytesIO()
    made.finish(out.write)
    return out.getvalue()


def read_heights(content: bytes) -> list[float | None]:
    """Of each row of the first sheet, in points; None where the book leaves it to the program."""
    sheet = openpyxl.load_workbook(io.BytesIO(content)).worksheets[0]
    return [sheet.row_dimensions[row].height for row in range(1, sheet.max_row + 1)]


def list_wrapped(content: bytes, letter: str = "A") -> list[bool]:
    """Which cells below the head of a column wrap."""
    sheet = openpyxl.load_workbook(io.BytesIO(content)).worksheets[0]
    return [bool(cell.alignment.wrap_text) for cell in list(sheet[letter])[1:]]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("one", 1),
        ("one\ntwo", 2),
        ("one\r\ntwo\r\nthree", 3),
        ("\n\n", 3),
        ("x" * 60, 1),
        (f"x\n{'x' * 20}", 2),
        (f"x\n{'x' * 21}", 3),
        (f"x\n{'x' * 34}\ny", 4),
        (f"x\n{'x' * 35}\ny", 5),
        (f"x\n{'Ж' * 16}", 2),
        (f"x\n{'Ж' * 17}", 3),
        (f"x\n{'ж' * 20}", 2),
        (f"x\n{'中' * 9}", 2),
        (f"x\n{'中' * 10}", 3),
        (None, 1),
    ],
)
def test_a_line_feed_makes_lines_and_lines_too_long_make_more(text: str | None, count: int) -> None:
    """Of a text without line feeds nothing is broken; wide characters take two columns, and capitals more than one."""
    assert count_estimated_lines(text, "beside") == [count, 1]


def test_where_texts_wrap_long_ones_take_several_lines() -> None:
    """A line of a column of 20 characters holds about 17, as words are not broken."""
    assert count_estimated_lines("x" * 20, "x" * 21, "中" * 30, None, wraps=True) == [1, 2, 4, 1]
    assert count_estimated_lines("x" * 20, None, wraps=True) == [1, 1]


def test_lines_are_counted_in_a_part_of_a_column() -> None:
    """Columns are looked at as they lie in memory, also when they begin or end in the middle of others."""
    column = pa.array(["a\nb\nc", "a", None, "a\nb", "a\nb\nc\nd"]).slice(1, 3)
    found = count_lines(column, 20, wraps=False)
    assert found is not None
    assert found.tolist() == [1, 1, 2]
    assert count_lines(column.slice(0, 2), 20, wraps=False) is None


def test_rows_are_as_high_as_their_texts_up_to_what_excel_allows() -> None:
    """A height that was asked for is the least."""
    needed = np.array([15.0, 30.0, 900.0])
    attributes, grown = encode_row_heights(None, needed, 7)
    assert isinstance(attributes, pa.Array)
    assert attributes.to_pylist() == ["", ' ht="30" customHeight="1"', ' ht="409" customHeight="1"']
    assert (grown.count, grown.points, grown.first) == (2, 439, {8: 30, 9: 409})
    attributes, _ = encode_row_heights(40, needed, 7)
    assert isinstance(attributes, pa.Array)
    assert attributes.to_pylist() == [' ht="40" customHeight="1"'] * 2 + [' ht="409" customHeight="1"']
    assert encode_row_heights(900, needed, 7)[0] == ' ht="900" customHeight="1"'


@pytest.mark.parametrize("size", [1, 100])
def test_cells_with_line_breaks_wrap_and_their_rows_grow(size: int) -> None:
    """The others of the column, and their rows, are as they were."""
    rows: list[Row] = [{"a": "x", "b": 1}, {"a": "x\ny", "b": "1\r\n2\r\n3"}, {"a": None, "b": None}]
    content = make_book((TableTextsAndTemplate(), rows), size=size)
    assert read_heights(content)[1:] == [None, 45, None]
    assert (list_wrapped(content), list_wrapped(content, "B")) == ([False, True, False], [False, True, False])


def test_books_without_line_breaks_have_no_other_styles() -> None:
    """What wraps is in a book only where some cell does."""

    def build_styles(text: str) -> bytes:
        with zipfile.ZipFile(io.BytesIO(make_book((TableTextsAndTemplate(), [{"a": text}])))) as archive:
            return archive.read("xl/styles.xml")

    assert build_styles("x").count(b"wrapText") == 1
    assert build_styles("x\ny").count(b"wrapText") == 2


def test_texts_edged_by_space_coloured_by_conditions_and_of_html_wrap_too() -> None:
    """In the look that they would have without the break."""
    rules = [{"condition": "like 'x%'", "color": "red"}]
    template = [{"name": "a", "condition_style": rules}, {"name": "b", "type": "rich", "wrap": False}]
    rows: list[Row] = [{"a": "x\ny ", "b": "<b>p</b><br>q<br>r"}, {"a": " z\n", "b": "<b>p</b>"}]
    content = make_book((TableTextsAndTemplate(template=template), rows))
    sheet = openpyxl.load_workbook(io.BytesIO(content)).worksheets[0]
    cells = [sheet["A2"], sheet["A3"]]
    assert [(cell.value, cell.alignment.wrap_text) for cell in cells] == [("x\ny ", True), (" z\n", True)]
    assert [cell.font.color.rgb for cell in cells[:1]] == ["FFFF0000"]
    assert list_wrapped(content, "B") == [True, False]
    assert read_heights(content)[1:] == [45, 30]


def test_a_formula_of_several_lines_shows_one() -> None:
    """Its result is seen, not its text."""
    template = [{"name": "a", "type": "formula"}]
    assert read_heights(make_book((TableTextsAndTemplate(template=template), [{"a": "=1+\n1"}])))[1:] == [None]


def test_a_column_wraps_where_its_template_says_so() -> None:
    """Long texts in it make their rows higher; without it they do so where the width is given; `false` forbids it."""
    long = "word " * 20
    for node, does_wrap, height in (
        ({"width": 20, "wrap": True}, True, 90),
        ({"width": 20}, True, 90),
        ({"width": 20, "wrap": False}, False, None),
        ({"wrap": True}, True, 30),
        ({}, False, None),
    ):
        content = make_book((TableTextsAndTemplate(template=[{"name": "a", **node}]), [{"a": long}, {"a": "short"}]))
        assert (list_wrapped(content), read_heights(content)[1:]) == ([does_wrap] * 2, [height, None]), node


def test_the_height_that_is_asked_for_is_the_least() -> None:
    """Rows grow beyond it, none becomes lower."""
    rows: list[Row] = [{"a": "x"}, {"a": "x\ny"}, {"a": "x\ny\nz"}]
    assert read_heights(make_book((TableTextsAndTemplate(), rows), height=40))[1:] == [40, 40, 45]


def test_an_automatic_width_is_fitted_though_group_and_request_say_another() -> None:
    """To the first rows and the head; a text of several lines is as wide as the longest of them."""
    template = [{"title": "G", "width": 50, "children": [{"name": "a", "width": -1}, {"name": "b"}]}]
    rows: list[Row] = [{"a": f"short\n{'x' * 20}\n{'LONG' * 5}", "b": "x"}]
    sheet = openpyxl.load_workbook(
        io.BytesIO(make_book((TableTextsAndTemplate(template=template), rows), width=9))
    ).worksheets[0]
    assert [round(sheet.column_dimensions[letter].width) for letter in "AB"] == [27, 51]


def test_rows_beside_row_heads_of_several_lines_grow() -> None:
    """A head over several rows spreads its lines over them; data of several lines count beside it."""
    rows: list[Row] = [
        {"v": 1, "_row_head_": "a"},
        {"v": "x\ny\nz", "_row_head_": "b"},
        {"v": 1, "_row_head_": "c"},
        {"v": 2, "_row_head_": "c"},
    ]
    assert read_heights(make_book((TableTextsAndTemplate(template=ROW_HEADS), rows)))[1:] == [30, 45, None, None]


def test_rows_grow_in_each_of_several_tables() -> None:
    """Each in the table that it belongs to."""
    first: list[Row] = [{"a": "x"}, {"a": "x\ny"}]
    second: list[Row] = [{"b": "x\ny\nz"}, {"b": "x"}]
    found = read_heights(
        make_book(
            (TableTextsAndTemplate(), first), (TableTextsAndTemplate(), second), multi=TablesOnOneSheetOrTabs.PAGE
        )
    )
    assert (found[1:3], found[7:]) == ([None, 30], [45, None])


def test_a_chart_keeps_its_size_beside_rows_that_grow() -> None:
    """The cells below it are found from their heights."""
    template = {"col": [{"name": "a"}, {"name": "b"}], "charts": [{"type": "line", "values": "b"}]}

    def rows_covered(text: str) -> int:
        content = make_book((TableTextsAndTemplate(template=template), [{"a": text, "b": 1}] * 60))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            drawing = archive.read("xl/drawings/drawing1.xml").decode()
        first, last = (int(part.split("</xdr:row>")[0]) for part in drawing.split("<xdr:row>")[1:])
        return last - first

    assert (rows_covered("x"), rows_covered("x\ny"), rows_covered("1\n2\n3\n4")) == (15, 8, 4)
