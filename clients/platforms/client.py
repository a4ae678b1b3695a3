"""The client of one account of a platform: permits, signed requests, and what an answer means."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from clients.http import (
    BUSY_STATUSES,
    CircuitBreaker,
    GuardedClient,
    HttpResponse,
    RetryingServiceCaller,
    RetryPolicy,
    WaitBeforeReadingBeyondSize,
    parse_http_date,
    parse_retry_after,
)
from clients.platforms import pagination
from clients.platforms.answers import ReplayableAnswerLog, build_request_key, decode_to_utf8_and_tell_if_whole
from clients.platforms.credentials import AccountCredentialsReader
from clients.platforms.failures import (
    AttemptTimeUsedUp,
    CredentialsRefused,
    InconsistentAnswers,
    PlatformBusy,
    PlatformFailure,
    PlatformRefused,
    build_no_answer_failure,
)
from clients.platforms.permits import AttemptTimeBudget, OwnWaits, PlatformStateSharedByConnectors, RequestPermits
from domain.faults import SourceFault
from domain.orders.access import Account, AuthenticationMethod, Credentials, CredentialsReader, add_authentication
from domain.orders.capability import CODE, MESSAGE, Capability
from domain.orders.declarations import ErrorRule, ReactionToPlatformError
from domain.orders.jsonpath import JsonReader, UnreadableJson, replace_lone_surrogates_in_json
from domain.redaction import remove_long_secrets
from infra import log, metrics

ANSWER_MAX_BYTES: Final = 32 * 1024 * 1024
LARGE_ANSWER_BYTES: Final = 4 * 1024 * 1024
ANSWER_TIMEOUT_SECONDS: Final = 60.0
EXCERPT_CHARACTERS: Final = 300
_HEADERS: Final = {"Accept": "application/json", "Cache-Control": "no-cache"}
"""A cache on the way must not answer for the platform: orders that changed since would be missed."""
RETRY_PAUSES_SECONDS: Final = (0.1, 0.5)
PATIENCE_SECONDS: Final = 2.0
"""A longer wait that a platform asks for is raised, so that it can be a timer of a workflow."""
_WITHOUT_ORDERS: Final = range(201, 300)
"""Statuses of success without orders: something else answered, and the next answer may be the right one."""


@dataclass(frozen=True, slots=True)
class AnswerWithValues:
    """A valid answer, and the values that its reader found in it."""

    answer: HttpResponse
    values: Mapping[str, Any]
    asked_at: datetime
    """When it was requested, by the platform's clock."""


@dataclass(frozen=True, slots=True)
class _Request:
    url: str
    parameters: Mapping[str, str]
    reader: JsonReader
    permits: RequestPermits | None
    """None where the rate does not count the request."""
    is_probe: bool = False


