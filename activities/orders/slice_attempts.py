"""One attempt at a slice: the answers that it leaves for the next one, its raw pages, and how it fails."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.orders.reading import RawOrderPage
from clients.platforms import (
    AttemptTimeUsedUp,
    CredentialsRefused,
    PlatformBusy,
    PlatformConnector,
    PlatformFailure,
    PlatformRefused,
    ReplayableAnswerLog,
    TooManyRows,
    WrongTimeZone,
)
from domain.faults import FaultRecord, format_count
from domain.orders import names
from domain.orders.activity_models import FailSliceInput, ReadSliceInput, ReadSliceResult
from domain.orders.capability import PagingByNumberCursorTokenOrLink
from domain.orders.slices import SliceAttemptFailure, SliceFailureKind, SliceResumePoint
from infra import log, metrics, outages
from infra.objects import ObjectMissing, ObjectStore
from stores.orders.attempts import DeclarationChangedDuringRead, SliceReadingResult
from stores.orders.platforms import PlatformWithSettingsInForce


async def load_unexpired_answers_of_earlier_attempts(
    objects: ObjectStore, params: ReadSliceInput, state: PlatformWithSettingsInForce
) -> ReplayableAnswerLog:
    """Load the answers of earlier attempts; empty where the platform's page tokens have expired since.

    So it is where the rows were declared anew: copies from before that are replaced by whatever is written, and what
    has been stored meanwhile may be newer than these answers.
    """
    resume_point, good_seconds = params.resume_point, state.capability.paging.token_seconds
    if resume_point is None or resume_point.declared_revision != state.row.declared_revision:
        return ReplayableAnswerLog()
    age = datetime.now(UTC) - resume_point.kept_at
    if good_seconds is not None and age > timedelta(seconds=good_seconds):
        log.get(__name__).info("order_answers_expired", platform=params.platform, window=str(params.window))
        return ReplayableAnswerLog()
    try:
        body = await objects.get(resume_point.key)
    except ObjectMissing:
        return ReplayableAnswerLog()
    if resume_point.older is not None:
        await objects.delete(resume_point.older)
    try:
        return await asyncio.to_thread(ReplayableAnswerLog.decode, body)
    except ValueError as error:
        log.get(__name__).warning("order_answers_unreadable", platform=params.platform, error=str(error))
        return ReplayableAnswerLog()


async def store_gained_answers_or_keep_resume_point(
    objects: ObjectStore, params: ReadSliceInput, answers: ReplayableAnswerLog, declared_revision: int
) -> SliceResumePoint | None:
    """Store the received answers for the next attempt, and return where."""
    if not answers.gained:
        return params.resume_point
    key = names.build_answer_log_key(params.platform, params.window, params.attempt_id)
    body = await asyncio.to_thread(answers.encode)
    await objects.put(key, body)
    older = params.resume_point.key if params.resume_point else None
    return SliceResumePoint(key=key, older=older, kept_at=datetime.now(UTC), declared_revision=declared_revision)


CLOCK_JUMP_SECONDS: Final = 60.0


async def fetch_platform_time(connector: PlatformConnector, skew_before: float | None) -> datetime:
    """Return the platform's time; where it is much farther ahead than before, the earlier one of two readings.

    A single wrong answer would have time claimed, and found empty, whose orders are still to come.
    """
    now = await connector.fetch_platform_time()
    if skew_before is None or (now - datetime.now(UTC)).total_seconds() - skew_before <= CLOCK_JUMP_SECONDS:
        return now
    return min(now, await connector.fetch_platform_time())


SAVE_SECONDS: Final = 10.0
SAVE_SHARE: Final = 1 / 10
"""An attempt stores its answers this often, or after this share of its timeout where that is shorter; where it takes
long, less often, so that no more than this share of the time goes by with it."""


class AnswerLogSaver:
    """Stores the answers of a running attempt every few seconds, so that one that is lost costs few requests.

    Heartbeats carry the resume point, which the workflow finds in the error of an attempt that ended without a word.
    """

    def __init__(self, objects: ObjectStore, params: ReadSliceInput) -> None:
        self._objects = objects
        self._params = params
        self.resume_point: SliceResumePoint | None = None

    def list_heartbeat_details(self) -> Sequence[SliceResumePoint]:
        """Return the resume point, if anything is stored."""
        return () if self.resume_point is None else (self.resume_point,)

    @asynccontextmanager
    async def save_at_intervals_during_block(
        self, answers: ReplayableAnswerLog, declared_revision: int
    ) -> AsyncIterator[None]:
        """Store the answers every few seconds while the body runs."""
        ended = asyncio.Event()
        task = asyncio.create_task(self._save_until(ended, answers, declared_revision))
        try:
            yield
        finally:
            # Not cancelled: what is written next replaces or deletes the object, and must not be overtaken.
            ended.set()
            await task

    async def _save_until(self, ended: asyncio.Event, answers: ReplayableAnswerLog, declared_revision: int) -> None:
        pause = shortest = min(SAVE_SECONDS, self._params.settings.timeout * SAVE_SHARE)
        saved = 0
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), pause)
                return
            began, gained = time.monotonic(), answers.gained
            try:
                if gained > saved:
                    self.resume_point = await store_gained_answers_or_keep_resume_point(
                        self._objects, self._params, answers, declared_revision
                    )
                saved = gained
            except Exception as error:
                if not outages.is_outage(error):
                    raise
            pause = max(shortest, (time.monotonic() - began) / SAVE_SHARE)

    async def delete_stored_answers(self) -> None:
        """Delete what this attempt and the ones before have stored."""
        points = [point for point in (self._params.resume_point, self.resume_point) if point is not None]
        self.resume_point = None
        for key in {key for point in points for key in (point.key, point.older) if key is not None}:
            await self._objects.delete(key)


CONTENT_TYPE: Final = "application/vnd.apache.parquet"
GROUP_BYTES: Final = 4 * 1024 * 1024
"""Bytes of pages in a row group."""


async def store_raw_pages_as_parquet(objects: ObjectStore, key: str, pages: Sequence[RawOrderPage]) -> None:
    """Write the pages of a reading as Parquet, in the order they were read."""
    body = await asyncio.to_thread(_encode_parquet, pages)
    await objects.put(key, body, content_type=CONTENT_TYPE)


def _encode_parquet(pages: Sequence[RawOrderPage]) -> bytes:
    # Workflows import activities for their signatures, and must not pay for Arrow.
    import pyarrow.parquet as pq  # noqa: PLC0415

    from excel.arrow import pa  # noqa: PLC0415

    schema = pa.schema({"page": pa.int32(), "asked_at": pa.timestamp("us", tz="UTC"), "body": pa.binary()})
    out = io.BytesIO()
    with pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        for group in _group_by_bytes(pages):
            rows = [{"page": each.number, "asked_at": each.asked_at, "body": each.body.decompress()} for each in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return out.getvalue()


def _group_by_bytes(pages: Sequence[RawOrderPage]) -> Iterator[list[RawOrderPage]]:
    """Yield the pages in groups: the writer has a copy of one group at a time."""
    group: list[RawOrderPage] = []
    size = 0
    for page in pages:
        group.append(page)
        size += page.body.size
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


FAILURE_TYPE: Final = "Setback"
"""The type of the error in histories, which workflows compare: it stays as it is."""
CREDENTIALS_CODE: Final = "platform_credentials"
ZONE_CODE: Final = "platform_zone"

_CODES: Final[dict[type[PlatformFailure], str]] = {
    PlatformBusy: "platform_busy",
    CredentialsRefused: CREDENTIALS_CODE,
    PlatformRefused: "platform_refused",
    TooManyRows: "platform_rows_max",
    AttemptTimeUsedUp: "slice_timeout",
    WrongTimeZone: ZONE_CODE,
}
_RESUMABLE = (PlatformBusy, AttemptTimeUsedUp, CredentialsRefused)
"""After these the next attempt can continue; after others, the received answers must not be believed."""
TIMEOUT_HINT: Final = "Raise `timeout`, or shorten `interval` or lower `max_rows_per_slice` so that slices are smaller."


@contextmanager
def convert_platform_failures(saver: AnswerLogSaver | None = None) -> Iterator[None]:
    """Turn failures of a platform into application errors that carry a SliceAttemptFailure.

    Args:
        saver: Knows where the next attempt can continue if the worker is stopped.
    """
    try:
        yield
    except PlatformFailure as failure:
        raise to_application_error(to_attempt_failure(failure)) from None
    except DeclarationChangedDuringRead as changed:
        raise to_application_error(_build_failure_to_read_again(changed)) from None
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is None or not details.worker_shutdown:
            raise
        fault = FaultRecord(code="worker_stopped", message="The worker was stopped in order.", retryable=True)
        stopped = SliceAttemptFailure(kind=SliceFailureKind.CRASHED, fault=fault)
        raise to_application_error(
            stopped.model_copy(update={"resume_point": saver.resume_point if saver else None})
        ) from None


@contextmanager
def convert_outages_to_lost_worker() -> Iterator[None]:
    """Turn an outage of this installation's components into the failure of a lost worker: it is not the platform's."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PlatformFailure) or not outages.is_outage(error):
            raise
        fault = FaultRecord(code="worker_lost", message=outages.describe_outage(error), retryable=True)
        raise to_application_error(SliceAttemptFailure(kind=SliceFailureKind.CRASHED, fault=fault)) from None


