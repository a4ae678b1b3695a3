"""What is drawn around the data is what readers find: texts, looks, merges, sizes, charts."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import load_workbook
from openpyxl.worksheet.worksheet import Worksheet
from pydantic import JsonValue
from python_calamine import CalamineWorkbook
from xlsxwriter import Workbook

from excel.areas import MergedCellArea, TableFrameAndBodySize
from excel.columns import CellFormatRegistry, build_columns
from excel.frame import (
    CHART_HEIGHT_PIXELS,
    CHART_POINTS_MAX,
    compute_sheet_column_widths,
    draw_frames_and_set_up_sheet,
    set_document_title,
)
from excel.layout import GAP_ROWS, lay_out_row_heads, lay_out_table
from excel.template.models import TableTextsAndTemplate, WorkbookLayout
from excel.template.reading import read_template
from excel.texts import replace_control_characters, replace_invalid_characters

SHEET = "Sheet 1"
CHARTED: JsonValue = {
    "col": [{"name": "day", "title": "Day"}, {"title": "G", "children": [{"name": "a"}, {"name": "b", "title": "B"}]}],
    "charts": [{"type": "line", "values": ["a", "b"], "categories": "day", "title": "Trend"}],
}
ROWS: JsonValue = {
    "col": [{"name": "_row_head_", "title": "Corner"}, {"name": "n"}],
    "row": [{"title": "North", "children": [{"name": "x"}, {"name": "y"}]}, {"name": "z", "title": "South"}],
}
SAMPLE = "2026-01-01"


def table(
    template: JsonValue = None, keys: Sequence[str] = ("a", "b"), rows: int = 3, first: int = 0, **drawing: Any
) -> TableFrameAndBodySize:
    """A table with a number of equal rows of data."""
    read = None if template is None else read_template(template)
    placed = lay_out_table(TableTextsAndTemplate(**drawing), build_columns(read, keys, WorkbookLayout()), read, first)
    heads = lay_out_row_heads(read, [1] * rows) if read and read.rows else ()
    return TableFrameAndBodySize(placed, rows, [[SAMPLE] * rows for _ in placed.columns], heads)


def draw_book(
    *tables: TableFrameAndBodySize, title: str | None = None, freeze: bool = True, filtered: bool = True
) -> bytes:
    """A book of one sheet with these tables, without their data."""
    content = io.BytesIO()
    workbook = Workbook(content, {"in_memory": True})
    draw_frames_and_set_up_sheet(
        workbook, workbook.add_worksheet(SHEET), tables, CellFormatRegistry(workbook), freeze=freeze, filtered=filtered
    )
    set_document_title(workbook, title)
    workbook.close()
    return content.getvalue()


def box(area: MergedCellArea) -> tuple[int, int, int, int]:
    """First row, first column, last row, last column."""
    return area.row, area.column, area.last_row, area.last_column


def read(content: bytes) -> Worksheet:
    """The sheet, as openpyxl reads it."""
    return load_workbook(io.BytesIO(content), rich_text=True)[SHEET]


def part(content: bytes, name: str) -> str:
    """A file within the book."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        return book.read(name).decode()