class PlatformClient:
    """Send requests to one account, with credentials that are renewed once when they have expired.

    Args:
        gate: Shared by all clients of this process to the platform.
        read_credentials: Reads the credentials.
        answers: The answers of earlier attempts at the same work; new answers are added.
        budget: The time that the attempt has.
    """

    def __init__(
        self,
        http: GuardedClient,
        gate: PlatformStateSharedByConnectors,
        capability: Capability,
        account: Account,
        read_credentials: CredentialsReader,
        answers: ReplayableAnswerLog,
        budget: AttemptTimeBudget,
    ) -> None:
        self.answers = answers
        self.budget = budget
        self._http = http
        self._gate = gate
        self._capability = capability
        self._account = account
        self._credentials = AccountCredentialsReader(
            http, gate.tokens, capability.access.renewal, account, read_credentials, str(self)
        )
        self._caller = RetryingServiceCaller(
            "platform",
            retry=RetryPolicy(RETRY_PAUSES_SECONDS, PATIENCE_SECONDS),
            breaker=gate.breaker,
            build_open_failure=self._build_circuit_open_failure,
            circuit=f"platform_{account.platform}",
        )
        version = capability.version
        self._headers = {version.header: version.value} if version and version.header else {}
        self._errors = JsonReader(capability.build_error_paths())

    @property
    def clock_skew(self) -> timedelta:
        """How far the platform's clock is ahead of this machine's, by its last answer; zero before the first one."""
        return self._gate.skew or timedelta()

    @property
    def uncapped_page_sizes(self) -> set[int]:
        """The page sizes that the platform does not cap: it has listed a full page of each."""
        return self._gate.uncapped_page_sizes

    def set_clock_skew_from_platform_time(self, now: datetime) -> None:
        """Set the platform's present time."""
        self._gate.skew = now - datetime.now(UTC)

    def build_address(self, path: str) -> str:
        """Return the address of a path of the platform's API."""
        return self._account.base_url.rstrip("/") + path

    async def request_values(
        self,
        path: str,
        parameters: Mapping[str, str],
        reader: JsonReader,
        *,
        is_detail: bool = False,
        is_probe: bool = False,
        takes_permit: bool = True,
    ) -> AnswerWithValues:
        """Request a window, one order or the time; raises PlatformFailure. A probe is sent past an open breaker."""
        permits = (self._gate.details if is_detail else self._gate.permits) if takes_permit else None
        address = self.build_address(path)
        return await self._request_or_replay(_Request(address, parameters, reader, permits, is_probe))

    async def request_link(self, target: str, reader: JsonReader) -> AnswerWithValues:
        """Request an address from an answer. It gets the credentials, so it must be the platform's own."""
        ours, theirs = (pagination.find_origin(each) for each in (self._account.base_url, target))
        if ours != theirs:
            raise InconsistentAnswers(
                f"{self} sent us to {theirs} for its next page. Only its own address {ours} gets our credentials.",
                "Set `base_url` to the other one if the platform has moved.",
            )
        access = self._capability.access
        if access.signing is not AuthenticationMethod.SORTED_MD5:
            return await self._request_or_replay(_Request(target, {}, reader, self._gate.permits))
        # Such a signature covers all parameters, also those of the link.
        parameters = dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))
        parameters.pop(access.sign_parameter, None)
        return await self._request_or_replay(_Request(target.partition("?")[0], parameters, reader, self._gate.permits))

    async def request_headers(self, path: str, parameters: Mapping[str, str], *, takes_permit: bool) -> HttpResponse:
        """Request a path for the headers of the answer, whatever its status; a busy one may come from a proxy."""
        await self._wait_for_permit(self._gate.permits if takes_permit else None)
        credentials = await self._wait_for_credentials(self._credentials.get_with_access_token())
        answer = await self._send_signed(self.build_address(path), parameters, credentials)
        if answer.status in BUSY_STATUSES:
            raise self._build_failure(answer, self._parse_error(answer))
        return answer

    def _build_time_used_up(self) -> AttemptTimeUsedUp:
        return AttemptTimeUsedUp(f"The whole slice of {self} could not be read within its timeout.")

    def _build_circuit_open_failure(self, breaker: CircuitBreaker) -> PlatformBusy:
        return PlatformBusy(f"{self} {breaker.describe_open_state()}", retry_after_seconds=breaker.open_seconds)

    def __str__(self) -> str:
        return f"Platform {self._account.platform} ({self._capability.kind}, shop {self._account.shop})"

    async def _request_or_replay(self, request: _Request) -> AnswerWithValues:
        key = build_request_key(request.url, {**self._headers, **request.parameters})
        if kept := self.answers.pop_next_logged_answer(key):
            return self._parse_answer(kept.as_response, request.reader, kept.asked_at)
        answer = await self._request_with_fresh_credentials(request)
        self.answers.add(key, answer.asked_at, answer.answer)
        return answer

    async def _request_with_fresh_credentials(self, request: _Request) -> AnswerWithValues:
        if self._gate.skew is None and self._capability.access.time_parameter:
            # A request that is signed with a time too far from the platform's is refused.
            clock = self._capability.clock
            await self.request_headers(clock.path, clock.parameters, takes_permit=clock.counted)
        credentials = await self._wait_for_credentials(self._credentials.get_with_access_token())
        try:
            return await self._request_with_retries(request, credentials)
        except CredentialsRefused:
            log.get(__name__).info("platform_token_renewed", platform=self._account.platform)
            renewed = await self._wait_for_credentials(self._credentials.reread_and_renew(credentials))
            return await self._request_with_retries(request, renewed)

    async def _wait_for_credentials(self, credentials: Awaitable[Credentials]) -> Credentials:
        """Wait until the time of the attempt is used up at most; a token goes on being fetched for other attempts."""
        seconds = self.budget.until - time.monotonic()
        try:
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                return await credentials
        except TimeoutError:
            raise self._build_time_used_up() from None

    async def _request_with_retries(self, request: _Request, credentials: Credentials) -> AnswerWithValues:
        """Repeat a request: one bad answer among many pages must not send a whole window back to its beginning."""
        send, wait = partial(self._request_once, request, credentials), partial(self._wait_for_permit, request.permits)
        return await self._caller.call_with_retries("request", send, before_sending=wait, is_probe=request.is_probe)

    async def _request_once(self, request: _Request, credentials: Credentials) -> AnswerWithValues:
        asked_at = datetime.now(UTC) + self.clock_skew
        answer = await self._send_signed(request.url, request.parameters, credentials)
        return self._parse_answer(answer, request.reader, asked_at)

    async def _wait_for_permit(self, permits: RequestPermits | None) -> None:
        if permits is None:
            return
        if self.budget.seconds_left <= 0:
            raise self._build_time_used_up()
        began = time.monotonic()
        try:
            await self.budget.wait_for_permit(permits)
        except PlatformBusy:
            metrics.PLATFORM_QUOTA_REFUSALS.labels(self._account.platform).inc()
            raise
        finally:
            metrics.PLATFORM_WAITS.labels(self._account.platform).observe(time.monotonic() - began)

    async def _send_signed(self, url: str, parameters: Mapping[str, str], credentials: Credentials) -> HttpResponse:
        now = datetime.now(UTC) + self.clock_skew
        signed = add_authentication(self._capability.access, credentials, parameters, now)
        whole_seconds = self.budget.answer_seconds or ANSWER_TIMEOUT_SECONDS
        left_seconds = self.budget.until - time.monotonic()
        if left_seconds <= 0:
            raise self._build_time_used_up()
        until = asyncio.get_running_loop().time() + left_seconds
        query = urlencode(signed.parameters)
        try:
            async with AsyncExitStack() as slot:
                waits = slot.enter_context(self.budget.record_slowest_answer())
                wait = partial(self._wait_for_other_large_answers, slot, waits)
                answer = await self._http.get(
                    f"{url}{'&' if '?' in url else '?'}{query}" if query else url,
                    headers={**_HEADERS, **self._headers, **signed.headers},
                    max_bytes=ANSWER_MAX_BYTES,
                    timeout_seconds=min(whole_seconds, left_seconds),
                    wait_beyond=WaitBeforeReadingBeyondSize(LARGE_ANSWER_BYTES, wait, until),
                )
        except SourceFault as fault:
            metrics.PLATFORM_REQUESTS.labels(self._account.platform, "unanswered").inc()
            if fault.record.code == "source_timeout" and left_seconds < whole_seconds + waits.seconds:
                raise self._build_time_used_up() from None
            raise build_no_answer_failure(str(self), fault, is_short=self.budget.answer_seconds is not None) from None
        metrics.PLATFORM_REQUESTS.labels(self._account.platform, str(answer.status)).inc()
        metrics.PLATFORM_BYTES.labels(self._account.platform).inc(len(answer.body))
        # A platform may repeat what it was sent, and wrong answers are quoted.
        kept = (credentials.secret, credentials.token, credentials.refresh_token)
        shown = (value.rpartition(" ")[2] for value in signed.headers.values())
        known = {*(each.get_secret_value() for each in kept), *shown}
        answer = replace(answer, body=remove_long_secrets(answer.body, known))
        if (date := parse_http_date(answer.headers.get("Date", ""))) is not None:
            self.set_clock_skew_from_platform_time(date)
        return answer

    async def _wait_for_other_large_answers(self, slot: AsyncExitStack, waits: OwnWaits) -> None:
        with waits.measure():
            async with self.budget.limit_own_wait(f"Other large answers of {self} are being read by this worker."):
                await slot.enter_async_context(self._gate.large_answers)

    def _parse_answer(self, answer: HttpResponse, reader: JsonReader, asked_at: datetime) -> AnswerWithValues:
        if answer.status != 200:
            raise self._build_failure(answer, self._parse_error(answer))
        try:
            values = self._parse_values(answer, reader)
        except UnreadableJson as error:
            raise InconsistentAnswers(
                f"{self} answered 200 with something unexpected ({error}): {_quote_excerpt(answer)}",
                "Compare it with the paths of its record."
                if error.is_json
                else "See what answers at its address: that is not JSON.",
                may_pass=not error.is_json,
            ) from None
        if values.get(CODE) not in (None, 0, "", "0"):
            raise self._build_failure(answer, values)
        return AnswerWithValues(answer, values, asked_at)

    def _parse_values(self, answer: HttpResponse, reader: JsonReader) -> Mapping[str, Any]:
        text, is_whole = decode_to_utf8_and_tell_if_whole(answer)
        try:
            values = reader.read(text)
        except UnreadableJson as error:
            # Repaired only now: nearly all answers have neither a byte order mark nor half a surrogate pair.
            repaired, is_cut = replace_lone_surrogates_in_json(text)
            if error.is_json or repaired == text:
                raise
            values, is_whole = reader.read(repaired), is_whole and not is_cut
        if not is_whole:
            log.get(__name__).warning("platform_text_lossy", platform=self._account.platform)
        return values

    def _parse_error(self, answer: HttpResponse) -> Mapping[str, Any]:
        try:
            return self._parse_values(answer, self._errors)
        except UnreadableJson:
            return {}

    def _build_failure(self, answer: HttpResponse, values: Mapping[str, Any]) -> PlatformFailure:
        code, message = str(values.get(CODE) or ""), str(values.get(MESSAGE) or "")
        rule = next(
            (each for each in self._capability.errors.rules if _matches_rule(each, answer, code, message)), None
        )
        sentence = (
            f"{self} answered {answer.status}"
            + (f", code {code}" if code else "")
            + f": {(message or _quote_excerpt(answer)).rstrip('. ')}"
        )
        if rule is None and answer.status in _WITHOUT_ORDERS:
            return InconsistentAnswers(
                f"{sentence}. That is not a list, not even an empty one.",
                "See what answers at its address.",
                may_pass=True,
            )
        match rule.meaning if rule else _get_default_reaction_to_status(answer.status):
            case ReactionToPlatformError.BUSY:
                wait = self._parse_wait_seconds(answer, message)
                wait = rule.retry_after_seconds if wait is None and rule else wait
                return PlatformBusy(f"{sentence}.", "Ask again later.", retry_after_seconds=wait)
            case ReactionToPlatformError.EXPIRED:
                return CredentialsRefused(f"{sentence}.", "Renew what the reference to its credentials leads to.")
            case ReactionToPlatformError.REFUSED:
                return PlatformRefused(f"{sentence}.", _choose_remedy(answer.status, self._capability))

    def _parse_wait_seconds(self, answer: HttpResponse, message: str) -> float | None:
        if (seconds := parse_retry_after(answer.headers)) is not None:
            return seconds
        pattern = self._capability.errors.wait_pattern
        found = re.search(pattern, message) if pattern else None
        try:
            return max(0.0, float(found[1] or "")) if found else None
        except ValueError:
            return None


