"""Body: the rows of data of a table as the XML of a sheet, column by column.

A cell is `<c r="B7" s="3"><v>12</v></c>`, and its neighbours in a column differ in little. So a chunk of rows is one
join of columns of text: some are the same text for every row, some the row's number, some the values. Every cell names
its address, as not all readers count, and an empty one stands there, too, for its border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from domain.downloads.excel import richtext, texts
from domain.downloads.excel import values as reading
from domain.downloads.excel.buffers import Mask
from domain.downloads.excel.columns import Column
from domain.downloads.excel.forms import Form, Values
from domain.downloads.excel.line import EMPTY_END, Around, Line, Workspace, joined
from domain.downloads.excel.looks import Looks, Places
from domain.downloads.excel.stylesheet import StyleSheet
from domain.downloads.excel.zones import Zone

# To read columns takes hundreds of short steps, and each asks for the interpreter's lock again. Threads, of one book or
# of several, that take turns at it do not wait for each other at every step; joining and packing are few long ones.
_TURN: Final = Lock()
_VALUE = ("><v>", "</v></c>")
_TEXT = (' t="inlineStr"><is><t>', "</t></is></c>")
_AROUND: Final[dict[Form, Around]] = {
    Form.EMPTY: ("", ""),
    Form.NUMBER: _VALUE,
    Form.BOOLEAN: (' t="b"><v>', "</v></c>"),
    Form.DAY: _VALUE,
    Form.MOMENT: _VALUE,
    Form.TEXT: _TEXT,
    Form.RICH: (' t="inlineStr"><is>', "</is></c>"),
    Form.LINK: _TEXT,
    Form.FORMULA: ("><f>", "</f><v>0</v></c>"),
}
_SPACED_TEXT = (' t="inlineStr"><is><t xml:space="preserve">', "</t></is></c>")


@dataclass(frozen=True)
class Link:
    """A cell that leads somewhere."""

    row: int
    column: int
    url: str


@dataclass
class Tally:
    """What was met in some rows."""

    cut_cells: int = 0
    long_numbers: int = 0
    filled: set[int] = field(default_factory=set)
    """The columns that have any value."""
    links: list[Link] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count the rows that come after."""
        self.cut_cells += other.cut_cells
        self.long_numbers += other.long_numbers
        self.filled |= other.filled
        self.links += other.links


