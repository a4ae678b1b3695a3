"""Transfers: jobs, shards with their GSE tasks, targets with their states, cancellations and permissions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    SmallInteger,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import Field

from infra.database import TableRow, UtcTime

STATES = ("Pending", "Running", "Success", "Failed", "Timeout")
_KNOWN_STATE = "state IN ({})".format(", ".join(f"'{state}'" for state in STATES))

ALL_TARGETS: Final = -1
"""Instead of a target's key: all targets of a project in a job."""


class TransferJobTimesRow(TableRow, table=True):
    """One file in one time window; inserted when the window has ended."""

    __tablename__ = "transfer_jobs"
    __table_args__ = (
        Index("uq_transfer_jobs_job_id", "job_id", unique=True),
        Index("ix_transfer_jobs_expires_at", "expires_at"),
        Index("ix_transfer_jobs_retry_of", "retry_of"),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    job_id: str = Field(sa_type=Text)
    closes_at: datetime = Field(sa_type=UtcTime)
    deadline_at: datetime = Field(sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # While the job runs: when it is purged even if its workflow never finishes it.
    expires_at: datetime = Field(sa_type=UtcTime)
    # When its targets were purged; the row stays for a while, so that the API can answer that the job has expired.
    purged_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # The job whose failed targets it sends again.
    retry_of: str | None = Field(default=None, sa_type=Text)


class TransferShard(TableRow, table=True):
    """Up to 500 targets with the same spec, and the GSE tasks that send to them."""

    __tablename__ = "transfer_shards"

    job: int = Field(sa_column=Column(BigInteger, ForeignKey("transfer_jobs.id", ondelete="CASCADE"), primary_key=True))
    number: int = Field(primary_key=True)
    project_id: str = Field(sa_type=Text)
    signature: str = Field(sa_type=Text)
    target_user: str = Field(sa_type=Text)
    folder: str = Field(sa_type=Text)
    file_name: str = Field(sa_type=Text)
    # The holder of the lease: a worker that was taken for dead finds another name here, and stops.
    holder: str | None = Field(default=None, sa_type=Text)
    sendings: list[dict[str, Any]] = Field(default=[], sa_column=Column(JSONB, nullable=False))
    # The calls to GSE that failed last, until it does what was asked.
    gse_trouble: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB))


class TransferTarget(TableRow, table=True):
    """The state of one target. There is no foreign key, because that would be 100,000 checks for a large job."""

    __tablename__ = "transfer_targets"
    __table_args__ = (
        CheckConstraint(_KNOWN_STATE, name="state"),
        Index("ix_transfer_targets_job_shard", "job", "shard"),
        Index("ix_transfer_targets_agent_id", "agent_id", text("job DESC"), text("key DESC")),
        Index("ix_transfer_targets_job_reason", "job", "reason", postgresql_where=text("reason IS NOT NULL")),
        {"postgresql_with": {"fillfactor": "50"}},
    )

    job: int = Field(primary_key=True, sa_type=BigInteger)
    key: int = Field(primary_key=True, sa_type=BigInteger)
    shard: int
    agent_id: str = Field(sa_type=Text)
    container_id: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    # A GSE that is away for a day is asked for more tasks than a smallint counts.
    sending: int = 0
    failures: int = Field(default=0, sa_type=SmallInteger)
    failed_in: int = 0
    code: int | None = None
    reason: str | None = Field(default=None, sa_type=Text)
    message: str = Field(default="", sa_type=Text)
    progress: int = Field(default=0, sa_type=SmallInteger)
    speed: int = Field(default=0, sa_type=BigInteger)
    # GSE's report of the last failure: it is shown if the deadline passes before anything better is known.
    failed_code: int | None = None
    failed_message: str = Field(default="", sa_column=Column(Text, nullable=False, server_default=""))
    # When it joined, by the engine's clock; in a retry, when the retry was requested.
    joined_at: datetime | None = Field(default=None, sa_type=UtcTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # Whether a retry has it.
    is_retried: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=text("false")))


class TransferCancellation(TableRow, table=True):
    """A cancellation by a project: of one target of a job, or of all its targets there."""

    __tablename__ = "transfer_cancels"
    __table_args__ = (Index("ix_transfer_cancels_cancelled_at", "cancelled_at"),)

    job_id: str = Field(primary_key=True, sa_type=Text)
    project_id: str = Field(primary_key=True, sa_type=Text)
    key: int = Field(primary_key=True, sa_type=BigInteger)
    cancelled_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))


class TransferPermissionRow(TableRow, table=True):
    """Transfers that a project may send; see `domain.transfers.permissions`. A project's list is replaced whole."""

    __tablename__ = "transfer_openings"

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    project_id: str = Field(sa_type=Text, sa_column_args=[ForeignKey("projects.id")], index=True)
    biz_id: int = Field(sa_type=BigInteger, index=True)
    app_id: int | None = Field(default=None, sa_type=BigInteger)
    path_prefixes: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False))
    folder_prefixes: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False))
    users: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False))
    hosts: list[str] = Field(sa_column=Column(ARRAY(Text), nullable=False))
