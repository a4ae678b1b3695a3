"""Archive: several files as one zip; members are stored, for they are packed already.

It keeps to the limits of the original format, which every program reads: no member and no archive of 4 GiB, at most
65,535 members.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pydantic import BaseModel

LIMIT_BYTES: Final = 2**32 - 1
LIMIT_MEMBERS: Final = 2**16 - 1
CONTENT_TYPE: Final = "application/zip"

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION = 20
_UTF_8_NAMES = 0x0800
_STORED = 0


class ArchiveTooLarge(Exception):
    """The members are more than a zip archive holds."""


class Member(BaseModel):
    """One file of the archive."""

    name: str
    bytes: int
    crc32: int


def require_room(members: Sequence[Member]) -> None:
    """See that the members fit.

    Raises:
        ArchiveTooLarge: They do not.
    """
    names = sum(len(member.name.encode()) for member in members)
    around = len(members) * (_LOCAL.size + _CENTRAL.size) + 2 * names + _END.size
    size = around + sum(member.bytes for member in members)
    if size > LIMIT_BYTES or len(members) > LIMIT_MEMBERS:
        raise ArchiveTooLarge(f"{len(members):,} files of {size:,} bytes in all")


def opening(member: Member, written_at: datetime) -> bytes:
    """What stands before the content of a member, wherever in the archive that is."""
    name = member.name.encode()
    return _LOCAL.pack(b"PK\x03\x04", _VERSION, *_common(member, name, written_at)) + name


def directory(members: Sequence[Member], written_at: datetime) -> bytes:
    """What stands behind the last member: it tells where each begins."""
    entries: list[bytes] = []
    position = 0
    for member in members:
        name = member.name.encode()
        common = _common(member, name, written_at)
        entries.append(_CENTRAL.pack(b"PK\x01\x02", _VERSION, _VERSION, *common, 0, 0, 0, 0, position) + name)
        position += _LOCAL.size + len(name) + member.bytes
    central, count = b"".join(entries), len(entries)
    return central + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(central), position, 0)


def _common(member: Member, name: bytes, written_at: datetime) -> tuple[int, ...]:
    """What both records of a member tell."""
    time = written_at.hour << 11 | written_at.minute << 5 | written_at.second // 2
    date = (written_at.year - 1980) << 9 | written_at.month << 5 | written_at.day
    return (_UTF_8_NAMES, _STORED, time, date, member.crc32, member.bytes, member.bytes, len(name), 0)
