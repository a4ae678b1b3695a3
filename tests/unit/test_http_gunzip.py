"""Gunzip against the standard library's gzip: any bytes, any cuts, any number of members."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.http.transport import PIECE_BYTES, WIRE_SLICE_BYTES, GzipDecompressor, InvalidGzip


def inflate(*wire: bytes) -> bytes:
    """All that comes out of these arrivals."""
    gunzip = GzipDecompressor()
    body = b"".join(piece for arrival in wire for piece in gunzip.decompress(arrival))
    gunzip.raise_if_stream_ended_early()
    return body


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=5))
def test_any_cuts(members: list[bytes], cuts: list[int]) -> None:
    """However the bytes are cut on their way, the same body comes out; one byte less is noticed."""
    wire = b"".join(map(gzip.compress, members))
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    arrivals = [wire[start:stop] for start, stop in pairwise(edges)]
    assert inflate(*arrivals) == b"".join(members)
    with pytest.raises(InvalidGzip):
        inflate(wire[:-1])


@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 5 * PIECE_BYTES + 7])
def test_pieces_stay_small(size: int) -> None:
    """What inflates to many megabytes comes in pieces of one, with nothing lost at their edges."""
    gunzip = GzipDecompressor()
    pieces = list(gunzip.decompress(gzip.compress(bytes(size), mtime=0)))
    gunzip.raise_if_stream_ended_early()
    assert sum(map(len, pieces)) == size
    assert max(map(len, pieces)) <= PIECE_BYTES


def test_larger_than_a_slice() -> None:
    """Bytes that do not compress are longer than a slice and come out whole."""
    body = bytes((n * n >> 7) & 255 for n in range(3 * WIRE_SLICE_BYTES))
    assert inflate(gzip.compress(body, compresslevel=0, mtime=0)) == body


@pytest.mark.parametrize(
    "wire", [b"rows", gzip.compress(b"rows", mtime=0) + b"rows", b"\x1f\x8b", gzip.compress(b"", mtime=0) * 1_001]
)
def test_damage(wire: bytes) -> None:
    """What is no gzip, goes on after its end, is cut or has absurdly many members is refused."""
    with pytest.raises(InvalidGzip):
        inflate(wire)