def read_exact_texts(content: bytes) -> dict[tuple[int, int], str]:
    """The texts of all cells, spelled out as Excel does: each text element on its own."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        if "xl/sharedStrings.xml" not in book.namelist():
            return {}
    main = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    strings = [
        "".join(
            re.sub("_x([0-9A-Fa-f]{4})_", lambda found: chr(int(found[1], 16)), text.text or "")
            for text in item.iter(f"{main}t")
        )
        for item in ET.fromstring(part(content, "xl/sharedStrings.xml"))  # noqa: S314
    ]
    found = {}
    for cell in ET.fromstring(part(content, "xl/worksheets/sheet1.xml")).iter(f"{main}c"):  # noqa: S314
        letters, row = re.fullmatch("([A-Z]+)([0-9]+)", cell.get("r", "")).groups()  # type: ignore[union-attr]
        assert not cell.findall(f"{main}f")
        if cell.get("t") == "s":
            column = sum((ord(letter) - 64) * 26**place for place, letter in enumerate(reversed(letters)))
            found[int(row) - 1, column - 1] = strings[int(cell.findtext(f"{main}v") or "")]
    return found


def test_regions_are_drawn_with_their_looks() -> None:
    """Title large and bold, summary left with its runs, names bold beside values, heads grey."""
    sheet = read(draw_book(table(title="T", summary="<b>S</b>s", header={"n": 1}, footer="<i>End</i>")))

    assert sorted(map(str, sheet.merged_cells.ranges)) == ["A1:B1", "A2:B2", "A8:B8"]
    assert (sheet["A1"].value, sheet["A1"].font.size, sheet["A1"].font.bold) == ("T", 22, True)
    assert (str(sheet["A2"].value), sheet["A2"].value[0].font.b, sheet["A2"].alignment.horizontal) == (
        "Ss",
        True,
        "left",
    )
    assert [(sheet[cell].value, sheet[cell].font.bold) for cell in ("A3", "B3")] == [("n", True), ("1", False)]
    head = sheet["A4"]
    assert (head.value, head.font.bold, head.fill.start_color.rgb, head.border.left.style) == (
        "a",
        True,
        "FFDFDFDF",
        "thin",
    )
    assert (head.alignment.horizontal, head.alignment.vertical) == ("center", "center")
    assert [(piece.text, piece.font.i) for piece in sheet["A8"].value] == [("E", True), ("nd", True)]
    assert [sheet.row_dimensions[row].height for row in (1, 2, 3, 4, 8)] == [36, 27.75, 21.75, 21.75, 27.75]


def test_rows_of_the_body_are_left_out() -> None:
    """They are written elsewhere: not even an empty row is there, though row heads are merged."""
    content = draw_book(table(ROWS, ["_row_head_", "n"], footer="F"))

    assert re.findall('<row r="([0-9]+)"', part(content, "xl/worksheets/sheet1.xml")) == ["1", "5"]
    merged = {str(merged) for merged in read(content).merged_cells.ranges}
    assert merged == {"A1:B1", "A2:A3", "A4:B4", "A5:C5"}


def test_texts_are_never_formulas_links_or_markup() -> None:
    """Whatever they begin with, and even if they look like the writer's own XML."""
    odd = ["=1+1", "http://a.b", "<r>&</r>", "_x0041_x0042_", "{=A1}", "\x01", "12", "a\r\nb", " a ", "\ud800"]

    content = draw_book(
        table(keys=odd, title="=T()", summary="=S()", header={"=H()": "<r>x</r>"}, footer="mailto:a@b.c")
    )

    texts = list(read_exact_texts(content).values())
    assert texts[-11:-1] == [replace_invalid_characters(text).replace("\r\n", "\n") for text in odd]
    assert [texts[0], texts[1], *texts[2:4], texts[-1]] == ["=T()", "=S()", "=H()", "<r>x</r>", "mailto:a@b.c"]
    assert "hyperlink" not in part(content, "xl/worksheets/sheet1.xml")


ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
ODD_TEXT = ANY_TEXT | st.lists(
    st.sampled_from(["_x0041_", "x0042_", "<r>", "</r>", "<b>", "</b>", "<i>", "\x00", "\r", "\n", " ", "&", "=", "a"])
).map("".join)
PAIRS = st.dictionaries(ODD_TEXT, ODD_TEXT, max_size=5)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(ODD_TEXT, unique=True, max_size=4),
    st.none() | ODD_TEXT,
    st.none() | ODD_TEXT,
    PAIRS | st.lists(PAIRS, max_size=2),
    PAIRS | ODD_TEXT,
)
def test_readers_find_every_text_and_merge(
    keys: list[str], title: str | None, summary: str | None, header: Any, footer: Any
) -> None:
    """Whatever the texts, the book is sound, and each area says what was laid out."""
    upper = table(keys=keys, title=title, summary=summary, header=header, footer=footer)
    lower = table(keys=keys, title=title, first=upper.end_row + GAP_ROWS, footer=header)

    content = draw_book(upper, lower)

    areas = [area for placed in (upper, lower) for area in placed.areas]
    texts = read_exact_texts(content)
    for area in areas:
        # Rich text has no control characters; xlsxwriter would spell them wrong there.
        assert texts.pop((area.row, area.column), "") in {area.text, replace_control_characters(area.text)}
    assert not texts
    merged = {
        (span.min_row - 1, span.min_col - 1, span.max_row - 1, span.max_col - 1) for span in read(content).merged_cells
    }
    assert merged == {box(area) for area in areas if area.rows * area.columns > 1}
    CalamineWorkbook.from_filelike(io.BytesIO(content)).get_sheet_by_index(0).to_python()


