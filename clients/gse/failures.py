"""Failures of calls to GSE, by what a caller may do next."""

from __future__ import annotations

from clients.http import ServiceFailure


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
    """The gateway does not accept our keys, and says nothing of what was asked."""


class GseUnavailable(GseFailure):
    """The call was surely not carried out, and may succeed later."""

    def __init__(self, message: str, *, code: int | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, code=code, is_transient=True, retry_after_seconds=retry_after_seconds)


class GseUnknown(GseFailure):
    """The call may have been carried out: a transfer that is begun again may then run twice."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message, code=code, is_transient=True)
