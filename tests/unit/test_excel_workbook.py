"""A book holds every cell that was added, in chunks of any size, on any number of threads, and says what it changed."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any

import openpyxl
import pyarrow as pa
import pytest
from openpyxl.cell import Cell
from openpyxl.worksheet.worksheet import Worksheet
from python_calamine import CalamineWorkbook

from excel import table_body, workbook
from excel.limits import SheetFull, UncoveredRows, WorkbookSizeAndCellChanges
from excel.table_body import RecordBatchChunker
from excel.template.models import TablesOnOneSheetOrTabs, TableTextsAndTemplate, WorkbookLayout
from excel.workbook import Workbook

Row = dict[str, Any]


def build_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as they are staged."""
    keys = list(rows[0])
    columns = ([json.dumps(row[key], ensure_ascii=False).encode() for row in rows] for key in keys)
    return pa.record_batch([pa.array(cells, pa.binary()) for cells in columns], names=keys)


def make_workbook(
    *tables: tuple[TableTextsAndTemplate, Sequence[Row]],
    size: int = 3,
    threads: int = 1,
    footer: bool = True,
    **look: Any,
) -> tuple[bytes, WorkbookSizeAndCellChanges]:
    """A workbook of tables, whose rows are added in batches of a size."""
    book = Workbook(
        WorkbookLayout(tables=[table for table, _ in tables], **look), time_zone="Asia/Shanghai", threads=threads
    )
    for table, rows in tables:
        body = book.begin_table(table, list(rows[0]) if rows else ["a"])
        for start in range(0, len(rows), size):
            body.add(build_batch(rows[start : start + size]))
    out = io.BytesIO()
    report = book.finish(out.write, footer=footer)
    assert report.bytes == len(out.getvalue())
    return out.getvalue(), report


def open_sheet(content: bytes) -> Worksheet:
    """The first sheet, as openpyxl reads it."""
    return openpyxl.load_workbook(io.BytesIO(content)).worksheets[0]


def read_sheet(content: bytes, number: int = 0) -> list[list[Any]]:
    """All cells of a sheet, as calamine reads them."""
    return CalamineWorkbook.from_filelike(io.BytesIO(content)).get_sheet_by_index(number).to_python()


def read_column(content: bytes, letter: str = "A", skip: int = 1) -> list[Cell]:
    """The cells of a column below the heads."""
    return list(open_sheet(content)[letter])[skip:]


ROWS: list[Row] = [
    {"id": place, "name": f"中{place}" if place % 3 else None, "mixed": [1.5, "x", None, True][place % 4]}
    for place in range(50)
]


