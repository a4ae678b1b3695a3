"""What the steps of a transfer are given and give back: one model in, one out."""

from __future__ import annotations

from pydantic import BaseModel

from domain.transfers.joining import JobOrder, Shard
from domain.transfers.models import End, File, Summary


class FreezeOrder(BaseModel):
    """The window has ended: write down who is in these shards."""

    job: JobOrder
    shards: list[Shard]


class ShardPlace(BaseModel):
    """A shard that is written down."""

    number: int
    signature: str
    targets: int = 0

    @classmethod
    def of(cls, shard: Shard) -> ShardPlace:
        """The place of a shard."""
        return cls(number=shard.number, signature=shard.consignment.signature, targets=len(shard.targets))


class LookOrder(BaseModel):
    """Ask GSE whether the agents of some shards are there."""

    job: JobOrder
    numbers: list[int]


class FetchOrder(BaseModel):
    """Have the file on some host."""

    file: File
    signature: str


class Berth(BaseModel):
    """Where the file lies: the task queue that only this host serves."""

    queue: str
    fetched_at: float | None = None
    """Since when, in seconds since 1970."""


class ShipOrder(BaseModel):
    """Bring the file to the targets of a shard, from the host where it lies."""

    job: JobOrder
    signature: str
    number: int
    fetched_at: float | None = None


class SettleOrder(BaseModel):
    """End the targets of shards that nobody ships any more."""

    job: JobOrder
    numbers: list[int]
    end: End


class CancelOrder(BaseModel):
    """All targets of these projects are no longer wanted."""

    job: JobOrder
    project_ids: list[str]


class JobStatus(BaseModel):
    """What the workflow answers when asked. States of targets stand in the database."""

    phase: str = "collecting"
    groups: int = 0
    targets: int = 0
    shards: int = 0
    shipped: int = 0
    ended: Summary | None = None
    """How it ended, as `GET /v1/transfers/jobs/{job_id}` tells it for all projects together."""
