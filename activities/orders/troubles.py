"""How an attempt that did not come to its end is told to the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from domain.faults import FaultRecord
from domain.orders.retrying import Setback, Trouble
from infra.platforms import PlatformBusy, PlatformFailure, PlatformRefused, PlatformSlow, TokenExpired, TooManyRows

SETBACK_TYPE: Final = "Setback"

_CODES = {
    PlatformBusy: "platform_busy",
    TokenExpired: "platform_credentials",
    PlatformRefused: "platform_refused",
    TooManyRows: "platform_rows_max",
    PlatformSlow: "slice_timeout",
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
        raise stopped(Setback(trouble=Trouble.CRASHED, fault=fault)) from None


def stopped(setback: Setback) -> ApplicationError:
    benign, hopeless = ApplicationErrorCategory.BENIGN, setback.trouble is Trouble.REFUSED
    return ApplicationError(setback.fault.sentence, setback, type=SETBACK_TYPE, non_retryable=hopeless, category=benign)


def goes_on(failure: PlatformFailure) -> bool:
    """Whether what was told before it still holds."""
    return isinstance(failure, _GOES_ON)


def setback_of(failure: PlatformFailure) -> Setback:
    """What a failure means for the next attempt."""
    code = next((code for kind, code in _CODES.items() if isinstance(failure, kind)), "platform_failed")
    hint = TIMEOUT_HINT if isinstance(failure, PlatformSlow) else ""
    fault = FaultRecord(code=code, message=str(failure), hint=hint, retryable=isinstance(failure, PlatformBusy))
    match failure:
        case PlatformBusy() if failure.retry_after_seconds is not None:
            return Setback(trouble=Trouble.TOLD_TO_WAIT, fault=fault, wait_seconds=failure.retry_after_seconds)
        case TokenExpired():
            # Whoever renews it may be about to.
            return Setback(trouble=Trouble.FAILED, fault=fault)
        case PlatformRefused() | TooManyRows():
            return Setback(trouble=Trouble.REFUSED, fault=fault)
        case _:
            return Setback(trouble=Trouble.FAILED, fault=fault)
