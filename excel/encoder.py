"""Body: the rows of data of a table as the XML of a sheet, column by column.

A cell is `<c r="B7" s="3"><v>12</v></c>`, and its neighbours in a column differ in little. So a chunk of rows is one
join of columns of text: some are the same text for every row, some the row's number, some the values. Every cell names
its address, as not all readers count, and an empty one is written, too, for its border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import Final

import numpy as np
import pyarrow.compute as pc

from excel.arrow import pa
from excel.cells import CellForm, ColumnCellPayloadsAndForms, Mask
from excel.columns import CellFormatRegistry, StyleIndexes, StyleIndexesByLookAndForm, TableColumn
from excel.html import EncodedHtmlCell, encode_html_cell
from excel.moments import LocalTimeConverter
from excel.row_builder import EMPTY_END, ChunkRowsXmlBuilder, Markup, ReusableBuffer, join_rows
from excel.sizes import (
    BOLD_SCALE,
    WIDTH_MAX,
    CountOfRowsHigherThanRequested,
    Lines,
    Points,
    count_lines,
    encode_row_heights,
    to_row_heights,
)
from excel.template.models import CellKind
from excel.texts import escape_column_xml, mask_edge_spaces, truncate_column_to_cells
from excel.values import read_cell_values_by_kind

# To read columns takes hundreds of short steps, and each asks for the interpreter's lock again. Threads, of one book or
# of several, that take turns at it do not wait for each other at every step; joining and packing are few long ones.
_ENCODING_LOCK: Final = Lock()
_VALUE_MARKUP = ("><v>", "</v></c>")
_TEXT_MARKUP = (' t="inlineStr"><is><t>', "</t></is></c>")
_MARKUP: Final[dict[CellForm, Markup]] = {
    CellForm.EMPTY: ("", ""),
    CellForm.NUMBER: _VALUE_MARKUP,
    CellForm.BOOLEAN: (' t="b"><v>', "</v></c>"),
    CellForm.DAY: _VALUE_MARKUP,
    CellForm.MOMENT: _VALUE_MARKUP,
    CellForm.TEXT: _TEXT_MARKUP,
    CellForm.RICH: (' t="inlineStr"><is>', "</is></c>"),
    CellForm.LINK: _TEXT_MARKUP,
    # Without a value: a program that computes nothing by itself, as LibreOffice, would show one that is not the result.
    CellForm.FORMULA: ("><f>", "</f></c>"),
}
_SPACED_TEXT_MARKUP = (' t="inlineStr"><is><t xml:space="preserve">', "</t></is></c>")


@dataclass(frozen=True)
class CellHyperlink:
    """A cell with a hyperlink."""

    row: int
    column: int
    url: str


@dataclass
class RowCountsAndLinks:
    """What was counted while rows were encoded."""

    cut_cells: int = 0
    long_numbers: int = 0
    filled: set[int] = field(default_factory=set)
    """Places of the columns that have any value."""
    links: list[CellHyperlink] = field(default_factory=list)
    grown: CountOfRowsHigherThanRequested = field(default_factory=CountOfRowsHigherThanRequested)

    def add(self, other: RowCountsAndLinks) -> None:
        """Add the counts of later rows."""
        self.cut_cells += other.cut_cells
        self.long_numbers += other.long_numbers
        self.filled |= other.filled
        self.links += other.links
        self.grown.add(other.grown)


class RowEncoder:
    """Encodes the rows of one table as XML. Chunks are independent of each other: any thread may encode any of them."""

    def __init__(
        self,
        columns: Sequence[TableColumn],
        first_column: int,
        height: float | None,
        styles: CellFormatRegistry,
        zone: LocalTimeConverter,
    ) -> None:
        self._columns = columns
        self._styles = [StyleIndexesByLookAndForm(column, styles) for column in columns]
        self._first_column = first_column
        self._height = height
        self._line_widths = [float(WIDTH_MAX)] * len(columns)
        self._zone = zone
        self._workspaces: list[ReusableBuffer] = []

    def set_column_widths(self, column_widths: Sequence[float]) -> None:
        """Set the width of each column before the first rows, as it decides how texts wrap."""
        self._line_widths = [
            width / (BOLD_SCALE if _may_be_bold(column) else 1.0)
            for column, width in zip(self._columns, column_widths, strict=True)
        ]

    def encode_rows(
        self,
        cells: Sequence[pa.Array | None],
        first_row: int,
        rows: int,
        heads: Sequence[pa.Array] = (),
        heights: Points | None = None,
    ) -> tuple[list[memoryview], RowCountsAndLinks]:
        """Encode rows; return their XML, in one part or several, and the counts.

        Args:
            cells: A column of cells for each column; None is all empty.
            first_row: The first row of the sheet, from 0.
            rows: The number of rows.
            heads: The cells left of them, each without its address.
            heights: The least height of each row for the cells left of it.
        """
        with _ENCODING_LOCK:
            builder, tally = ChunkRowsXmlBuilder(first_row + 1, rows), RowCountsAndLinks()
            needed = self._encode_cells_and_compute_heights(builder, cells, first_row, heads, tally)
            if heights is not None:
                needed = heights if needed is None else np.maximum(needed, heights)
            attributes, tally.grown = encode_row_heights(self._height, needed, first_row)
            builder.insert_row_starts(attributes)
            workspace = self._take_free_workspace()
            spans = builder.build_columns_by_digits_of_row_number(workspace)
        xml = [join_rows(columns) for columns in spans]
        self._workspaces.append(workspace)
        return xml, tally

    def read_column_values(self, place: int, cells: pa.Array) -> ColumnCellPayloadsAndForms:
        """Read the cells of a column by its kind."""
        return read_cell_values_by_kind(cells, self._columns[place].kind, self._zone)

    def _take_free_workspace(self) -> ReusableBuffer:
        """Take a free workspace, if possible the thread's last one: what another core wrote is in that core's cache."""
        own = [place for place, workspace in enumerate(self._workspaces) if workspace.thread == get_ident()]
        workspace = self._workspaces.pop(own[0] if own else -1) if self._workspaces else ReusableBuffer()
        workspace.thread = get_ident()
        return workspace

    def _encode_cells_and_compute_heights(
        self,
        builder: ChunkRowsXmlBuilder,
        cells: Sequence[pa.Array | None],
        first_row: int,
        heads: Sequence[pa.Array],
        tally: RowCountsAndLinks,
    ) -> Points | None:
        """Encode the cells of rows; return the heights that show them."""
        highest: Lines | None = None
        for place, head in enumerate(heads):
            builder.begin_cell(place)
            builder.add_varying_texts(head)
        for place, column in enumerate(cells):
            lines = self._encode_column_and_count_lines(builder, place, column, first_row, tally)
            if lines is not None:
                highest = lines if highest is None else np.maximum(highest, lines)
        builder.add_text("</row>")
        return None if highest is None else to_row_heights(highest)

    def _encode_column_and_count_lines(
        self, builder: ChunkRowsXmlBuilder, place: int, cells: pa.Array | None, first_row: int, tally: RowCountsAndLinks
    ) -> Lines | None:
        """Encode the cells of a column; return the lines of each, or None if all take one."""
        styles, sheet_column = self._styles[place], self._first_column + place
        if cells is None:
            builder.begin_cell(sheet_column, _build_style_attribute(styles.look_up_style_index(0, CellForm.EMPTY)))
            builder.add_text(EMPTY_END)
            return None
        values = self.read_column_values(place, cells)
        found = styles.choose_look_index_of_each_cell(values)
        if values.counts[CellForm.EMPTY] < len(values.forms):
            tally.filled.add(place)
        tally.long_numbers += values.long_numbers
        tally.links += self._find_links(values, place, first_row)
        payload, spaced, lines = self._encode_payload_and_count_lines(values, found, place, tally)
        # Where the column does not wrap, only texts with line feeds take several lines.
        broken = None if lines is None or self._columns[place].style.wrap else lines > 1
        forms = [form for form in CellForm if form is not CellForm.EMPTY and values.counts[form]]
        if found is None and spaced is None and broken is None and len(forms) <= 1:
            form = forms[0] if forms else CellForm.TEXT
            builder.begin_cell(sheet_column, _build_style_attribute(styles.look_up_style_index(0, form)))
            builder.add_uniform_cells(_MARKUP[form], payload)
            return lines
        shapes = (*_MARKUP.items(), (CellForm.TEXT, _SPACED_TEXT_MARKUP))
        around = [
            (f"{_build_style_attribute(styles.look_up_style_index(look, form))}{before}", after)
            for look in range(len(styles))
            for form, (before, after) in shapes
        ]
        kinds = values.forms.astype(np.intp)
        if spaced is not None:
            kinds[spaced] = len(CellForm)
        if found is not None:
            kinds += found * len(shapes)
        if broken is not None:
            kinds[broken] += len(around)
            around += [
                (f"{_build_style_attribute(styles.get_or_add_wrapping_style_index(look))}{before}", after)
                for look in range(len(styles))
                for _, (before, after) in shapes
            ]
        builder.begin_cell(sheet_column)
        builder.add_mixed_cells(kinds, around, payload)
        return lines

    def _find_links(self, values: ColumnCellPayloadsAndForms, place: int, first_row: int) -> list[CellHyperlink]:
        if not values.has_form(CellForm.LINK):
            return []
        where = values.mask_of_forms(CellForm.LINK)
        urls = values.payload.filter(pa.array(where)).to_pylist()
        column = self._first_column + place
        return [
            CellHyperlink(first_row + int(row), column, url)
            for row, url in zip(np.flatnonzero(where), urls, strict=True)
        ]

    def _encode_payload_and_count_lines(
        self, values: ColumnCellPayloadsAndForms, looks: StyleIndexes | None, place: int, tally: RowCountsAndLinks
    ) -> tuple[pa.Array, Mask | None, Lines | None]:
        """Return the payload as XML, a mask of texts with white space at their ends, if any, and the lines of cells."""
        payload = values.payload
        if not values.has_form(CellForm.TEXT, CellForm.RICH, CellForm.LINK, CellForm.FORMULA):
            return payload, None, None
        rich = pa.array(values.mask_of_forms(CellForm.RICH))
        if values.has_form(CellForm.RICH):
            payload = pc.if_else(rich, "", payload)
        if values.has_form(CellForm.FORMULA):
            bare = pc.binary_replace_slice(payload, 0, 1, "")
            payload = pc.if_else(pa.array(values.mask_of_forms(CellForm.FORMULA)), bare, payload)
        payload, cut = truncate_column_to_cells(payload)
        tally.cut_cells += cut
        spaced = mask_edge_spaces(payload) & values.mask_of_forms(CellForm.TEXT)
        shown = payload
        payload = escape_column_xml(payload)
        if values.has_form(CellForm.RICH):
            cells = self._encode_rich_texts(values, looks, place, tally)
            shown = pc.replace_with_mask(shown, rich, pa.array([cell.text for cell in cells], pa.string()))
            payload = pc.replace_with_mask(payload, rich, pa.array([cell.xml for cell in cells], pa.string()))
        return payload, spaced if spaced.any() else None, self._count_lines(shown, values, place)

    def _count_lines(self, shown: pa.Array, values: ColumnCellPayloadsAndForms, place: int) -> Lines | None:
        """Return the lines of each cell; a number never wraps, and of a formula only the result is shown."""
        lines = count_lines(shown, self._line_widths[place], wraps=self._columns[place].style.wrap)
        if lines is None:
            return None
        lines[~values.mask_of_forms(CellForm.TEXT, CellForm.RICH, CellForm.LINK)] = 1
        return lines if (lines > 1).any() else None

    def _encode_rich_texts(
        self, values: ColumnCellPayloadsAndForms, found: StyleIndexes | None, place: int, tally: RowCountsAndLinks
    ) -> list[EncodedHtmlCell]:
        """Encode cells of HTML; what their runs do not say of the font, the cell's style does."""
        column, where = self._columns[place], values.mask_of_forms(CellForm.RICH)
        styles = [column.style, *(style for _, style in column.looks)]
        looks = [0] * values.counts[CellForm.RICH] if found is None else found[where].tolist()
        sources = values.payload.filter(pa.array(where)).to_pylist()
        made = [encode_html_cell(source, styles[look]) for source, look in zip(sources, looks, strict=True)]
        tally.cut_cells += sum(cell.was_cut for cell in made)
        return made


def _may_be_bold(column: TableColumn) -> bool:
    """Return whether any cell of a column may be bold."""
    return column.kind is CellKind.RICH or column.style.bold or any(style.bold for _, style in column.looks)


def _build_style_attribute(number: int) -> str:
    return f' s="{number}"'
