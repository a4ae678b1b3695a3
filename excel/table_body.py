"""Table body: the rows of one table, written chunk by chunk in any number of threads, grouped under its row heads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from xlsxwriter.utility import xl_rowcol_to_cell

from excel.archive import CheckedDeflatedPiece, SplicedTableBody, SpooledPieces, deflate
from excel.areas import AreasAroundTableBody, MergedCellArea, TableFrameAndBodySize, compute_heights_beside_row_heads
from excel.arrow import pa
from excel.columns import CellFormatRegistry
from excel.encoder import CellHyperlink, RowCountsAndLinks, RowEncoder
from excel.layout import lay_out_row_heads
from excel.limits import SHEET_BYTES_MAX, SHEET_ROWS_MAX, SheetFull, UncoveredRows
from excel.moments import LocalTimeConverter
from excel.sizes import SAMPLE_ROWS, Points, render_sample_texts
from excel.template.models import ROW_HEAD_NAMES, TableTemplate
from excel.texts import escape_xml
from excel.values import read_json_cells

_CHUNKS_PER_THREAD: Final = 2


@dataclass(frozen=True)
class SharedWorkbookResources:
    """What the tables of a workbook share."""

    styles: CellFormatRegistry
    zone: LocalTimeConverter
    executor: Executor | None
    """Encodes chunks; None encodes them in the calling thread."""
    threads: int
    folder: str | None = None
    """For packed rows that outgrow the memory; None is the system's temporary folder."""


@dataclass(frozen=True)
class _ChunkEncodingJob:
    """A chunk of rows to be encoded and deflated."""

    chunk: Chunk
    first_row: int
    rows: int
    heads: Sequence[pa.Array]
    """The cells of the row heads left of them."""
    heights: Points | None
    """The least height of each row for these."""


