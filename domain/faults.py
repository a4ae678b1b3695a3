"""Faults: what a user can understand and mend. Sentence one says what was wrong, sentence two what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel

MESSAGE_MAX_CHARACTERS = 8_000
# Others' bytes are quoted in messages. A database takes neither NUL nor halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


class FaultRecord(BaseModel):
    """A fault as it travels through history, catalogue and API."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    """Whether the same work may well succeed a little later."""

    @property
    def sentence(self) -> str:
        """Both sentences, as a person reads them."""
        return f"{self.message} {self.hint}".strip()


class Fault(Exception):
    """Something the user can mend; never our own failure.

    Args:
        code: Stable snake_case name, for programs.
        message: What was wrong, with the value received and what was allowed.
        hint: What to do next.
        field: Where in the request it was wrong, if one field alone was.
    """

    def __init__(self, code: str, message: str, hint: str = "", *, field: str = "") -> None:
        self.field = field
        self.notes: list[BaseModel] = []
        """What else whoever plans the work should know."""
        self.record = FaultRecord(code=code, message=sanitize_text(message), hint=sanitize_text(hint))
        super().__init__(self.record.sentence)

    def reword(self, message: str) -> None:
        """Say what was wrong in other words, wherever the fault is read from."""
        self.record = self.record.model_copy(update={"message": sanitize_text(message)})
        self.args = (self.record.sentence,)


class Invalid(Fault):
    """The request itself is wrong."""


class Denied(Fault):
    """The caller did not show who it is."""


class Forbidden(Fault):
    """The caller is known, and nobody has allowed this to it."""


class Missing(Fault):
    """There is no such thing, or it is another project's."""


class Conflict(Fault):
    """The thing is in a state that does not allow this."""


class Gone(Fault):
    """The thing was here and its time is over."""


class Exhausted(Fault):
    """A quota is used up for now.

    Args:
        violated: The names of the quotas that are.
        retry_after_seconds: When it makes sense to ask again.
    """

    def __init__(
        self, code: str, message: str, hint: str = "", *, violated: Sequence[str] = (), retry_after_seconds: int = 1
    ) -> None:
        super().__init__(code, message, hint)
        self.violated = list(violated)
        self.retry_after_seconds = retry_after_seconds


class SourceFault(Fault):
    """The system that a user named answered wrongly, or could not be reached.

    Args:
        transient: Whether the same request may well succeed a little later.
        doubtful: Whether a wrong answer must come twice in the same way before it is believed.
        is_busy: Whether the source said that it is asked too often.
        retry_after_seconds: How long the source asked us to wait.
    """

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        *,
        transient: bool = False,
        doubtful: bool = False,
        is_busy: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(code, message, hint)
        self.transient = transient
        self.doubtful = doubtful
        self.is_busy = is_busy
        self.retry_after_seconds = retry_after_seconds

    @property
    def transient(self) -> bool:
        """Whether the same request may well succeed a little later."""
        return self.record.retryable

    @transient.setter
    def transient(self, value: bool) -> None:
        self.record = self.record.model_copy(update={"retryable": value})


def sanitize_text(text: str) -> str:
    """Cut text so that a message can never outgrow a payload, and leave out what no table can hold."""
    text = _UNPRINTABLE.sub("\ufffd", text)
    if len(text) <= MESSAGE_MAX_CHARACTERS:
        return text
    return text[: MESSAGE_MAX_CHARACTERS - 1] + "…"
