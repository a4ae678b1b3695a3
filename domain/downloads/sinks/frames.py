"""Frames: pages of staged rows, joined so that they can be told apart again, and counted without being read.

A frame is three numbers of four bytes - how many bytes follow, how many they are when unpacked, and the rows in them -
and the packed page.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass

_HEAD = struct.Struct(">III")


@dataclass(frozen=True)
class Frame:
    """One page, packed."""

    packed: bytes
    plain_bytes: int
    rows: int

    def to_bytes(self) -> bytes:
        """The frame as it is staged."""
        return _HEAD.pack(len(self.packed), self.plain_bytes, self.rows) + self.packed


async def frames(content: AsyncIterable[bytes]) -> AsyncGenerator[Frame]:
    """The frames of joined content, whatever pieces it arrives in.

    Raises:
        ValueError: The content ends within a frame.
    """
    buffer = bytearray()
    async for piece in content:
        buffer += piece
        start = 0
        while len(buffer) - start >= _HEAD.size:
            packed_bytes, plain_bytes, rows = _HEAD.unpack_from(buffer, start)
            begin = start + _HEAD.size
            end = begin + packed_bytes
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                packed = bytes(view[begin:end])
            yield Frame(packed, plain_bytes, rows)
            start = end
        del buffer[:start]
    if buffer:
        raise ValueError(f"The staged frames end within one: {len(buffer)} bytes are left over.")
