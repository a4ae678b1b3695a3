"""Faults: errors that a user can correct, with a sentence that says what was wrong and one that says what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel

MESSAGE_MAX_CHARACTERS = 8_000
# Messages quote what other programs sent. PostgreSQL stores neither NUL nor half a surrogate pair.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def sanitize_and_shorten_text(text: str) -> str:
    """Return text shortened to the longest message, with unprintable characters replaced."""
    text = _UNPRINTABLE.sub("\ufffd", text)
    if len(text) <= MESSAGE_MAX_CHARACTERS:
        return text
    return text[: MESSAGE_MAX_CHARACTERS - 1] + "…"


def format_count(count: int, one: str, many: str = "") -> str:
    """Return a count with what it counts, such as "1 slice" or "1,000 slices"; `many` is by default `one` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


StorableText: TypeAlias = Annotated[str, AfterValidator(sanitize_and_shorten_text)]
"""Text that may quote what other programs sent, as every table, payload and log can hold it."""


class FaultRecord(BaseModel):
    """A fault as workflow histories, tables and the API hold it."""

    code: str
    message: StorableText
    hint: StorableText = ""
    retryable: bool = False
    """Whether the same work may succeed later."""

    @property
    def sentence(self) -> str:
        """The message and the hint as one text."""
        return f"{self.message} {self.hint}".strip()


class Fault(Exception):
    """Base of all errors that the user can correct; an internal failure is never a Fault.

    Args:
        code: A stable name in snake_case, for programs.
        message: What was wrong, with the value received and what was allowed.
        hint: What to do next.
        field: The field of the request that was wrong, if it was one field.
    """

    def __init__(self, code: str, message: str, hint: str = "", *, field: str = "") -> None:
        self.field = field
        self.notes: list[BaseModel] = []
        """Further facts for the workflow that handles the fault."""
        self.record = FaultRecord(code=code, message=message, hint=hint)
        super().__init__(self.record.sentence)

    def replace_message(self, message: str) -> None:
        """Replace the message."""
        self.record = self.record.model_copy(update={"message": sanitize_and_shorten_text(message)})
        self.args = (self.record.sentence,)


class ExplainedFailure(Exception):
    """A failure outside of this program; its text is a sentence for operators."""


class ComponentUnreachable(ExplainedFailure):
    """A component accepted no connection; the text says why, and which setting to look at where that is known."""


class Invalid(Fault):
    """The request is invalid."""


class Unauthenticated(Fault):
    """The caller is not authenticated."""


class Forbidden(Fault):
    """The caller is authenticated but has no permission."""


class Missing(Fault):
    """What was named does not exist, or belongs to another project."""


class Conflict(Fault):
    """The present state of what was named does not allow this."""


class Gone(Fault):
    """What was named existed, and its retention is over."""


class QuotaExhausted(Fault):
    """A quota is used up.

    Args:
        violated: The names of the quotas.
        retry_after_seconds: When it makes sense to ask again.
    """

    def __init__(
        self, code: str, message: str, hint: str = "", *, violated: Sequence[str] = (), retry_after_seconds: int = 1
    ) -> None:
        super().__init__(code, message, hint)
        self.violated = list(violated)
        self.retry_after_seconds = retry_after_seconds


class Paused(Fault):
    """The operator has paused what would begin this work."""


class SourceFault(Fault):
    """A source that the user named sent a wrong answer, or could not be reached.

    Args:
        transient: Whether the same request may succeed later.
        doubtful: Whether the answer must be wrong twice in the same way before it counts.
        is_busy: Whether the source said that it gets too many requests.
        retry_after_seconds: How long the source asked to wait.
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