OUTAGE_WAIT_SECONDS: Final = 30.0
"""First pause before a slice is tried again that could not be read because the database or the object store is out."""


@contextmanager
def convert_outages_to_wait(params: ReadSliceInput, saver: AnswerLogSaver) -> Iterator[None]:
    """Turn an outage of this installation's components into a wait: however long it lasts, no slice fails by it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PlatformFailure) or not _is_outage_or_group_of_them(error):
            raise
        fault = FaultRecord(code="worker_lost", message=_describe_outage_or_first_of_group(error), retryable=True)
        attempt = SliceAttemptFailure(
            kind=SliceFailureKind.TOLD_TO_WAIT,
            fault=fault,
            wait_seconds=OUTAGE_WAIT_SECONDS,
            is_own_limit=True,
            is_outage=True,
            resume_point=saver.resume_point or params.resume_point,
        )
        raise to_application_error(attempt) from None


def _is_outage_or_group_of_them(error: BaseException) -> bool:
    """Return whether an error reports an outage, or every part of a group of errors does.

    One that the size of the slice may cause is none: it would be waited for without end.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_outage_or_group_of_them, error.exceptions))
    return outages.is_outage(error) and not outages.may_be_caused_by_statement(error)


def _describe_outage_or_first_of_group(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return outages.describe_outage(error)


def _build_failure_to_read_again(changed: DeclarationChangedDuringRead) -> SliceAttemptFailure:
    """Build the failure of an attempt whose reading does not count: the slice is read again at once."""
    fault = FaultRecord(code="platform_failed", message=str(changed), hint="It is read again.", retryable=True)
    return SliceAttemptFailure(kind=SliceFailureKind.TOLD_TO_WAIT, fault=fault, is_own_limit=True)


def to_application_error(attempt: SliceAttemptFailure) -> ApplicationError:
    benign, hopeless = ApplicationErrorCategory.BENIGN, attempt.kind is SliceFailureKind.REFUSED
    return ApplicationError(attempt.fault.sentence, attempt, type=FAILURE_TYPE, non_retryable=hopeless, category=benign)


def are_received_answers_still_valid(failure: PlatformFailure) -> bool:
    """Return whether the next attempt may continue with the answers that were received before a failure.

    Where it may, they are stored, and `add_resume_point_and_decide_retryable` completes the failure. Where not,
    `make_midway_refusal_retryable_unless_numbered` looks at a refusal after pages were read.
    """
    return isinstance(failure, _RESUMABLE)


def add_resume_point_and_decide_retryable(
    attempt: SliceAttemptFailure, failure: PlatformFailure, resume_point: SliceResumePoint | None, gained: int
) -> SliceAttemptFailure:
    """Return a failure whose received answers were stored, with its resume point.

    One whose time was used up is retryable if the attempt made progress.
    """
    may_pass = bool(gained) if isinstance(failure, AttemptTimeUsedUp) else failure.may_pass
    return attempt.model_copy(
        update={"resume_point": resume_point, "gained": gained, "fault": _build_fault_with_retryable(attempt, may_pass)}
    )


def make_midway_refusal_retryable_unless_numbered(
    attempt: SliceAttemptFailure, paging: PagingByNumberCursorTokenOrLink
) -> SliceAttemptFailure:
    """Return the failure for a refusal after pages were read, whose answers are not continued with.

    Where a page leads to the next, its token may have expired, and the slice is read from the beginning.
    """
    fault = _build_fault_with_retryable(attempt, paging is not PagingByNumberCursorTokenOrLink.NUMBER)
    return attempt.model_copy(update={"kind": SliceFailureKind.FAILED, "fault": fault})


def _build_fault_with_retryable(attempt: SliceAttemptFailure, is_retryable: bool) -> FaultRecord:
    return attempt.fault.model_copy(update={"retryable": is_retryable})


def to_attempt_failure(failure: PlatformFailure) -> SliceAttemptFailure:
    """Return what a platform's failure means for the next attempt."""
    code = next((code for kind, code in _CODES.items() if isinstance(failure, kind)), "platform_failed")
    hint = TIMEOUT_HINT if isinstance(failure, AttemptTimeUsedUp) else failure.hint
    fault = FaultRecord(code=code, message=failure.message, hint=hint, retryable=failure.may_pass)
    match failure:
        case PlatformBusy() if failure.retry_after_seconds is not None:
            return SliceAttemptFailure(
                kind=SliceFailureKind.TOLD_TO_WAIT,
                fault=fault,
                wait_seconds=failure.retry_after_seconds,
                is_own_limit=failure.is_local,
            )
        case CredentialsRefused():
            return SliceAttemptFailure(kind=SliceFailureKind.EXPIRED, fault=fault)
        case PlatformRefused() | TooManyRows():
            return SliceAttemptFailure(kind=SliceFailureKind.REFUSED, fault=fault)
        case _:
            return SliceAttemptFailure(kind=SliceFailureKind.FAILED, fault=fault)


def log_and_count_end(
    params: ReadSliceInput, reading: SliceReadingResult, result: ReadSliceResult, *, may_be_cut: bool
) -> None:
    """Log the end of a slice in one line, and what is doubtful of it in others; count it."""
    if may_be_cut:
        log.get(__name__).warning(
            "order_window_may_be_incomplete",
            platform=params.platform,
            window=str(params.window),
            orders=result.orders,
        )
    for event, count in (("orders_outside_window", result.outside), ("orders_undated", result.undated)):
        if count:
            log.get(__name__).warning(event, platform=params.platform, window=str(params.window), orders=count)
    log.get(__name__).info(
        "order_slice_done",
        platform=params.platform,
        window=str(params.window),
        purpose=params.purpose.value,
        orders=result.orders,
        changed=result.changed,
        missed=result.missed,
        pages=reading.pages,
        passes=reading.passes,
    )
    metrics.SLICES_ENDED.labels(params.platform, params.purpose.value, "done", "").inc()
    metrics.ORDERS.labels(params.platform).inc(result.changed)
    metrics.ORDERS_MISSED.labels(params.platform).inc(result.missed)


def build_failed_sweep_message(state: PlatformWithSettingsInForce, params: FailSliceInput) -> str:
    """Build the text of the alarm about a slice whose sweep has failed twice in a row."""
    return (
        f"The sweep of the slice {params.window} of platform {params.platform} has failed twice in a row, this time "
        f"after {format_count(params.attempts, 'attempt')}: {params.fault.sentence} What was read before is kept; "
        "orders that appeared later may be missing. "
        f"It is repeated every {state.settings.sweep_after} seconds. "
        f"GET /v1/platforms/{params.platform}/slices?sweep=failed lists all such slices."
    )
