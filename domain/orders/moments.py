"""Moments as platforms write them: their form, zone and resolution, read and written without a float."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import assert_never

from pydantic import BaseModel, ConfigDict, Field

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Form(StrEnum):
    """How a moment is written."""

    RFC3339 = "rfc3339"
    """2026-01-02T03:04:05+08:00, with its zone."""
    NAIVE = "naive"
    """2026-01-02T03:04:05, in the platform's zone."""
    SPACED = "spaced"
    """2026-01-02 03:04:05, in the platform's zone."""
    EPOCH = "epoch"
    """Seconds since 1970."""
    EPOCH_MS = "epoch_ms"
    """Milliseconds since 1970."""


class Resolution(StrEnum):
    """How finely moments are told."""

    SECOND = "second"
    MILLISECOND = "millisecond"
    MICROSECOND = "microsecond"


_STEPS = {
    Resolution.SECOND: timedelta(seconds=1),
    Resolution.MILLISECOND: timedelta(milliseconds=1),
    Resolution.MICROSECOND: timedelta(microseconds=1),
}
_TIMESPECS = {
    Resolution.SECOND: "seconds",
    Resolution.MILLISECOND: "milliseconds",
    Resolution.MICROSECOND: "microseconds",
}


class Moments(BaseModel):
    """How one kind of moment is written.

    The zone is a fixed distance from UTC: a zone with summer time would tell one hour of the year twice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Form = Field(
        default=Form.RFC3339,
        description="2026-01-02T03:04:05+08:00 (`rfc3339`), without its zone (`naive`), with a space instead of the T "
        "(`spaced`), seconds (`epoch`) or milliseconds (`epoch_ms`) since 1970",
    )
    zone_minutes: int = Field(
        default=0, ge=-1_440, le=1_440, description="how far the zone of such times is before UTC, where they name none"
    )
    told: Resolution = Field(default=Resolution.SECOND, description="how finely they are told")

    @property
    def resolution(self) -> timedelta:
        """The smallest difference that can be written."""
        return _STEPS[self.told]

    def write(self, moment: datetime) -> str:
        """A moment as a parameter of a request; what is finer than the resolution is cut off."""
        local = moment.astimezone(timezone(timedelta(minutes=self.zone_minutes)))
        match self.form:
            case Form.RFC3339:
                return local.isoformat(timespec=_TIMESPECS[self.told]).replace("+00:00", "Z")
            case Form.NAIVE:
                return local.replace(tzinfo=None).isoformat(timespec=_TIMESPECS[self.told])
            case Form.SPACED:
                return local.replace(tzinfo=None).isoformat(sep=" ", timespec=_TIMESPECS[self.told])
            case Form.EPOCH:
                return str((moment - _EPOCH) // timedelta(seconds=1))
            case Form.EPOCH_MS:
                return str((moment - _EPOCH) // timedelta(milliseconds=1))
            case _:
                assert_never(self.form)

    def reader(self) -> Callable[[str | int], datetime]:
        """What reads a moment of an answer, in UTC; raises ValueError where it is none."""
        zone = timezone(timedelta(minutes=self.zone_minutes))
        match self.form:
            case Form.RFC3339:
                return _with_zone
            case Form.NAIVE | Form.SPACED:
                return lambda text: datetime.fromisoformat(str(text)).replace(tzinfo=zone).astimezone(UTC)
            case Form.EPOCH:
                return lambda number: _EPOCH + timedelta(seconds=int(number))
            case Form.EPOCH_MS:
                return lambda number: _EPOCH + timedelta(milliseconds=int(number))
            case _:
                assert_never(self.form)


def _with_zone(text: str | int) -> datetime:
    moment = datetime.fromisoformat(str(text))
    if moment.tzinfo is UTC:
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} tells no zone")
    return moment.astimezone(UTC)
