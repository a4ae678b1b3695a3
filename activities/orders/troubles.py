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
from infra.platforms import PlatformBusy, PlatformFailure, PlatformRefused, TokenExpired, TooManyRows

SETBACK_TYPE: Final = "Setback"

_CODES = {
    PlatformBusy: "platform_busy",
    TokenExpired: "platform_credentials",
    PlatformRefused: "platform_refused",
    TooManyRows: "platform_rows_max",
}


@contextmanager
def told() -> Iterator[None]:
    """Turn what a platform did into a setback that the plan can judge."""
    try:
        yield
    except PlatformFailure as failure:
        raise _error(setback_of(failure)) from None
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is None or not details.worker_shutdown:
            raise
        fault = FaultRecord(code="worker_stopped", message="The worker was stopped in order.", retryable=True)
        raise _error(Setback(trouble=Trouble.CRASHED, fault=fault)) from None


def _error(setback: Setback) -> ApplicationError:
    benign, hopeless = ApplicationErrorCategory.BENIGN, setback.trouble is Trouble.REFUSED
    return ApplicationError(setback.fault.sentence, setback, type=SETBACK_TYPE, non_retryable=hopeless, category=benign)


def setback_of(failure: PlatformFailure) -> Setback:
    """What a failure means for the next attempt."""
    code = next((code for kind, code in _CODES.items() if isinstance(failure, kind)), "platform_failed")
    fault = FaultRecord(code=code, message=str(failure), retryable=isinstance(failure, PlatformBusy))
    match failure:
        case PlatformBusy() if failure.retry_after_seconds is not None:
            return Setback(trouble=Trouble.TOLD_TO_WAIT, fault=fault, wait_seconds=failure.retry_after_seconds)
        case PlatformRefused() | TooManyRows():
            return Setback(trouble=Trouble.REFUSED, fault=fault)
        case _:
            return Setback(trouble=Trouble.FAILED, fault=fault)
