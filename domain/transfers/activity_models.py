"""Inputs and results of the activities of transfers, and the status of a job."""

from __future__ import annotations

from pydantic import BaseModel

from domain.transfers.joining import ShardOfTargets, TransferJobInput
from domain.transfers.models import FileByBizAppAndPath, JobStateAndTargetCounts, TargetEndAndReason


class SaveShardsInput(BaseModel):
    """Shards to be saved when the window has ended."""

    job: TransferJobInput
    shards: list[ShardOfTargets]


class ShardNumberAndTargetCount(BaseModel):
    """A shard that is saved in the database."""

    number: int
    signature: str
    project_id: str = ""
    targets: int = 0

    @classmethod
    def from_shard(cls, shard: ShardOfTargets) -> ShardNumberAndTargetCount:
        """Return what the workflow keeps of a shard."""
        spec = shard.spec
        return cls(
            number=shard.number, signature=spec.signature, project_id=spec.project_id, targets=len(shard.targets)
        )


class CheckAgentsOfShardsInput(BaseModel):
    """Shards whose agents GSE is asked about."""

    job: TransferJobInput
    numbers: list[int]


class FetchFileInput(BaseModel):
    """The file that a host fetches."""

    file: FileByBizAppAndPath
    signature: str


class FetchedFileHostResult(BaseModel):
    """The host that has the file."""

    queue: str
    """The task queue that only this host serves."""
    fetched_at: float | None = None
    """When the host had the file, in seconds since 1970."""


class SendShardInput(BaseModel):
    """A shard to be sent from the host that has the file."""

    job: TransferJobInput
    signature: str
    number: int
    fetched_at: float | None = None


class EndUnfinishedTargetsOfShardsInput(BaseModel):
    """Shards whose unfinished targets end."""

    job: TransferJobInput
    numbers: list[int]
    outcome: TargetEndAndReason


class CancelProjectTargetsInput(BaseModel):
    """Projects whose targets are cancelled."""

    job: TransferJobInput
    project_ids: list[str]


class TransferJobStatus(BaseModel):
    """The status of a job; the states of its targets are in the database."""

    phase: str = "collecting"
    """`collecting`, `sending` or `done`."""
    batches: int = 0
    targets: int = 0
    shards: int = 0
    sent: int = 0
    ended: JobStateAndTargetCounts | None = None
    """How the job ended, over all projects."""
