"""How a call to GSE fails, told apart by what a caller may do next."""

from __future__ import annotations


class GseFailure(Exception):
    """GSE, or the gateway before it, did not do what was asked.

    Args:
        message: What was asked, what came back, and what to do next.
        code: The code of GSE or of its gateway; None when no answer held one.
    """

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class GseRefused(GseFailure):
    """It was understood and refused: nothing came of it, and nothing would if it were asked again.

    Args:
        answered: What was asked and what came back, without what to do next; by default the message.
    """

    def __init__(self, message: str, *, code: int | None = None, answered: str = "") -> None:
        super().__init__(message, code=code)
        self.answered = answered or message


class GseForbidden(GseRefused):
    """It does not let us in: nothing is said of what was asked for."""


class GseUnavailable(GseFailure):
    """It was surely not carried out, and the same call may succeed later.

    Args:
        retry_after_seconds: How long the gateway asked us to wait.
    """

    def __init__(self, message: str, *, code: int | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds


class GseUnknown(GseFailure):
    """It may have been carried out, but no answer tells: a transfer asked for again may then run twice."""
