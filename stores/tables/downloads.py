"""The catalogue of downloads: what lists and searches need, written at the acceptance, start and end of a run only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import Field

from infra.database import TableRow, UtcTime
from stores.tables import SEALED

STATES = ("pending", "running", "succeeded", "failed", "cancelled", "expired")
_KNOWN_STATE = "state IN ({})".format(", ".join(f"'{state}'" for state in STATES))
_NEWEST_FIRST = text("created_at DESC")
_UNFINISHED = text("state IN ('pending', 'running')")
CAUSE = "(fault ->> 'code')"
"""The code of the fault. Written out wherever it is used: a bound parameter would hide it from the index."""


class Download(TableRow, table=True):
    """A download; its progress is in the history of its workflow, not here."""

    __tablename__ = "downloads"
    __table_args__ = (
        CheckConstraint(_KNOWN_STATE, name="state"),
        Index("ix_downloads_expires_at", "expires_at", postgresql_where=text("state = 'succeeded'")),
        Index("ix_downloads_unfinished", "project_id", "state", postgresql_where=_UNFINISHED),
        Index("ix_downloads_failed", "finished_at", postgresql_where=text("state = 'failed'")),
        Index(
            "ix_downloads_project_id_cause_created_at",
            "project_id",
            text(CAUSE),
            _NEWEST_FIRST,
            postgresql_where=text("fault IS NOT NULL"),
        ),
        Index("ix_downloads_created_at", _NEWEST_FIRST),
        Index("ix_downloads_project_id_created_at", "project_id", _NEWEST_FIRST),
        Index("ix_downloads_project_id_state_created_at", "project_id", "state", _NEWEST_FIRST),
        Index("ix_downloads_project_id_operator_id_created_at", "project_id", "operator_id", _NEWEST_FIRST),
    )

    task_id: str = Field(primary_key=True, sa_type=Text)
    project_id: str = Field(sa_type=Text)
    operator_id: str | None = Field(default=None, sa_type=Text)
    source_hosts: list[str] = Field(
        default_factory=list, sa_column=Column(ARRAY(Text), server_default=text("'{}'"), nullable=False)
    )
    file_name: str = Field(sa_type=Text)
    type: str = Field(sa_type=Text)
    state: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    processings: int = 0
    total_rows: int | None = Field(default=None, sa_type=BigInteger)
    rows: int | None = Field(default=None, sa_type=BigInteger)
    bytes: int | None = Field(default=None, sa_type=BigInteger)
    sha256: str | None = Field(default=None, sa_type=Text)
    etag: str | None = Field(default=None, sa_type=Text)
    # The reference to the file: bucket, key, manifest. Without `none_as_null` no file would be a JSON null.
    file: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    fault: dict[str, Any] | None = Field(default=None, sa_column=Column(JSONB(none_as_null=True)))
    expires_at: datetime | None = Field(default=None, sa_type=UtcTime)
    fetchers: int | None = None
    # The order as it was given, its secrets sealed: what a retry starts again from.
    request: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False, info=SEALED))
