"""Tasks: types and their lanes, tasks that have ended, and texts that are too long for a lane.

Times are milliseconds since 1970 by the engine's clock.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    text,
)
from sqlmodel import Field

from infra.database import TableRow, UtcTime

HEADS_CHANNEL: Final = "task_heads"
"""Channel of notifications `{type}/{pos}`, sent whenever the head of a lane is saved."""


class TaskType(TableRow, table=True):
    """Configuration of a type, and the range of its open lanes."""

    __tablename__ = "task_types"
    __table_args__ = (
        CheckConstraint("type = project_id || '/' || name", name="type"),
        Index("ix_task_types_name", "name", "project_id"),
    )

    # Project id and name; other tables refer to it.
    type: str = Field(primary_key=True, sa_type=Text)
    project_id: str = Field(sa_type=Text, sa_column_args=[ForeignKey("projects.id")], index=True)
    name: str = Field(sa_type=Text)
    schedule_limit: int
    schedule_interval: int
    max_retry_num: int
    max_retry_interval: int
    max_processing_time: int
    retry_interval: int = Field(default=1, sa_column=Column(Integer, nullable=False, server_default="1"))
    lease_required: bool = Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=text("false")))
    paused: bool = False
    # Increases by two with each change; a lane adopts rules that are newer than its own. The number between is that of
    # the rules by which lanes refuse creates while the type is removed.
    version: int = 1
    # The first open lane and the last one. Neither ever decreases.
    begin_pos: int = 1
    end_pos: int = 1
    created_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))
    changed_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))
    # A removed type is not found; its ended tasks are, once it is registered again.
    removed_at: datetime | None = Field(default=None, sa_type=UtcTime)


class OpenLaneHead(TableRow, table=True):
    """Head of an open lane, at most a second behind it. Only the lane itself is authoritative."""

    __tablename__ = "task_heads"

    type: str = Field(
        sa_column=Column(Text, ForeignKey("task_types.type", ondelete="CASCADE"), primary_key=True, nullable=False)
    )
    pos: int = Field(primary_key=True)
    # The newer of two heads has the higher number.
    number: int = Field(default=0, sa_type=BigInteger)
    next_order_time: int | None = Field(default=None, sa_type=BigInteger)
    # No lease expires before this time.
    next_lease_end: int | None = Field(default=None, sa_type=BigInteger)
    due: int = 0
    pending: int = 0
    running: int = 0
    success: int = 0
    failed: int = 0
    cancelled: int = Field(default=0, sa_column=Column(Integer, nullable=False, server_default="0"))
    held: int = Field(default=0, sa_type=BigInteger)
    retries: int = Field(default=0, sa_type=BigInteger)
    timeouts: int = Field(default=0, sa_type=BigInteger)
    is_full: bool = False
    updated_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))


class ChosenTaskKeyRow(TableRow, table=True):
    """A task id that a caller chose: creating with it again returns the same task."""

    __tablename__ = "task_keys"
    # Keys are removed with their task.
    __table_args__ = (Index("ix_task_keys_task_id", "task_id", postgresql_using="hash"),)

    type: str = Field(primary_key=True, sa_type=Text)
    key: str = Field(primary_key=True, sa_type=Text)
    task_id: str = Field(sa_type=Text)
    # Of user, priority and content: a create with the same key and another digest is refused.
    digest: bytes = Field(sa_type=LargeBinary)
    created_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))


class ArchivedTask(TableRow, table=True):
    """A task that has ended. Its lane removes it once it is here; the settings say how long it is kept."""

    __tablename__ = "tasks_archive"
    __table_args__ = (
        Index("ix_tasks_archive_type_status", "type", "status", text("create_time DESC")),
        # Of failed tasks the last day's are counted, whenever they were created.
        Index("ix_tasks_archive_type_failed", "type", "modify_time", postgresql_where=text("status = 4")),
    )

    task_id: str = Field(primary_key=True, sa_type=Text)
    type: str = Field(sa_type=Text)
    pos: int
    user_id: str = Field(sa_type=Text)
    priority: int
    status: int = Field(sa_type=SmallInteger)
    stage: str = Field(sa_type=Text)
    crt_retry_num: int
    content: str = Field(sa_type=Text)
    schedule_log: str = Field(sa_type=Text)
    # `TaskFlags`: 1 if the content is a reference, 2 if the log is.
    refs: int = Field(sa_type=SmallInteger)
    order_time: int = Field(sa_type=BigInteger)
    create_time: int = Field(sa_type=BigInteger)
    modify_time: int = Field(sa_type=BigInteger)
    # Attempts that did not end it; empty for most. Older versions write rows without it.
    attempts: str = Field(default="", sa_column=Column(Text, nullable=False, server_default=""))
    # Its last lease: a repeated set under it is answered as done.
    lease: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))


class ArchivedTaskCount(TableRow, table=True):
    """Number of archived tasks of a lane by status, because counting a million rows takes too long."""

    __tablename__ = "task_counts"

    type: str = Field(primary_key=True, sa_type=Text)
    pos: int = Field(primary_key=True)
    status: int = Field(primary_key=True, sa_type=SmallInteger)
    tasks: int = Field(sa_type=BigInteger)


class LongTaskText(TableRow, table=True):
    """A text that is too long for its lane, written before its task is created or set."""

    __tablename__ = "task_contents"

    task_id: str = Field(primary_key=True, sa_type=Text)
    ref: str = Field(primary_key=True, sa_type=Text)
    body: str = Field(sa_type=Text)
    # When a request last wrote it; null for rows from before this column.
    written_at: datetime | None = Field(
        sa_column=Column(UtcTime, nullable=True, server_default=text("now()"), index=True)
    )


class TextCheckProgress(TableRow, table=True):
    """Time up to which housekeeping has checked whether texts are used. One row at most."""

    __tablename__ = "task_texts_settled"

    is_one: bool = Field(
        sa_column=Column(Boolean, CheckConstraint("is_one", name="one"), primary_key=True, server_default=text("true"))
    )
    settled_until: datetime = Field(sa_column=Column(UtcTime, nullable=False))