class TableBodyWriter:
    """The data of one table. Rows are written in the order in which they are added.

    Args:
        frame: The regions around it.
        template: Its template, if it has one.
        keys: The names of the columns of its batches; of several of one name, the first counts.
        resources: What it shares with other tables.
    """

    def __init__(
        self,
        frame: AreasAroundTableBody,
        template: TableTemplate | None,
        keys: Sequence[str],
        resources: SharedWorkbookResources,
    ) -> None:
        self._frame = frame
        self._places = {key: place for place, key in reversed(list(enumerate(keys)))}
        self._encoder = RowEncoder(
            frame.columns, frame.first_body_column, frame.requested_body_row_height, resources.styles, resources.zone
        )
        self._grouped = (
            GroupedRowsBuffer(template, keys, resources.styles) if template is not None and template.rows else None
        )
        self._row_heads: tuple[MergedCellArea, ...] = ()
        self._head_points: Points | None = None
        self._chunks = RecordBatchChunker(len(frame.columns))
        self._resources = resources
        self._running: deque[Future[tuple[CheckedDeflatedPiece, RowCountsAndLinks]]] = deque()
        self._spool = SpooledPieces(resources.folder)
        self._link_bytes = 0
        self._body_rows = 0
        self._samples: list[list[str]] = []
        self.rows = 0
        """The rows of data that were added."""
        self.tally = RowCountsAndLinks()

    def flush_and_count_bytes(self) -> int:
        """Encode the rows that wait for a full chunk; return the size of rows and links in the workbook so far.

        It is 0 while rows under row heads are held.
        """
        self._encode_buffered_rows_and_wait()
        return self._spool.size + self._link_bytes

    @property
    def packed_bytes(self) -> int:
        """The size of the rows packed so far, without waiting rows and links."""
        return self._spool.size

    @property
    def titles_of_empty_columns(self) -> list[str | None]:
        """For each column its title if there are rows and none has a value for it."""
        return [
            None if place in self.tally.filled or not self.rows else column.title
            for place, column in enumerate(self._frame.columns)
        ]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Binary columns hold the JSON text of their cells, others typed values.

        Raises:
            SheetFull: The sheet cannot hold them.
        """
        self.rows += batch.num_rows
        if self._grouped is not None:
            self._grouped.hold_batch_or_raise_sheet_full(batch)
            return
        for chunk in self._chunks.add(batch):
            self._submit_chunk_for_encoding(chunk, _count_rows(chunk))

    def pack_last_rows_and_get_frame(self, *, footer: bool = True) -> TableFrameAndBodySize:
        """Pack the last rows and return the placed table.

        Raises:
            SheetFull: The sheet cannot hold them.
            UncoveredRows: Some rows have keys that no row head has.
        """
        if self._grouped is not None:
            arranged, self._row_heads = self._grouped.arrange_under_heads()
            self._grouped = None
            for batch, heads in arranged:
                self._submit_chunk_for_encoding([] if batch is None else [batch], len(heads[0]), heads)
        self._encode_buffered_rows_and_wait()
        return self._build_frame_and_body_size(footer=footer)

    def to_spliced_body(self) -> SplicedTableBody:
        """Return the packed rows, to be spliced into the sheet."""
        last_column = self._frame.first_body_column + len(self._frame.columns) - 1
        return SplicedTableBody(self._frame.first_body_row, self._body_rows, last_column, self._spool)

    def _submit_chunk_for_encoding(self, chunk: Chunk, rows: int, heads: Sequence[pa.Array] = ()) -> None:
        """Submit a chunk of rows; without a batch, rows without data."""
        first_row = self._frame.first_body_row + self._body_rows
        if self._frame.compute_end_row(self._body_rows + rows) > SHEET_ROWS_MAX:
            raise SheetFull(f"A sheet has {SHEET_ROWS_MAX:,} rows at most; ask for fewer rows, or for several files.")
        if not self._samples:
            self._samples = self._render_samples(
                self._select_cells_of_columns([batch.slice(0, SAMPLE_ROWS) for batch in chunk])
            )
            self._set_encoder_column_widths()
        work = _ChunkEncodingJob(chunk, first_row, rows, heads, self._get_heights_beside_row_heads(rows))
        self._body_rows += rows
        if self._resources.executor is None:
            self._add_piece_or_raise_sheet_full(*self._encode_and_deflate_chunk(work))
            return
        self._running.append(self._resources.executor.submit(self._encode_and_deflate_chunk, work))
        while len(self._running) >= self._resources.threads * _CHUNKS_PER_THREAD:
            self._add_piece_or_raise_sheet_full(*self._running.popleft().result())

    def _select_cells_of_columns(self, chunk: Chunk) -> list[pa.Array | None]:
        """Return the cells of each column; None for a column that the data do not have."""
        rows = pa.concat_batches(chunk) if chunk else None
        return [
            None if rows is None or column.key not in self._places else rows.column(self._places[column.key])
            for column in self._frame.columns
        ]

    def _encode_and_deflate_chunk(self, work: _ChunkEncodingJob) -> tuple[CheckedDeflatedPiece, RowCountsAndLinks]:
        xml, tally = self._encoder.encode_rows(
            self._select_cells_of_columns(work.chunk), work.first_row, work.rows, work.heads, heights=work.heights
        )
        return deflate(*xml), tally

    def _set_encoder_column_widths(self) -> None:
        """Set the widths of columns, as far as they are known when the first rows are there.

        The footer, or another table of the sheet, may widen them later: then rows turn out higher than need be, but
        never too low.
        """
        column_widths = self._build_frame_and_body_size(footer=False).column_widths
        first = self._frame.first_body_column
        self._encoder.set_column_widths(column_widths[first : first + len(self._frame.columns)])
        if self._row_heads:
            rows = max(area.last_row for area in self._row_heads) + 1
            self._head_points = compute_heights_beside_row_heads(self._row_heads, column_widths, rows)

    def _build_frame_and_body_size(self, *, footer: bool) -> TableFrameAndBodySize:
        return TableFrameAndBodySize(
            self._frame, self._body_rows, self._samples, self._row_heads, footer, self.tally.grown
        )

    def _get_heights_beside_row_heads(self, rows: int) -> Points | None:
        """Return the least heights of the next rows for the row heads."""
        return None if self._head_points is None else self._head_points[self._body_rows : self._body_rows + rows]

    def _add_piece_or_raise_sheet_full(self, piece: CheckedDeflatedPiece, tally: RowCountsAndLinks) -> None:
        if self._spool.length + piece.length > SHEET_BYTES_MAX:
            raise SheetFull(
                f"The rows of a sheet take {SHEET_BYTES_MAX >> 20:,} MiB at most, unpacked; "
                "ask for fewer rows or columns, or for several files."
            )
        self._spool.add(piece)
        self.tally.add(tally)
        if tally.links:
            self._link_bytes += _estimate_deflated_link_bytes(tally.links)

    def _encode_buffered_rows_and_wait(self) -> None:
        for chunk in self._chunks.flush():
            self._submit_chunk_for_encoding(chunk, _count_rows(chunk))
        while self._running:
            self._add_piece_or_raise_sheet_full(*self._running.popleft().result())

    def _render_samples(self, cells: Sequence[pa.Array | None]) -> list[list[str]]:
        return [
            []
            if column is None
            else render_sample_texts(self._encoder.read_column_values(place, column.slice(0, SAMPLE_ROWS)), of)
            for place, (column, of) in enumerate(zip(cells, self._frame.columns, strict=True))
        ]


def _estimate_deflated_link_bytes(links: Sequence[CellHyperlink]) -> int:
    """Estimate the size of links beside their cells; xlsxwriter writes them when all rows are there."""
    markup = "".join(
        f'<hyperlink ref="{xl_rowcol_to_cell(link.row, link.column)}" r:id="rId{place}"/>'
        f'<Relationship Id="rId{place}" Target="{link.url}" TargetMode="External"/>'
        for place, link in enumerate(links, start=links[0].row)
    )
    return len(deflate(markup.encode()).data)


def _count_rows(chunk: Chunk) -> int:
    return sum(batch.num_rows for batch in chunk)


CHUNK_CELLS_MAX: Final = 500_000
CHUNK_ROWS_MAX: Final = 16_384
CHUNK_BYTES_MAX: Final = 8 * 1024 * 1024

Chunk: TypeAlias = list[pa.RecordBatch]
"""Parts of batches, not yet joined: the thread that encodes them does that, so that they are in its cache."""


class RecordBatchChunker:
    """Collects batches into chunks for a table with a number of columns."""

    def __init__(self, columns: int) -> None:
        self._chunk_rows = max(1, min(CHUNK_ROWS_MAX, CHUNK_CELLS_MAX // max(1, columns)))
        self._waiting: Chunk = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        """Add a batch and yield the chunks that are full."""
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        while rows := batch.num_rows:
            rows_left = max(1, min(self._chunk_rows - self._rows, (CHUNK_BYTES_MAX - self._bytes) // row_bytes))
            taken = min(rows_left, rows)
            self._waiting.append(batch if taken == rows else batch.slice(0, taken))
            self._rows += taken
            self._bytes += taken * row_bytes
            if taken == rows_left:
                yield from self.flush()
            batch = batch.slice(taken)

    def flush(self) -> Iterator[Chunk]:
        """Yield the waiting rows as one chunk, if there are any."""
        if self._waiting:
            yield self._waiting
        self._waiting, self._rows, self._bytes = [], 0, 0


GROUPED_CHUNK_ROWS: Final = 8_192
GROUPED_ROWS_MAX: Final = 200_000
GROUPED_BYTES_MAX: Final = 512 * 1024 * 1024


class GroupedRowsBuffer:
    """Holds all rows of a table with row heads, and arranges them under their heads.

    Args:
        template: One with rows.
        keys: The names of the columns of the batches; one of them is the row heads'.
    """

    def __init__(self, template: TableTemplate, keys: Sequence[str], styles: CellFormatRegistry) -> None:
        self._template = template
        self._place = next((place for place, key in enumerate(keys) if key in ROW_HEAD_NAMES), None)
        self._styles = styles
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def hold_batch_or_raise_sheet_full(self, batch: pa.RecordBatch) -> None:
        """Hold rows until all are there.

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

    def arrange_under_heads(
        self,
    ) -> tuple[Iterator[tuple[pa.RecordBatch | None, list[pa.Array]]], tuple[MergedCellArea, ...]]:
        """Return the rows in chunks with the cells of the row heads left of them, and the areas of these heads.

        Raises:
            UncoveredRows: Some rows have keys that no row head has.
        """
        leaves = list_row_places_by_leaf(self._template, self._read_row_head_keys())
        areas = lay_out_row_heads(self._template, [len(places) for places in leaves])
        return self._iterate_chunks(list(chain.from_iterable(leaves)), self._encode_heads(areas)), areas

    def _read_row_head_keys(self) -> list[str]:
        if self._place is None:
            # Rows without a key belong to no row head, which is reported.
            return [""] * sum(batch.num_rows for batch in self._batches)
        found: list[str] = []
        for batch in self._batches:
            column = batch.column(self._place)
            texts = read_json_cells(column).payload if pa.types.is_binary(column.type) else column.cast(pa.string())
            found += texts.fill_null("").to_pylist()
        return found

    def _iterate_chunks(
        self, order: Sequence[int | None], heads: Sequence[pa.Array]
    ) -> Iterator[tuple[pa.RecordBatch | None, list[pa.Array]]]:
        rows = pa.concat_batches(self._batches) if self._batches else None
        self._batches = []
        for start in range(0, len(order), GROUPED_CHUNK_ROWS):
            places = pa.array(order[start : start + GROUPED_CHUNK_ROWS], pa.int64())
            yield None if rows is None else rows.take(places), [head.slice(start, GROUPED_CHUNK_ROWS) for head in heads]

    def _encode_heads(self, areas: Sequence[MergedCellArea]) -> list[pa.Array]:
        """Return the cells of each column of row heads, without their addresses."""
        columns: list[list[str]] = [[] for _ in range(self._template.row_depth)]
        for area in sorted(areas, key=lambda area: area.row):
            style = f' s="{self._styles.get_or_add_format_index(area.style)}"'
            blank = f"{style}/>"
            text = f'{style} t="inlineStr"><is><t xml:space="preserve">{escape_xml(area.text)}</t></is></c>'
            for place in range(area.column, area.last_column + 1):
                columns[place].append(text if place == area.column and area.text else blank)
                columns[place] += [blank] * (area.rows - 1)
        return [pa.array(cells, pa.string()) for cells in columns]


def list_row_places_by_leaf(template: TableTemplate, keys: Sequence[str]) -> list[list[int | None]]:
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
