"""Excel through the public API: the seed's own request, dynamic templates, row heads, several tables, previews."""

from __future__ import annotations

import io
import json
from typing import Any

import aiohttp
import openpyxl
import pytest
from openpyxl.worksheet.worksheet import Worksheet

from sims import rows as sample
from tests.support.downloads import Downloads

pytestmark = pytest.mark.stack

SEED = 8

# As the seed writes it.
SEED_TEMPLATE = [
    {"name": "source", "title": "来源方式"},
    {
        "name": "recharge",
        "title": "充值",
        "children": [
            {"name": "recharge_num", "title": "充值笔数"},
            {"name": "pay_money", "title": "付款金额"},
            {
                "name": "_",
                "title": "其中",
                "children": [{"name": "wechat", "title": "微信支付"}, {"name": "alipay", "title": "支付宝"}],
            },
            {"name": "recharge_money", "title": "充值金额"},
            {"name": "reduction", "title": "优惠汇总"},
        ],
    },
    {
        "name": "refund",
        "title": "退款",
        "children": [
            {"name": "refund_num", "title": "退款笔数"},
            {"name": "refund_money", "title": "退款金额"},
            {"name": "real_refund_money", "title": "实退金额"},
        ],
    },
]
KEYS = [
    *("recharge_num", "pay_money", "wechat", "alipay", "recharge_money", "reduction"),
    *("refund_num", "refund_money", "real_refund_money"),
]


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


async def export_inline(exports: Downloads, **request: Any) -> dict[str, Any]:
    """An Excel download at its end."""
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json={"type": "excel", **request})
    assert reply.status == 202, reply.body
    return await exports.wait_for_end(reply.body["task_id"])


async def open_book(exports: Downloads, status: dict[str, Any]) -> openpyxl.Workbook:
    """The book of a download that succeeded."""
    assert status["state"] == "succeeded", status["fault"]
    assert (status["file_name"].endswith(".xlsx"), status["files"]) == (True, 1)
    content = await exports.file(status["task_id"])
    assert len(content) == status["bytes"]
    return openpyxl.load_workbook(io.BytesIO(content))


def list_cells(sheet: Worksheet) -> list[list[Any]]:
    """The rows of a sheet that hold anything, without the cells that do not."""
    rows = [[cell for cell in row if cell is not None] for row in sheet.iter_rows(values_only=True)]
    return [row for row in rows if row]


def list_merged_areas(sheet: Worksheet) -> set[str]:
    """The areas that are one cell."""
    return {str(area) for area in sheet.merged_cells.ranges}


async def test_the_seed_s_request_works_word_for_word(exports: Downloads) -> None:
    """Every field that the seed names, and its template of three levels."""
    data = [{"source": "油站", **{key: place + number for place, key in enumerate(KEYS)}} for number in range(3)]
    request = {
        "project_id": exports.project_id,
        "file_name": "充值明细",
        "title": "充值明细表",
        "summary": "四月<br>全部油站",
        "type": "excel",
        "operator_id": "10086",
        "template": SEED_TEMPLATE,
        "callback": f"{exports.source.base}/done",
        "page_size": 500,
        "data": data,
    }

    status = await export_inline(exports, **request)
    sheet = (await open_book(exports, status)).worksheets[0]

    assert (status["file_name"], status["rows"], status["left_out"], status["warnings"]) == ("充值明细.xlsx", 3, [], [])
    shown = list_cells(sheet)
    assert shown[:2] == [["充值明细表"], ["四月\n全部油站"]]
    assert shown[2:5] == [
        ["来源方式", "充值", "退款"],
        ["充值笔数", "付款金额", "其中", "充值金额", "优惠汇总", "退款笔数", "退款金额", "实退金额"],
        ["微信支付", "支付宝"],
    ]
    assert shown[5:] == [list(row.values()) for row in data]
    assert {"A1:J1", "A2:J2", "A3:A5", "B3:G3", "H3:J3", "D4:E4", "B4:B5"} <= list_merged_areas(sheet)


