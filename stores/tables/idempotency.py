"""Idempotency keys: which download a caller's key stands for, for ever."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import LargeBinary, Text, func
from sqlmodel import Field

from infra.database import TableRow, UtcTime


class IdempotencyKey(TableRow, table=True):
    """A key of a project, what was sent with it, and the download that it owns."""

    __tablename__ = "idempotency_keys"

    project_id: str = Field(primary_key=True, sa_type=Text)
    key: str = Field(primary_key=True, sa_type=Text)
    fingerprint: bytes = Field(sa_type=LargeBinary)
    task_id: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs={"server_default": func.now()})
