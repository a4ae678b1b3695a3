"""The shape of a table: which keys of a source's rows become columns; and pages that are read and encoded in that
shape."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from io import BytesIO

import msgspec
from pydantic import BaseModel

from domain.downloads import pages, repeats
from domain.downloads.envelope import has_lone_surrogate
from domain.downloads.flat import CellGridFinder, NestedRowsAndKeyCount
from domain.downloads.models import FileType
from domain.downloads.pages import FirstPage, NewColumnsFound, PageReader, SourcePage, read_grouped_rows
from domain.downloads.sinks import PageSink
from domain.faults import SourceFault
from excel.template.models import ROW_HEAD_NAMES, TableTextsAndTemplate
from excel.template.reading import read_template

COLUMNS_MAX = 2_000
COLUMN_NAMES_MAX_CHARACTERS = 100_000

LEFT_OUT_MAX = 5_000
DIGEST_BYTES = 8


class TableShape(BaseModel):
    """Which keys of the rows become cells, and in which order."""

    columns: list[str]
    left_out: list[str] | None = None
    """Keys that the template does not use. None without a template: then every key must be a column."""
    keys: list[str] = []
    """All keys of the first page in their order, if they are not the columns."""
    row_head: str | None = None
    """The last column, if its cells are the names of groups of rows."""


class ShapedPageReader:
    """Reads pages into the cells of a shape."""

    def __init__(self, shape: TableShape) -> None:
        self.columns = shape.columns
        self._is_grouped = shape.row_head is not None
        self._own_columns = shape.columns[:-1] if self._is_grouped else shape.columns
        self._leaves_keys_out = shape.left_out is not None
        self._left_out = list(shape.left_out or [])
        self._known_left_out = len(self._left_out)
        self._reader = self._build_reader()

    @property
    def left_out_keys_beyond_shape(self) -> list[str]:
        """Keys that were left out beyond those in the shape."""
        return self._left_out[self._known_left_out :]

    def read(self, body: bytes, not_flat_rows: NestedRowsAndKeyCount | None = None) -> SourcePage:
        """Read a page.

        Args:
            body: The answer of the source.
            not_flat_rows: Its rows, to look for keys that a row has twice; in groups they are always looked for.

        Raises:
            SourceFault: It violates the protocol; the message says how.
            NewColumnsFound: It has keys that are no columns, and no key may be left out.
        """
        return (
            self._read_rows_from_named_groups(body)
            if self._is_grouped
            else self._read_rows_and_leave_out_new_keys_if_allowed(body, not_flat_rows)
        )

    def _build_reader(self) -> PageReader:
        return PageReader([*self._own_columns, *self._left_out])

    def _read_rows_and_leave_out_new_keys_if_allowed(
        self, body: bytes, uneven: NestedRowsAndKeyCount | None = None
    ) -> SourcePage:
        while True:
            try:
                page = self._reader.read(body)
            except NewColumnsFound as found:
                if not self._leaves_keys_out:
                    raise
                self._left_out += found.names
                _require_left_out_limits(self._left_out)
                self._reader = self._build_reader()
            else:
                break
        if uneven is not None:
            page.repeated_keys = repeats.find_keys_repeated_in_one_row(uneven, page.rows)
        if self._left_out:
            shown = len(self._own_columns)
            page.rows = [row[:shown] for row in page.rows]
        return page

    def _read_rows_from_named_groups(self, body: bytes) -> SourcePage:
        """Read rows in groups; the name of the group becomes their last cell."""
        groups = read_grouped_rows(body)
        page = self._read_rows_and_leave_out_new_keys_if_allowed(b'{"total":%b,"data":[]}' % bytes(groups.total))
        page.has_more = groups.has_more
        for name, rows in groups.data.items():
            head = (msgspec.Raw(msgspec.json.encode(name)),)
            group = self._read_rows_and_leave_out_new_keys_if_allowed(
                b'{"data":%b}' % bytes(rows), NestedRowsAndKeyCount(bytes(rows))
            )
            page.rows += [row + head for row in group.rows]
            page.repeated_keys += group.repeated_keys
        return page


def require_column_limits(columns: list[str]) -> None:
    """Raise a fault for more names than the messages of a workflow can carry from step to step."""
    _require_key_limits(columns, COLUMNS_MAX)


def _require_left_out_limits(names: list[str]) -> None:
    _require_key_limits(names, LEFT_OUT_MAX, " that the template does not show")


def _require_key_limits(names: list[str], most: int, which: str = "") -> None:
    if len(names) > most or sum(map(len, names)) > COLUMN_NAMES_MAX_CHARACTERS:
        raise SourceFault(
            "source_too_many_columns",
            f"The source's rows have {len(names):,} keys{which}; at most {most:,} are allowed, "
            f"{COLUMN_NAMES_MAX_CHARACTERS:,} characters in all.",
            "Answer only the fields that the file needs.",
        )


def choose_table_shape(kind: FileType, first: FirstPage, drawing: TableTextsAndTemplate | None) -> TableShape:
    """Decide which keys become cells.

    Raises:
        SourceFault: The file type or the template cannot show such rows.
    """
    template = None if drawing is None or drawing.template is None else read_template(drawing.template)
    if first.grouped and (template is None or not template.rows):
        raise SourceFault(
            "source_grouped",
            "The source's `data` is an object of lists, which only Excel shows, under the row heads of a template."
            if kind is not FileType.EXCEL
            else "The source's `data` is an object of lists, and the template has no row heads to put them under.",
            "Answer `data` as a list of rows, or give a template with `row`.",
        )
    if template is None:
        return TableShape(columns=first.columns)
    columns, row_head = list(template.keys), None
    if template.rows:
        row_head_key = next((name for name in ROW_HEAD_NAMES if name in first.columns), None)
        if first.grouped:
            row_head = row_head_key = ROW_HEAD_NAMES[-1]
        elif row_head_key is None and first.rows:
            raise SourceFault(
                "source_no_row_head",
                f"The template has row heads, but no row of the first page has one of the keys "
                f"{', '.join(ROW_HEAD_NAMES)}; they have: {', '.join(first.columns)[:1_000]}.",
                "Answer with each row the name of the row head that it belongs to, or `data` as an object of lists.",
            )
        row_head_key = row_head_key or ROW_HEAD_NAMES[-1]
        columns = [*(name for name in columns if name != row_head_key), row_head_key]
    left_out = [name for name in first.columns if name not in columns]
    _require_left_out_limits(left_out)
    return TableShape(columns=columns, left_out=left_out, keys=first.columns, row_head=row_head)


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """One page as it is staged."""

    total: int | None
    rows: int
    data: bytes
    has_more: bool = False
    """Whether the page announces more pages, however few rows it has."""
    row_mark: str | None = None
    """Mark of its rows, if it is one of the first pages."""
    repeated_keys: tuple[str, ...] = ()
    """Keys that a row has twice."""
    has_lone_surrogate: bool = False
    """Whether it has a lone surrogate, which is no character."""

    @property
    def digest(self) -> str:
        """A digest that is equal for pages with the same rows."""
        return hashlib.blake2b(self.data, digest_size=DIGEST_BYTES).hexdigest()


class PageEncoder:
    """Encodes pages of a given shape."""

    def __init__(self, shape: TableShape, sink: PageSink) -> None:
        self.reader = ShapedPageReader(shape)
        self._sink = sink
        keys = shape.keys or shape.columns
        self._finder = CellGridFinder(keys)
        self._key_positions = [keys.index(column) if column in keys else None for column in shape.columns]
        self._is_grouped = shape.row_head is not None

    def encode(self, body: bytes) -> EncodedPage:
        """Encode a page.

        Raises:
            SourceFault: It violates the protocol; the message says how.
            NewColumnsFound: It has keys that are no columns.
        """
        page = self._encode_by_grid_or_by_cells(body)
        return replace(page, has_lone_surrogate=True) if has_lone_surrogate(body) else page

    def _encode_by_grid_or_by_cells(self, body: bytes) -> EncodedPage:
        if self._is_grouped:
            return self._encode_by_cells(body, None)
        try:
            page = pages.read_undecoded_page(body)
            return self._encode_in_pieces(page)
        except (SourceFault, pages.NewColumnsFound, msgspec.ValidationError):
            # Read the whole page, so that the fault names the row.
            return self._encode_by_cells(body, None)

    def _encode_in_pieces(self, page: pages.UndecodedPage) -> EncodedPage:
        if len(page.data) <= pages.LARGE_BYTES:
            return replace(self._encode_piece(bytes(page.data)), total=page.total, has_more=page.has_more)
        rows, data, keys = 0, BytesIO(), dict[str, None]()
        for text in pages.split_rows_into_pieces(page.data):
            piece = self._encode_piece(text)
            rows += piece.rows
            data.write(piece.data)
            keys |= dict.fromkeys(piece.repeated_keys)
        return EncodedPage(page.total, rows, data.getvalue(), page.has_more, repeated_keys=tuple(keys))

    def _encode_piece(self, data: bytes) -> EncodedPage:
        """Encode rows by their grid, which is possible for nearly every page, or else cell by cell."""
        found = self._finder.find_grid(data)
        if isinstance(found, NestedRowsAndKeyCount):
            return self._encode_by_cells(b'{"data":%b}' % data, found)
        return EncodedPage(None, found.rows, self._sink.encode_grid(found, self._key_positions))

    def _encode_by_cells(self, body: bytes, uneven: NestedRowsAndKeyCount | None) -> EncodedPage:
        page = self.reader.read(body, uneven)
        data = self._sink.encode_page(page.rows)
        return EncodedPage(
            page.total, len(page.rows), data, page.has_more, repeated_keys=tuple(dict.fromkeys(page.repeated_keys))
        )
