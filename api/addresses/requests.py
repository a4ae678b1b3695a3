"""Requests about messages."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from api.http import validation
from api.http.models import Request
from api.http.pagination import PageQuery
from api.http.validation import BodyTimestamp, QueryTimestamp
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from stores.addresses.actions import RETRIED_MAX
from stores.addresses.search import MessageFilter

INT64_MAX: Final = 2**63 - 1
_VISIBLE: Final = r"\S"
"""A name of blanks alone is refused."""


class SignedRequest(Request):
    """The operator and the reason: both go into the audit, since operators share one key."""

    who: str = Field(min_length=1, max_length=200, pattern=_VISIBLE, description="your name, for the audit")
    reason: str = Field(min_length=3, max_length=500, pattern=_VISIBLE, description="why, for the audit")


class MessagePath(Request):
    """The id of a message in the log."""

    message_id: int = Field(ge=1, le=INT64_MAX)


class MessagesQuery(PageQuery):
    """Which messages to list."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=INT64_MAX, description="either UPRN of the message")
    state: MessageState | None = None
    module: Module | None = Field(default=None, description="those that failed in this module")
    kind: WaitKind | None = Field(default=None, description="those that are unfinished for this reason")
    created_after: QueryTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="received before this time")
    history: bool = Field(default=False, description="archived messages instead of the log's")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        """Refuse contradictions, and scans of the history: it may be a thousand times as long as the log."""
        validation.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        if self.state is MessageState.WAITING and (self.module or self.kind):
            raise ValueError(
                "a message in state “waiting” has not failed yet; leave module and kind out, or choose another state."
            )
        if not self.history:
            return self
        if self.state not in (None, MessageState.DONE):
            raise ValueError(
                f"state “{self.state}” is never in the history, which has only done messages; leave one of them out."
            )
        is_scan = self.topic or self.module or self.kind
        if is_scan and self.uprn is None and self.created_after is None:
            raise ValueError("history with topic, module or kind needs a uprn or created_after; add one.")
        return self

    @property
    def filter(self) -> MessageFilter:
        names = ("topic", "uprn", "module", "kind", "created_after", "created_before")
        return MessageFilter(**{name: getattr(self, name) for name in names})


MessageId = Annotated[int, Field(ge=1, le=INT64_MAX)]


class SkipMessageRequest(SignedRequest):
    """The reason for skipping a message."""

    though_touched: bool = Field(
        default=False,
        description="skip it even if modules have applied it, or may have; they then differ from the others",
    )


class FailedMessagesFilter(Request):
    """Which failed messages; without a condition, all of them."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=INT64_MAX, description="either UPRN of the message")
    state: Literal[MessageState.FAILED, MessageState.GIVEN_UP] | None = None
    module: Module | None = Field(default=None, description="those that failed in this module")
    kind: WaitKind | None = Field(default=None, description="those that are unfinished for this reason")

    def filter(self, retries: int) -> MessageFilter:
        """Return the conditions; `retries` is the number of failed cycles after which a message is given up."""
        named = self.model_dump(exclude={"state", "who", "reason", "limit"})
        return MessageFilter(
            **named,
            retries_from=retries if self.state is MessageState.GIVEN_UP else None,
            retries_below=retries if self.state is MessageState.FAILED else None,
        )


class CountFailedQuery(FailedMessagesFilter):
    """Which failed messages to count; without a condition, all of them."""

    created_after: QueryTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="received before this time")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        validation.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


class FailedMessagesRequest(FailedMessagesFilter, SignedRequest):
    """Which failed messages to retry or skip; without a condition, all of them."""

    ids: list[MessageId] | None = Field(
        default=None, min_length=1, max_length=RETRIED_MAX, description="only these, within the other conditions"
    )
    created_after: BodyTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: BodyTimestamp | None = Field(default=None, description="received before this time")
    limit: int = Field(
        default=RETRIED_MAX, ge=1, le=RETRIED_MAX, description="the most messages to change, oldest first"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        validation.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self
