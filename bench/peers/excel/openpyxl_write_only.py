"""openpyxl's write-only mode with lxml, as its page on optimised modes advises."""

from __future__ import annotations

import sys

from openpyxl import Workbook
from openpyxl.cell import WriteOnlyCell

from bench.peers.excel import table
from bench.peers.meter import Meter, measure_run


def write(source: str, path: str, meter: Meter) -> None:
    """Row by row; only cells with a format of their own are cells, the others are plain values."""
    book = Workbook(write_only=True)
    sheet = book.create_sheet(table.SHEET)
    names = table.columns(source)
    sheet.append(names)
    money, moment = names.index(table.MONEY), names.index(table.MOMENT)
    for batch in meter.exclude(table.rows(source)):
        for row in batch:
            cells = list(row)
            cells[money] = _format_cell(sheet, row[money], table.MONEY_FORMAT)
            cells[moment] = _format_cell(sheet, row[moment], table.DATETIME_FORMAT)
            sheet.append(cells)
    book.save(path)


def _format_cell(sheet: object, value: object, number_format: str) -> WriteOnlyCell:
    cell = WriteOnlyCell(sheet, value)
    cell.number_format = number_format
    return cell


if __name__ == "__main__":
    with measure_run() as clock:
        write(sys.argv[1], table.book(sys.argv[2]), clock)
