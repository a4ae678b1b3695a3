"""`python -m bench.pictures`: workbooks rendered by LibreOffice as the pictures of the documents."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench import soffice
from excel.template.models import TableTextsAndTemplate, WorkbookLayout
from excel.workbook import Workbook

FOLDER = Path(__file__).parent.parent / "docs" / "images"
DPI = 96
MARGIN_PIXELS = 8
PAGE_FOOT = 0.07
"""The share of a page that has its number, which is cut off the picture."""
INK = 250

Rows = Sequence[Mapping[str, Any]]

SEED_TEMPLATE: list[Any] = [
    {"name": "source", "title": "来源方式"},
    {
        "name": "recharge",
        "title": "充值",
        "children": [
            {"name": "recharge_num", "title": "充值笔数"},
            {"name": "pay_money", "title": "付款金额", "format": "#,##0.00"},
            {
                "name": "_",
                "title": "其中",
                "children": [
                    {"name": "wechat", "title": "微信支付", "format": "#,##0.00"},
                    {"name": "alipay", "title": "支付宝", "format": "#,##0.00"},
                ],
            },
            {"name": "recharge_money", "title": "充值金额", "format": "#,##0.00"},
            {"name": "reduction", "title": "优惠汇总", "format": "#,##0.00"},
        ],
    },
    {
        "name": "refund",
        "title": "退款",
        "children": [
            {"name": "refund_num", "title": "退款笔数"},
            {"name": "refund_money", "title": "退款金额", "format": "#,##0.00"},
            {"name": "real_refund_money", "title": "实退金额", "format": "#,##0.00"},
        ],
    },
]


def tree() -> tuple[TableTextsAndTemplate, Rows]:
    """The template of the download center's own design: heads of three levels, and every region."""
    keys = (
        "source recharge_num pay_money wechat alipay recharge_money reduction refund_num refund_money real_refund_money"
    )
    data = [
        ("微信小程序", 1286, 385_420.50, 385_420.50, None, 391_800, 6_379.50, 12, 3_600, 3_541.20),
        ("支付宝生活号", 742, 198_310, None, 198_310, 201_500, 3_190, 7, 1_900, 1_868.40),
        ("收银台", 2310, 604_777.80, 402_111.30, 202_666.50, 612_000, 7_222.20, 31, 9_250, 9_101.75),
        ("手机 App", 518, 160_905.20, 97_405.20, 63_500, 163_000, 2_094.80, 3, 800, 786.90),
    ]
    drawing = TableTextsAndTemplate(
        title="充值与退款汇总",
        summary="按<b>来源方式</b>汇总；<font color='red'>退款金额</font>以<u>申请日</u>为准，<i>实退</i>为到账数。",
        header={"油站": "钓鱼岛", "日期": "4月3日", "操作员": "松林"},
        footer={"签名": "", "复核": ""},
        template=SEED_TEMPLATE,
    )
    return drawing, [dict(zip(keys.split(), row, strict=True)) for row in data]


def row_heads() -> tuple[TableTextsAndTemplate, Rows]:
    """Heads of rows and of columns."""
    regions = {"east": "华东", "south": "华南"}
    cities = {"sh": ("east", "上海"), "hz": ("east", "杭州"), "gz": ("south", "广州"), "sz": ("south", "深圳")}
    row: list[dict[str, Any]] = [
        {
            "title": title,
            "children": [{"name": key, "title": city} for key, (of, city) in cities.items() if of == region],
        }
        for region, title in regions.items()
    ]
    row.append({"name": "online", "title": "线上", "row_count": 2, "bg_color": "DDEBF7"})
    column = [
        {"name": "_row_head_", "title": "地区"},
        {"name": "fuel", "title": "油品", "align": "left"},
        {
            "title": "上半年",
            "format": "#,##0",
            "children": [{"name": "q1", "title": "一季度"}, {"name": "q2", "title": "二季度"}],
        },
        {
            "title": "下半年",
            "format": "#,##0",
            "children": [{"name": "q3", "title": "三季度"}, {"name": "q4", "title": "四季度"}],
        },
    ]
    data = [
        ("sh", "92#", 18_240, 19_105, 20_330, 21_048),
        ("sh", "95#", 12_003, 12_870, 13_422, 14_190),
        ("hz", "92#", 9_871, 10_233, 10_870, 11_402),
        ("gz", "92#", 15_640, 16_018, 15_202, 17_731),
        ("gz", "0#", 7_420, 7_866, 8_013, 8_240),
        ("sz", "95#", 14_951, 15_320, 16_480, 17_005),
        ("online", "充电", 3_118, 4_260, 5_904, 8_377),
    ]
    keys = ("_row_head_", "fuel", "q1", "q2", "q3", "q4")
    drawing = TableTextsAndTemplate(title="各地区销量（吨）", template={"row": row, "col": column})
    return drawing, [dict(zip(keys, cells, strict=True)) for cells in data]


