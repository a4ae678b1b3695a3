"""Failures of requests to platforms, by what a caller may do next."""

from __future__ import annotations

from typing import Final

from clients.http import ServiceFailure
from domain.faults import SourceFault, sanitize_and_shorten_text
from domain.orders.slices import WAIT_MAX_SECONDS


class PlatformFailure(ServiceFailure):
    """A platform did not answer a request as it should.

    Args:
        message: What was asked, and what came back.
        hint: What to do next.
        may_pass: Whether the same request may well succeed a little later, though not within the same attempt.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        may_pass: bool = False,
        is_transient: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.message, self.hint, self.may_pass = (
            sanitize_and_shorten_text(message),
            sanitize_and_shorten_text(hint),
            may_pass,
        )
        super().__init__(
            f"{self.message} {self.hint}".strip(), is_transient=is_transient, retry_after_seconds=retry_after_seconds
        )


class PlatformBusy(PlatformFailure):
    """The same request may succeed later: a rate or a quota is used up, or the platform is away.

    Args:
        retry_after_seconds: How long it, or our limiter, asks to wait; at most a day.
    """

    def __init__(self, message: str, hint: str = "", *, retry_after_seconds: float | None = None) -> None:
        wait = None if retry_after_seconds is None else min(retry_after_seconds, WAIT_MAX_SECONDS)
        super().__init__(message, hint, may_pass=True, is_transient=True, retry_after_seconds=wait)


class AttemptTimeUsedUp(PlatformFailure):
    """The time of an attempt ended before everything was read; what was read is kept."""

    is_local = True


class PlatformRefused(PlatformFailure):
    """The same request will fail until the request, the account or the address is changed."""


class CredentialsRefused(PlatformRefused):
    """The credentials are not valid, nor are those that their reference leads to now."""


class InconsistentAnswers(PlatformFailure):
    """The answers contradict each other or the platform's record: nothing of them may count as complete.

    It may pass if orders moved or something else answered, not if the record contradicts the platform.
    """


class IdenticalPages(InconsistentAnswers):
    """Every page of a window was the same full page of orders: there are no others, or the page is ignored."""


class WrongTimeZone(InconsistentAnswers):
    """The filter of a platform uses other times than its record says: windows hold other orders than requested."""


class TooManyRows(PlatformFailure):
    """The window holds more rows than the platform lists for one query; smaller windows hold fewer.

    Args:
        rows: The least number of rows that it holds.
    """

    def __init__(self, message: str, hint: str = "", *, rows: int) -> None:
        super().__init__(message, hint)
        self.rows = rows


_SMALLER: Final = "Lower `paging.size` in its record, so that its pages are smaller."
_HINTS: Final = {"source_too_large": _SMALLER, "source_timeout": f"{_SMALLER} Or find out why it is slow."}
"""Hints in place of those for downloads."""
_SILENT: Final = "Find out why it does not answer: ask the platform's owner, and look at the network on the way to it."


def build_no_answer_failure(subject: str, fault: SourceFault, *, is_short: bool) -> PlatformFailure:
    """Build the failure of a request without an answer; a short answer is none of a page that is too large."""
    message, hint = f"{subject}: {fault.record.message}", _HINTS.get(fault.record.code, fault.record.hint)
    if is_short and fault.record.code == "source_timeout":
        hint = _SILENT
    if fault.transient:
        return PlatformBusy(message, hint, retry_after_seconds=fault.retry_after_seconds)
    return PlatformRefused(message, hint)
