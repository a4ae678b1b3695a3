"""Sinks: how the rows of a page are encoded, and what the joined bytes of all pages are.

Pages can be joined in order behind the head. For CSV the joined bytes are the file. For Parquet and Excel they are the
*staging format*, Arrow messages of raw JSON cells, from which the file is rendered: the type of a Parquet column is
known only when its last cell was read, and a book is begun only when the number of books is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, assert_never

from domain.downloads.models import DownloadSpec, FileType
from domain.downloads.sinks.csv import CsvSink

if TYPE_CHECKING:
    from domain.downloads.flat import CellGrid

RowCells = Sequence[bytes]
"""One row: the JSON text of each cell (or `msgspec.Raw`), in the order of the columns."""


class PageSink(Protocol):
    """Encodes rows for one file type. It keeps no state, so that ranges can be encoded in any order by any process."""

    @property
    def extension(self) -> str:
        """Extension of the file name, without the dot."""

    @property
    def content_type(self) -> str:
        """Content type of the finished file."""

    @property
    def needs_rendering(self) -> bool:
        """Whether the file is rendered from the joined bytes."""

    def encode_head(self, columns: Sequence[str]) -> bytes:
        """Encode what precedes the first page."""

    def encode_page(self, rows: Sequence[RowCells]) -> bytes:
        """Encode the rows of a page; return no bytes if it has none."""

    def encode_grid(self, grid: CellGrid, key_positions: Sequence[int | None]) -> bytes:
        """Encode the rows of a flat page; the result equals that of `encode_page`.

        Args:
            grid: The cells of the page.
            key_positions: For each column, the position of its key in the page; None if the page has no such key.
        """


def build_sink(spec: DownloadSpec) -> PageSink:
    """Build the sink for the file type of a download."""
    match spec.type:
        case FileType.CSV:
            return CsvSink(spec.encoding, spec.guard_formulas)
        case FileType.PARQUET:
            # The API and workflows import this module, and must not load Arrow.
            from domain.downloads.sinks.arrow import PARQUET_TYPE, ArrowSink  # noqa: PLC0415

            return ArrowSink("parquet", PARQUET_TYPE)
        case FileType.EXCEL:
            from domain.downloads.sinks.arrow import EXCEL_TYPE, ArrowSink  # noqa: PLC0415

            return ArrowSink("xlsx", EXCEL_TYPE)
        case _:
            assert_never(spec.type)
