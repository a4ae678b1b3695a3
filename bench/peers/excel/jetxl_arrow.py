"""jetxl with an Arrow table, its fastest input, without measuring widths."""

from __future__ import annotations

import sys

import jetxl  # type: ignore[import-not-found]  # in the peer's environment alone

from bench.peers.excel import table
from bench.peers.meter import measure_run

if __name__ == "__main__":
    source, folder = sys.argv[1:]
    rows = table.whole(source)
    formats = {table.MOMENT: "datetime", table.MONEY: table.MONEY_FORMAT}
    with measure_run():
        jetxl.write_sheet_arrow(
            rows, table.book(folder), sheet_name=table.SHEET, auto_width=False, column_formats=formats
        )
