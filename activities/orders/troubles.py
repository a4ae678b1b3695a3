"""How an attempt that did not come to its end is told to the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from clients.platforms import (
    PlatformBusy,
    PlatformFailure,
    PlatformRefused,
    PlatformSlow,
    TokenExpired,
    TooManyRows,
    ZoneDiffers,
)
from domain.faults import FaultRecord
from domain.orders.capability import PagingKind
from domain.orders.slices import AttemptFailure, FailureKind, ResumePoint

SETBACK_TYPE: Final = "Setback"
CREDENTIALS_CODE: Final = "platform_credentials"

_CODES: Final[dict[type[PlatformFailure], str]] = {
    PlatformBusy: "platform_busy",
    TokenExpired: CREDENTIALS_CODE,
    PlatformRefused: "platform_refused",
    TooManyRows: "platform_rows_max",
    PlatformSlow: "slice_timeout",
    ZoneDiffers: "platform_zone",
}
_GOES_ON = (PlatformBusy, PlatformSlow, TokenExpired)
"""After these the next attempt can go on where this one was; after others it must not believe what was told."""
TIMEOUT_HINT: Final = "Raise `timeout`, or shorten `interval` or lower `max_rows_per_slice` so that slices are smaller."


@contextmanager
def told() -> Iterator[None]:
    """Turn what a platform did into a setback that the plan can judge."""
    try:
        yield
    except PlatformFailure as failure:
        raise stopped(setback_of(failure)) from None
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is None or not details.worker_shutdown:
            raise
        fault = FaultRecord(code="worker_stopped", message="The worker was stopped in order.", retryable=True)
        raise stopped(AttemptFailure(trouble=FailureKind.CRASHED, fault=fault)) from None


def stopped(setback: AttemptFailure) -> ApplicationError:
    benign, hopeless = ApplicationErrorCategory.BENIGN, setback.trouble is FailureKind.REFUSED
    return ApplicationError(setback.fault.sentence, setback, type=SETBACK_TYPE, non_retryable=hopeless, category=benign)


def goes_on(failure: PlatformFailure) -> bool:
    """Whether what was told before it still holds."""
    return isinstance(failure, _GOES_ON)


def kept(setback: AttemptFailure, failure: PlatformFailure, place: ResumePoint | None, gained: int) -> AttemptFailure:
    """One whose place is kept: the next attempt needs less, unless this one was told nothing."""
    may_pass = bool(gained) if isinstance(failure, PlatformSlow) else failure.may_pass
    return setback.model_copy(update={"place": place, "gained": gained, "fault": _judged(setback, may_pass)})


def refused_midway(setback: AttemptFailure, paging: PagingKind) -> AttemptFailure:
    """It answered before: where pages lead to pages, perhaps no more is refused than a token that is too old."""
    fault = _judged(setback, paging is not PagingKind.NUMBER)
    return setback.model_copy(update={"trouble": FailureKind.FAILED, "fault": fault})


def _judged(setback: AttemptFailure, may_pass: bool) -> FaultRecord:
    return setback.fault.model_copy(update={"retryable": may_pass})


def setback_of(failure: PlatformFailure) -> AttemptFailure:
    """What a failure means for the next attempt."""
    code = next((code for kind, code in _CODES.items() if isinstance(failure, kind)), "platform_failed")
    hint = TIMEOUT_HINT if isinstance(failure, PlatformSlow) else failure.hint
    fault = FaultRecord(code=code, message=failure.message, hint=hint, retryable=failure.may_pass)
    match failure:
        case PlatformBusy() if failure.retry_after_seconds is not None:
            return AttemptFailure(
                trouble=FailureKind.TOLD_TO_WAIT, fault=fault, wait_seconds=failure.retry_after_seconds
            )
        case TokenExpired():
            return AttemptFailure(trouble=FailureKind.EXPIRED, fault=fault)
        case PlatformRefused() | TooManyRows():
            return AttemptFailure(trouble=FailureKind.REFUSED, fault=fault)
        case _:
            return AttemptFailure(trouble=FailureKind.FAILED, fault=fault)
