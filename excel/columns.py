"""Columns: the columns of a table with what they inherit from their groups, and the style of every cell in them.

A cell's style depends on its form and on the first condition that holds for it. As in SQL, an empty cell has no
answer to any comparison, so no condition holds for it, not even `not`. A number and a text are never equal, and neither
is less than the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from xlsxwriter import Workbook
from xlsxwriter.format import Format

from excel.arrow import pa
from excel.cells import CellForm, ColumnCellPayloadsAndForms
from excel.template.conditions import (
    AndCondition,
    ComparisonCondition,
    ComparisonOperator,
    Condition,
    InCondition,
    LikeCondition,
    NotCondition,
    OrCondition,
)
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
from excel.values import to_comparable_numbers_and_texts

DATE_FORMAT: Final = "yyyy-mm-dd"
DATETIME_FORMAT: Final = "yyyy-mm-dd hh:mm:ss"
TEXT_FORMAT: Final = "@"

_FORMATS = {CellKind.TEXT: TEXT_FORMAT, CellKind.DATE: DATE_FORMAT, CellKind.DATETIME: DATETIME_FORMAT}
_T = TypeVar("_T")
_WRAPPED = (CellKind.AUTO, CellKind.TEXT, CellKind.RICH)


@dataclass(frozen=True)
class TableColumn:
    """One column of data."""

    key: str
    """The key of the data; empty for a column without data."""
    title: str
    kind: CellKind
    style: CellStyle
    looks: tuple[tuple[Condition, CellStyle], ...] = ()
    """Conditions with the style of a cell that meets them; the first that is met wins."""
    width: float | None = None
    """In characters; None is fitted to the data."""
    height: float | None = None
    """The least height of the rows of data, in points; None leaves it to Excel."""


def build_columns(template: TableTemplate | None, keys: Sequence[str], drawing: WorkbookLayout) -> list[TableColumn]:
    """Return the columns of a template, or without one a column for each key, excluding those of row heads.

    A leaf whose name is none of the keys is a column without data.
    """
    if template is None:
        return [_build_column(ColumnHeadNode(path="", name=key, title=key), keys, drawing) for key in keys]
    leaves = (leaf for node in template.columns for leaf in _iterate_leaves_with_inheritance(node))
    return [_build_column(leaf, keys, drawing) for leaf in leaves]


def _iterate_leaves_with_inheritance(node: ColumnHeadNode) -> Iterator[ColumnHeadNode]:
    """Yield the leaves under a node with what they inherit from it."""
    if not node.children:
        yield node
    for child in node.children:
        yield from _iterate_leaves_with_inheritance(_inherit_from_parent(child, node))


def _inherit_from_parent(child: ColumnHeadNode, parent: ColumnHeadNode) -> ColumnHeadNode:
    return replace(
        child,
        kind=parent.kind if child.kind is CellKind.AUTO else child.kind,
        number_format=_get_own_or_inherited(child.number_format, parent.number_format),
        width=_get_own_or_inherited(child.width, parent.width),
        height=_get_own_or_inherited(child.height, parent.height),
        wrap=_get_own_or_inherited(child.wrap, parent.wrap),
        align=_get_own_or_inherited(child.align, parent.align),
        v_align=_get_own_or_inherited(child.v_align, parent.v_align),
        color=_get_own_or_inherited(child.color, parent.color),
        bold=_get_own_or_inherited(child.bold, parent.bold),
        bg_color=_get_own_or_inherited(child.bg_color, parent.bg_color),
        rules=child.rules + parent.rules,
    )


def _build_column(leaf: ColumnHeadNode, keys: Sequence[str], drawing: WorkbookLayout) -> TableColumn:
    width = _get_own_or_inherited(leaf.width, drawing.width)
    if width == AUTOMATIC_WIDTH:
        width = None
    # A fitted column shows its texts; one of a given width would cut them off.
    wraps = leaf.kind is CellKind.RICH or (width is not None and leaf.kind in _WRAPPED)
    style = CellStyle(
        bold=bool(leaf.bold),
        color=leaf.color,
        bg_color=leaf.bg_color,
        align=leaf.align or drawing.align or HorizontalAlign.CENTER,
        v_align=leaf.v_align or VerticalAlign.MIDDLE,
        number_format=leaf.number_format or _FORMATS.get(leaf.kind),
        border=True,
        wrap=wraps if leaf.wrap is None else leaf.wrap,
        link=leaf.kind is CellKind.LINK,
    )
    return TableColumn(
        key=leaf.name if leaf.name in keys and leaf.name is not None else "",
        title=leaf.title,
        kind=leaf.kind,
        style=style,
        looks=tuple(
            (rule.condition, apply_conditional_look(style, rule.look))
            for rule in _drop_repeated_style_rules(leaf.rules)
        ),
        width=width,
        height=_get_own_or_inherited(leaf.height, drawing.height),
    )


def apply_conditional_look(style: CellStyle, look: ConditionalColorsAndBold) -> CellStyle:
    """Return a style with the changes of a conditional look."""
    return replace(
        style,
        color=_get_own_or_inherited(look.color, style.color),
        bold=style.bold if look.bold is None else look.bold,
        bg_color=_get_own_or_inherited(look.bg_color, style.bg_color),
    )


def _drop_repeated_style_rules(rules: tuple[ConditionalStyleRule, ...]) -> tuple[ConditionalStyleRule, ...]:
    return tuple(dict.fromkeys(rules))


def _get_own_or_inherited(own: _T | None, inherited: _T | None) -> _T | None:
    return inherited if own is None else own


LINK_COLOR: Final = "0563C1"
_V_ALIGN = {VerticalAlign.TOP: "top", VerticalAlign.MIDDLE: "vcenter", VerticalAlign.BOTTOM: "bottom"}


class CellFormatRegistry:
    """The formats of a workbook. xlsxwriter numbers a format when it is first used.

    Thread-safe: the next table is begun while rows of the last one are encoded.
    """

    def __init__(self, workbook: Workbook) -> None:
        self._workbook = workbook
        self._formats: dict[CellStyle, Format] = {}
        self._lock = Lock()

    def get_or_add_format(self, style: CellStyle) -> Format:
        """Return the format of a style, for cells that xlsxwriter writes."""
        if style not in self._formats:
            self._formats[style] = self._workbook.add_format(_build_format_properties(style))
        return self._formats[style]

    def get_or_add_format_index(self, style: CellStyle) -> int:
        """Return the index of a style, for cells that are written without xlsxwriter."""
        with self._lock:
            return int(self.get_or_add_format(style)._get_xf_index())


@cache
def _build_format_properties(style: CellStyle) -> dict[str, Any]:
    properties: dict[str, Any] = {"align": style.align.value, "valign": _V_ALIGN[style.v_align]}
    if style.bold:
        properties["bold"] = True
    if style.size is not None:
        properties["font_size"] = style.size
    if style.link:
        properties["underline"] = 1
    if color := style.color or (LINK_COLOR if style.link else None):
        properties["font_color"] = f"#{color}"
    if style.bg_color is not None:
        properties["bg_color"] = f"#{style.bg_color}"
    if style.number_format is not None:
        properties["num_format"] = style.number_format
    if style.border:
        properties["border"] = 1
    if style.wrap:
        properties["text_wrap"] = True
    return properties


StyleIndexes: TypeAlias = npt.NDArray[np.intp]

# What is quoted, escaped or in brackets are no codes; the word General has none either.
_NO_CODES = re.compile(r'"[^"]*"|\\.|[_*].|\[[^]]*\]|general', re.IGNORECASE)
_DATE_CODES = re.compile("[ymdhs]", re.IGNORECASE)


class StyleIndexesByLookAndForm:
    """The styles of one column: its own and one for each condition, each in a variant for every form of cell.

    Cells with line breaks in a column that does not wrap have styles of their own, which a workbook gets only when it
    has such a cell.
    """

    def __init__(self, column: TableColumn, styles: CellFormatRegistry) -> None:
        self._conditions = [condition for condition, _ in column.looks]
        self._own = (column.style, *(style for _, style in column.looks))
        self._kind = column.kind
        self._styles = styles
        self._numbers = [
            [styles.get_or_add_format_index(_adapt_style_to_form(style, column.kind, form)) for form in CellForm]
            for style in self._own
        ]
        self._wrapping: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def look_up_style_index(self, look: int, form: CellForm) -> int:
        """Return the style index of a cell."""
        return self._numbers[look][form]

    def get_or_add_wrapping_style_index(self, look: int) -> int:
        """Return the style index of a text with line breaks. Not thread-safe."""
        if not self._wrapping:
            styles = (_adapt_style_to_form(replace(style, wrap=True), self._kind, CellForm.TEXT) for style in self._own)
            self._wrapping = [self._styles.get_or_add_format_index(style) for style in styles]
        return self._wrapping[look]

    def choose_look_index_of_each_cell(self, values: ColumnCellPayloadsAndForms) -> StyleIndexes | None:
        """Return the look of each cell; None if all have look 0, the column's own."""
        if not self._conditions:
            return None
        numbers, texts = to_comparable_numbers_and_texts(values)
        looks = np.zeros(len(values.forms), np.intp)
        # In reverse, so that the first condition that is met overwrites the others.
        for look, condition in reversed(list(enumerate(self._conditions, start=1))):
            looks[mask_matching_cells(condition, numbers, texts).to_numpy(zero_copy_only=False)] = look
        return looks if looks.any() else None