def conditions() -> tuple[TableTextsAndTemplate, Rows]:
    """Styles that depend on the cell."""
    alarm = {"condition": "< -10", "color": "white", "bg_color": "C00000", "bold": True}
    low = {"condition": ">= -10 and < 0", "color": "C00000"}
    high = {"condition": "> 10", "color": "006100", "bg_color": "C6EFCE"}
    state = [
        {"condition": "in ('停业', '检修')", "color": "7F6000", "bg_color": "FFEB9C"},
        {"condition": "like '新%'", "color": "blue", "bold": True},
    ]
    template: list[Any] = [
        {"name": "no", "title": "站号"},
        {"name": "station", "title": "油站", "align": "left"},
        {"name": "opened", "title": "开业日期", "type": "date"},
        {"name": "state", "title": "状态", "condition_style": state},
        {"name": "sold", "title": "销售额", "format": "#,##0.00", "align": "right"},
        {"name": "growth", "title": "同比 %", "format": "+0.0;-0.0;0.0", "condition_style": [alarm, low, high]},
    ]
    data = [
        ("00081001", "钓鱼岛站", "2016-05-01", "营业", 1_284_330.40, 12.4),
        ("00081002", "浦东大道站", "2012-11-20", "营业", 2_031_118.00, 3.1),
        ("00081003", "西湖站", "2019-03-18", "检修", 402_870.55, -31.8),
        ("00081007", "白云站", "2021-08-08", "营业", 988_412.90, -4.6),
        ("00081009", "前海站", "2026-01-15", "新开业", 150_066.20, None),
        ("00081012", "滨江站", "2014-07-30", "停业", 0, -100),
    ]
    keys = ("no", "station", "opened", "state", "sold", "growth")
    return TableTextsAndTemplate(title="油站经营情况", template=template), [
        dict(zip(keys, row, strict=True)) for row in data
    ]


def chart() -> tuple[TableTextsAndTemplate, Rows]:
    """A chart over columns of the table."""
    template = {
        "col": [
            {"name": "month", "title": "月份"},
            {"name": "recharge", "title": "充值金额", "format": "#,##0"},
            {"name": "refund", "title": "退款金额", "format": "#,##0"},
        ],
        "charts": [{"type": "column", "title": "充值与退款", "categories": "month", "values": ["recharge", "refund"]}],
    }
    amounts = (302, 281, 344, 367, 352, 398, 421, 407, 433, 460, 472, 515)
    rows = [
        {"month": f"{month} 月", "recharge": amount * 1_000, "refund": amount * (31 + month % 4 * 9)}
        for month, amount in enumerate(amounts, start=1)
    ]
    return TableTextsAndTemplate(title="2026 年充值走势", template=template), rows


PICTURES = {"excel-tree": tree, "excel-rows": row_heads, "excel-conditions": conditions, "excel-chart": chart}


def main() -> None:
    """Draw them all."""
    FOLDER.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder:
            book = Path(folder) / "book.xlsx"
            write(book, *picture())
            made = FOLDER / f"{name}.png"
            (pdf,) = soffice.convert([book], soffice.PDF, Path(folder) / "printed")
            _draw(pdf, made)
            print(f"{made.name}: {made.stat().st_size / 1000:.0f} kB")


def write(path: Path, table: TableTextsAndTemplate, rows: Rows) -> None:
    """A book of one table."""
    keys = list(rows[0])
    cells = {key: pa.array([json.dumps(row[key]).encode() for row in rows], pa.binary()) for key in keys}
    book = Workbook(WorkbookLayout(tables=[table]), time_zone="Asia/Shanghai")
    book.begin_table(table, keys).add(pa.record_batch(cells))
    with path.open("wb") as out:
        book.finish(out.write)


def _draw(pdf: Path, picture: Path) -> None:
    """The first page without what is white around it."""
    shades = _shades(pdf)
    shades = shades[: int(len(shades) * (1 - PAGE_FOOT))]
    rows, columns = (np.flatnonzero((shades < INK).any(axis=axis)) for axis in (1, 0))
    left, top = (max(0, int(found[0]) - MARGIN_PIXELS) for found in (columns, rows))
    width, height = (int(found[-1]) + MARGIN_PIXELS - start for found, start in ((columns, left), (rows, top)))
    box = zip(("-x", "-y", "-W", "-H"), map(str, (left, top, width, height)), strict=True)
    _pdftoppm("-png", *(word for pair in box for word in pair), str(pdf), str(picture.with_suffix("")))


def _shades(pdf: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """The page in grey: rows of pixels."""
    _pdftoppm("-gray", str(pdf), str(pdf.with_suffix("")))
    _, size, _, pixels = pdf.with_suffix(".pgm").read_bytes().split(b"\n", 3)
    width, height = map(int, size.split())
    return np.frombuffer(pixels, np.uint8).reshape(height, width)


def _pdftoppm(*arguments: str) -> None:
    command = ["pdftoppm", "-singlefile", "-f", "1", "-r", str(DPI), *arguments]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
