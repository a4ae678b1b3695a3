"""Row heads: rows of data grouped under the heads left of them, when the last row has been added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from excel.areas import Area
from excel.columns import StyleSheet
from excel.layout import lay_out_row_heads
from excel.limits import SheetFull, UncoveredRows
from excel.template.models import ROW_HEAD_NAMES, Template
from excel.texts import escape_text
from excel.values import read_json

CHUNK_ROWS: Final = 8_192
GROUPED_ROWS_MAX: Final = 200_000
GROUPED_BYTES_MAX: Final = 512 * 1024 * 1024


class GroupedRowsWriter:
    """Holds all rows of a table with row heads, and arranges them under their heads.

    Args:
        template: One with rows.
        keys: The names of the columns of the batches; one of them is the row heads'.
    """

    def __init__(self, template: Template, keys: Sequence[str], styles: StyleSheet) -> None:
        self._template = template
        self._place = next((place for place, key in enumerate(keys) if key in ROW_HEAD_NAMES), None)
        self._styles = styles
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            SheetFull: There are too many to be held.
        """
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows > GROUPED_ROWS_MAX or self._bytes > GROUPED_BYTES_MAX:
            raise SheetFull(
                f"A table with row heads has at most {GROUPED_ROWS_MAX:,} rows of data and "
                f"{GROUPED_BYTES_MAX >> 20} MiB, and this one has more. Ask for fewer rows, or leave the row heads out."
            )
        self._batches.append(batch)

    def arrange(self) -> tuple[Iterator[tuple[pa.RecordBatch | None, list[pa.Array]]], tuple[Area, ...]]:
        """Return the rows in chunks with the cells of the row heads left of them, and the areas of these heads.

        Raises:
            UncoveredRows: Some rows have keys that no row head has.
        """
        leaves = arrange_by_leaf(self._template, self._read_keys())
        areas = lay_out_row_heads(self._template, [len(places) for places in leaves])
        return self._iterate_chunks(list(chain.from_iterable(leaves)), self._encode_heads(areas)), areas

    def _read_keys(self) -> list[str]:
        if self._place is None:
            # Rows without a key belong to no row head, which is reported.
            return [""] * sum(batch.num_rows for batch in self._batches)
        found: list[str] = []
        for batch in self._batches:
            column = batch.column(self._place)
            texts = read_json(column).payload if pa.types.is_binary(column.type) else column.cast(pa.string())
            found += texts.fill_null("").to_pylist()
        return found

    def _iterate_chunks(
        self, order: Sequence[int | None], heads: Sequence[pa.Array]
    ) -> Iterator[tuple[pa.RecordBatch | None, list[pa.Array]]]:
        rows = pa.concat_batches(self._batches) if self._batches else None
        self._batches = []
        for start in range(0, len(order), CHUNK_ROWS):
            places = pa.array(order[start : start + CHUNK_ROWS], pa.int64())
            yield None if rows is None else rows.take(places), [head.slice(start, CHUNK_ROWS) for head in heads]

    def _encode_heads(self, areas: Sequence[Area]) -> list[pa.Array]:
        """Return the cells of each column of row heads, without their addresses."""
        columns: list[list[str]] = [[] for _ in range(self._template.row_depth)]
        for area in sorted(areas, key=lambda area: area.row):
            style = f' s="{self._styles.get_index(area.style)}"'
            blank = f"{style}/>"
            text = f'{style} t="inlineStr"><is><t xml:space="preserve">{escape_text(area.text)}</t></is></c>'
            for place in range(area.column, area.last_column + 1):
                columns[place].append(text if place == area.column and area.text else blank)
                columns[place] += [blank] * (area.rows - 1)
        return [pa.array(cells, pa.string()) for cells in columns]


def arrange_by_leaf(template: Template, keys: Sequence[str]) -> list[list[int | None]]:
    """Return the places of the data rows under each leaf of the row heads, from top to bottom.

    A place is None where a head reserves a row that has no data.

    Args:
        template: One with row heads.
        keys: The row head of each row of data.

    Raises:
        UncoveredRows: Some belong to none.
    """
    leaves = [leaf for row in template.rows for leaf in row.leaves]
    found: dict[str | None, list[int | None]] = {leaf.name: [] for leaf in leaves if leaf.name is not None}
    uncovered = dict.fromkeys(key for key in keys if key not in found)
    if uncovered:
        raise UncoveredRows(list(uncovered))
    for place, key in enumerate(keys):
        found[key].append(place)
    arranged = []
    for leaf in leaves:
        places = found.get(leaf.name, [])
        reserved: list[int | None] = [None] * (leaf.row_count - len(places))
        arranged.append(places + reserved)
    return arranged
