"""Workbook: a whole file, table by table. xlsxwriter draws the frames of sheets, the rows are encoded beside it.

Rows pass through memory in chunks: each becomes XML, is deflated and spooled. The frame of a sheet is drawn last, when
all counts are known, and the rows are spliced into it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import xlsxwriter
from pydantic import JsonValue
from xlsxwriter.worksheet import Worksheet

from excel.archive import Write, ZipArchive, deflate, insert_bodies_into_sheet
from excel.arrow import pa
from excel.columns import CellFormatRegistry, build_columns
from excel.frame import draw_frames_and_set_up_sheet, set_document_title
from excel.layout import GAP_ROWS, lay_out_table
from excel.limits import LINKS_MAX, WorkbookSizeAndCellChanges
from excel.moments import LocalTimeConverter
from excel.table_body import SharedWorkbookResources, TableBodyWriter
from excel.template.models import CellKind, TablesOnOneSheetOrTabs, TableTextsAndTemplate, WorkbookLayout
from excel.template.reading import is_empty_template, read_template
from excel.texts import choose_sheet_name

_SHEET_FILE = "xl/worksheets/sheet{}.xml"


@dataclass
class _SheetWithTableBodies:
    """A sheet and its tables from top to bottom."""

    worksheet: Worksheet
    bodies: list[TableBodyWriter]


class Workbook:
    """Writes a workbook. Its methods must be called one after another; it manages its threads itself.

    Args:
        drawing: How the workbook looks.
        time_zone: The IANA name of the zone of dates.
        threads: Chunks that are encoded at the same time.
        folder: For packed rows that outgrow the memory; None is the system's temporary folder.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: There is no such zone.
    """

    def __init__(self, drawing: WorkbookLayout, *, time_zone: str, threads: int = 1, folder: str | None = None) -> None:
        self._drawing = drawing
        self._file = io.BytesIO()
        self._workbook = xlsxwriter.Workbook(self._file, {"in_memory": True})
        self._pool = ThreadPoolExecutor(threads, "excel") if threads > 1 else None
        self._resources = SharedWorkbookResources(
            CellFormatRegistry(self._workbook), LocalTimeConverter(time_zone), self._pool, threads, folder
        )
        self._sheets: list[_SheetWithTableBodies] = []

    def begin_table(self, table: TableTextsAndTemplate, keys: Sequence[str]) -> TableBodyWriter:
        """Begin a table on a sheet of its own, or under the last one. Tables before it take no more rows.

        Args:
            table: How the table looks.
            keys: The names of the columns of its batches, including that of the row heads.

        Raises:
            TemplateFaults: Its template has faults.
            UncoveredRows: Rows of the table before have keys that no row head has.
        """
        if self._drawing.multi is TablesOnOneSheetOrTabs.TAB or not self._sheets:
            taken = [sheet.worksheet.name for sheet in self._sheets]
            self._sheets.append(
                _SheetWithTableBodies(self._workbook.add_worksheet(choose_sheet_name(table.sheet, taken)), [])
            )
        bodies = self._sheets[-1].bodies
        first_row = bodies[-1].pack_last_rows_and_get_frame().end_row + GAP_ROWS if bodies else 0
        template = None if is_empty_template(table.template) else read_template(table.template)
        columns = build_columns(template, keys, self._drawing)
        body = TableBodyWriter(lay_out_table(table, columns, template, first_row), template, keys, self._resources)
        bodies.append(body)
        return body

    def finish(self, write: Write, *, footer: bool = True) -> WorkbookSizeAndCellChanges:
        """Write the workbook and return what was written.

        Args:
            write: Called with the bytes, piece by piece.
            footer: Whether tables have footers: of a split export, only the last workbook has.

        Raises:
            UncoveredRows: Rows of the last table have keys that no row head has.
        """
        plain_links = 0
        for sheet in self._sheets:
            placed = [body.pack_last_rows_and_get_frame(footer=footer) for body in sheet.bodies]
            draw_frames_and_set_up_sheet(
                self._workbook,
                sheet.worksheet,
                placed,
                self._resources.styles,
                freeze=self._drawing.freeze,
                filtered=self._drawing.filter,
            )
            plain_links += _write_hyperlinks_up_to_limit(sheet)
        set_document_title(self._workbook, next((table.title for table in self._drawing.tables), None))
        self._workbook.close()
        if self._pool is not None:
            self._pool.shutdown()
        return self._build_report(self._write_zip_and_return_size(write), plain_links)

    def _write_zip_and_return_size(self, write: Write) -> int:
        """Write the entries of the workbook, sheets with their bodies, and return the size."""
        sheets = {_SHEET_FILE.format(number): sheet for number, sheet in enumerate(self._sheets, start=1)}
        archive = ZipArchive(write)
        with zipfile.ZipFile(self._file) as drawn:
            for name in drawn.namelist():
                content = drawn.read(name)
                if name in sheets:
                    archive.write_entry(
                        name,
                        insert_bodies_into_sheet(content, [body.to_spliced_body() for body in sheets[name].bodies]),
                    )
                else:
                    archive.write_entry(name, [deflate(content, last=True)])
        return archive.write_directory_and_get_file_size()

    def _build_report(self, size: int, plain_links: int) -> WorkbookSizeAndCellChanges:
        bodies = [body for sheet in self._sheets for body in sheet.bodies]
        empty = [title for body in bodies for title in body.titles_of_empty_columns]
        return WorkbookSizeAndCellChanges(
            rows=sum(body.rows for body in bodies),
            bytes=size,
            cut_cells=sum(body.tally.cut_cells for body in bodies),
            long_numbers=sum(body.tally.long_numbers for body in bodies),
            plain_links=plain_links,
            empty_columns=[title for title in empty if title is not None],
            empty_places=format(sum(1 << place for place, title in enumerate(empty) if title is not None), "x"),
        )


def render_tables(tables: Mapping[str, pa.Table]) -> bytes:
    """Return a workbook with a sheet for each table, whose cells are typed by the table's columns.

    Texts stay texts, whatever they look like. A binary column holds JSON: numbers, and texts that are numbers, are
    numbers.
    """
    drawing = WorkbookLayout(
        tables=[
            TableTextsAndTemplate(sheet=name, template=_build_plain_template(table)) for name, table in tables.items()
        ]
    )
    book = Workbook(drawing, time_zone="UTC")
    for drawn, table in zip(drawing.tables, tables.values(), strict=True):
        body = book.begin_table(drawn, table.column_names)
        for batch in table.to_batches():
            body.add(batch)
    out = io.BytesIO()
    book.finish(out.write)
    return out.getvalue()


def _build_plain_template(table: pa.Table) -> JsonValue:
    return [
        {"name": field.name, "title": field.name, "type": _choose_number_text_or_auto(field.type)}
        for field in table.schema
    ]


def _choose_number_text_or_auto(arrow_type: pa.DataType) -> CellKind:
    if pa.types.is_binary(arrow_type):
        return CellKind.NUMBER
    return CellKind.TEXT if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) else CellKind.AUTO


def _write_hyperlinks_up_to_limit(sheet: _SheetWithTableBodies) -> int:
    """Write hyperlinks; return how many exceed the limit of a sheet."""
    links = [link for body in sheet.bodies for link in body.tally.links]
    # The texts of the cells are written with the body.
    sheet.worksheet.ignore_write_string = True
    for link in links[:LINKS_MAX]:
        sheet.worksheet.write_url(link.row, link.column, link.url)
    sheet.worksheet.ignore_write_string = False
    return max(0, len(links) - LINKS_MAX)