class Encoder:
    """Makes XML of the rows of one table. Chunks do not depend on each other: any thread may ask for any of them."""

    def __init__(
        self, columns: Sequence[Column], first_column: int, height: float | None, styles: StyleSheet, zone: Zone
    ) -> None:
        self._columns = columns
        self._looks = [Looks(column, styles) for column in columns]
        self._first_column = first_column
        self._height = "" if height is None else f' ht="{height:g}" customHeight="1"'
        self._zone = zone
        self._workspaces: list[Workspace] = []

    def rows(
        self, cells: Sequence[pa.Array | None], first_row: int, rows: int, heads: Sequence[pa.Array] = ()
    ) -> tuple[list[memoryview], Tally]:
        """The XML of rows, in one part or several, and what was met in them.

        Args:
            cells: A column of cells for each column; None is all empty.
            first_row: The number of the first row, from 0.
            rows: How many there are.
            heads: What stands left of them: of each cell all that comes behind its address.
        """
        with _TURN:
            line, tally = Line(first_row + 1, rows), Tally()
            self._line(line, cells, first_row, heads, tally)
            workspace = self._workspace()
            spans = line.laid_out(workspace)
        xml = [joined(columns) for columns in spans]
        self._workspaces.append(workspace)
        return xml, tally

    def values(self, place: int, cells: pa.Array) -> Values:
        """What the cells of a column are taken for."""
        return reading.read(cells, self._columns[place].kind, self._zone)

    def _workspace(self) -> Workspace:
        """One that is free, best the thread's last one: what another core wrote lies in that core's cache."""
        own = [place for place, workspace in enumerate(self._workspaces) if workspace.thread == get_ident()]
        workspace = self._workspaces.pop(own[0] if own else -1) if self._workspaces else Workspace()
        workspace.thread = get_ident()
        return workspace

    def _line(
        self,
        line: Line,
        cells: Sequence[pa.Array | None],
        first_row: int,
        heads: Sequence[pa.Array],
        tally: Tally,
    ) -> None:
        line.text('<row r="')
        line.number()
        line.text(f'"{self._height}>')
        for place, head in enumerate(heads):
            line.address(place)
            line.cells(head)
        for place, column in enumerate(cells):
            self._column(line, place, column, first_row, tally)
        line.text("</row>")

    def _column(self, line: Line, place: int, cells: pa.Array | None, first_row: int, tally: Tally) -> None:
        looks, sheet_column = self._looks[place], self._first_column + place
        if cells is None:
            line.address(sheet_column, _style(looks.style(0, Form.EMPTY)))
            line.text(EMPTY_END)
            return
        values = self.values(place, cells)
        found = looks.of(values)
        if values.counts[Form.EMPTY] < len(values.forms):
            tally.filled.add(place)
        tally.long_numbers += values.long_numbers
        tally.links += self._links(values, place, first_row)
        payload, spaced = self._spelled(values, found, place, tally)
        forms = [form for form in Form if form is not Form.EMPTY and values.counts[form]]
        if found is None and spaced is None and len(forms) <= 1:
            form = forms[0] if forms else Form.TEXT
            line.address(sheet_column, _style(looks.style(0, form)))
            line.uniform(_AROUND[form], payload)
            return
        around = [
            (f"{_style(looks.style(look, form))}{before}", after)
            for look in range(len(looks))
            for form, (before, after) in (*_AROUND.items(), (Form.TEXT, _SPACED_TEXT))
        ]
        kinds = values.forms.astype(np.intp)
        if spaced is not None:
            kinds[spaced] = len(Form)
        if found is not None:
            kinds += found * (len(Form) + 1)
        line.address(sheet_column)
        line.mixed(kinds, around, payload)

    def _links(self, values: Values, place: int, first_row: int) -> list[Link]:
        if not values.has(Form.LINK):
            return []
        where = values.mask(Form.LINK)
        urls = values.payload.filter(pa.array(where)).to_pylist()
        column = self._first_column + place
        return [Link(first_row + int(row), column, url) for row, url in zip(np.flatnonzero(where), urls, strict=True)]

    def _spelled(self, values: Values, found: Places | None, place: int, tally: Tally) -> tuple[pa.Array, Mask | None]:
        """The payload as XML, and which cells are texts that begin or end with white space, if any."""
        payload = values.payload
        if not values.has(Form.TEXT, Form.RICH, Form.LINK, Form.FORMULA):
            return payload, None
        rich = pa.array(values.mask(Form.RICH))
        if values.has(Form.RICH):
            payload = pc.if_else(rich, "", payload)
        if values.has(Form.FORMULA):
            bare = pc.binary_replace_slice(payload, 0, 1, "")
            payload = pc.if_else(pa.array(values.mask(Form.FORMULA)), bare, payload)
        payload, cut = texts.bounded(payload)
        tally.cut_cells += cut
        spaced = texts.edged_by_space(payload) & values.mask(Form.TEXT)
        payload = texts.xml(payload)
        if values.has(Form.RICH):
            payload = pc.replace_with_mask(payload, rich, self._rich(values, found, place, tally))
        return payload, spaced if spaced.any() else None

    def _rich(self, values: Values, found: Places | None, place: int, tally: Tally) -> pa.Array:
        """The runs of cells of HTML: what these do not say of the font, the look of the cell does."""
        column, where = self._columns[place], values.mask(Form.RICH)
        styles = [column.style, *(style for _, style in column.looks)]
        looks = [0] * values.counts[Form.RICH] if found is None else found[where].tolist()
        sources = values.payload.filter(pa.array(where)).to_pylist()
        made = [richtext.xml(source, styles[look]) for source, look in zip(sources, looks, strict=True)]
        tally.cut_cells += sum(was_cut for _, was_cut in made)
        return pa.array([xml for xml, _ in made], pa.string())


def _style(number: int) -> str:
    return f' s="{number}"'
