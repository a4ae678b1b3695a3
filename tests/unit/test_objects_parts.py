"""Parts: how streams are split into blocks."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from infra.objects.multipart import split_into_blocks


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
