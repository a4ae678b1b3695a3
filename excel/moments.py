"""Moments: dates and times parsed from texts, whole columns at a time, and spelled as Excel's serial numbers.

A serial number counts days; its fraction is the time of day. Excel takes 1900 for a leap year, so days are right from
1900-03-01 on, and what lies before stays text. Times are exact to the millisecond, the least that Excel shows.

A zone is read through `zoneinfo` into the instants at which its clocks change; looking up an instant among them is a
search. (Arrow's own look-up knows no changes after 2037.)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from excel.arrow import pa
from excel.cells import CellBytesWithOffsets, Mask, Positions, mask_not_null, view_bytes

Milliseconds: TypeAlias = npt.NDArray[np.int64]
"""Since 1970-01-01."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Changes are looked up for a whole era at a time: most data lie in one, and to look takes a thousandth of a second.
_ERA_SECONDS: Final = 10 * 365 * 86_400
_ERA_MS: Final = _ERA_SECONDS * 1000
# No zone changes its clocks twice within a step: Ramadan, the shortest time between two changes, lasts four weeks.
_STEP_SECONDS: Final = 14 * 86_400
_LAST_SECOND: Final = int((datetime(9999, 12, 30, tzinfo=UTC) - _EPOCH).total_seconds())


class LocalTimeConverter:
    """Converts instants of UTC to the local time of a zone.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: There is no zone of this name.
    """

    def __init__(self, name: str) -> None:
        self.name = ZoneInfo(name).key

    def to_local(self, instants: Milliseconds) -> Milliseconds:
        """Return the local times of instants of UTC, all in the years 1 to 9999."""
        if self.name == "UTC" or not len(instants):
            return instants
        first, last = (int(instant) // _ERA_MS for instant in (instants.min(), instants.max()))
        if first == last:
            return instants + _compute_zone_offsets(self.name, first, instants)
        shown = instants.copy()
        eras = instants // _ERA_MS - first
        for era in np.flatnonzero(np.bincount(eras)).tolist():
            within = eras == era
            shown[within] += _compute_zone_offsets(self.name, first + era, instants[within])
        return shown


def _compute_zone_offsets(name: str, era: int, instants: Milliseconds) -> Milliseconds:
    """Return how far local time is ahead of UTC at instants of one era."""
    changes, offsets = _find_offset_changes(name, era)
    return offsets if len(offsets) == 1 else offsets[np.searchsorted(changes, instants, side="right") - 1]


@lru_cache(maxsize=1024)
def _find_offset_changes(name: str, era: int) -> tuple[Milliseconds, Milliseconds]:
    """Return the instants of an era at which the offset from UTC changes, and the offsets from then on."""
    info = ZoneInfo(name)
    first, end = era * _ERA_SECONDS, (era + 1) * _ERA_SECONDS
    changes, offsets = [first], [_get_zone_offset(info, first)]
    for second in range(first + _STEP_SECONDS, end + _STEP_SECONDS, _STEP_SECONDS):
        offset = _get_zone_offset(info, second)
        if offset != offsets[-1]:
            changes.append(_find_first_second_of_offset(info, second - _STEP_SECONDS, second))
            offsets.append(offset)
    return np.array(changes, np.int64) * 1000, np.array(offsets, np.int64) * 1000


def _find_first_second_of_offset(info: ZoneInfo, before: int, after: int) -> int:
    """Return the first second of the offset that holds at `after`."""
    new = _get_zone_offset(info, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _get_zone_offset(info, middle) == new:
            after = middle
        else:
            before = middle
    return after


def _get_zone_offset(info: ZoneInfo, second: int) -> int:
    found = (_EPOCH + timedelta(seconds=min(second, _LAST_SECOND))).astimezone(info).utcoffset()
    return int(found.total_seconds()) if found is not None else 0


DAY_MS: Final = 86_400_000
SERIAL_OF_1970: Final = 25_569
SERIAL_MIN: Final = 61
SERIAL_MAX: Final = 2_958_465
_FIRST_MS: Final = (SERIAL_MIN - SERIAL_OF_1970) * DAY_MS
_END_MS: Final = (SERIAL_MAX + 1 - SERIAL_OF_1970) * DAY_MS
# Ten digits of a day are 9 microseconds, and with the five of the days the 15 that Excel keeps.
_FRACTION_SCALE: Final = 10**10

# From 1927 to 2173 days have five digits.
_LONG_DAYS: Final = range(10_000, 100_000)
_SERIAL: Final = np.dtype([("day", "V5"), ("fraction", "V11")])

_DATE_LENGTH, _MINUTE_LENGTH, _SECOND_LENGTH = 10, 16, 19
_FRACTION_MAX: Final = 9
# By length: a sign at a place from the end, and whether there is a zone.
_SHAPES: Final = {
    len("2024-02-29"): (3, "-", False),
    len("2024-02-29T08:00:00"): (3, ":", False),
    len("2024-02-29T08:00:00Z"): (1, "Z", True),
    len("2024-02-29T08:00:00.000Z"): (1, "Z", True),
    len("2024-02-29T08:00:00+08:00"): (3, ":", True),
    len("2024-02-29T08:00:00.000+08:00"): (3, ":", True),
}
_EMPTY: Final = np.frombuffer(b"0000-00-00T00:00:00.000000000", np.uint8)
_DIGITS: Final = np.flatnonzero(ord("0") == _EMPTY)
_WEIGHTS: Final = np.array([1000, 100, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1], np.int64)
_PARTS: Final = (slice(0, 4), slice(4, 6), slice(6, 8), slice(8, 10), slice(10, 12), slice(12, 14))
_DAYS_OF_MONTH: Final = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class MomentMaskAndLocalTimes:
    """The cells that hold moments, and the local time of each in milliseconds."""

    found: Mask
    ms: Milliseconds


def detect_moments(texts: pa.Array, zone: LocalTimeConverter, *, zoned_only: bool) -> MomentMaskAndLocalTimes | None:
    """Find the cells that are dates of RFC 3339; return their local times, or None if there are none.

    Args:
        texts: A column of strings.
        zone: The zone whose local time cells show.
        zoned_only: Whether only full date-times with a zone count, or dates, times without zone and without seconds,
            too. These are taken for local times.
    """
    seen = view_bytes(texts)
    shortest = _SECOND_LENGTH + 1 if zoned_only else _DATE_LENGTH
    likely = seen.lengths >= shortest
    likely &= (seen.bytes_at(seen.starts + 4) == ord("-")) & (seen.bytes_at(seen.starts + 7) == ord("-"))
    likely &= seen.lengths <= _SECOND_LENGTH + 1 + _FRACTION_MAX + 6
    if not likely.any():
        return None
    if (alike := _parse_uniform_column(texts, seen, zone)) is not None:
        return alike if alike.found.any() else None
    places = np.flatnonzero(likely)
    ms, right = _parse_moments(seen.data, seen.starts[places], seen.ends[places], zone, zoned_only=zoned_only)
    right &= mask_representable(ms)
    found = np.zeros(len(texts), np.bool_)
    found[places[right]] = True
    return MomentMaskAndLocalTimes(found, ms[right]) if right.any() else None


def format_as_serial_numbers(ms: Milliseconds) -> pa.Array:
    """Return the serial numbers of local times, as texts."""
    days = ms // DAY_MS
    rest = ms - days * DAY_MS
    days += SERIAL_OF_1970
    if not rest.any():
        return pa.array(days).cast(pa.string())
    fractions = _format_day_fractions(rest)
    if days.min() < _LONG_DAYS.start or days.max() >= _LONG_DAYS.stop:
        return pc.binary_join_element_wise(
            pa.array(days).cast(pa.string()), _build_column_of_equal_lengths(fractions), ""
        )
    serial = np.empty(len(ms), _SERIAL)
    serial["day"] = _build_serial_day_texts()[days - _LONG_DAYS.start]
    serial["fraction"] = fractions
    return _build_column_of_equal_lengths(serial)


def mask_representable(ms: Milliseconds) -> Mask:
    """Return a mask of the local times that Excel can hold."""
    found: Mask = (ms >= _FIRST_MS) & (ms < _END_MS)
    return found


def to_local_clipping_far_times(instants: Milliseconds, zone: LocalTimeConverter) -> Milliseconds:
    """Return the local times of instants; what Excel cannot hold is clipped to another time that it cannot hold."""
    return zone.to_local(np.clip(instants, _FIRST_MS - 2 * DAY_MS, _END_MS + 2 * DAY_MS))


def format_serial_numbers_as_dates(serial_numbers: pa.Array, *, date_only: bool) -> pa.Array:
    """Return serial numbers as texts such as `2024-02-29T08:00:00`, or `2024-02-29`."""
    ms = pc.multiply(pc.subtract(serial_numbers.cast(pa.float64()), float(SERIAL_OF_1970)), float(DAY_MS))
    instants = pc.round(ms).cast(pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp("s"), safe=False)
    return pc.strftime(instants, "%Y-%m-%d" if date_only else "%Y-%m-%dT%H:%M:%S")


def _parse_uniform_column(
    texts: pa.Array, seen: CellBytesWithOffsets, zone: LocalTimeConverter
) -> MomentMaskAndLocalTimes | None:
    """Read a column whose texts all have one usual shape, which Arrow parses fast; None if they have not."""
    filled = mask_not_null(texts)
    starts, ends = (seen.starts, seen.ends) if filled.all() else (seen.starts[filled], seen.ends[filled])
    shape = _SHAPES.get(int(ends[0] - starts[0])) if len(ends) else None
    if shape is None or (ends - starts != ends[0] - starts[0]).any():
        return None
    place, sign, zoned = shape
    # Arrow takes other spellings of zones, too.
    if (seen.bytes_at(ends - place) != ord(sign)).any():
        return None
    try:
        read = texts.cast(pa.timestamp("ms", "UTC" if zoned else None))
    except pa.ArrowInvalid:
        return None
    ms = np.frombuffer(read.buffers()[1], np.int64, len(texts), read.offset * 8)[filled]
    ms = to_local_clipping_far_times(ms, zone) if zoned else ms
    found = filled.copy()
    found[filled] = mask_representable(ms)
    return MomentMaskAndLocalTimes(found, ms[mask_representable(ms)])


def _parse_moments(
    data: _Bytes, starts: Positions, ends: Positions, zone: LocalTimeConverter, *, zoned_only: bool
) -> tuple[Milliseconds, Mask]:
    """Return the local times of texts, and a mask of the texts that are moments."""
    offsets, zone_lengths, right = _parse_zone_offsets_and_zone_lengths(data, starts, ends, zoned_only=zoned_only)
    lengths = ends - starts - zone_lengths
    right &= _mask_known_lengths(lengths, zoned_only=zoned_only) & ((zone_lengths == 0) | (lengths > _DATE_LENGTH))
    # What a text lacks is filled up to midnight.
    columns = np.arange(len(_EMPTY))
    picture = data.take(starts[:, None] + columns, mode="clip")
    picture = np.where(columns < lengths[:, None], picture, _EMPTY)
    right &= _mask_with_separators(picture)
    digits = picture[:, _DIGITS] - ord("0")
    right &= (digits <= 9).all(axis=1)
    ms, possible = _compute_milliseconds(digits.astype(np.int64))
    zoned = zone_lengths > 0
    if zoned.any():
        ms = np.where(zoned, to_local_clipping_far_times(ms - offsets, zone), ms)
    return ms, right & possible


def _parse_zone_offsets_and_zone_lengths(
    data: _Bytes, starts: Positions, ends: Positions, *, zoned_only: bool
) -> tuple[Milliseconds, Positions, Mask]:
    """Return the offset of each from UTC, the bytes of its zone (0 without one), and whether these are valid."""

    def get_digit_from_end(distance_from_end: int) -> npt.NDArray[np.int64]:
        return data.take(ends - distance_from_end, mode="clip").astype(np.int64) - ord("0")

    def mask_texts_with_sign_before_end(place: int) -> Mask:
        byte = data.take(ends - place, mode="clip")
        signed: Mask = (byte == ord("+")) | (byte == ord("-"))
        return signed & (ends - starts >= _MINUTE_LENGTH + place)

    last = data.take(ends - 1, mode="clip")
    utc = (last == ord("Z")) | (last == ord("z"))
    long = ~utc & mask_texts_with_sign_before_end(6) & (data.take(ends - 3, mode="clip") == ord(":"))
    short = ~utc & ~long & mask_texts_with_sign_before_end(5) & (not zoned_only)
    lengths = np.select([utc, long, short], [1, 6, 5], 0).astype(np.int32)
    tens = np.where(long, get_digit_from_end(5), get_digit_from_end(4))
    ones = np.where(long, get_digit_from_end(4), get_digit_from_end(3))
    parts = np.stack([tens, ones, get_digit_from_end(2), get_digit_from_end(1)])
    hours, minutes = parts[0] * 10 + parts[1], parts[2] * 10 + parts[3]
    right = ((parts >= 0) & (parts <= 9)).all(axis=0) & (hours <= 23) & (minutes <= 59)
    ahead = np.where(data.take(ends - lengths, mode="clip") == ord("-"), -60_000, 60_000) * (hours * 60 + minutes)
    named = long | short
    return np.where(named, ahead, 0), lengths, np.where(named, right, utc | (not zoned_only))


def _mask_known_lengths(lengths: Positions, *, zoned_only: bool) -> Mask:
    with_fraction = (lengths > _SECOND_LENGTH + 1) & (lengths <= len(_EMPTY))
    found: Mask = (lengths == _SECOND_LENGTH) | with_fraction
    return found if zoned_only else found | (lengths == _DATE_LENGTH) | (lengths == _MINUTE_LENGTH)


def _mask_with_separators(picture: _Bytes) -> Mask:
    between = picture[:, 10]
    right: Mask = (between == ord("T")) | (between == ord("t")) | (between == ord(" "))
    for column, sign in ((4, "-"), (7, "-"), (13, ":"), (16, ":"), (19, ".")):
        right &= picture[:, column] == ord(sign)
    return right


def _compute_milliseconds(digits: npt.NDArray[np.int64]) -> tuple[Milliseconds, Mask]:
    """Return milliseconds from digits of date, time and fraction, and a mask of the moments that exist."""
    weighed = digits[:, : len(_WEIGHTS)] * _WEIGHTS
    year, month, day, hour, minute, second = (weighed[:, part].sum(axis=1) for part in _PARTS)
    leap = ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)
    month_days = _DAYS_OF_MONTH[np.clip(month, 0, 12)] - ((month == 2) & ~leap)
    possible = (month >= 1) & (month <= 12) & (day >= 1) & (day <= month_days)
    possible &= (hour <= 23) & (minute <= 59) & (second <= 59)
    fraction = digits[:, 14:18] @ np.array([1000, 100, 10, 1])
    ms = (
        ((_compute_days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60_000
        + second * 1000
        + (fraction + 5) // 10
    )
    return ms, possible


def _compute_days_since_1970(
    year: npt.NDArray[np.int64], month: npt.NDArray[np.int64], day: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return days since 1970-01-01, computed in years that begin in March, so that a leap day comes last."""
    early = month <= 2
    year = year - early
    month = np.where(early, month + 9, month - 3)
    day_of_year = (153 * month + 2) // 5 + day - 1
    days: npt.NDArray[np.int64] = year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
    return days


@cache
def _build_serial_day_texts() -> npt.NDArray[np.void]:
    return _format_numbers_of_equal_length(np.arange(_LONG_DAYS.start, _LONG_DAYS.stop), _SERIAL["day"])


@cache
def _build_day_fraction_texts_by_second() -> npt.NDArray[np.void]:
    return _format_millisecond_day_fractions(np.arange(DAY_MS // 1000, dtype=np.int64) * 1000)


def _format_day_fractions(rest: Milliseconds) -> npt.NDArray[np.void]:
    """Return times of day as fractions of a day: a point and ten digits."""
    seconds = rest // 1000
    if (rest == seconds * 1000).all():
        found: npt.NDArray[np.void] = _build_day_fraction_texts_by_second()[seconds]
        return found
    return _format_millisecond_day_fractions(rest)


def _format_millisecond_day_fractions(rest: Milliseconds) -> npt.NDArray[np.void]:
    # Never less than the moment is, by some microseconds more: LibreOffice cuts seconds off instead of rounding.
    scaled = -(-rest * _FRACTION_SCALE // DAY_MS)
    # One more digit in front keeps the zeros, and gives its place to the point.
    found = _format_numbers_of_equal_length(scaled + _FRACTION_SCALE, _SERIAL["fraction"]).copy()
    found.view(np.uint8)[:: _SERIAL["fraction"].itemsize] = ord(".")
    return found


def _format_numbers_of_equal_length(
    numbers: npt.NDArray[np.int64], text_type: np.dtype[np.void]
) -> npt.NDArray[np.void]:
    """Return numbers that have as many digits as the type has bytes, as texts."""
    return np.frombuffer(pa.array(numbers).cast(pa.string()).buffers()[2], text_type, len(numbers))


def _build_column_of_equal_lengths(texts: npt.NDArray[np.void]) -> pa.Array:
    """Return texts of one length as a column."""
    ends = np.arange(len(texts) + 1, dtype=np.int32) * np.int32(texts.dtype.itemsize)
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(texts)])
