"""Figures: how many messages are in which state, and how old the oldest of them is."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from api.addresses.room import in_force, routes
from api.http.models import Response
from api.http.routes import Access, Call
from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from stores.addresses import workload
from stores.addresses.workload import UnfinishedCounts


class Figure(Response):
    """The messages of a topic in one state."""

    topic: Topic
    state: MessageState
    messages: int
    oldest_at: AwareDatetime | None = Field(description="when the oldest of them was received")
    oldest_seconds: float = Field(description="how long ago that is; 0 where there is none")
    failed_in: dict[Module, int] = Field(description="how many of them failed in each module")


class Figures(Response):
    """What is not done."""

    at: AwareDatetime
    messages: list[Figure] = Field(description="every topic in every state but `done`")
    quarantined: int = Field(description="messages that could not be read")
    logical_deletes: int = Field(description="addresses that modules keep because of orders in flight")
    removable: int = Field(description="of them those that no module needs any more")


@routes.get("/v1/addresses/figures", access=Access.ADMIN)
async def figures(call: Call) -> Figures:
    """Count what is not done, by topic and state, with the age of the oldest.

    The same is shown under /metrics, as `haulage_addresses_open` and `haulage_addresses_oldest_seconds`.
    """
    return _told(await workload.count_unfinished(call.services.database, (await in_force(call)).retries))


def _told(counts: UnfinishedCounts) -> Figures:
    return Figures(
        at=counts.at,
        messages=[
            Figure(
                topic=each.topic,
                state=each.state,
                messages=each.messages,
                oldest_at=each.oldest_at,
                oldest_seconds=counts.oldest_seconds(each),
                failed_in=dict(each.failed_in),
            )
            for each in counts.counts
        ],
        quarantined=counts.quarantined,
        logical_deletes=counts.listed,
        removable=counts.removable,
    )
