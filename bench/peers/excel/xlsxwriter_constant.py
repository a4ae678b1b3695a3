"""xlsxwriter in constant memory, by its methods for one type each, which spare it the guessing of `write`."""

from __future__ import annotations

import sys

import xlsxwriter

from bench.peers.excel import table
from bench.peers.meter import Meter, measure_run


def write(source: str, path: str, meter: Meter) -> None:
    """Row by row; each is written out when the next begins."""
    book = xlsxwriter.Workbook(path, {"constant_memory": True})
    sheet = book.add_worksheet(table.SHEET)
    moment, money = (
        book.add_format({"num_format": table.DATETIME_FORMAT}),
        book.add_format({"num_format": table.MONEY_FORMAT}),
    )
    text, number, boolean, date = sheet.write_string, sheet.write_number, sheet.write_boolean, sheet.write_datetime
    sheet.write_row(0, 0, table.columns(source))
    place = 0
    for batch in meter.exclude(table.rows(source)):
        for id_, order_no, customer, product, amount, quantity, paid, ordered_at, note, city in batch:
            place += 1
            number(place, 0, id_)
            text(place, 1, order_no)
            text(place, 2, customer)
            text(place, 3, product)
            number(place, 4, amount, money)
            number(place, 5, quantity)
            boolean(place, 6, paid)
            date(place, 7, ordered_at, moment)
            if note is not None:
                text(place, 8, note)
            text(place, 9, city)
    book.close()


if __name__ == "__main__":
    with measure_run() as clock:
        write(sys.argv[1], table.book(sys.argv[2]), clock)