def _adapt_style_to_form(style: CellStyle, kind: CellKind, form: CellForm) -> CellStyle:
    """Return the style of a cell of a form in a column of a kind."""
    if kind is CellKind.LINK and form is not CellForm.LINK:
        style = replace(style, link=False)
    shows_dates = style.number_format is not None and _has_date_codes(style.number_format)
    if form in (CellForm.DAY, CellForm.MOMENT) and not shows_dates:
        return replace(style, number_format=DATE_FORMAT if form is CellForm.DAY else DATETIME_FORMAT)
    if form is CellForm.NUMBER and shows_dates and kind in (CellKind.DATE, CellKind.DATETIME):
        # A number is no date, and shown as one it would be any date or none.
        return replace(style, number_format=None)
    return style


def _has_date_codes(number_format: str) -> bool:
    return _DATE_CODES.search(_NO_CODES.sub("", number_format)) is not None


_FUNCTIONS = {
    ComparisonOperator.EQUAL: pc.equal,
    ComparisonOperator.NOT_EQUAL: pc.equal,  # negated: what cannot be equal differs
    ComparisonOperator.LESS: pc.less,
    ComparisonOperator.LESS_EQUAL: pc.less_equal,
    ComparisonOperator.GREATER: pc.greater,
    ComparisonOperator.GREATER_EQUAL: pc.greater_equal,
}


