"""Requests about messages."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from api.http import timestamps
from api.http.models import Request
from api.http.pagination import PageQuery
from api.http.timestamps import BodyTimestamp, QueryTimestamp
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from stores.addresses.actions import RETRIED_MAX
from stores.addresses.search import MessageFilter

INT64_MAX = 2**63 - 1


_VISIBLE: Final = r"\S"
"""Blanks alone name nobody."""


class SignedRequest(Request):
    """Who acts, and why: both are noted, because operators share one key."""

    who: str = Field(
        min_length=1, max_length=200, pattern=_VISIBLE, description="your name, as the audit is to tell it"
    )
    reason: str = Field(min_length=3, max_length=500, pattern=_VISIBLE, description="why; noted beside your name")


class MessagePath(Request):
    """Names one message: its id in the log."""

    message_id: int = Field(ge=1, le=INT64_MAX)


class MessagesQuery(PageQuery):
    """Which messages to list."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=INT64_MAX, description="either UPRN of the message")
    state: MessageState | None = None
    module: Module | None = Field(default=None, description="those that failed in this module")
    kind: WaitKind | None = Field(default=None, description="those that are not done for this reason")
    created_after: QueryTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="received before this time")
    history: bool = Field(default=False, description="those that are done, instead of those that are not")

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        """The history may be a thousand times the log: what it has no index of is read in a time or of a UPRN only."""
        timestamps.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        if self.state is MessageState.WAITING and (self.module or self.kind):
            raise ValueError(
                "state “waiting” has failed nowhere yet; leave module and kind out, or choose another state."
            )
        if not self.history:
            return self
        if self.state not in (None, MessageState.DONE):
            raise ValueError(f"state “{self.state}” is never in the history, where all is done; leave one of them out.")
        is_scan = self.topic or self.module or self.kind
        if is_scan and self.uprn is None and self.created_after is None:
            raise ValueError("history with topic, module or kind needs a uprn or created_after; add one.")
        return self

    @property
    def filter(self) -> MessageFilter:
        """What the search looks for."""
        names = ("topic", "uprn", "module", "kind", "created_after", "created_before")
        return MessageFilter(**{name: getattr(self, name) for name in names})


MessageId = Annotated[int, Field(ge=1, le=INT64_MAX)]


class SkipMessageRequest(SignedRequest):
    """Why a message is skipped."""

    though_touched: bool = Field(
        default=False, description="also if modules have applied it, or may have; they differ from the others then"
    )


class FailedMessagesFilter(Request):
    """Which failed messages are meant; nothing named means all of them."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=INT64_MAX, description="either UPRN of the message")
    state: Literal[MessageState.FAILED, MessageState.GIVEN_UP] | None = None
    module: Module | None = Field(default=None, description="those that failed in this module")
    kind: WaitKind | None = Field(default=None, description="those that are not done for this reason")

    def filter(self, retries: int) -> MessageFilter:
        """What is looked for, where messages are given up after so many failed cycles."""
        named = self.model_dump(exclude={"state", "who", "reason", "limit"})
        return MessageFilter(
            **named,
            retries_from=retries if self.state is MessageState.GIVEN_UP else None,
            retries_below=retries if self.state is MessageState.FAILED else None,
        )


class CountFailedQuery(FailedMessagesFilter):
    """Which failed messages are counted; nothing named means all of them."""

    created_after: QueryTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="received before this time")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


class FailedMessagesRequest(FailedMessagesFilter, SignedRequest):
    """Which failed messages are tried again; nothing named means all of them."""

    ids: list[MessageId] | None = Field(
        default=None, min_length=1, max_length=RETRIED_MAX, description="of these only, whatever else is named"
    )
    created_after: BodyTimestamp | None = Field(default=None, description="received at or after this time")
    created_before: BodyTimestamp | None = Field(default=None, description="received before this time")
    limit: int = Field(default=RETRIED_MAX, ge=1, le=RETRIED_MAX, description="how many at most, the oldest first")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self
