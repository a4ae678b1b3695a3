"""Templates are read in every form that callers send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from excel.template.conditions import ComparisonCondition, ComparisonOperator
from excel.template.models import (
    ROW_HEAD_NAMES,
    CellKind,
    ChartKind,
    ChartOfTemplate,
    ColumnHeadNode,
    ConditionalColorsAndBold,
    ConditionalStyleRule,
    HorizontalAlign,
    RowHeadNode,
    VerticalAlign,
)
from excel.template.reading import is_empty_template, read_template

# As the design of the download center prints it: PHP arrows, and braces around a list.
SEED = """
{  {      "name":"source",      "title":"来源方式"  },  {      "name":"recharge",      "title":"充值",
"children" => [          {              "name":"recharge_num",              "title":"充值笔数"          },          {
"name":"pay_money",              "title":"付款金额"          },          {              "name":"_",
"title":"其中",              "children": [                  {                      "name":"wechat",
"title":"微信支付"                  },                  {                      "name":"alipay",
"title":"支付宝"                  }              ]          },          {              "name":"recharge_money",
"title":"充值金额"          },          {              "name":"reduction",              "title":"优惠汇总"          }
]  },  {      "name":"refund",      "title":"退款",      "children":[          {              "name":"refund_num",
"title":"退款笔数"          },          {              "name":"refund_money",              "title":"退款金额"          }
,          {              "name":"real_refund_money",              "title":"实退金额"          }      ]  }}
"""
SEED_NODES = json.loads(f"[{SEED.strip()[1:-1]}]".replace("=>", ":"))


def outline_tree(nodes: tuple[ColumnHeadNode, ...] | tuple[RowHeadNode, ...]) -> list[Any]:
    return [
        (node.name, node.title, outline_tree(node.children)) if node.children else (node.name, node.title)
        for node in nodes
    ]


SEED_OUTLINE = [
    ("source", "来源方式"),
    (
        None,
        "充值",
        [
            ("recharge_num", "充值笔数"),
            ("pay_money", "付款金额"),
            (None, "其中", [("wechat", "微信支付"), ("alipay", "支付宝")]),
            ("recharge_money", "充值金额"),
            ("reduction", "优惠汇总"),
        ],
    ),
    (None, "退款", [("refund_num", "退款笔数"), ("refund_money", "退款金额"), ("real_refund_money", "实退金额")]),
]


@pytest.mark.parametrize(
    "template",
    [
        SEED_NODES,
        {"ceil": SEED_NODES},
        {"col": SEED_NODES, "row": []},
        {str(place): node for place, node in enumerate(SEED_NODES)},
        {"ceil": {str(place): node for place, node in enumerate(SEED_NODES)}, "row": {}},
    ],
    ids=["list", "ceil", "col", "numbered", "ceil numbered"],
)
def test_the_design_s_own_template(template: Any) -> None:
    """Source, recharge and refund on three levels, sent as a list or as languages without lists write one."""
    read = read_template(template)

    assert outline_tree(read.columns) == SEED_OUTLINE
    assert (len(read.leaves), read.depth, read.row_depth) == (10, 3, 0)
    assert read.keys[:3] == ("source", "recharge_num", "pay_money")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"name": "姓名", "phone": "电话"}, [("name", "姓名"), ("phone", "电话")]),
        ({"name": "姓名", "title": "职位"}, [("name", "姓名"), ("title", "职位")]),
        ({"row": "行", "col": "列"}, [("row", "行"), ("col", "列")]),
        ({"id": None, "phone": "", "when": []}, [("id", "id"), ("phone", "phone"), ("when", "when")]),
        ({"_": "备注", "id": "编号"}, [(None, "备注"), ("id", "编号")]),
        ({"id": "No.", "price": {"title": "Price", "width": 9}}, [("id", "No."), ("price", "Price")]),
        (
            {"money": {"title": "Money", "children": {"in": "In", "out": "Out"}}},
            [(None, "Money", [("in", "In"), ("out", "Out")])],
        ),
        ({"a": {"name": "b", "title": "B"}}, [("b", "B")]),
        ({"name": "id", "title": "No.", "width": 9}, [("id", "No.")]),
        ({"title": "Money", "children": {"in": "In"}}, [(None, "Money", [("in", "In")])]),
        ({"col": {"name": "id", "title": "No."}}, [("id", "No.")]),
        ({"col": {"name": "姓名", "phone": "电话"}}, [("name", "姓名"), ("phone", "电话")]),
        ([{"name": 2026}, {"title": 7}], [("2026", "2026"), (None, "7")]),
        ([{"name": "id", "children": []}, {"name": "no", "children": {}}], [("id", "id"), ("no", "no")]),
        ([{"name": "id"}, {"name": "id", "title": "again"}], [("id", "id"), ("id", "again")]),
        ([{"name": "_row_head_", "title": ""}, {"name": "id"}], [("_row_head_", "_row_head_"), ("id", "id")]),
    ],
)
def test_forms_of_columns(template: Any, expected: list[Any]) -> None:
    """A map of titles, nodes by key, a single node, a list: an object of texts is a map unless it cannot be one."""
    assert outline_tree(read_template(template).columns) == expected


def test_all_that_a_column_says() -> None:
    """Every field of a node, as the design writes them."""
    node: Any = {
        "name": "amount",
        "title": "金额",
        "type": "Decimal",
        "format": "#,##0.00",
        "width": "12.5",
        "height": 20,
        "wrap": "false",
        "align": "RIGHT",
        "v-align": "top",
        "color": "#fefefe",
        "bold": True,
        "bg_color": True,
        "condition_style": [
            {"color": "red", "bold": "1", "bg_color": "#0f8", "condition": "<0"},
            {"condition": ">=100"},
        ],
        "children": [],
    }

    assert read_template([node]).columns == (
        ColumnHeadNode(
            path="template[0]",
            name="amount",
            title="金额",
            kind=CellKind.NUMBER,
            number_format="#,##0.00",
            width=12.5,
            height=20.0,
            wrap=False,
            align=HorizontalAlign.RIGHT,
            v_align=VerticalAlign.TOP,
            color="FEFEFE",
            bold=True,
            bg_color="DFDFDF",
            rules=(
                ConditionalStyleRule(
                    ComparisonCondition(ComparisonOperator.LESS, 0.0),
                    ConditionalColorsAndBold("FF0000", bold=True, bg_color="00FF88"),
                ),
                ConditionalStyleRule(
                    ComparisonCondition(ComparisonOperator.GREATER_EQUAL, 100.0), ConditionalColorsAndBold()
                ),
            ),
        ),
    )


def test_what_is_empty_is_not_said() -> None:
    """Null and empty texts leave a field at its default, as callers send them for what they do not know."""
    fields = ["type", "format", "width", "height", "wrap", "align", "v-align", "v_align", "color", "bold"]
    fields.append("bg_color")
    empty: Any = {"name": "id", "title": "", "condition_style": [], "children": ""} | dict.fromkeys(fields, "")

    assert (
        read_template([empty])
        == read_template([{"name": "id"}])
        == read_template([dict.fromkeys(fields) | {"name": "id"}])
    )


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        *((kind.value, kind) for kind in CellKind),
        *(
            ("string", CellKind.TEXT),
            ("int", CellKind.NUMBER),
            ("integer", CellKind.NUMBER),
            ("float", CellKind.NUMBER),
        ),
        *(("decimal", CellKind.NUMBER), ("bool", CellKind.BOOLEAN), ("url", CellKind.LINK), ("html", CellKind.RICH)),
        *((" Number ", CellKind.NUMBER), ("DATETIME", CellKind.DATETIME)),
    ],
)
def test_words_for_types(word: str, kind: CellKind) -> None:
    """Types go by our names and by those that callers know from elsewhere, in any case."""
    assert read_template([{"name": "a", "type": word}]).leaves[0].kind is kind


@pytest.mark.parametrize(
    ("color", "expected"),
    [
        *(("black", "000000"), ("white", "FFFFFF"), ("red", "FF0000"), ("green", "008000"), ("blue", "0000FF")),
        *(("yellow", "FFFF00"), ("Cyan", "00FFFF"), ("FFFEFE", "FFFEFE"), ("#a1b2c3", "A1B2C3"), ("#f80", "FF8800")),
        ("123", "112233"),
    ],
)
def test_colors(color: str, expected: str) -> None:
    """Seven names, and hexadecimal digits with or without #, three or six."""
    node = read_template([{"name": "a", "color": color, "bg_color": color}]).leaves[0]

    assert (node.color, node.bg_color) == (expected, expected)


