"""How a request to a platform fails, told apart by what a caller may do next."""

from __future__ import annotations

from domain.faults import sanitize_text
from domain.orders.slices import WAIT_MAX_SECONDS


class PlatformFailure(Exception):
    """A platform did not tell what was asked.

    Args:
        message: What was asked, and what came back.
        hint: What to do next.
        may_pass: Whether the same request may well succeed a little later.
    """

    def __init__(self, message: str, hint: str = "", *, may_pass: bool = False) -> None:
        self.message, self.hint, self.may_pass = sanitize_text(message), sanitize_text(hint), may_pass
        super().__init__(f"{self.message} {self.hint}".strip())


class PlatformBusy(PlatformFailure):
    """The same request may succeed later: a rate or a quota is used up, or the platform is away.

    Args:
        retry_after_seconds: How long it, or our limiter, asks us to wait; never kept as more than a day.
    """

    def __init__(self, message: str, hint: str = "", *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, hint, may_pass=True)
        # A number of hundreds of digits is infinite, which JSON has no word for: a workflow could not read it.
        wait = retry_after_seconds
        self.retry_after_seconds = None if wait is None else min(wait, WAIT_MAX_SECONDS)


class PlatformSlow(PlatformFailure):
    """It did not tell everything in the time that an attempt has; what it told is kept."""


class PlatformRefused(PlatformFailure):
    """Asking again would not help before somebody mends the request, the account or the address."""


class TokenExpired(PlatformRefused):
    """The credentials are not valid, nor were those that their reference led to when it was read again."""


class PlatformLied(PlatformFailure):
    """What was told cannot be the whole truth: nothing of it may count as complete.

    It may pass where orders moved or something else answered, not where the record says otherwise than the platform.
    """


class PagesAlike(PlatformLied):
    """Every page of a window told the same full page of orders: it is all there is, or the page is not heeded."""


class ZoneDiffers(PlatformLied):
    """The filter of a platform goes by other times than its record says: windows hold other orders than asked for."""


class TooManyRows(PlatformFailure):
    """The window holds more rows than the platform tells in one query; smaller windows hold fewer.

    Args:
        rows: How many it holds at least.
    """

    def __init__(self, message: str, hint: str = "", *, rows: int) -> None:
        super().__init__(message, hint)
        self.rows = rows
