"""What a slice's fault says: whether trying again helps, and what to do, by the cause."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, cast

import asyncpg
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError

from activities.orders import slice_attempts
from clients.http import HttpResponse
from clients.platforms import (
    AttemptTimeUsedUp,
    CredentialsRefused,
    InconsistentAnswers,
    PlatformBusy,
    PlatformFailure,
    PlatformRefused,
    TooManyRows,
    client,
)
from domain.orders import config
from domain.orders.activity_models import ReadSliceInput
from domain.orders.capability import PagingByNumberCursorTokenOrLink
from domain.orders.config import PlatformOptions
from domain.orders.declarations import ErrorFormat
from domain.orders.slices import (
    WAIT_MAX_SECONDS,
    SliceAttemptFailure,
    SliceFailureKind,
    SliceReadPurpose,
    SliceResumePoint,
    SliceRetryState,
)
from domain.orders.windows import TimeWindow
from infra.objects.failures import StoreUnreachable
from infra.outages import DatabaseUnreachable
from sims.platforms.dialects.plain import PLAIN
from tests.support.platforms import SMALL_PAGES, running_connector

ORDERS: dict[str, Any] = {"orders": 3_000, "span_seconds": 3_600}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_PAUSES_SECONDS", (0.0, 0.0))


@pytest.mark.parametrize(
    ("failure", "code", "may_pass"),
    [
        (PlatformBusy("It is busy.", "Wait."), "platform_busy", True),
        (InconsistentAnswers("Orders moved.", "Wait.", may_pass=True), "platform_failed", True),
        (InconsistentAnswers("There is no list.", "Mend it."), "platform_failed", False),
        (PlatformRefused("It refuses.", "Mend it."), "platform_refused", False),
        (CredentialsRefused("It refuses.", "Renew them."), "platform_credentials", False),
        (TooManyRows("It is too large.", "Split it.", rows=9), "platform_rows_max", False),
    ],
)
def test_a_fault_has_a_cause_a_remedy_and_says_whether_to_try_again(
    failure: PlatformFailure, code: str, may_pass: bool
) -> None:
    """Each in its own field, so that an operator and a program can distinguish them."""
    fault = slice_attempts.to_attempt_failure(failure).fault
    assert (fault.code, fault.message, fault.hint, fault.retryable) == (code, failure.message, failure.hint, may_pass)


@pytest.mark.parametrize(
    "outage",
    [
        StoreUnreachable("It does not answer.", key="k", code=""),
        ExceptionGroup("", [DatabaseUnreachable("It is out.")]),
    ],
)
def test_an_outage_of_ours_fails_no_slice(outage: Exception) -> None:
    """However often it is tried meanwhile, less and less; the next attempt goes on where the last one left answers."""
    place = SliceResumePoint(key="k", kept_at=datetime(2026, 3, 1, tzinfo=UTC))
    window = TimeWindow(start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 3, 2, tzinfo=UTC))
    settings = config.resolve_settings(1, PlatformOptions(), PlatformOptions(), PLAIN)[0]
    params = ReadSliceInput(
        platform="7",
        window=window,
        purpose=SliceReadPurpose.FIRST,
        settings=settings,
        resume_point=place,
        holder="slice/1",
    )
    ladder, pauses = SliceRetryState(), list[float | None]()
    for _ in range(50):
        with (
            pytest.raises(ApplicationError) as error,
            slice_attempts.convert_outages_to_wait(params, slice_attempts.AnswerLogSaver(cast("Any", None), params)),
        ):
            raise outage
        failure = SliceAttemptFailure.model_validate(error.value.details[0])
        assert failure.resume_point == place
        pauses.append(ladder.record_failure_and_compute_pause(failure, 0, 10))
    assert pauses == [30, 60, 120, 240, *[300] * 46]
    assert ladder.record_failure_and_compute_pause(failure.model_copy(update={"is_outage": False}), 0, 10) == 30
    assert ladder.record_failure_and_compute_pause(failure, 0, 10) == 30


@pytest.mark.parametrize("error", [asyncpg.QueryCanceledError(), asyncpg.OutOfMemoryError()])
def test_a_statement_that_is_too_large_is_not_waited_for(error: Exception) -> None:
    """It fails each time alike: the attempt counts, so that the slice ends in the failed set."""
    with pytest.raises(type(error)), slice_attempts.convert_outages_to_wait(cast("Any", None), cast("Any", None)):
        raise error


@pytest.mark.parametrize(("gained", "may_pass"), [(0, False), (3, True)])
def test_a_timeout_is_worth_another_attempt_where_this_one_came_further(gained: int, may_pass: bool) -> None:
    """Else the next one ends where this one did."""
    slow = AttemptTimeUsedUp("It did not tell everything.")
    setback = slice_attempts.add_resume_point_and_decide_retryable(
        slice_attempts.to_attempt_failure(slow), slow, None, gained
    )
    assert (setback.gained, setback.fault.retryable) == (gained, may_pass)
    assert "timeout" in setback.fault.hint


@pytest.mark.parametrize(
    ("paging", "may_pass"),
    [(PagingByNumberCursorTokenOrLink.NUMBER, False), (PagingByNumberCursorTokenOrLink.TOKEN, True)],
)
def test_a_refusal_in_the_middle_may_pass_where_pages_lead_to_pages(
    paging: PagingByNumberCursorTokenOrLink, may_pass: bool
) -> None:
    """A token may have grown too old; a number does not."""
    setback = slice_attempts.make_midway_refusal_retryable_unless_numbered(
        slice_attempts.to_attempt_failure(PlatformRefused("It refuses.")), paging
    )
    assert (setback.kind, setback.fault.retryable) == (SliceFailureKind.FAILED, may_pass)


@pytest.mark.parametrize(
    ("status", "words"),
    [(301, "base_url"), (403, "right to read orders"), (404, "paths of its record"), (422, "platform's documents")],
)
async def test_a_refusal_says_what_to_mend(status: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that has moved is not mended by rights, nor a missing right by an address."""
    async with running_connector(**ORDERS) as here:
        answer = HttpResponse(status, CIMultiDictProxy(CIMultiDict[str]()), b"no")

        async def get(*_: object, **__: object) -> HttpResponse:
            return answer

        monkeypatch.setattr("clients.http.GuardedClient.get", get)
        with pytest.raises(PlatformRefused) as refused:
            await here.read(here.window(600))
    assert words in refused.value.hint
    assert not refused.value.may_pass


