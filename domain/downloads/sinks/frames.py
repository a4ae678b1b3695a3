"""Frames: messages of any length, joined so that they can be told apart again.

A frame is the length of a message, eight bytes, and the message.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable

LENGTH_BYTES = 8


def framed(message: bytes) -> bytes:
    """The message behind its length."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


async def messages(content: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The messages of joined frames, whatever pieces they arrive in.

    Raises:
        ValueError: The content ends within a frame.
    """
    buffer = bytearray()
    async for piece in content:
        buffer += piece
        start = 0
        while len(buffer) - start >= LENGTH_BYTES:
            begin = start + LENGTH_BYTES
            end = begin + int.from_bytes(buffer[start:begin], "big")
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                message = bytes(view[begin:end])
            yield message
            start = end
        del buffer[:start]
    if buffer:
        raise ValueError(f"The staged frames end within one: {len(buffer)} bytes are left over.")
