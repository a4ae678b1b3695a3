"""One attempt at a slice: the answers that it leaves for the next one, its raw pages, and how it fails."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.orders.reading import RawPage
from clients.platforms import (
    PlatformBusy,
    PlatformFailure,
    PlatformRefused,
    PlatformSlow,
    Tape,
    TokenExpired,
    TooManyRows,
    ZoneDiffers,
)
from domain.faults import FaultRecord
from domain.orders import names
from domain.orders.activity_models import ReadSliceInput
from domain.orders.capability import Capability, PagingKind
from domain.orders.slices import AttemptFailure, FailureKind, ResumePoint
from infra import log
from infra.objects import ObjectMissing, ObjectStore


async def load_answers(objects: ObjectStore, order: ReadSliceInput, capability: Capability) -> Tape:
    """Load the answers of earlier attempts; empty where the platform's page tokens have expired since."""
    place, good_seconds = order.place, capability.paging.token_seconds
    if place is None:
        return Tape()
    age = datetime.now(UTC) - place.kept_at
    if good_seconds is not None and age > timedelta(seconds=good_seconds):
        log.get(__name__).info("order_place_expired", platform=order.platform, window=str(order.window))
        return Tape()
    try:
        body = await objects.get(place.key)
    except ObjectMissing:
        return Tape()
    if place.older is not None:
        await objects.delete(place.older)
    return await asyncio.to_thread(Tape.decoded, body)


async def store_answers(objects: ObjectStore, order: ReadSliceInput, tape: Tape) -> ResumePoint | None:
    """Store the received answers for the next attempt, and return where."""
    if not tape.gained:
        return order.place
    key = names.staging_key(order.platform, order.window, order.holder.rpartition("/")[2])
    body = await asyncio.to_thread(tape.encoded)
    await objects.put(key, body)
    return ResumePoint(key=key, older=order.place.key if order.place else None, kept_at=datetime.now(UTC))


async def delete_answers(objects: ObjectStore, order: ReadSliceInput) -> None:
    """Delete the stored answers."""
    for key in (order.place.key, order.place.older) if order.place else ():
        if key is not None:
            await objects.delete(key)


CONTENT_TYPE: Final = "application/vnd.apache.parquet"


async def store_pages(objects: ObjectStore, key: str, sheets: Sequence[RawPage]) -> None:
    """Write the pages of a reading as Parquet, in the order they were read."""
    body = await asyncio.to_thread(_encode_parquet, sheets)
    await objects.put(key, body, content_type=CONTENT_TYPE)


def _encode_parquet(sheets: Sequence[RawPage]) -> bytes:
    # Workflows import activities for their signatures, and must not pay for Arrow.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pa.table(
        {
            "page": pa.array([sheet.number for sheet in sheets], pa.int32()),
            "asked_at": pa.array([sheet.asked_at for sheet in sheets], pa.timestamp("us", tz="UTC")),
            "body": pa.array([sheet.body for sheet in sheets], pa.binary()),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", use_dictionary=False, write_statistics=False)
    return out.getvalue()


FAILURE_TYPE: Final = "Setback"
CREDENTIALS_CODE: Final = "platform_credentials"

_CODES: Final[dict[type[PlatformFailure], str]] = {
    PlatformBusy: "platform_busy",
    TokenExpired: CREDENTIALS_CODE,
    PlatformRefused: "platform_refused",
    TooManyRows: "platform_rows_max",
    PlatformSlow: "slice_timeout",
    ZoneDiffers: "platform_zone",
}
_RESUMABLE = (PlatformBusy, PlatformSlow, TokenExpired)
"""After these the next attempt can continue; after others, the received answers must not be believed."""
TIMEOUT_HINT: Final = "Raise `timeout`, or shorten `interval` or lower `max_rows_per_slice` so that slices are smaller."


@contextmanager
def converting_failures() -> Iterator[None]:
    """Turn failures of a platform into application errors that carry an AttemptFailure."""
    try:
        yield
    except PlatformFailure as failure:
        raise to_application_error(to_attempt_failure(failure)) from None
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is None or not details.worker_shutdown:
            raise
        fault = FaultRecord(code="worker_stopped", message="The worker was stopped in order.", retryable=True)
        raise to_application_error(AttemptFailure(trouble=FailureKind.CRASHED, fault=fault)) from None


def to_application_error(setback: AttemptFailure) -> ApplicationError:
    benign, hopeless = ApplicationErrorCategory.BENIGN, setback.trouble is FailureKind.REFUSED
    return ApplicationError(setback.fault.sentence, setback, type=FAILURE_TYPE, non_retryable=hopeless, category=benign)


def is_resumable(failure: PlatformFailure) -> bool:
    """Return whether the received answers are still valid."""
    return isinstance(failure, _RESUMABLE)


def with_resume_point(
    setback: AttemptFailure, failure: PlatformFailure, place: ResumePoint | None, gained: int
) -> AttemptFailure:
    """Return the failure with its resume point; it is retryable if the attempt made progress."""
    may_pass = bool(gained) if isinstance(failure, PlatformSlow) else failure.may_pass
    return setback.model_copy(update={"place": place, "gained": gained, "fault": _with_retryable(setback, may_pass)})


def judge_refusal_midway(setback: AttemptFailure, paging: PagingKind) -> AttemptFailure:
    """Return the failure for a refusal after pages were read: where pages lead to pages, a token may have expired."""
    fault = _with_retryable(setback, paging is not PagingKind.NUMBER)
    return setback.model_copy(update={"trouble": FailureKind.FAILED, "fault": fault})


def _with_retryable(setback: AttemptFailure, may_pass: bool) -> FaultRecord:
    return setback.fault.model_copy(update={"retryable": may_pass})


def to_attempt_failure(failure: PlatformFailure) -> AttemptFailure:
    """Return what a platform's failure means for the next attempt."""
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