def mask_matching_cells(condition: Condition, numbers: pa.Array, texts: pa.Array) -> pa.BooleanArray:
    """Return a mask of the cells that meet the condition.

    Args:
        condition: The condition to evaluate.
        numbers: The cells as float64, null where a cell is no number.
        texts: The cells as strings, null where a cell is no text. A cell that is null in both is empty; one that is
            in both answers as either.
    """
    filled = pc.or_(numbers.is_valid(), texts.is_valid())
    return pc.and_(filled, _evaluate_condition(condition, numbers, texts))


def _evaluate_condition(condition: Condition, numbers: pa.Array, texts: pa.Array) -> pa.BooleanArray:
    """Return the answer for each cell, never null; that for empty cells is arbitrary."""
    match condition:
        case ComparisonCondition(operator, value):
            cells = texts if isinstance(value, str) else numbers
            answers = _FUNCTIONS[operator](cells, value).fill_null(False)
            return pc.invert(answers) if operator is ComparisonOperator.NOT_EQUAL else answers
        case InCondition(values):
            written = [value for value in values if isinstance(value, str)]
            # The lookup distinguishes 0 from -0; a sum with 0 is never -0.
            counted = [value + 0.0 for value in values if not isinstance(value, str)]
            among = pc.is_in(pc.add(numbers, 0.0), value_set=pa.array(counted, pa.float64()))
            return pc.or_(among, pc.is_in(texts, value_set=pa.array(written, texts.type)))
        case LikeCondition(pattern):
            return pc.match_like(texts, pattern).fill_null(False)
        case NotCondition(part):
            return pc.invert(_evaluate_condition(part, numbers, texts))
        case AndCondition(parts):
            return reduce(pc.and_, (_evaluate_condition(part, numbers, texts) for part in parts))
        case OrCondition(parts):
            return reduce(pc.or_, (_evaluate_condition(part, numbers, texts) for part in parts))
        case _:
            assert_never(condition)
