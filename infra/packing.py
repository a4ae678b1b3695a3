"""Rows in the binary form of PostgreSQL's COPY, packed here: the driver would take a third of the time of a slice."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_END: Final = struct.pack(">h", -1)
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LENGTH: Final = struct.Struct(">i")


def table(rows: Iterable[bytes]) -> bytes:
    """All rows, each its count of columns and then its values."""
    return b"".join((_HEAD, *rows, _END))


def count(columns: int) -> bytes:
    """What a row begins with."""
    return struct.pack(">h", columns)


def text(value: bytes) -> bytes:
    """A text, or any value that is its bytes."""
    return _LENGTH.pack(len(value)) + value


def micros(moment: datetime) -> int:
    """A moment as PostgreSQL counts it: microseconds since 2000."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