async def test_the_source_s_template_wins(exports: Downloads) -> None:
    """A dynamic template, header and footer come with the source's first answer."""
    around = {
        "template": [{"name": "order_no", "title": "单号"}, {"name": "amount", "title": "金额"}],
        "header": {"油站": "钓鱼岛"},
        "footer": {"签名": "张三"},
    }
    url = exports.source.url(rows=300, seed=SEED, **{name: json.dumps(value) for name, value in around.items()})

    status = await export_inline(
        exports, source_url=url, page_size=100, template={"id": "ID"}, header={"a": "b"}, footer="none"
    )
    shown = list_cells((await open_book(exports, status)).worksheets[0])

    expected = [sample.row(SEED, number) for number in range(300)]
    assert "钓鱼岛" in "".join(map(str, shown[0]))
    assert shown[1] == ["单号", "金额"]
    assert shown[2:-1] == [[row["order_no"], float(row["amount"])] for row in expected]
    assert "张三" in "".join(map(str, shown[-1]))
    assert set(status["left_out"]) == expected[0].keys() - {"order_no", "amount"}


async def test_a_source_of_row_heads(exports: Downloads) -> None:
    """Three-dimensional pages are joined by key, and every row is under its head."""
    cities = sorted({sample.row(SEED, number)["city"] for number in range(250)})
    template = {
        "row": [{"name": city} for city in cities],
        "col": [{"name": "_row_header", "title": "城市"}, {"name": "id"}],
    }
    url = exports.source.url(rows=250, seed=SEED, grouped="city", template=json.dumps(template))

    status = await export_inline(exports, source_url=url, page_size=100)
    titles, *shown = list_cells((await open_book(exports, status)).worksheets[0])

    rows = sorted((sample.row(SEED, number) for number in range(250)), key=lambda row: cities.index(row["city"]))
    assert titles == ["城市", "id"]
    assert [row[-1] for row in shown] == [row["id"] for row in rows]
    assert [row[0] for row in shown if len(row) == 2] == cities
    assert status["rows"] == 250


async def test_rows_that_no_head_covers(exports: Downloads) -> None:
    """The fault lists their keys."""
    template = {"row": [{"name": "a"}], "col": [{"name": "n"}]}

    status = await export_inline(exports, template=template, data={"a": [{"n": 1}], "b": [{"n": 2}], "c": []})

    assert status["state"] == "failed"
    assert "“b”" in status["fault"]["message"]


async def test_sheets(exports: Downloads) -> None:
    """Each has its own source or rows, template and name; digits stay those that were sent."""
    sheets = [
        {"name": "订单", "source_url": exports.source.url(rows=120, seed=SEED), "template": {"id": "ID"}},
        {"title": "Totals", "data": [{"city": "Berlin", "sum": 12.5, "no": "007"}]},
    ]

    status = await export_inline(exports, sheets=sheets)
    made = await open_book(exports, status)

    assert made.sheetnames == ["订单", "Sheet2"]
    assert list_cells(made["订单"]) == [["ID"], *([sample.row(SEED, number)["id"]] for number in range(120))]
    assert list_cells(made["Sheet2"]) == [["Totals"], ["city", "sum", "no"], ["Berlin", 12.5, "007"]]
    assert status["rows"] == 121


@pytest.mark.parametrize("multi", ["page", "tab"])
async def test_several_tables(exports: Downloads, multi: str) -> None:
    """One under another or on tabs, with single values for all of them."""
    data = [[{"a": 1}], {"x": [{"a": 2}]}]
    template = [{"a": "A"}, {"row": [{"name": "x", "title": "X"}], "col": [{"name": "a", "title": "A"}]}]

    status = await export_inline(
        exports, multi=multi, title=["One", None], summary="both", template=template, data=data
    )
    made = await open_book(exports, status)

    tables = [["One"], ["both"], ["A"], [1]], [["both"], ["A"], ["X", 2]]
    if multi == "tab":
        assert [list_cells(sheet) for sheet in made.worksheets] == list(tables)
    else:
        assert list_cells(made.worksheets[0]) == [*tables[0], *tables[1]]


async def test_one_set_of_rows_for_all_tables(exports: Downloads) -> None:
    """Rows of row heads that are sent once are shown by every template."""
    template = [{"row": [{"name": "x"}], "col": {key: key.upper()}} for key in ("a", "b")]

    status = await export_inline(exports, multi="page", template=template, data={"x": [{"a": 1, "b": 2}]})

    assert list_cells((await open_book(exports, status)).worksheets[0]) == [["A"], ["x", 1], ["B"], ["x", 2]]
    assert status["rows"] == 2


