"""Parts: how streams are split_into_blocks, and which sources can be joined."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.objects import MIN_PART_BYTES, ObjectMetadata, PartTooSmall
from infra.objects.multipart import require_sources_joinable_in_store, split_into_blocks
from infra.objects.records import EPOCH, MAX_COPY_BYTES, MAX_PARTS


@given(st.lists(st.binary(max_size=20)), st.integers(1, 16))
async def test_blocks_hold_the_stream(chunks: list[bytes], size: int) -> None:
    """However it arrives, the stream is cut into blocks of one size, the last of what remains."""

    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    blocks = [block async for block in split_into_blocks(stream(), size)]

    assert b"".join(blocks) == b"".join(chunks)
    assert all(len(block) == size for block in blocks[:-1])
    assert all(blocks)


def source(size: int) -> ObjectMetadata:
    """A source of a join."""
    return ObjectMetadata("source", size, "etag", "text/csv", {}, EPOCH)


def test_only_the_last_source_may_be_small() -> None:
    """The rule of S3, byte by byte."""
    require_sources_joinable_in_store("out", [source(MIN_PART_BYTES), source(0)])
    require_sources_joinable_in_store("out", [source(0)])
    with pytest.raises(PartTooSmall, match="every source but the last"):
        require_sources_joinable_in_store("out", [source(MIN_PART_BYTES - 1), source(MIN_PART_BYTES)])


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        ([], "at least one source"),
        ([source(MIN_PART_BYTES)] * (MAX_PARTS + 1), "at most 9,999 can be joined"),
        ([source(MAX_COPY_BYTES + 1)], "Write smaller sources"),
    ],
    ids=["none", "too many", "too large"],
)
def test_what_the_store_would_refuse_is_refused_before(sources: list[ObjectMetadata], sentence: str) -> None:
    """The sentence says how much is allowed."""
    with pytest.raises(ValueError, match=sentence):
        require_sources_joinable_in_store("out", sources)