def test_the_widest_of_stacked_tables_decides() -> None:
    """Columns are shared on a sheet; a given width counts as given."""
    narrow = table([{"name": "a", "width": 5}, {"name": "b", "width": 30}])
    below = table([{"name": "a", "title": "中文标题"}], first=narrow.end_row + GAP_ROWS)

    assert compute_sheet_column_widths([narrow]) == [5, 30]
    assert compute_sheet_column_widths([narrow, below]) == [pytest.approx(1.1 * 8 + 4), 30]


def test_columns_grow_for_titles_and_heads() -> None:
    """One narrow column under a long title is widened, to a limit; long heads wrap."""
    titled = table(keys=["a"], title="客户名单")

    assert compute_sheet_column_widths([titled]) == [pytest.approx(2.1 * 8 + 2)]
    assert compute_sheet_column_widths([table(keys=["a"], title="客户名单" * 20)]) == [60]
    assert compute_sheet_column_widths([table(keys=["a" * 100])]) == [30]


def test_heads_stay_in_sight_and_filter() -> None:
    """Below the last row of heads; row heads stay, too, but their merged cells cannot be filtered."""
    plain = read(draw_book(table(title="T")))
    headed = read(draw_book(table(ROWS, ["_row_head_", "n"])))

    assert (plain.freeze_panes, plain.auto_filter.ref) == ("A3", "A2:B5")
    assert (headed.freeze_panes, headed.auto_filter.ref) == ("C2", None)
    assert (headed.print_title_rows, headed.print_title_cols) == ("$1:$1", "$A:$B")


@pytest.mark.parametrize(
    ("tables", "freeze", "filtered"),
    [
        ([table()], False, False),
        ([table(), table(first=9)], True, True),
        ([table(keys=[], title="T", rows=0)], True, True),
        ([table(summary="x<br>" * 20)], True, False),
    ],
    ids=["not requested", "several tables", "no heads", "too high to scroll"],
)
def test_nothing_is_fixed_where_it_would_not_help(
    tables: list[TableFrameAndBodySize], freeze: bool, filtered: bool
) -> None:
    """Frozen rows that fill the screen would leave nothing to scroll in."""
    sheet = read(draw_book(*tables, freeze=freeze, filtered=filtered))

    assert (sheet.freeze_panes, sheet.auto_filter.ref) == (None, None)


@pytest.mark.parametrize(
    ("columns", "orientation", "fits"), [(2, None, True), (12, "landscape", True), (40, "landscape", False)]
)
def test_sheets_print_on_a4(columns: int, orientation: str | None, fits: bool) -> None:
    """Upright or across, on the width of one page while it can be read, heads on each, pages numbered."""
    sheet = read(draw_book(table(keys=[f"k{place}" for place in range(columns)], title="T", footer="F")))

    assert sheet.page_setup.paperSize == 9
    assert sheet.page_setup.orientation in {orientation, orientation or "portrait"}
    assert bool(sheet.sheet_properties.pageSetUpPr and sheet.sheet_properties.pageSetUpPr.fitToPage) is fits
    assert sheet.print_options.horizontalCentered
    assert sheet.print_title_rows == "$2:$2"
    assert sheet.print_area == ""
    assert sheet.oddFooter.center.text == "&P / &N"


def test_a_file_that_is_not_the_last_has_no_footer() -> None:
    """The footer of a split export is in its last file."""
    placed = replace(table(footer="F", title="T"), footer=False)

    assert placed.end_row == 5
    assert "F" not in read_exact_texts(draw_book(placed)).values()


def test_an_empty_body_is_drawn() -> None:
    """Heads, footer and filter are drawn without any row between."""
    sheet = read(draw_book(table(rows=0, footer="F")))

    assert (sheet["A2"].value, sheet.auto_filter.ref, sheet.freeze_panes) == ("F", "A1:B1", "A2")


def test_the_document_has_a_title() -> None:
    """As programs and search show it; one that is too long is cut."""
    properties = load_workbook(io.BytesIO(draw_book(table(), title="<T>" * 100))).properties

    assert properties.title == "<T>" * 85
    assert load_workbook(io.BytesIO(draw_book(table()))).properties.title is None


def test_charts_show_columns_of_the_body() -> None:
    """Values and categories are the cells of the data, names those of the heads."""
    content = draw_book(table(CHARTED, ["day", "a", "b"], rows=12))
    (chart,) = read(content)._charts

    assert [series.val.numRef.f for series in chart.series] == ["'Sheet 1'!$B$3:$B$14", "'Sheet 1'!$C$3:$C$14"]
    assert [series.tx.strRef.f for series in chart.series] == ["'Sheet 1'!$B$2", "'Sheet 1'!$C$2"]
    assert {series.cat.numRef.f for series in chart.series} == {"'Sheet 1'!$A$3:$A$14"}
    assert chart.title.tx.rich.p[0].r[0].t == "Trend"
    assert (chart.anchor._from.col, chart.anchor._from.row) == (4, 0)


