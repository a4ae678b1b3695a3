"""Layout: which cells each region of a table takes on its sheet, before anything is drawn.

From top to bottom: title, summary, header, column heads, the body of data, footer. Title, summary, header and footer
span the columns of the table, 20 at most. Row heads are left of the body.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from pydantic import JsonValue

from excel.areas import HEAD, PAIR, TEXT, TITLE, AreasAroundTableBody, MergedCellArea
from excel.columns import TableColumn
from excel.html import TextRun, parse_html, truncate_runs
from excel.template.models import (
    HEAD_COLOR,
    CellStyle,
    ColumnHeadNode,
    HorizontalAlign,
    RowHeadNode,
    TableTemplate,
    TableTextsAndTemplate,
    VerticalAlign,
)
from excel.texts import replace_invalid_characters, truncate_to_cell

MERGED_COLUMNS_MAX: Final = 20
GAP_ROWS: Final = 3
"""Rows between two tables of one sheet."""

TITLE_STYLE: Final = CellStyle(bold=True, size=22, wrap=True)
TEXT_STYLE: Final = CellStyle(align=HorizontalAlign.LEFT, border=True, wrap=True)
PAIR_STYLE: Final = CellStyle(border=True, wrap=True)
NAME_STYLE: Final = replace(PAIR_STYLE, bold=True)
HEAD_STYLE: Final = CellStyle(bold=True, bg_color=HEAD_COLOR, border=True, wrap=True)


def lay_out_table(
    table: TableTextsAndTemplate, columns: Sequence[TableColumn], template: TableTemplate | None, first_row: int = 0
) -> AreasAroundTableBody:
    """Return the frame of a table that begins at a row of its sheet."""
    row_depth = template.row_depth if template else 0
    width = min(MERGED_COLUMNS_MAX, max(1, row_depth + len(columns)))
    above = [*_lay_out_title(table.title, first_row, width)]
    above += _lay_out_html(table.summary, _find_row_below(above, first_row), width)
    above += _lay_out_header_or_footer(table.header, _find_row_below(above, first_row), width)
    first_head_row = _find_row_below(above, first_row)
    above += _lay_out_corner_and_column_heads(columns, template, first_head_row)
    return AreasAroundTableBody(
        columns=tuple(columns),
        row_depth=row_depth,
        above=tuple(above),
        first_head_row=first_head_row,
        first_body_row=_find_row_below(above, first_row),
        footer=tuple(_lay_out_header_or_footer(table.footer, 0, width)),
        charts=template.charts if template else (),
    )


def lay_out_row_heads(template: TableTemplate, counts: Sequence[int]) -> tuple[MergedCellArea, ...]:
    """Return the heads left of the body, their rows counted from its beginning.

    Args:
        template: Its rows.
        counts: The number of rows of each leaf, from top to bottom.
    """
    return tuple(_lay_out_row_heads(template.rows, 0, template.row_depth, iter(counts), 0))


def to_plain_runs(text: str) -> tuple[TextRun, ...]:
    """Return a text that is no HTML as runs within the limits of a cell."""
    kept, _ = truncate_to_cell(replace_invalid_characters(text.replace("\r\n", "\n").replace("\r", "\n")))
    return (TextRun(kept),) if kept else ()


def _find_row_below(areas: Sequence[MergedCellArea], first_row: int) -> int:
    return max((area.last_row + 1 for area in areas), default=first_row)


def _lay_out_title(title: str | None, row: int, width: int) -> Iterator[MergedCellArea]:
    if title:
        yield MergedCellArea(row, 0, 1, width, to_plain_runs(title), TITLE_STYLE, TITLE)


def _lay_out_header_or_footer(content: JsonValue, row: int, width: int) -> list[MergedCellArea]:
    """Lay out a header or footer, which is a text or pairs."""
    if isinstance(content, str):
        return list(_lay_out_html(content, row, width))
    laid_out = arrange_pairs(content, width)
    # An object shares one grid over all its rows; given rows spread each on its own.
    grid = max(map(len, laid_out), default=0) if isinstance(content, dict) else 0
    return [area for index, row_of in enumerate(laid_out) for area in _lay_out_pairs(row_of, row + index, width, grid)]


def _lay_out_html(text: str | None, row: int, width: int) -> Iterator[MergedCellArea]:
    found, _ = truncate_runs(parse_html(text or ""))
    if found:
        yield MergedCellArea(row, 0, 1, width, tuple(found), TEXT_STYLE, TEXT)


def _lay_out_pairs(pairs: Sequence[Pair], row: int, width: int, grid_columns: int) -> Iterator[MergedCellArea]:
    """Yield one row of pairs, each as two areas side by side, or as one where only one column is left."""
    column = 0
    for (name, value), size in zip(pairs, divide_width(width, grid_columns or len(pairs)), strict=False):
        if size == 1:
            both = (*(replace(run, bold=True) for run in to_plain_runs(f"{name}：")), *to_plain_runs(value))
            yield MergedCellArea(row, column, 1, 1, both, PAIR_STYLE, PAIR)
        else:
            half = size // 2
            yield MergedCellArea(row, column, 1, half, to_plain_runs(name), NAME_STYLE, PAIR)
            yield MergedCellArea(row, column + half, 1, size - half, to_plain_runs(value), PAIR_STYLE, PAIR)
        column += size
    if column < width:
        yield MergedCellArea(row, column, 1, width - column, (), PAIR_STYLE, PAIR)


def _lay_out_corner_and_column_heads(
    columns: Sequence[TableColumn], template: TableTemplate | None, row: int
) -> Iterator[MergedCellArea]:
    if template is None:
        for index, column in enumerate(columns):
            yield MergedCellArea(row, index, 1, 1, to_plain_runs(column.title), HEAD_STYLE, HEAD)
        return
    if template.row_depth:
        yield _lay_out_corner(template, row)
    yield from _lay_out_column_heads(template.columns, row, template.row_depth, template.depth)


def _lay_out_corner(template: TableTemplate, row: int) -> MergedCellArea:
    """Return the corner above the row heads, in the style of the node that represents their column."""
    node = template.row_head
    style = HEAD_STYLE
    if node is not None:
        style = replace(
            HEAD_STYLE,
            bold=HEAD_STYLE.bold if node.bold is None else node.bold,
            color=node.color,
            bg_color=node.bg_color or HEAD_COLOR,
            align=node.align or HorizontalAlign.CENTER,
            v_align=node.v_align or VerticalAlign.MIDDLE,
        )
    return MergedCellArea(
        row, 0, template.depth, template.row_depth, to_plain_runs(node.title if node else ""), style, HEAD
    )


def _lay_out_column_heads(
    nodes: Sequence[ColumnHeadNode], row: int, column: int, depth: int
) -> Iterator[MergedCellArea]:
    """Yield column heads: a group takes one row over all its columns, a leaf one column down to the body."""
    for node in nodes:
        size = sum(1 for _ in node.leaves)
        yield MergedCellArea(
            row, column, 1 if node.children else depth, size, to_plain_runs(node.title), HEAD_STYLE, HEAD
        )
        yield from _lay_out_column_heads(node.children, row + 1, column, depth - 1)
        column += size


def _lay_out_row_heads(
    nodes: Sequence[RowHeadNode], column: int, depth: int, counts: Iterator[int], row: int
) -> Iterator[MergedCellArea]:
    """Yield row heads: a group takes one column over all its rows, a leaf one row or more up to the body."""
    for node in nodes:
        style = replace(HEAD_STYLE, bg_color=node.bg_color or HEAD_COLOR)
        inner = list(_lay_out_row_heads(node.children, column + 1, depth - 1, counts, row))
        rows = max(area.last_row for area in inner) + 1 - row if inner else next(counts)
        yield MergedCellArea(row, column, rows, 1 if inner else depth, to_plain_runs(node.title), style, HEAD)
        yield from inner
        row += rows


PAIRS_IN_A_ROW_MAX: Final = 4

Pair: TypeAlias = tuple[str, str]


def arrange_pairs(value: JsonValue, width: int) -> list[list[Pair]]:
    """Return the rows of pairs of a header or footer, as many pairs in each as suit the width of the table.

    An object is laid out by rule: four pairs a row at most, each two columns at least, rows of the same number and
    only the last one shorter. An array of objects is rows as given, cut only where a row has more pairs than columns.
    """
    if isinstance(value, dict):
        pairs = _list_pairs(value)
        most = max(1, min(PAIRS_IN_A_ROW_MAX, width // 2))
        return _split_pairs_into_rows(pairs, _count_pairs_per_row(len(pairs), most))
    given = [_list_pairs(row) for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return [part for row in given for part in _split_pairs_into_rows(row, max(1, width))]


def divide_width(width: int, parts: int) -> list[int]:
    """Divide a width as evenly as possible; the first parts get the remainder."""
    share, extra = divmod(width, parts)
    return [share + (place < extra) for place in range(parts)]


def _count_pairs_per_row(pairs: int, max_per_row: int) -> int:
    rows = max(1, -(-pairs // max_per_row))
    return max(1, -(-pairs // rows))


def _split_pairs_into_rows(pairs: list[Pair], size: int) -> list[list[Pair]]:
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def _list_pairs(row: dict[str, JsonValue]) -> list[Pair]:
    return [(name, _render_pair_value(value)) for name, value in row.items()]


def _render_pair_value(value: JsonValue) -> str:
    """Return a value as people write it."""
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)
