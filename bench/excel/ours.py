"""Our writer as a contender: a Book with a title, two levels of heads, formats and styles, from staged pages."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import JsonValue

from bench.excel import content
from bench.peers.meter import Meter, measure_run
from excel.template.models import TableTextsAndTemplate, WorkbookLayout
from excel.workbook import Workbook

HEAD_ROWS = 3
TEMPLATE: JsonValue = [
    {
        "title": "订单",
        "children": [
            {"name": "id", "title": "编号"},
            {"name": "order_no", "title": "订单号", "align": "left"},
            {"name": "customer", "title": "客户"},
        ],
    },
    {
        "title": "商品",
        "children": [
            {"name": "product", "title": "品名", "align": "left", "color": "blue"},
            {"name": "amount", "title": "金额", "format": "#,##0.00", "align": "right", "bold": True},
            {"name": "quantity", "title": "数量", "bg_color": "yellow"},
            {"name": "paid", "title": "已付"},
        ],
    },
    {"name": "ordered_at", "title": "下单时间", "type": "datetime", "format": "yyyy-mm-dd hh:mm:ss"},
    {"name": "note", "title": "备注", "align": "left"},
    {"name": "city", "title": "城市"},
]


def write(source: Path, path: Path, threads: int, meter: Meter) -> None:
    """Write page by page, as a download does; the workbook is finished when all rows are added."""
    table = TableTextsAndTemplate(title="订单明细", template=TEMPLATE)
    book = Workbook(WorkbookLayout(tables=[table]), time_zone=content.ZONE, threads=threads)
    body = book.begin_table(table, content.COLUMNS)
    for page in meter.exclude(content.read_batches(source)):
        body.add(page)
    with path.open("wb") as out:
        book.finish(out.write)


if __name__ == "__main__":
    with measure_run() as clock:
        write(Path(sys.argv[1]), Path(sys.argv[2]) / "book.xlsx", int(sys.argv[3]), clock)