def draw_charts(*charts: dict[str, JsonValue], rows: int = 3, **says: JsonValue) -> list[Any]:
    """The charts of a table of these."""
    column: dict[str, JsonValue] = {"name": "a", **says}
    content = draw_book(table({"col": [column, {"name": "none"}], "charts": list(charts)}, ["a"], rows=rows))
    return list(read(content)._charts)


@pytest.mark.parametrize("kind", ["line", "column", "bar", "pie"])
def test_all_kinds_of_charts(kind: str) -> None:
    """Each is a native chart of its kind."""
    (chart,) = draw_charts({"type": kind, "values": ["a"]})

    assert type(chart).__name__.lower().removesuffix("chart") == kind.replace("column", "bar")
    assert chart.title is None or kind != "pie"


def test_charts_without_anything_to_show_are_left_out() -> None:
    """A column without data, or no row at all."""
    assert not draw_charts({"type": "line", "values": ["none"]})
    assert not draw_charts({"type": "line", "values": ["a"]}, rows=0)
    assert len(draw_charts({"type": "line", "values": ["none", "a"], "categories": "none"})[0].series) == 1


@pytest.mark.parametrize("title", ["Sheet1!A1", "=Sheet1!$A$1", "a & <b>", "中文 😀"])
def test_titles_of_charts_are_texts(title: str) -> None:
    """Never addresses of cells."""
    (chart,) = draw_charts({"type": "bar", "values": ["a"], "title": title})

    assert chart.title.tx.strRef is None
    assert chart.title.tx.rich.p[0].r[0].t == title


def test_a_chart_of_too_many_rows_says_so() -> None:
    """More points than can be drawn are not left out in silence."""
    spec: dict[str, JsonValue] = {"type": "line", "values": ["a"], "title": "T"}
    (chart,) = draw_charts(spec, rows=CHART_POINTS_MAX + 1)
    (untitled,) = draw_charts({"type": "line", "values": ["a"]}, rows=CHART_POINTS_MAX + 1)

    assert chart.series[0].val.numRef.f.endswith(f"$A${CHART_POINTS_MAX + 1}")
    assert chart.title.tx.rich.p[0].r[0].t == "T (first 32,000 rows)"
    assert untitled.title.tx.rich.p[0].r[0].t == "first 32,000 rows"


def test_row_heads_are_the_categories_of_charts_that_name_none() -> None:
    """They are what the rows are about."""
    assert isinstance(ROWS, dict)
    with_chart: JsonValue = {**ROWS, "charts": [{"type": "column", "values": ["n"]}]}
    (chart,) = read(draw_book(table(with_chart, ["n"])))._charts

    assert chart.series[0].cat.numRef.f == "'Sheet 1'!$B$2:$B$4"


@pytest.mark.parametrize("height", [None, 15, 60])
def test_charts_stand_one_under_another(height: float | None) -> None:
    """None lies over another, also beside high rows and of several tables; all are of one size."""
    columns: list[JsonValue] = [{"name": "a"} if height is None else {"name": "a", "height": height}]
    template: JsonValue = {"col": columns, "charts": [{"type": "line", "values": ["a"]}] * 2}
    upper = table(template, ["a"], rows=5, title="T")
    lower = table(template, ["a"], rows=40, first=upper.end_row + GAP_ROWS)

    sheet = read(draw_book(upper, lower))

    def pixels(row: int) -> int:
        of_body = any(
            placed.frame.first_body_row <= row < placed.frame.first_body_row + placed.body_rows
            for placed in (upper, lower)
        )
        points = (height if of_body else sheet.row_dimensions[row + 1].height) or 15
        return round(points * 4 / 3)

    def read_y(marker: Any) -> float:
        return sum(pixels(row) for row in range(marker.row)) + float(marker.rowOff) / 9525

    spans = [(read_y(chart.anchor._from), read_y(chart.anchor.to)) for chart in sheet._charts]
    assert [round(end - start) for start, end in spans] == [CHART_HEIGHT_PIXELS] * 4
    assert all(start >= end for (_, end), (start, _) in pairwise(spans))
    assert spans[0][0] == pixels(0)