def _matches_rule(rule: ErrorRule, answer: HttpResponse, code: str, message: str) -> bool:
    return (
        (not rule.statuses or answer.status in rule.statuses)
        and (not rule.codes or code in rule.codes)
        and (not rule.pattern or re.search(rule.pattern, message) is not None)
    )


def _get_default_reaction_to_status(status: int) -> ReactionToPlatformError:
    if status in BUSY_STATUSES:
        return ReactionToPlatformError.BUSY
    return ReactionToPlatformError.EXPIRED if status == 401 else ReactionToPlatformError.REFUSED


def _choose_remedy(status: int, capability: Capability) -> str:
    """Return what to do about a refusal."""
    if 300 <= status < 400:
        return (
            "It redirects elsewhere, where the credentials are not sent: set `base_url` to where the platform is now."
        )
    if status in (404, 405, 410):
        version = "" if capability.version is None else " Or set `api_version` to one that it answers."
        return f"Correct `base_url`, or the paths of its record.{version}"
    if status in (401, 403):
        return "Give the account the right to read orders, or use the credentials of one that has it."
    return (
        "Look its words up in the platform's documents; correct the configuration, the record or the account's rights."
    )


def _quote_excerpt(answer: HttpResponse) -> str:
    return repr(answer.body[:EXCERPT_CHARACTERS].decode(errors="replace")) + "."