@pytest.mark.parametrize(
    ("value", "color", "bold"),
    [(True, "DFDFDF", True), (1, "DFDFDF", True), ("1", "DFDFDF", True), ("TRUE", "DFDFDF", True)]
    + [(value, None, False) for value in (False, 0, "0", "false")],
)
def test_yes_and_no(value: Any, color: str | None, bold: bool) -> None:
    """True and 1 mean yes, for a background the colour of heads; false and 0 mean no."""
    node = read_template([{"name": "a", "bg_color": value, "bold": value}]).leaves[0]

    assert (node.bg_color, node.bold) == (color, bold)


@pytest.mark.parametrize("field", ["v-align", "v_align", "valign"])
def test_spellings_of_vertical_alignment(field: str) -> None:
    """The design has a hyphen where programs cannot."""
    assert read_template([{"name": "a", field: "bottom"}]).leaves[0].v_align is VerticalAlign.BOTTOM


@pytest.mark.parametrize("name", ROW_HEAD_NAMES)
def test_the_column_of_row_heads(name: str) -> None:
    """Its node may be anywhere at the top, under any of its names, and is no column of data."""
    read = read_template(
        {
            "row": [
                {"title": "华东", "bg_color": True, "children": [{"name": "sh", "title": "上海", "row_count": "3"}]}
            ],
            "ceil": [{"name": "id"}, {"name": name, "title": "门店", "bg_color": "red"}],
        }
    )

    assert read.keys == ("id",)
    assert read.row_head is not None
    assert (read.row_head.title, read.row_head.bg_color) == ("门店", "FF0000")
    assert outline_tree(read.rows) == [(None, "华东", [("sh", "上海")])]
    assert (read.row_depth, [leaf.row_count for leaf in read.rows[0].leaves], read.rows[0].bg_color) == (
        2,
        [3],
        "DFDFDF",
    )


