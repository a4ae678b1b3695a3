"""What an answer of GSE means: data when status, envelope and code all say so, else a failure of the right kind."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from clients.gse.failures import GseFailure, GseForbidden, GseRefused, GseUnavailable, GseUnknown

MESSAGE_MAX_CHARACTERS = 500
WAIT_MAX_SECONDS = 60.0
WAIT_HEADERS = ("X-Bkapi-RateLimit-Reset", "Retry-After")

# The gateway's own codes begin with the status that they stand for: 1642901 is a 429. A stage may rewrite the status
# itself to 200, so the code is looked at first.
_GATEWAY_CODES = range(1640000, 1660000)
_WORTH_ANOTHER_TRY = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
_KEYS_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came."""

    call: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    request_id: str

    def data(self, *, nothing_yet: Collection[int] = ()) -> Any:
        """What was asked for; raises GseFailure for everything that is not clearly a success.

        Args:
            nothing_yet: Codes of answers that are none: what was asked for is not there yet, which is None.
        """
        envelope = self._envelope()
        code = envelope.get("code")
        if not isinstance(code, int) or isinstance(code, bool):
            raise self._unreadable()
        if code == 0 and 200 <= self.status < 300:
            return envelope.get("data")
        if code in nothing_yet and 200 <= self.status < 300:
            return None
        raise self._failure(code, envelope.get("message"))

    def malformed(self, wanted: str) -> GseUnknown:
        """The failure of a success without what belongs to it."""
        return GseUnknown(f"{self._asked} answered without {wanted}. {_LOOK}", code=0)

    @property
    def _asked(self) -> str:
        told = self.headers.get("X-Bkapi-Request-Id", self.request_id)
        return f"GSE's {self.call} (request {told[:64]})"

    def _envelope(self) -> Mapping[str, Any]:
        try:
            envelope = msgspec.json.decode(self.body)
        except (ValueError, RecursionError):
            envelope = self._read_leniently()
        if not isinstance(envelope, dict):
            raise self._unreadable()
        return envelope

    def _read_leniently(self) -> Any:
        """One odd word, half a character or NaN, must not make the records of all targets unreadable."""
        try:
            read = json.loads(self.body, parse_constant=lambda _: None)
            return msgspec.json.decode(json.dumps(read, ensure_ascii=False).encode(errors="replace"))
        except (ValueError, RecursionError):
            raise self._unreadable() from None

    def _unreadable(self) -> GseFailure:
        """An answer that is none of GSE's: its status is all there is to go by."""
        if self.status >= HTTPStatus.BAD_REQUEST:
            return self._failure(None, None)
        begin = self.body[:80].decode(errors="replace")
        return GseUnknown(f"{self._asked} answered {self.status} with {begin!r}, which is not its envelope. {_LOOK}")

    def _failure(self, code: int | None, message: object) -> GseFailure:
        status = (code - 1_600_000) // 100 if code and code in _GATEWAY_CODES else self.status
        words = f" and says {str(message)[:MESSAGE_MAX_CHARACTERS]!r}" if message else ""
        told = f"{self._asked} answered {self.status}, code {'none' if code is None else code}{words}."
        if status in _WORTH_ANOTHER_TRY:
            return GseUnavailable(f"{told} {_LATER}", code=code, retry_after_seconds=self._wait_seconds())
        if status in _KEYS_REFUSED:
            return GseForbidden(f"{told} Check the app code, its secret and its permission for GSE's API.", code=code)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return GseUnknown(f"{told} {_LOOK}", code=code)
        return GseRefused(f"{told} Asking again will not help: mend what it names.", code=code, answered=told)

    def _wait_seconds(self) -> float | None:
        for name in WAIT_HEADERS:
            value = self.headers.get(name, "")
            if value.isascii() and value.isdecimal():
                return min(float(value), WAIT_MAX_SECONDS)
        return None


_LOOK = "See the log of the gateway for that request."
_LATER = "Ask again a little later."