@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_row_stands_in_its_place(size: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workbook does not depend on batches and threads."""
    monkeypatch.setattr(table_body, "CHUNK_ROWS_MAX", 8)
    content, report = make_workbook((TableTextsAndTemplate(), ROWS), size=size, threads=threads)
    expected = [["" if cell is None else cell for cell in row.values()] for row in ROWS]
    assert read_sheet(content) == [["id", "name", "mixed"], *expected]
    assert report == WorkbookSizeAndCellChanges(rows=50, bytes=len(content))
    plain, _ = make_workbook((TableTextsAndTemplate(), ROWS), size=8)
    name = "xl/worksheets/sheet1.xml"
    assert zipfile.ZipFile(io.BytesIO(content)).read(name) == zipfile.ZipFile(io.BytesIO(plain)).read(name)


def test_a_book_is_a_plain_zip_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes in front, no descriptors, never Zip64, every check sum right though sheets are packed in pieces."""
    monkeypatch.setattr(table_body, "CHUNK_ROWS_MAX", 8)
    content, _ = make_workbook((TableTextsAndTemplate(), ROWS))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        for entry in archive.infolist():
            assert (entry.flag_bits, entry.extract_version, entry.extra) == (0, 20, b"")
            head = content[entry.header_offset : entry.header_offset + 30]
            assert int.from_bytes(head[18:22], "little") == entry.compress_size
            assert int.from_bytes(head[22:26], "little") == entry.file_size
    assert b"PK\6\6" not in content


def test_typed_columns_make_the_same_cells_as_json_text() -> None:
    """Also as parts of longer ones."""
    typed = pa.table({"id": [9, 1, 2], "name": ["x", "中", None], "paid": [None, True, False]}).slice(1)
    book = Workbook(WorkbookLayout(), time_zone="UTC")
    body = book.begin_table(TableTextsAndTemplate(), typed.column_names)
    for part in typed.to_batches():
        body.add(part)
    out = io.BytesIO()
    book.finish(out.write)
    rows: list[Row] = [{"id": 1, "name": "中", "paid": True}, {"id": 2, "name": None, "paid": False}]
    assert read_sheet(out.getvalue()) == read_sheet(make_workbook((TableTextsAndTemplate(), rows))[0])


def test_gaps_have_borders_and_no_value() -> None:
    """An empty cell looks like its neighbours."""
    content, _ = make_workbook((TableTextsAndTemplate(), [{"a": 1, "b": None}, {"a": None, "b": None}]))
    assert [cell.value for cell in read_column(content)] == [1, None]
    assert [cell.value for cell in read_column(content, "B")] == [None, None]
    for letter in "AB":
        assert {cell.border.left.style for cell in read_column(content, letter)} == {"thin"}


def test_the_first_condition_that_holds_gives_the_style() -> None:
    """Over the column's own, and not for cells that are empty."""
    rules = [
        {"condition": "> 5", "color": "red", "bold": True},
        {"condition": "> 1 or = 'x'", "bg_color": "yellow"},
    ]
    template = [{"name": "a", "title": "A", "color": "blue", "condition_style": rules}]
    content, _ = make_workbook(
        (TableTextsAndTemplate(template=template), [{"a": cell} for cell in (1, 3, 9, "x", "y", None)])
    )
    looks = [(cell.font.color.rgb, cell.font.b, cell.fill.fgColor.rgb) for cell in read_column(content)]
    plain, marked = ("FF0000FF", False, "00000000"), ("FF0000FF", False, "FFFFFF00")
    assert looks == [plain, marked, ("FFFF0000", True, "00000000"), marked, plain, plain]


def test_dates_have_a_format_and_numbers_in_their_column_none() -> None:
    """A format of the column's own that shows dates is theirs."""
    template = [
        {"name": "a", "title": "A"},
        {"name": "b", "title": "B", "type": "date"},
        {"name": "c", "title": "C", "format": "yy/m/d"},
        {"name": "d", "title": "D", "format": "0.00"},
    ]
    moment = "2024-02-29T08:00:00Z"
    rows: list[Row] = [dict.fromkeys("abcd", moment), dict.fromkeys("abcd", 7)]
    content, _ = make_workbook((TableTextsAndTemplate(template=template), rows))
    formats = [[cell.number_format for cell in read_column(content, letter)] for letter in "ABCD"]
    default = "yyyy-mm-dd hh:mm:ss"
    assert formats == [[default, "General"], ["yyyy-mm-dd", "General"], ["yy/m/d", "yy/m/d"], [default, "0.00"]]


def test_what_a_cell_cannot_hold_is_cut_and_counted() -> None:
    """Texts too long or of too many lines, rich text included, which counts what is shown."""
    template = [{"name": "a", "title": "A"}, {"name": "b", "title": "B", "type": "rich"}]
    rows: list[Row] = [
        {"a": "x" * 40_000, "b": f"<b>{'y' * 40_000}</b>"},
        {"a": "x\n" * 300, "b": f"<b>y</b>{'<i></i>' * 10_000}"},
        {"a": "x", "b": "y"},
    ]
    content, report = make_workbook((TableTextsAndTemplate(template=template), rows))
    assert report.cut_cells == 3
    assert [len(str(cell.value)) for cell in read_column(content)] == [32_767, 600, 1]
    assert [len(str(cell.value)) for cell in read_column(content, "B")] == [32_767, 1, 1]
    assert str(read_column(content)[1].value).count("\n") == 253


def test_rich_text_keeps_its_runs_and_the_font_of_its_cell() -> None:
    """Bold, italic, underlined, coloured; the rest looks as the column does, or a condition that holds."""
    rules = [{"condition": "like '%!'", "color": "blue"}]
    template = [{"name": "a", "title": "A", "type": "rich", "color": "green", "condition_style": rules}]
    html = "<b>中 &amp;</b>-<font color='red'>r</font>-<u>u</u><i>i</i>"
    rows: list[Row] = [{"a": html}, {"a": f"{html}!"}, {"a": "a &lt; b"}]
    content, _ = make_workbook((TableTextsAndTemplate(template=template), rows))
    for row, own in ((2, "FF008000"), (3, "FF0000FF")):
        cell = openpyxl.load_workbook(io.BytesIO(content), rich_text=True).worksheets[0][f"A{row}"]
        runs = [(run.text, bool(run.font.b), bool(run.font.i), run.font.u, run.font.color.rgb) for run in cell.value]
        assert runs[:6] == [
            ("中 &", True, False, None, own),
            ("-", False, False, None, own),
            ("r", False, False, None, "FFFF0000"),
            ("-", False, False, None, own),
            ("u", False, False, "single", own),
            ("i", False, True, None, own),
        ]
    assert read_column(content)[2].value == "a < b"


def test_links_and_formulas_are_what_their_columns_say() -> None:
    """And texts elsewhere."""
    template = [
        {"name": "a", "title": "A", "type": "link"},
        {"name": "b", "title": "B", "type": "formula"},
        {"name": "a", "title": "C"},
    ]
    rows: list[Row] = [{"a": "https://example.com/?a=1&b=中", "b": "=1<2"}, {"a": "no link", "b": "no formula"}]
    content, _ = make_workbook((TableTextsAndTemplate(template=template), rows))
    links = [cell.hyperlink.target if cell.hyperlink else None for cell in read_column(content)]
    assert links == ["https://example.com/?a=1&b=中", None]
    assert [cell.font.u for cell in read_column(content)] == ["single", None]
    assert [cell.value for cell in read_column(content)] == ["https://example.com/?a=1&b=中", "no link"]
    assert [(cell.value, cell.data_type) for cell in read_column(content, "B")] == [("=1<2", "f"), ("no formula", "s")]
    # A formula has no value beside it: programs compute it, and none shows one that is not the result.
    parts = zipfile.ZipFile(io.BytesIO(content))
    assert b"<f>1&lt;2</f></c>" in parts.read("xl/worksheets/sheet1.xml")
    assert b'fullCalcOnLoad="1"' in parts.read("xl/workbook.xml")
    assert [cell.hyperlink for cell in read_column(content, "C")] == [None, None]


def test_links_beyond_the_limit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written as texts."""
    monkeypatch.setattr(workbook, "LINKS_MAX", 2)
    template = [{"name": "a", "title": "A", "type": "link"}]
    rows: list[Row] = [{"a": f"https://example.com/{place}"} for place in range(5)]
    content, report = make_workbook((TableTextsAndTemplate(template=template), rows))
    assert [cell.hyperlink is not None for cell in read_column(content)] == [True, True, False, False, False]
    assert report.plain_links == 3


def test_numbers_that_stand_as_texts_are_told() -> None:
    """With their count."""
    _, report = make_workbook((TableTextsAndTemplate(), [{"a": 12345678901234567}, {"a": 1}]))
    assert report.long_numbers == 1


def test_columns_without_any_value_are_named() -> None:
    """Those that the data do not have, and those that are null in every row; none of a table without rows."""
    template = [{"name": "a", "title": "A"}, {"name": "b", "title": "B"}, {"name": "c", "title": "C"}]
    _, report = make_workbook((TableTextsAndTemplate(template=template), [{"a": 1, "b": None}, {"a": None, "b": None}]))
    assert (report.empty_columns, report.empty_places) == (["B", "C"], "6")
    assert make_workbook((TableTextsAndTemplate(template=template), []))[1].empty_columns == []


def test_rows_stand_there_though_no_column_has_data() -> None:
    """With their borders, so that all of the table is seen."""
    content, report = make_workbook(
        (TableTextsAndTemplate(template=[{"name": "b", "title": "B"}]), [{"a": 1}, {"a": 2}])
    )
    assert [cell.border.left.style for cell in read_column(content)] == ["thin", "thin"]
    assert (report.rows, report.empty_columns) == (2, ["B"])


HEADED: Any = {
    "col": [{"name": "_row_head_", "title": ""}, {"name": "v", "title": "V"}],
    "row": [
        {"title": "East", "children": [{"name": "e1", "title": "E1"}, {"name": "e2", "title": "E2", "row_count": 2}]},
        {"name": "w", "title": "West <&"},
    ],
}


@pytest.mark.parametrize("size", [1, 10])
def test_rows_stand_beside_their_row_heads(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the heads, with the rows that these reserve, merged as the heads say."""
    monkeypatch.setattr(table_body, "GROUPED_CHUNK_ROWS", 2)
    rows: list[Row] = [{"v": place, "_row_head_": key} for place, key in enumerate(["w", "e1", "w", "e2"])]
    content, report = make_workbook((TableTextsAndTemplate(template=HEADED), rows), size=size)
    assert read_sheet(content)[1:] == [
        ["East", "E1", 1.0],
        ["", "E2", 3.0],
        ["", "", ""],
        ["West <&", "", 0.0],
        ["", "", 2.0],
    ]
    assert {str(merged) for merged in open_sheet(content).merged_cells.ranges} >= {"A2:A4", "B3:B4", "A5:B6"}
    assert {open_sheet(content)[cell].fill.fgColor.rgb for cell in ("A2", "A5", "B2", "B3")} == {"FFDFDFDF"}
    assert report.rows == 4


def test_row_heads_without_any_row_are_drawn() -> None:
    """Every row that they reserve is empty."""
    content, _ = make_workbook((TableTextsAndTemplate(template=HEADED), []))
    assert read_sheet(content)[1:] == [["East", "E1", ""], ["", "E2", ""], ["", "", ""], ["West <&", "", ""]]


def test_rows_that_no_head_covers_are_an_error() -> None:
    """Which names them; rows without a key, too."""
    with pytest.raises(UncoveredRows, match="“x”"):
        make_workbook((TableTextsAndTemplate(template=HEADED), [{"v": 1, "_row_head_": "x"}]))
    with pytest.raises(UncoveredRows, match="“”"):
        make_workbook((TableTextsAndTemplate(template=HEADED), [{"v": 1}]))


def test_too_many_rows_under_heads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are all held, so they are bounded."""
    monkeypatch.setattr(table_body, "GROUPED_ROWS_MAX", 2)
    with pytest.raises(SheetFull, match="at most 2 rows"):
        make_workbook((TableTextsAndTemplate(template=HEADED), [{"v": 1, "_row_head_": "w"}] * 3), size=1)


def test_tables_stand_one_under_another() -> None:
    """With three rows between; or each on its own sheet."""
    first: tuple[TableTextsAndTemplate, list[Row]] = (
        TableTextsAndTemplate(title="One", footer="end"),
        [{"a": 1}, {"a": 2}],
    )
    second: tuple[TableTextsAndTemplate, list[Row]] = (TableTextsAndTemplate(sheet="Two"), [{"b": 3, "c": "x"}])
    content, report = make_workbook(first, second, multi=TablesOnOneSheetOrTabs.PAGE)
    cells = [["One", ""], ["a", ""], [1.0, ""], [2.0, ""], ["end", ""], *[["", ""]] * 3, ["b", "c"], [3.0, "x"]]
    assert read_sheet(content) == cells
    assert report.rows == 3
    assert open_sheet(content).dimensions == "A1:B10"
    content, _ = make_workbook(first, second)
    assert openpyxl.load_workbook(io.BytesIO(content)).sheetnames == ["Sheet1", "Two"]
    assert (read_sheet(content), read_sheet(content, 1)) == (
        [["One"], ["a"], [1.0], [2.0], ["end"]],
        [["b", "c"], [3.0, "x"]],
    )


def test_a_part_of_a_split_export_has_no_footer() -> None:
    """Only the last one has."""
    table = TableTextsAndTemplate(footer="end")
    assert read_sheet(make_workbook((table, [{"a": 1}]), footer=False)[0]) == [["a"], [1.0]]
    assert read_sheet(make_workbook((table, [{"a": 1}]))[0]) == [["a"], [1.0], ["end"]]


def test_a_book_without_rows_has_its_heads() -> None:
    """It is as good a book as any."""
    assert read_sheet(make_workbook((TableTextsAndTemplate(title="Nothing"), []))[0]) == [["Nothing"], ["a"]]


def test_rows_have_the_height_that_is_asked_for() -> None:
    """The same for all rows of data."""
    content, _ = make_workbook((TableTextsAndTemplate(), [{"a": 1}, {"a": 2}]), height=33.5)
    assert [open_sheet(content).row_dimensions[row].height for row in (2, 3)] == [33.5, 33.5]


def test_packed_bytes_are_known_at_any_time() -> None:
    """Also of rows too few for a chunk; they grow with the rows, and the book has little besides."""
    book = Workbook(WorkbookLayout(), time_zone="UTC")
    body = book.begin_table(TableTextsAndTemplate(), ["a"])
    sizes = [body.flush_and_count_bytes()]
    for start in (0, 1000, 2000):
        body.add(build_batch([{"a": str(place * 7919)} for place in range(start, start + 1000)]))
        sizes.append(body.flush_and_count_bytes())
    assert sizes[0] == 0
    assert sizes == sorted(set(sizes))
    out = io.BytesIO()
    report = book.finish(out.write)
    assert body.rows == report.rows == 3000
    assert sizes[-1] < report.bytes < sizes[-1] + 10_000


def test_a_sheet_takes_no_more_rows_than_excel_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads and footer counted."""
    monkeypatch.setattr(table_body, "SHEET_ROWS_MAX", 10)
    table = TableTextsAndTemplate(footer="end")
    assert len(read_sheet(make_workbook((table, [{"a": 1}] * 8))[0])) == 10
    with pytest.raises(SheetFull, match="10 rows at most"):
        make_workbook((table, [{"a": 1}] * 9))


def test_a_sheet_is_refused_before_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four gigabytes would need Zip64, which Excel takes for damage."""
    monkeypatch.setattr(table_body, "SHEET_BYTES_MAX", 1000)
    with pytest.raises(SheetFull, match="unpacked"):
        make_workbook((TableTextsAndTemplate(), [{"a": place} for place in range(100)]))


def test_heavy_rows_are_taken_in_lighter_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory is bounded by bytes, not by rows alone."""
    monkeypatch.setattr(table_body, "CHUNK_BYTES_MAX", 1000)
    taken = RecordBatchChunker(1)
    rows: list[Row] = [{"a": "x" * 100}] * 50
    found = [pa.concat_batches(chunk) for chunk in [*taken.add(build_batch(rows)), *taken.flush()]]
    assert sum(chunk.num_rows for chunk in found) == 50
    assert max(chunk.nbytes for chunk in found) <= 1100
    assert len(found) >= 5