@pytest.mark.parametrize("title", ["", None, "__row__"])
def test_a_column_of_row_heads_without_title(title: str | None) -> None:
    """`__row__` is no title: the corner stays blank."""
    read = read_template({"row": {"a": "A"}, "col": [{"name": "__row__", "title": title}, {"name": "id"}]})

    assert read.row_head is not None
    assert read.row_head.title == ""


def test_row_heads_need_no_column_of_theirs() -> None:
    """Without a node for them the corner says nothing, too."""
    read = read_template({"row": {"a": "A", "b": ""}, "col": {"id": "No."}})

    assert (outline_tree(read.rows), read.row_head) == ([("a", "A"), ("b", "b")], None)


def test_charts() -> None:
    """Each names the columns that it shows by their keys."""
    columns: Any = {"month": "Month", "in": "In", "out": "Out"}

    read = read_template(
        {
            "col": columns,
            "charts": [
                {"type": "Line", "title": "Money", "categories": "month", "values": ["in", "out"]},
                {"type": "pie", "values": "in"},
            ],
        }
    )

    assert read.charts == (
        ChartOfTemplate(ChartKind.LINE, ("in", "out"), "month", "Money"),
        ChartOfTemplate(ChartKind.PIE, ("in",), None, None),
    )
    assert read_template({"col": columns, "charts": {"type": "bar", "values": ["out"]}}).charts == (
        ChartOfTemplate(ChartKind.BAR, ("out",)),
    )


@pytest.mark.parametrize(
    ("value", "nothing"), [(None, True), ([], True), ({}, True), ("", True), ([{}], False), (0, False)]
)
def test_what_says_nothing(value: Any, nothing: bool) -> None:
    """Languages without a value for nothing send an empty list."""
    assert is_empty_template(value) is nothing
