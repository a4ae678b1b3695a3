"""Zones: what clocks on the wall show at many instants at once.

A zone is read through `zoneinfo` into the instants at which its clocks change; looking up an instant among them is a
search. (Arrow's own look-up knows nothing of changes after 2037.)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

Milliseconds: TypeAlias = npt.NDArray[np.int64]
"""Since 1970-01-01."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_YEAR: Final = 1899
# Rules repeat every 400 years with the calendar, and all zones have come to their last rule by 2100.
_LAST_YEAR: Final = 2500
_CYCLE_MS: Final = 146_097 * 86_400_000
# No zone changes its clocks twice within a step: Ramadan, the shortest there is, lasts four weeks.
_STEP_SECONDS: Final = 14 * 86_400


class Zone:
    """A time zone. Its clocks' changes are looked up when first needed, which takes some hundredths of a second.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: There is none of this name.
    """

    def __init__(self, name: str) -> None:
        self.name = ZoneInfo(name).key

    def local(self, instants: Milliseconds) -> Milliseconds:
        """What clocks show at these instants of UTC."""
        if self.name == "UTC":
            return instants
        changes, offsets = _table(self.name)
        if len(instants) and instants.max() < _ms(_LAST_YEAR):
            first, last = np.searchsorted(changes, (instants.min(), instants.max()), side="right") - 1
            if first == last:
                shifted: Milliseconds = instants + offsets[first]
                return shifted
        last = _ms(_LAST_YEAR) - _CYCLE_MS
        within = np.where(instants >= _ms(_LAST_YEAR), (instants - last) % _CYCLE_MS + last, instants)
        found: Milliseconds = instants + offsets[np.searchsorted(changes, within, side="right") - 1]
        return found


@cache
def _table(name: str) -> tuple[Milliseconds, Milliseconds]:
    """From which instants on clocks are how far ahead of UTC."""
    info = ZoneInfo(name)
    first, last = (int(_ms(year) // 1000) for year in (_FIRST_YEAR, _LAST_YEAR))
    changes, offsets = [first], [_offset(info, first)]
    for second in range(first + _STEP_SECONDS, last + _STEP_SECONDS, _STEP_SECONDS):
        offset = _offset(info, second)
        if offset != offsets[-1]:
            changes.append(_change(info, second - _STEP_SECONDS, second))
            offsets.append(offset)
    return np.array(changes, np.int64) * 1000, np.array(offsets, np.int64) * 1000


def _change(info: ZoneInfo, before: int, after: int) -> int:
    """The first second of the new offset, between two of which it is the later's."""
    new = _offset(info, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(info, middle) == new:
            after = middle
        else:
            before = middle
    return after


def _offset(info: ZoneInfo, second: int) -> int:
    found = (_EPOCH + timedelta(seconds=second)).astimezone(info).utcoffset()
    return int(found.total_seconds()) if found is not None else 0


@cache
def _ms(year: int) -> int:
    return int((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()) * 1000
