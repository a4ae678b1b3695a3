"""Polars’ `write_excel` without measuring widths; it writes by column, so that constant memory is not open to it."""

from __future__ import annotations

import sys

import polars as pl  # type: ignore[import-not-found]  # in the peer's environment alone

from bench.peers.excel import table
from bench.peers.meter import measure_run

if __name__ == "__main__":
    source, folder = sys.argv[1:]
    frame = pl.from_arrow(table.whole(source))
    formats = {table.MOMENT: table.DATETIME_FORMAT, table.MONEY: table.MONEY_FORMAT}
    with measure_run():
        frame.write_excel(table.book(folder), table.SHEET, column_formats=formats, autofit=False)
