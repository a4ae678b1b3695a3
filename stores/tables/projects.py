"""Projects, their API keys, of which only a hash is stored, and their idempotency keys."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, LargeBinary, Text, func
from sqlmodel import Field

from infra.database import TableRow, UtcTime


class Project(TableRow, table=True):
    """A tenant: it owns keys, quotas, and everything that is created with its keys."""

    __tablename__ = "projects"

    project_id: str = Field(primary_key=True, sa_type=Text, sa_column_kwargs={"name": "id"})
    name: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcTime)


class ApiKey(TableRow, table=True):
    """A key of a project: found by its id, verified by the HMAC-SHA256 of its secret under the pepper."""

    __tablename__ = "api_keys"

    key_id: str = Field(primary_key=True, sa_type=Text, sa_column_kwargs={"name": "id"})
    project_id: str = Field(sa_type=Text, sa_column_args=[ForeignKey("projects.id")], index=True)
    secret_hash: bytes = Field(sa_type=LargeBinary, sa_column_kwargs={"name": "hash"}, unique=True)
    last4: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcTime)


class IdempotencyKey(TableRow, table=True):
    """An idempotency key of a project, the fingerprint of its first request, and the download that this created."""

    __tablename__ = "idempotency_keys"

    project_id: str = Field(primary_key=True, sa_type=Text)
    key: str = Field(primary_key=True, sa_type=Text)
    fingerprint: bytes = Field(sa_type=LargeBinary)
    task_id: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()})
