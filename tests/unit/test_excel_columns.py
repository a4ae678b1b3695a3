"""Columns inherit what they do not say, and know their data; widths suit what they show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from excel.columns import TableColumn, build_columns
from excel.sizes import WIDTH_MAX, compute_column_widths, compute_fitting_width, estimate_lines, measure_display_width
from excel.template.conditions import parse_condition
from excel.template.models import (
    AUTOMATIC_WIDTH,
    CellKind,
    CellStyle,
    ColumnHeadNode,
    ConditionalColorsAndBold,
    ConditionalStyleRule,
    HorizontalAlign,
    TableTemplate,
    VerticalAlign,
    WorkbookLayout,
)

CELL = CellStyle(border=True)
RULES = [
    ConditionalStyleRule(parse_condition(text), look)
    for text, look in [("<0", ConditionalColorsAndBold(color="FF0000")), (">9", ConditionalColorsAndBold(bold=True))]
]


def build_leaf(name: str | None = "a", **says: object) -> ColumnHeadNode:
    """A column head."""
    return replace(ColumnHeadNode(path="template[0]", name=name, title=name or "?"), **says)  # type: ignore[arg-type]


def build_only_column(node: ColumnHeadNode, drawing: WorkbookLayout | None = None) -> TableColumn:
    """The one column that it makes."""
    (column,) = build_columns(TableTemplate((node,)), ["a"], drawing or WorkbookLayout())
    return column


def test_without_a_template_keys_are_titles() -> None:
    """Each key is a column in the look of the book."""
    columns = build_columns(None, ["b", "a"], WorkbookLayout(width=12, height=30, align=HorizontalAlign.LEFT))

    assert [(column.key, column.title, column.kind) for column in columns] == [
        ("b", "b", CellKind.AUTO),
        ("a", "a", CellKind.AUTO),
    ]
    assert {(column.width, column.height) for column in columns} == {(12, 30)}
    assert {column.style for column in columns} == {replace(CELL, align=HorizontalAlign.LEFT, wrap=True)}


def test_a_leaf_without_data_is_a_column_without_key() -> None:
    """What the data do not have, or what has no name, is empty; keys that no leaf has are left out."""
    columns = build_columns(
        TableTemplate((build_leaf("x"), build_leaf("a"), build_leaf(None))), ["a", "b"], WorkbookLayout()
    )

    assert [column.key for column in columns] == ["", "a", ""]


def test_groups_hand_down_what_their_columns_do_not_say() -> None:
    """The nearest that says something is right; rules of the column come before those of its groups."""
    inner = replace(build_leaf(color="00FF00", width=0.5, bold=False), rules=(RULES[1],))
    middle = build_leaf("_", children=(inner,), kind=CellKind.NUMBER, color="0000FF", bg_color="FFFF00")
    outer = build_leaf(
        None, children=(middle,), kind=CellKind.TEXT, width=20.0, height=40.0, bold=True, align=HorizontalAlign.RIGHT
    )
    outer = replace(outer, v_align=VerticalAlign.TOP, number_format="0.0", rules=(RULES[0], RULES[1]))

    column = build_only_column(outer)

    style = replace(
        CELL,
        color="00FF00",
        bg_color="FFFF00",
        align=HorizontalAlign.RIGHT,
        v_align=VerticalAlign.TOP,
        number_format="0.0",
    )
    assert (column.kind, column.width, column.height, column.style) == (CellKind.NUMBER, 0.5, 40, style)
    assert column.looks == (
        (RULES[1].condition, replace(style, bold=True)),
        (RULES[0].condition, replace(style, color="FF0000")),
    )


def test_a_column_goes_before_the_book() -> None:
    """What the request says for all columns is for those that say nothing."""
    column = build_only_column(
        build_leaf(width=9.0, align=HorizontalAlign.RIGHT),
        WorkbookLayout(width=12, height=30, align=HorizontalAlign.LEFT),
    )

    assert (column.width, column.height, column.style.align) == (9, 30, HorizontalAlign.RIGHT)


@pytest.mark.parametrize(
    ("kind", "style"),
    [
        (CellKind.AUTO, CELL),
        (CellKind.NUMBER, CELL),
        (CellKind.BOOLEAN, CELL),
        (CellKind.TEXT, replace(CELL, number_format="@")),
        (CellKind.DATE, replace(CELL, number_format="yyyy-mm-dd")),
        (CellKind.DATETIME, replace(CELL, number_format="yyyy-mm-dd hh:mm:ss")),
        (CellKind.RICH, replace(CELL, wrap=True)),
        (CellKind.LINK, replace(CELL, link=True)),
        (CellKind.FORMULA, CELL),
    ],
)
def test_kinds_have_their_styles(kind: CellKind, style: CellStyle) -> None:
    """Dates are shown as dates and texts kept as texts; a format that is given is the one."""
    assert build_only_column(build_leaf(kind=kind)).style == style
    assert build_only_column(build_leaf(kind=kind, number_format="0")).style == replace(style, number_format="0")


@pytest.mark.parametrize(("kind", "wraps"), [(CellKind.AUTO, True), (CellKind.TEXT, True), (CellKind.NUMBER, False)])
def test_texts_in_columns_of_a_given_width_wrap(kind: CellKind, wraps: bool) -> None:
    """Such a column would cut them off."""
    assert build_only_column(build_leaf(kind=kind, width=5.0)).style.wrap is wraps


@pytest.mark.parametrize("kind", list(CellKind))
def test_a_column_that_says_whether_it_wraps_is_right(kind: CellKind) -> None:
    """Whatever its kind, and its width; what its group says holds for it, too."""
    for wrap in (True, False):
        assert build_only_column(build_leaf(kind=kind, wrap=wrap, width=5.0)).style.wrap is wrap
        assert build_only_column(build_leaf(kind=kind, wrap=wrap)).style.wrap is wrap
        assert build_only_column(build_leaf(None, children=(build_leaf(kind=kind),), wrap=wrap)).style.wrap is wrap


def test_an_automatic_width_is_none_of_the_group_s_nor_of_the_book_s() -> None:
    """Its texts do not wrap, as it is fitted to them."""
    group = build_leaf(None, children=(build_leaf(width=AUTOMATIC_WIDTH),), width=20.0)

    column = build_only_column(group, WorkbookLayout(width=12))

    assert (column.width, column.style.wrap) == (None, False)


def test_a_look_changes_only_what_it_says() -> None:
    """It may also take boldness away."""
    rule = ConditionalStyleRule(parse_condition("=1"), ConditionalColorsAndBold(bold=False, bg_color="FF0000"))

    ((_, style),) = build_only_column(build_leaf(bold=True, color="00FF00", rules=(rule,))).looks

    assert style == replace(CELL, color="00FF00", bg_color="FF0000")


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("", 0),
        ("abc", 3),
        ("中文", 4),
        ("a中", 3),
        ("ab\n中文中\nc", 6),
        ("é", 1),
        ("—", 2),
        ("e\u0301", 1),
        ("😀", 2),
        ("Ａ", 2),
    ],
)
def test_characters_are_counted_as_they_are_shown(text: str, width: int) -> None:
    """Chinese ones are twice as wide, combining ones have no width."""
    assert measure_display_width(text) == width


@pytest.mark.parametrize(
    ("texts", "width"), [([], 8), (["a"], 8), (["abcdefgh", "中文中文中"], 12), (["a" * 58], 60), (["中" * 100], 60)]
)
def test_columns_are_fitted_within_limits(texts: list[str], width: float) -> None:
    """Never too narrow to click, never wider than 60."""
    assert compute_fitting_width(texts) == width


@pytest.mark.parametrize(
    ("text", "width", "scale", "lines"),
    [
        ("", 10, 1, 1),
        ("a" * 9, 10, 1, 1),
        ("a" * 10, 10, 1, 2),
        ("中" * 9, 10, 1, 2),
        ("a\n\nb", 10, 1, 3),
        ("abcd", 5, 2, 2),
    ],
)
def test_lines_are_counted_in_the_room_there_is(text: str, width: float, scale: float, lines: int) -> None:
    """A text goes on in the next line where it meets the border."""
    assert estimate_lines(text, width, scale) == lines


def test_a_lone_narrow_column_takes_any_text() -> None:
    """A width of almost nothing is no division by zero."""
    assert estimate_lines("abc", 0.1, 3) == 3


WIDTH = st.floats(1, 60)


@given(st.data())
def test_wishes_widen_only_columns_that_are_free(data: st.DataObject) -> None:
    """Given widths stay, no column gets narrower, and a wish holds unless limits forbid it."""
    fixed = data.draw(st.lists(st.none() | WIDTH, min_size=1, max_size=6))
    fitted = data.draw(st.lists(WIDTH, min_size=len(fixed), max_size=len(fixed)))
    first = data.draw(st.integers(0, len(fixed) - 1))
    last = data.draw(st.integers(first, len(fixed) - 1))
    wish = data.draw(WIDTH)

    settled = compute_column_widths(fixed, fitted, [(first, last, wish)])

    for given_, fits, width in zip(fixed, fitted, settled, strict=True):
        assert width == given_ if given_ is not None else fits <= width <= max(fits, WIDTH_MAX)
    free = [
        width for given_, width in zip(fixed[first : last + 1], settled[first : last + 1], strict=True) if not given_
    ]
    assert sum(settled[first : last + 1]) >= wish - 1e-6 or not free or max(free) == WIDTH_MAX
