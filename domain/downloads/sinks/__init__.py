"""Sinks: how the rows of a page become bytes, and what the joined bytes of all pages are.

Whatever the sink, bytes of pages can be joined in order: `head` stands once before everything, each page after it. For
CSV what comes out is the file. For Parquet and Excel it is the *staging format*, Arrow messages of raw JSON cells, and
the file is rendered from it: the type of a Parquet column is known only when its last cell has been seen, and a book
cannot be begun before it is known how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, assert_never

from domain.downloads.models import DownloadSpec, FileType
from domain.downloads.sinks.csv import CsvSink

if TYPE_CHECKING:
    from domain.downloads.flat import CellGrid

RowCells = Sequence[bytes]
"""One row: the JSON text of each cell (`msgspec.Raw` will do), in the order of the columns."""


class PageSink(Protocol):
    """One kind of file. A sink keeps no state between calls: ranges may be encoded in any order, by any process."""

    @property
    def extension(self) -> str:
        """What the name of the file ends in, without the dot."""

    @property
    def content_type(self) -> str:
        """The content type of the finished file."""

    @property
    def is_rendered(self) -> bool:
        """Whether the joined bytes are only staged, and the file is yet to be rendered from them."""

    def encode_head(self, columns: Sequence[str]) -> bytes:
        """What stands once before the first page."""

    def encode_page(self, rows: Sequence[RowCells]) -> bytes:
        """The rows of a page; no bytes when it has none."""

    def encode_grid(self, grid: CellGrid, places: Sequence[int | None]) -> bytes:
        """The same of a flat page, the fast way.

        Args:
            places: For each column, which of the page's keys it shows; None where it shows none of them.
        """


def build_sink(spec: DownloadSpec) -> PageSink:
    """The sink that an order asks for."""
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
