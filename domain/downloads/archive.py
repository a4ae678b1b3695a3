"""Archive: several files as one zip, written front to back; members are stored, for they are packed already.

It keeps to the limits of the original format, which every program reads: no member and no archive of 4 GiB, at most
65,535 members.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime
from typing import Final

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


@dataclass(frozen=True)
class Member:
    """One file of the archive."""

    name: str
    bytes: int
    crc32: int


class Archive:
    """The bytes around the members, in the order in which they stand in the file.

    Raises:
        ArchiveTooLarge: The members do not fit; nothing has been written then.
    """

    def __init__(self, members: list[Member], written_at: datetime) -> None:
        self._members = [(member, member.name.encode()) for member in members]
        self._moment = _dos(written_at)
        names = sum(len(name) for _, name in self._members)
        around = len(members) * (_LOCAL.size + _CENTRAL.size) + 2 * names + _END.size
        size = around + sum(member.bytes for member in members)
        if size > LIMIT_BYTES or len(members) > LIMIT_MEMBERS:
            raise ArchiveTooLarge(f"{len(members):,} files of {size:,} bytes in all")
        self._central: list[bytes] = []
        self._position = 0

    def begin(self, place: int) -> bytes:
        """What stands before the content of a member; they are begun in order."""
        member, name = self._members[place]
        common = (_UTF_8_NAMES, _STORED, *self._moment, member.crc32, member.bytes, member.bytes, len(name), 0)
        local = _LOCAL.pack(b"PK\x03\x04", _VERSION, *common) + name
        central = _CENTRAL.pack(b"PK\x01\x02", _VERSION, _VERSION, *common, 0, 0, 0, 0, self._position)
        self._central.append(central + name)
        self._position += len(local) + member.bytes
        return local

    def end(self) -> bytes:
        """What stands after the last member."""
        central, count = b"".join(self._central), len(self._central)
        return central + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(central), self._position, 0)


def _dos(moment: datetime) -> tuple[int, int]:
    """The time and the date as the format counts them."""
    time = moment.hour << 11 | moment.minute << 5 | moment.second // 2
    return time, (moment.year - 1980) << 9 | moment.month << 5 | moment.day