async def test_the_same_key_with_other_rows_on_a_sheet_is_refused(exports: Downloads) -> None:
    """Neither digits nor their table are overlooked."""

    async def ask(*sheets: str) -> tuple[int, str]:
        headers = {"Idempotency-Key": "order-4711", "Content-Type": "application/json"}
        body = f'{{"type": "excel", "sheets": [{", ".join(sheets)}]}}'
        reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, data=body, headers=headers)
        return reply.status, reply.body.get("code", reply.body.get("task_id"))

    first, second = '{"data": [{"a": 1.0}]}', '{"data": [{"a": 2}]}'
    accepted = await ask(first, second)
    assert accepted[0] == 202
    assert await ask(first, second) == accepted
    for other in ((second, first), ('{"data": [{"a": 1.00}]}', second)):
        assert await ask(*other) == (422, "idempotency_key_reused")


async def preview(exports: Downloads, **request: Any) -> tuple[int, Any]:
    """Status, and the sheet or the problem."""
    headers = {"Authorization": f"Bearer {exports.key}"}
    address = f"{exports.api_client.address}/v1/templates/preview"
    async with aiohttp.ClientSession() as http, http.post(address, json=request, headers=headers) as answer:
        if answer.content_type.endswith("json"):
            return answer.status, await answer.json(content_type=None)
        return answer.status, openpyxl.load_workbook(io.BytesIO(await answer.read())).worksheets[0]


async def test_a_preview_invents_ten_rows(exports: Downloads) -> None:
    """The book comes at once, drawn as the download would be."""
    status, sheet = await preview(exports, template=SEED_TEMPLATE, title="充值明细表")

    assert status == 200
    shown = list_cells(sheet)
    assert shown[0] == ["充值明细表"]
    assert [row[0] for row in shown[4:]] == [f"来源方式 {number}" for number in range(1, 11)]


async def test_a_preview_shows_the_first_ten_rows(exports: Downloads) -> None:
    """Flat or under row heads, of the caller's own data, to the last digit."""
    data = [{"a": number, "b": f"00{number}"} for number in range(12)]
    grouped = {"x": data[:4], "y": data[4:]}
    template = {"row": [{"name": "x"}, {"name": "y"}], "col": {"a": "A"}}

    _, flat = await preview(exports, data=data)
    _, headed = await preview(exports, data=grouped, template=template)

    assert list_cells(flat) == [["a", "b"], *([row["a"], row["b"]] for row in data[:10])]
    assert [row[-1] for row in list_cells(headed)[1:]] == list(range(10))


@pytest.mark.parametrize(
    ("request_", "paths"),
    [
        ({}, ["template"]),
        (
            {"template": {"col": [{"width": -2}, {"name": "b", "color": "mauve"}]}},
            ["template.col[0]", "template.col[1]"],
        ),
        ({"template": {"a": "A"}, "header": 7, "footer": [1]}, ["header", "footer[0]"]),
        ({"template": {"col": {"a": "A"}, "row": [{"name": "x"}]}, "data": {"z": [{"a": 1}]}}, ["data"]),
        ({"template": {"col": {"a": "A"}, "row": [{"name": "x"}]}, "data": [{"a": 1}]}, ["data"]),
        ({"template": {"a": "A"}, "data": {"z": [{"a": 1}]}}, ["data"]),
        ({"template": {"col": {"a": "A"}, "row": [{"name": "x", "row_count": 60_000}]}}, ["template"]),
        ({"data": [{f"k{number}": 1 for number in range(start, start + 1_500)} for start in (0, 1_500)]}, ["data"]),
        ({"data": [{"a": 1}], "time_zone": "Mars"}, ["time_zone"]),
    ],
    ids=str,
)
async def test_a_preview_tells_all_faults(exports: Downloads, request_: dict[str, Any], paths: list[str]) -> None:
    """With their paths, instead of a book."""
    status, problem = await preview(exports, **request_)

    assert (status, problem["code"]) == (422, "invalid_request")
    reported = [error["path"] for error in problem["errors"]]
    assert all(any(path.startswith(expected) for path in reported) for expected in paths), reported


async def test_a_drawing_that_is_too_long_is_refused(exports: Downloads) -> None:
    """All sheets together: it is a part of the workflow's input."""
    sheet = {"template": {f"k{number}": "x" * 50 for number in range(1_500)}, "data": [{"k1": 1}]}
    body = {"type": "excel", "sheets": [sheet] * 3}
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json=body)

    assert (reply.status, reply.code) == (422, "invalid_request")
    assert "send 200,000 or less" in reply.body["detail"]
