"""Encoding: from the body that a source answers to the bytes that are staged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from domain.downloads import pages
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
        found = self._at_once(body)
        return found if isinstance(found, EncodedPage) else self._by_cells(body, found)

    def _at_once(self, body: bytes) -> EncodedPage | Uneven | None:
        """The fast way, for nearly every page. What is wrong with a page, the other one says."""
        if self._is_grouped:
            return None
        try:
            page = pages.opened(body)
        except SourceFault:
            return None
        grid = self._finder.find(page.data)
        if isinstance(grid, Uneven):
            return grid
        return EncodedPage(page.total, grid.rows, self._sink.flat(grid, self._places), page.goes_on)

    def _by_cells(self, body: bytes, uneven: Uneven | None) -> EncodedPage:
        page = self.reader.read(body, uneven)
        data = self._sink.page(page.rows)
        return EncodedPage(
            page.total, len(page.rows), data, page.goes_on, repeated_keys=tuple(dict.fromkeys(page.repeated_keys))
        )