async def _maintenance(*_: object, **__: object) -> HttpResponse:
    return HttpResponse(200, CIMultiDictProxy(CIMultiDict[str]()), b"<html>We are back soon.</html>")


async def test_an_answer_that_is_no_json_may_pass_and_one_that_does_not_fit_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first comes from something in between, the second from the platform, described wrongly by its record."""
    async with running_connector(**ORDERS) as here:
        with monkeypatch.context() as patch:
            patch.setattr("clients.http.GuardedClient.get", _maintenance)
            with pytest.raises(InconsistentAnswers, match="not JSON") as strange:
                await here.read(here.window(600))
    rows = PLAIN.rows.model_copy(update={"list": "$.page"})
    async with running_connector(PLAIN.model_copy(update={**SMALL_PAGES, "rows": rows}), **ORDERS) as here:
        with pytest.raises(InconsistentAnswers, match="paths of its record") as other:
            await here.read(here.window(600))
    assert (strange.value.may_pass, other.value.may_pass) == (True, False)


NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def date(seconds: float) -> str:
    """A moment before or after New Year, as in headers."""
    return format_datetime(NEW_YEAR + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("told", "wait_seconds"),
    [
        ("45", 45),
        ("9" * 400, WAIT_MAX_SECONDS),
        (date(45), 45),
        (date(-86_400), 0),
        (date(400 * 86_400), WAIT_MAX_SECONDS),
        ("Fri, 31 Dec 9999 23:59:59 -0100", None),
        ("Wed, 31 Dec 2025 23:59:59 +99999999999999", None),
        ("soon", None),
        ("-5", None),
    ],
)
async def test_a_wait_that_is_asked_for_reaches_the_workflow(
    told: str, wait_seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock of who asks for it, at most a day; what cannot be read asks for no wait."""
    headers = CIMultiDictProxy(CIMultiDict({"Retry-After": told, "Date": date(0)}))

    async def get(*_: object, **__: object) -> HttpResponse:
        return HttpResponse(429, headers, b"slow down")

    async with running_connector(**ORDERS) as here:
        monkeypatch.setattr("clients.http.GuardedClient.get", get)
        monkeypatch.setattr(client, "PATIENCE_SECONDS", -1)
        with pytest.raises(PlatformBusy) as busy:
            await here.read(here.window(600))
    payloads = await pydantic_data_converter.encode([slice_attempts.to_attempt_failure(busy.value)])
    [setback] = await pydantic_data_converter.decode(payloads, [SliceAttemptFailure])
    told_to_wait = setback.wait_seconds if setback.kind is SliceFailureKind.TOLD_TO_WAIT else None
    assert told_to_wait == wait_seconds


@pytest.mark.parametrize(
    ("told", "wait_seconds"), [("45", 45), ("9" * 400, WAIT_MAX_SECONDS), ("many", None), ("", None), ("1.2.3", None)]
)
async def test_a_wait_that_is_told_in_words_is_a_number_of_seconds(
    told: str, wait_seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other words ask for no wait; the platform is busy all the same."""
    errors = ErrorFormat(message="$.error", wait_pattern=r"wait (\S*) s")

    async def get(*_: object, **__: object) -> HttpResponse:
        return HttpResponse(429, CIMultiDictProxy(CIMultiDict[str]()), json.dumps({"error": f"wait {told} s"}).encode())

    async with running_connector(PLAIN.model_copy(update={"errors": errors}), **ORDERS) as here:
        monkeypatch.setattr("clients.http.GuardedClient.get", get)
        with pytest.raises(PlatformBusy) as busy:
            await here.read(here.window(600))
    assert busy.value.retry_after_seconds == wait_seconds
