"""Every region of a table has its place; none lies over another, whatever the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from excel.areas import AreasAroundTableBody, MergedCellArea, compute_row_heights
from excel.columns import build_columns
from excel.html import TextRun
from excel.layout import arrange_pairs, divide_width, lay_out_row_heads, lay_out_table
from excel.template.models import (
    ColumnHeadNode,
    HorizontalAlign,
    RowHeadNode,
    TableTemplate,
    TableTextsAndTemplate,
    VerticalAlign,
    WorkbookLayout,
)
from excel.template.reading import read_template

SEED: list[JsonValue] = [
    {"name": "source", "title": "来源方式"},
    {
        "title": "充值",
        "children": [
            {"name": "recharge_num", "title": "充值笔数"},
            {"title": "其中", "children": [{"name": "wechat", "title": "微信"}, {"name": "alipay", "title": "支付宝"}]},
        ],
    },
]
ROWS: JsonValue = {
    "col": [{"name": "_row_header", "title": "区域", "align": "left", "bg_color": "yellow"}, {"name": "n"}],
    "row": [
        {"title": "华东", "children": [{"name": "sh", "row_count": 2}, {"name": "hz"}]},
        {"name": "bj", "bg_color": "red"},
    ],
}


def lay_out(
    template: JsonValue = None, keys: Sequence[str] = ("a", "b"), row: int = 0, **table: Any
) -> AreasAroundTableBody:
    """A table with these regions."""
    read = None if template is None else read_template(template)
    return lay_out_table(TableTextsAndTemplate(**table), build_columns(read, keys, WorkbookLayout()), read, row)


def list_corners(area: MergedCellArea) -> tuple[int, int, int, int]:
    """First row, first column, last row, last column."""
    return area.row, area.column, area.last_row, area.last_column


def list_corners_by_text(areas: Sequence[MergedCellArea]) -> dict[str, tuple[int, int, int, int]]:
    """The place of each text."""
    return {area.text: list_corners(area) for area in areas}


def test_regions_stand_one_under_another() -> None:
    """Title, summary, header, heads, body, footer."""
    frame = lay_out(keys=list("abcd"), row=5, title="T", summary="S", header={"n": 1, "m": None}, footer="F")

    assert list_corners_by_text(frame.above) == {
        "T": (5, 0, 5, 3),
        "S": (6, 0, 6, 3),
        "n": (7, 0, 7, 0),
        "1": (7, 1, 7, 1),
        "m": (7, 2, 7, 2),
        "": (7, 3, 7, 3),
        **{key: (8, place, 8, place) for place, key in enumerate("abcd")},
    }
    assert (frame.first_head_row, frame.first_body_row, frame.first_body_column) == (8, 9, 0)
    assert list_corners_by_text(list(frame.iterate_areas(10)))["F"] == (19, 0, 19, 3)
    assert (frame.compute_end_row(10), frame.compute_end_row(10, footer=False)) == (20, 19)


@pytest.mark.parametrize("nothing", [None, "", {}, [], [{}]])
def test_regions_without_content_take_no_row(nothing: JsonValue) -> None:
    """Some languages send an empty list for nothing."""
    text = nothing if isinstance(nothing, str) else None
    frame = lay_out(keys=["a"], title=text, summary=text, header=nothing, footer=nothing)

    assert (len(frame.above), frame.first_body_row, frame.footer, frame.compute_end_row(3)) == (1, 1, (), 4)


def test_a_table_without_columns_still_has_its_title() -> None:
    """A source that answers no row names no column."""
    frame = lay_out(keys=[], title="T", header={"n": "v"})

    assert list_corners_by_text(frame.above) == {"T": (0, 0, 0, 0), "n：v": (1, 0, 1, 0)}
    assert frame.first_head_row == frame.first_body_row == 2


def test_heads_of_a_tree() -> None:
    """A group spans its columns, a leaf reaches down to the body."""
    assert list_corners_by_text(lay_out(SEED, ["source"]).above) == {
        "来源方式": (0, 0, 2, 0),
        "充值": (0, 1, 0, 3),
        "充值笔数": (1, 1, 2, 1),
        "其中": (1, 2, 1, 3),
        "微信": (2, 2, 2, 2),
        "支付宝": (2, 3, 2, 3),
    }


def test_row_heads_stand_left() -> None:
    """A group spans its rows, a leaf reaches to the body; the corner looks as its node says."""
    frame = lay_out(ROWS, ["n"])
    heads = lay_out_row_heads(read_template(ROWS), [3, 1, 2])

    assert list_corners_by_text(frame.above) == {"区域": (0, 0, 0, 1), "n": (0, 2, 0, 2)}
    assert list_corners_by_text(heads) == {
        "华东": (0, 0, 3, 0),
        "sh": (0, 1, 2, 1),
        "hz": (3, 1, 3, 1),
        "bj": (4, 0, 5, 1),
    }
    assert frame.first_body_column == 2
    corner, head = frame.above
    assert (corner.style.align, corner.style.bg_color, corner.style.bold) == (HorizontalAlign.LEFT, "FFFF00", True)
    assert (head.style.align, head.style.v_align, head.style.bg_color) == (
        HorizontalAlign.CENTER,
        VerticalAlign.MIDDLE,
        "DFDFDF",
    )
    assert [area.style.bg_color for area in heads] == ["DFDFDF", "DFDFDF", "DFDFDF", "FF0000"]


def test_what_spans_the_table_spans_twenty_columns_at_most() -> None:
    """A title that is centred over a hundred columns is out of sight."""
    frame = lay_out(keys=[f"k{place}" for place in range(25)], title="T", footer="F")

    assert list_corners_by_text(frame.above)["T"] == (0, 0, 0, 19)
    assert list_corners(frame.footer[0]) == (0, 0, 0, 19)
    assert frame.last_column == 24


def test_html_becomes_runs_and_titles_do_not() -> None:
    """Summary and footer may be HTML; a title is what it says."""
    frame = lay_out(title="<b>T</b>", summary="<b>S</b>s", footer="<i>F</i>")

    assert frame.above[0].runs == (TextRun("<b>T</b>"),)
    assert frame.above[1].runs == (TextRun("S", bold=True), TextRun("s"))
    assert frame.footer[0].runs == (TextRun("F", italic=True),)


@pytest.mark.parametrize(
    ("pairs_count", "width", "rows"),
    [
        (1, 8, [1]),
        (4, 8, [4]),
        (5, 8, [3, 2]),
        (6, 20, [3, 3]),
        (7, 20, [4, 3]),
        (9, 8, [3, 3, 3]),
        (3, 5, [2, 1]),
        (4, 3, [1, 1, 1, 1]),
        (2, 1, [1, 1]),
    ],
)
def test_a_list_of_pairs_is_laid_out_by_rule(pairs_count: int, width: int, rows: list[int]) -> None:
    """Four in a row at most, two columns each at least, and only the last row shorter."""
    header: JsonValue = {str(number): number for number in range(pairs_count)}

    assert [len(row) for row in arrange_pairs(header, width)] == rows


def test_rows_of_pairs_stay_as_given() -> None:
    """Unless a row has more pairs than the table has columns."""
    assert arrange_pairs([{"a": 1, "b": 2}, {}, {"c": 3}], 2) == [[("a", "1"), ("b", "2")], [("c", "3")]]
    assert arrange_pairs([{"a": 1, "b": 2, "c": 3}], 2) == [[("a", "1"), ("b", "2")], [("c", "3")]]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("中", "中"), (None, ""), (True, "true"), (12, "12"), (1.5, "1.5"), (["中"], '["中"]')],
)
def test_values_of_pairs_are_shown_as_people_read_them(value: JsonValue, shown: str) -> None:
    """Numbers as in JSON, nothing for null."""
    assert arrange_pairs({"k": value}, 4) == [[("k", shown)]]


def test_a_shorter_last_row_keeps_the_grid() -> None:
    """Names are under names, and what is left over is one empty area."""
    frame = lay_out(keys=list("abcdefg"), header={"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})

    assert [list_corners(area)[1::2] for area in frame.above if area.row == 0] == [
        (0, 0),
        (1, 2),
        (3, 3),
        (4, 4),
        (5, 5),
        (6, 6),
    ]
    assert [list_corners(area)[1::2] for area in frame.above if area.row == 1] == [
        (0, 0),
        (1, 2),
        (3, 3),
        (4, 4),
        (5, 6),
    ]
    assert [area.text for area in frame.above if area.row == 1] == ["d", "4", "e", "5", ""]


def test_given_rows_are_spread_each_on_its_own() -> None:
    """As evenly as the columns allow; a pair in one column is one area."""
    frame = lay_out(keys=list("abcde"), header=[{"a": 1, "b": 2}, {"c": 3}, {"d": 4, "e": 5, "f": 6}])

    rows = [[list_corners(area)[1::2] for area in frame.above if area.row == row] for row in range(3)]
    assert rows == [
        [(0, 0), (1, 2), (3, 3), (4, 4)],
        [(0, 1), (2, 4)],
        [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)],
    ]
    last = [area for area in frame.above if area.text == "f：6"]
    assert last[0].runs == (TextRun("f：", bold=True), TextRun("6"))


WIDTHS = [10.0] * 4


@pytest.mark.parametrize(
    ("summary", "height"),
    [("S", 28), ("a<br>b", 42), ("a" * 39, 28), ("a" * 40, 42), ("x<br>" * 19 + "y", 300), ("x<br>" * 50 + "y", 409)],
)
def test_summaries_are_as_high_as_their_lines(summary: str, height: float) -> None:
    """28 points for one line, 14 more for each other, as many as are readable, and never more than Excel allows."""
    frame = lay_out(keys=list("abcd"), summary=summary)

    assert compute_row_heights(frame.above, WIDTHS)[0] == height


def test_titles_and_heads_grow_with_their_lines() -> None:
    """A title of one line is 36 points high; a merged head spreads over its rows."""
    frame = lay_out(SEED, ["source"], title="T")
    long = lay_out([{"name": "a", "title": "很长很长很长很长的标题"}, SEED[1]], ["a"], title="标题" * 10)

    assert compute_row_heights(frame.above, WIDTHS) == {0: 36, 1: 22, 2: 22, 3: 22}
    assert compute_row_heights(long.above, WIDTHS) == {0: 92, 1: 22, 2: 22, 3: 22}
    assert compute_row_heights(long.above, [4.0] * 4)[3] > 22


TEXTS = st.text("a 中\n<b>😀", max_size=30)
PAIRS = st.dictionaries(TEXTS, TEXTS | st.none() | st.integers(), max_size=6)


@cache
def nodes(depth: int = 3) -> st.SearchStrategy[ColumnHeadNode]:
    """A column head, or a group of them."""
    children = st.lists(nodes(depth - 1), max_size=3) if depth else st.just([])
    return st.builds(ColumnHeadNode, st.just(""), st.sampled_from("abc"), title=TEXTS, children=children.map(tuple))


@cache
def row_nodes(depth: int = 2) -> st.SearchStrategy[RowHeadNode]:
    """A row head, or a group of them."""
    children = st.lists(row_nodes(depth - 1), max_size=2) if depth else st.just([])
    return st.builds(RowHeadNode, st.just(""), st.just("r"), title=TEXTS, children=children.map(tuple))


TEMPLATES = st.builds(
    TableTemplate, st.lists(nodes(), min_size=1, max_size=4).map(tuple), st.lists(row_nodes(), max_size=3).map(tuple)
)
TABLES = st.builds(
    TableTextsAndTemplate,
    title=st.none() | TEXTS,
    summary=st.none() | TEXTS,
    header=st.none() | PAIRS | st.lists(PAIRS, max_size=3),
    footer=st.none() | TEXTS | PAIRS | st.lists(PAIRS, max_size=3),
)


def list_covered_cells(areas: Sequence[MergedCellArea]) -> list[tuple[int, int]]:
    """Every cell that they take."""
    return [
        (row, column)
        for area in areas
        for row in range(area.row, area.row + area.rows)
        for column in range(area.column, area.column + area.columns)
    ]


@given(TABLES, st.none() | TEMPLATES, st.lists(st.sampled_from("abcdef"), unique=True), st.integers(0, 9))
def test_areas_cover_the_table_without_overlap(
    table: TableTextsAndTemplate, template: TableTemplate | None, keys: list[str], first_row: int
) -> None:
    """Rows are full from left to right, heads above every column, no gap between regions."""
    columns = build_columns(template, keys, WorkbookLayout())
    frame = lay_out_table(table, columns, template, first_row)
    total = frame.row_depth + len(columns)
    merged = min(20, max(1, total))

    areas = list(frame.iterate_areas(7))
    cells = list_covered_cells(areas)
    assert len(cells) == len(set(cells))
    for row in range(first_row, frame.compute_end_row(7)):
        width = 0 if frame.first_body_row <= row < frame.first_body_row + 7 else merged
        if frame.first_head_row <= row < frame.first_body_row:
            width = total
        assert sorted(column for at, column in cells if at == row) == list(range(width))
    assert all(row in compute_row_heights(areas, [8.0] * max(1, total)) for row, _ in cells)


@given(TEMPLATES.filter(lambda template: bool(template.rows)), st.data())
def test_row_heads_cover_the_rows_without_overlap(template: TableTemplate, data: st.DataObject) -> None:
    """Each row of the body has all of its row heads."""
    leaves = list(chain.from_iterable(row.leaves for row in template.rows))
    counts = data.draw(st.lists(st.integers(1, 4), min_size=len(leaves), max_size=len(leaves)))

    cells = list_covered_cells(lay_out_row_heads(template, counts))

    assert sorted(cells) == [(row, column) for row in range(sum(counts)) for column in range(template.row_depth)]


def test_body_height_is_that_of_the_highest_column() -> None:
    """A row has one height."""
    template = read_template([{"name": "a", "height": 20}, {"name": "b", "height": 30}, {"name": "c"}])
    frames = [
        lay_out_table(TableTextsAndTemplate(), build_columns(each, ["a"], WorkbookLayout(height=height)), each)
        for each, height in [(template, None), (template, 1000), (TableTemplate(template.leaves[2:]), None)]
    ]

    assert [frame.requested_body_row_height for frame in frames] == [30, 409, None]


def test_pairs_are_shared_out_evenly() -> None:
    """No part is more than one column wider than another."""
    for width, parts in zip(range(20, 40), count(1)):
        found = divide_width(width, parts)
        assert (sum(found), len(found), max(found) - min(found) <= 1) == (width, parts, True)
