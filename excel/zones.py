"""Zones: what clocks on the wall show at many instants at once.

A zone is read through `zoneinfo` into the instants at which its clocks change; looking up an instant among them is a
search. (Arrow's own look-up knows nothing of changes after 2037.)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Milliseconds: TypeAlias = npt.NDArray[np.int64]
"""Since 1970-01-01."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Changes are looked up for a whole era at a time: most data lie in one, and to look takes a thousandth of a second.
_ERA_SECONDS: Final = 10 * 365 * 86_400
_ERA_MS: Final = _ERA_SECONDS * 1000
# No zone changes its clocks twice within a step: Ramadan, the shortest time between two changes, lasts four weeks.
_STEP_SECONDS: Final = 14 * 86_400
_LAST_SECOND: Final = int((datetime(9999, 12, 30, tzinfo=UTC) - _EPOCH).total_seconds())


class Zone:
    """A time zone.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: There is none of this name.
    """

    def __init__(self, name: str) -> None:
        self.name = ZoneInfo(name).key

    def local(self, instants: Milliseconds) -> Milliseconds:
        """What clocks show at these instants of UTC, all in the years 1 to 9999."""
        if self.name == "UTC" or not len(instants):
            return instants
        first, last = (int(instant) // _ERA_MS for instant in (instants.min(), instants.max()))
        if first == last:
            return instants + _ahead(self.name, first, instants)
        shown = instants.copy()
        eras = instants // _ERA_MS - first
        for era in np.flatnonzero(np.bincount(eras)).tolist():
            within = eras == era
            shown[within] += _ahead(self.name, first + era, instants[within])
        return shown


def _ahead(name: str, era: int, instants: Milliseconds) -> Milliseconds:
    """How far ahead of UTC clocks are at instants of an era."""
    changes, offsets = _table(name, era)
    return offsets if len(offsets) == 1 else offsets[np.searchsorted(changes, instants, side="right") - 1]


@lru_cache(maxsize=1024)
def _table(name: str, era: int) -> tuple[Milliseconds, Milliseconds]:
    """From which instants of an era on clocks are how far ahead of UTC."""
    info = ZoneInfo(name)
    first, end = era * _ERA_SECONDS, (era + 1) * _ERA_SECONDS
    changes, offsets = [first], [_offset(info, first)]
    for second in range(first + _STEP_SECONDS, end + _STEP_SECONDS, _STEP_SECONDS):
        offset = _offset(info, second)
        if offset != offsets[-1]:
            changes.append(_change(info, second - _STEP_SECONDS, second))
            offsets.append(offset)
    return np.array(changes, np.int64) * 1000, np.array(offsets, np.int64) * 1000


def _change(info: ZoneInfo, before: int, after: int) -> int:
    """The first second of the later one's offset, between two that differ."""
    new = _offset(info, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(info, middle) == new:
            after = middle
        else:
            before = middle
    return after


def _offset(info: ZoneInfo, second: int) -> int:
    found = (_EPOCH + timedelta(seconds=min(second, _LAST_SECOND))).astimezone(info).utcoffset()
    return int(found.total_seconds()) if found is not None else 0
