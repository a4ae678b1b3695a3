"""Responses of GSE, and the failures of calls by what a caller may do next."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from clients.http import ServiceFailure
from domain.faults import sanitize_and_shorten_text
from domain.transfers.gse import CODE_BOUND, UNKNOWN_CODE


class GseFailure(ServiceFailure):
    """GSE, or the gateway before it, did not do what was asked.

    Args:
        message: What was asked, what came back, and what to do next.
        code: The code of GSE or of its gateway; None if no answer held one.
        is_transient: Whether the same call may succeed later.
        retry_after_seconds: How long the gateway asks to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        is_transient: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, is_transient=is_transient, retry_after_seconds=retry_after_seconds)
        self.code = code


class GseRefused(GseFailure):
    """The call was understood and refused: nothing was done, and the same call will be refused again.

    Args:
        answered: What was asked and what came back, without what to do next; by default the message.
    """

    def __init__(self, message: str, *, code: int | None = None, answered: str = "") -> None:
        super().__init__(message, code=code)
        self.answered = answered or message


class GseForbidden(GseRefused):
    """The gateway does not accept the app's credentials; the response is not about the call."""


class GseUnavailable(GseFailure):
    """The call was surely not carried out, and may succeed later."""

    def __init__(self, message: str, *, code: int | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, code=code, is_transient=True, retry_after_seconds=retry_after_seconds)


class GseOutcomeUnknown(GseFailure):
    """The call may have been carried out: a transfer that is begun again may then run twice."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message, code=code, is_transient=True)


MESSAGE_MAX_CHARACTERS = 500
WAIT_MAX_SECONDS = 60.0
WAIT_HEADERS = ("X-Bkapi-RateLimit-Reset", "Retry-After")

# The gateway's own codes begin with the status that they mean: 1642901 is a 429. A stage may rewrite the status
# itself to 200, so the code is looked at first.
_GATEWAY_CODES = range(1640000, 1660000)
_RETRYABLE_STATUSES = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_FORBIDDEN_STATUSES = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


@dataclass(frozen=True, slots=True)
class GseResponse:
    """A response of GSE as it was received."""

    call: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    request_id: str

    def get_data_none_if_pending_or_raise(self, *, pending_codes: Collection[int] = ()) -> Any:
        """Return the data of a success, and None for a code that means that there is no data yet.

        Raises:
            GseFailure: The response is not clearly a success.
        """
        envelope = self._parse_envelope()
        code = envelope.get("code")
        if not isinstance(code, int) or isinstance(code, bool):
            raise self._build_unreadable_failure()
        if code == 0 and 200 <= self.status < 300:
            return envelope.get("data")
        if code in pending_codes and 200 <= self.status < 300:
            return None
        raise self._build_failure(code, envelope.get("message"))

    def build_malformed_failure(self, missing: str) -> GseOutcomeUnknown:
        """Build the failure for a success whose data is incomplete."""
        return GseOutcomeUnknown(f"{self._call_description} answered without {missing}. {_LOOK}", code=0)

    @property
    def _call_description(self) -> str:
        request_id = self.headers.get("X-Bkapi-Request-Id", self.request_id)
        # The bytes of a header that are no UTF-8 are in it as surrogates, which no database and no JSON takes.
        return f"GSE's {self.call} (request {sanitize_and_shorten_text(request_id[:64])})"

    def _parse_envelope(self) -> Mapping[str, Any]:
        try:
            envelope = msgspec.json.decode(self.body)
        except (ValueError, RecursionError):
            envelope = self._parse_json_with_nan_and_broken_characters()
        if not isinstance(envelope, dict):
            raise self._build_unreadable_failure()
        return envelope

    def _parse_json_with_nan_and_broken_characters(self) -> Any:
        """Accept NaN and broken characters, so that one odd word does not make all records unreadable."""
        try:
            read = json.loads(self.body, parse_constant=lambda _: None)
            return msgspec.json.decode(json.dumps(read, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError):
            raise self._build_unreadable_failure() from None

    def _build_unreadable_failure(self) -> GseFailure:
        """Build the failure for a response without GSE's envelope, by its status."""
        if self.status >= HTTPStatus.BAD_REQUEST:
            return self._build_failure(None, None)
        begin = self.body[:80].decode(errors="replace")
        return GseOutcomeUnknown(
            f"{self._call_description} answered {self.status} with {begin!r}, which is not its envelope. {_LOOK}"
        )

    def _build_failure(self, code: int | None, message: object) -> GseFailure:
        status = (code - 1_600_000) // 100 if code and code in _GATEWAY_CODES else self.status
        words = f" and says {str(message)[:MESSAGE_MAX_CHARACTERS]!r}" if message else ""
        answered = f"{self._call_description} answered {self.status}, code {'none' if code is None else code}{words}."
        if code is not None and abs(code) >= CODE_BOUND:
            code = UNKNOWN_CODE
        if status in _RETRYABLE_STATUSES:
            return GseUnavailable(f"{answered} {_LATER}", code=code, retry_after_seconds=self._parse_wait_seconds())
        if status in _FORBIDDEN_STATUSES:
            return GseForbidden(
                f"{answered} Check the app code, its secret and its permission for GSE's API.", code=code
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return GseOutcomeUnknown(f"{answered} {_LOOK}", code=code)
        return GseRefused(f"{answered} Asking again will not help: mend what it names.", code=code, answered=answered)

    def _parse_wait_seconds(self) -> float | None:
        for name in WAIT_HEADERS:
            value = self.headers.get(name, "")
            if value.isascii() and value.isdecimal():
                return min(float(value), WAIT_MAX_SECONDS)
        return None


_LOOK = "See the log of the gateway for that request."
_LATER = "Ask again a little later."
