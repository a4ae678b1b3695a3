"""rustpy-xlsxwriter with a Polars frame, whose Arrow buffers it reads as they are; constant memory is its default."""

from __future__ import annotations

import sys

import polars as pl  # type: ignore[import-not-found]  # in the peer's environment alone
from rustpy_xlsxwriter import FastExcel, Format  # type: ignore[import-not-found]

from bench.peers.excel import table
from bench.peers.meter import measure_run

if __name__ == "__main__":
    source, folder = sys.argv[1:]
    frame = pl.from_arrow(table.whole(source))
    money = {table.MONEY: Format().set_num_format(table.MONEY_FORMAT)}
    with measure_run():
        book = FastExcel(table.book(folder)).format(datetime_format=table.DATETIME_FORMAT)
        book.sheet(table.SHEET, frame, column_formats=money).save()
