"""Projects and their API keys; of a key only a hash is stored."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, LargeBinary, Text
from sqlmodel import Field

from infra.database import TableRow, UtcTime


class Project(TableRow, table=True):
    """Whom work, files and keys belong to."""

    __tablename__ = "projects"

    project_id: str = Field(primary_key=True, sa_type=Text, sa_column_kwargs={"name": "id"})
    name: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcTime)


class ApiKey(TableRow, table=True):
    """A key of a project: found by its id, recognised by the HMAC-SHA256 of its secret under the pepper."""

    __tablename__ = "api_keys"

    key_id: str = Field(primary_key=True, sa_type=Text, sa_column_kwargs={"name": "id"})
    project_id: str = Field(sa_type=Text, sa_column_args=[ForeignKey("projects.id")], index=True)
    secret_hash: bytes = Field(sa_type=LargeBinary, sa_column_kwargs={"name": "hash"}, unique=True)
    last4: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcTime)
