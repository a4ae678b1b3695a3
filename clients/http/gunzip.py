"""Inflating gzip as it arrives, in bounded pieces; unlike aiohttp's own, it notices when the end is missing."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PIECE_BYTES = 1024 * 1024
WIRE_SLICE_BYTES = 64 * 1024
MEMBERS_MAX = 1_000
_GZIP = 16 + zlib.MAX_WBITS


class DamagedGzip(Exception):
    """The bytes are no gzip, are incomplete, or are cut into absurdly many members."""


class Gunzip:
    """One body: feed it what arrives, then ask whether it was all."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP)
        self._members = 0

    def feed(self, wire: bytes) -> Iterator[bytes]:
        """Inflate some bytes, into pieces that stay small whatever a bomb would make of them."""
        # By slices, because each end of a member copies all that follows it.
        for start in range(0, len(wire), WIRE_SLICE_BYTES):
            yield from self._feed_slice(wire[start : start + WIRE_SLICE_BYTES])

    def _feed_slice(self, rest: bytes) -> Iterator[bytes]:
        full = False
        # A full piece may have left more in the inflater, even when all input is consumed.
        while rest or full:
            if self._members == 0 or self._inflater.eof:
                self._begin_member()
            try:
                piece = self._inflater.decompress(rest, PIECE_BYTES)
            except zlib.error:
                raise DamagedGzip from None
            if piece:
                yield piece
            full = len(piece) == PIECE_BYTES and not self._inflater.eof
            rest = self._inflater.unconsumed_tail or self._inflater.unused_data

    def finish(self) -> None:
        """Say that nothing more comes; DamagedGzip when that is too early. Nothing at all is an empty body."""
        if self._members and not self._inflater.eof:
            raise DamagedGzip

    def _begin_member(self) -> None:
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise DamagedGzip
        self._inflater = zlib.decompressobj(_GZIP)
