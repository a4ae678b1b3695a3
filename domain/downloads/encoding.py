"""Encoding: from the body that a source answers to the bytes that are staged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from io import BytesIO

import msgspec

from domain.downloads import pages
from domain.downloads.envelope import has_half_pair
from domain.downloads.flat import Finder, Uneven
from domain.downloads.shape import Shape, ShapedReader
from domain.downloads.sinks import Sink
from domain.faults import SourceFault

DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """One answer of the source, as it is staged."""

    total: int | None
    rows: int
    data: bytes
    goes_on: bool = False
    """Whether the answer says that more pages follow, however few rows this one has."""
    row_mark: str | None = None
    """What is to be remembered of its rows, if it is one of the first pages."""
    repeated_keys: tuple[str, ...] = ()
    """Keys that a row has twice."""
    has_half_pair: bool = False
    """Whether half of a surrogate pair stood in it, which is no character."""

    @property
    def digest(self) -> str:
        """The same for pages with the same rows."""
        return hashlib.blake2b(self.data, digest_size=DIGEST_BYTES).hexdigest()


class PageEncoder:
    """Encodes pages whose rows have a given shape."""

    def __init__(self, shape: Shape, sink: Sink) -> None:
        self.reader = ShapedReader(shape)
        self._sink = sink
        keys = shape.keys or shape.columns
        self._finder = Finder(keys)
        self._places = [keys.index(column) if column in keys else None for column in shape.columns]
        self._is_grouped = shape.row_head is not None

    def encode(self, body: bytes) -> EncodedPage:
        """Encode a page.

        Raises:
            SourceFault: It is not what the protocol says; the sentence names what is wrong.
            NewColumns: It has keys that are no columns.
        """
        page = self._encode(body)
        return replace(page, has_half_pair=True) if has_half_pair(body) else page

    def _encode(self, body: bytes) -> EncodedPage:
        if self._is_grouped:
            return self._by_cells(body, None)
        try:
            page = pages.opened(body)
            return self._in_pieces(page)
        except (SourceFault, pages.NewColumns, msgspec.ValidationError):
            # What is wrong, and in which row, is told of the whole page.
            return self._by_cells(body, None)

    def _in_pieces(self, page: pages.Opened) -> EncodedPage:
        if len(page.data) <= pages.LARGE_BYTES:
            return replace(self._piece(bytes(page.data)), total=page.total, goes_on=page.goes_on)
        rows, data, keys = 0, BytesIO(), dict[str, None]()
        for text in pages.pieces(page.data):
            piece = self._piece(text)
            rows += piece.rows
            data.write(piece.data)
            keys |= dict.fromkeys(piece.repeated_keys)
        return EncodedPage(page.total, rows, data.getvalue(), page.goes_on, repeated_keys=tuple(keys))

    def _piece(self, data: bytes) -> EncodedPage:
        """Rows the fast way, for nearly every page, or else cell by cell."""
        found = self._finder.find(data)
        if isinstance(found, Uneven):
            return self._by_cells(b'{"data":%b}' % data, found)
        return EncodedPage(None, found.rows, self._sink.flat(found, self._places))

    def _by_cells(self, body: bytes, uneven: Uneven | None) -> EncodedPage:
        page = self.reader.read(body, uneven)
        data = self._sink.page(page.rows)
        return EncodedPage(
            page.total, len(page.rows), data, page.goes_on, repeated_keys=tuple(dict.fromkeys(page.repeated_keys))
        )
