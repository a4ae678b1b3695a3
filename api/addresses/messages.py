"""Messages: the log and its history, searched, and one message with all that is known of it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from api.addresses import answers
from api.addresses.answers import LARGEST, ListedMessage, ShownMessage
from api.addresses.room import in_force, routes
from api.http import pagination, timestamps
from api.http.models import Request
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call
from api.http.timestamps import QueryTimestamp
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind
from domain.faults import Invalid, Missing
from stores.addresses import search
from stores.addresses.search import MessageFilter, MessageSearch


class MessagePath(Request):
    """Names one message: its id in the log."""

    message_id: int = Field(ge=1, le=LARGEST)


class Wanted(PageQuery):
    """Which messages to list."""

    topic: Topic | None = None
    uprn: int | None = Field(default=None, ge=1, le=LARGEST, description="either UPRN of the message")
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


@routes.get("/v1/addresses/messages", access=Access.ADMIN, problems={"cursor_invalid": Invalid})
async def browse_messages(call: Call, query: Wanted) -> PageResponse[ListedMessage]:
    """List change messages, those received last first.

    What is done goes to the history at the end of its cycle; `history=true` lists that.
    """
    retries = (await in_force(call)).retries
    after = query.after
    wanted = MessageSearch(
        filter=query.filter,
        limit=query.limit + 1,
        retries=retries,
        state=query.state,
        in_history=query.history,
        after=(after[0], pagination.parse_numeric_id(after[1])) if after else None,
    )
    rows = await search.search_messages(call.services.database, wanted)
    return pagination.build_page(
        rows, query.limit, lambda row: answers.listed(row, retries), lambda row: (row.created_at, str(row.id))
    )


@routes.get("/v1/addresses/messages/{message_id}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_message(call: Call, path: MessagePath) -> ShownMessage:
    """Show a message: what was published, the four acknowledgements, why it waits, and what was done to it."""
    return await shown(call, path.message_id)


async def shown(call: Call, message_id: int) -> ShownMessage:
    """A message as it stands now.

    Raises:
        Missing: There is none.
    """
    row = await search.find_message(call.services.database, message_id)
    if row is None:
        raise Missing(
            "not_found",
            f"There is no message {message_id}, neither in the log nor in its history.",
            "GET /v1/addresses/messages lists those that there are.",
        )
    supersedes = await search.list_superseded(call.services.database, row)
    done = await search.list_actions(call.services.database, message_id)
    return answers.shown(row, supersedes, done, (await in_force(call)).retries)
