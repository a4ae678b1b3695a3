"""Random names: the system's randomness, fetched by the block, for each call of the system costs more than a name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

TOKEN_BYTES: Final = 16
BLOCK_TOKENS: Final = 256


def token() -> str:
    """A name that nobody else has or can guess, in hexadecimal digits."""
    try:
        return _block.pop()
    except IndexError:
        _block.extend(_new())
        return _block.pop()


def _new() -> Iterator[str]:
    block = os.urandom(BLOCK_TOKENS * TOKEN_BYTES)
    return (block[start : start + TOKEN_BYTES].hex() for start in range(0, len(block), TOKEN_BYTES))


_block: list[str] = []
# A child that went on with our block would give the same names.
os.register_at_fork(after_in_child=_block.clear)
