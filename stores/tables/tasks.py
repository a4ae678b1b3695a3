"""Tasks: types and their lanes, tasks that have ended, and texts that are too long for a lane.

Moments are milliseconds since 1970, as lanes reckon them.
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
"""Says `{type}/{pos}` whenever the head of a lane was written."""


class TaskType(TableRow, table=True):
    """The configuration of a type, and the span of its lanes that are open."""

    __tablename__ = "task_types"
    __table_args__ = (
        CheckConstraint("type = project_id || '/' || name", name="type"),
        Index("ix_task_types_name", "name", "project_id"),
    )

    # The name with its project before it: all other tables know a type by that.
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
    # Grows with each change of the configuration; lanes take up what is newer than theirs.
    version: int = 1
    # The first lane that is not done, and the last that was begun. Neither ever goes back.
    begin_pos: int = 1
    end_pos: int = 1
    created_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))
    changed_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))


class TaskHead(TableRow, table=True):
    """How an open lane stood when it last said so, within a second of any change. A hint: only the lane knows."""

    __tablename__ = "task_heads"

    type: str = Field(
        sa_column=Column(Text, ForeignKey("task_types.type", ondelete="CASCADE"), primary_key=True, nullable=False)
    )
    pos: int = Field(primary_key=True)
    # To tell the newer of two heads.
    number: int = Field(default=0, sa_type=BigInteger)
    next_order_time: int | None = Field(default=None, sa_type=BigInteger)
    # When a running task may be taken back, and wait for a holder again.
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


class TaskKey(TableRow, table=True):
    """A task id that a caller chose: whoever sends it again gets the same task."""

    __tablename__ = "task_keys"
    # Keys go with their task when its time is over.
    __table_args__ = (Index("ix_task_keys_task_id", "task_id", postgresql_using="hash"),)

    type: str = Field(primary_key=True, sa_type=Text)
    key: str = Field(primary_key=True, sa_type=Text)
    task_id: str = Field(sa_type=Text)
    # Of user, priority and content: another one under the same key is an error.
    digest: bytes = Field(sa_type=LargeBinary)
    created_at: datetime = Field(sa_column=Column(UtcTime, nullable=False, server_default=text("now()")))


class ArchivedTask(TableRow, table=True):
    """A task that has ended. Its lane forgets it once it is here; it stays for good, or as long as the settings say."""

    __tablename__ = "tasks_archive"
    __table_args__ = (Index("ix_tasks_archive_type_status", "type", "status", text("create_time DESC")),)

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
    # Which of the two are references: 1 the content, 2 the log.
    refs: int = Field(sa_type=SmallInteger)
    order_time: int = Field(sa_type=BigInteger)
    create_time: int = Field(sa_type=BigInteger)
    modify_time: int = Field(sa_type=BigInteger)
    # Of those that did not end it, as its lane kept them; empty for most. Versions before write rows without it.
    attempts: str = Field(default="", sa_column=Column(Text, nullable=False, server_default=""))
    # The number under which it was given out last: only who held it under that is told again that all is well.
    lease: int = Field(default=0, sa_column=Column(BigInteger, nullable=False, server_default="0"))


class TaskCount(TableRow, table=True):
    """How many archived tasks a lane has in each state: nobody counts a million rows."""

    __tablename__ = "task_counts"

    type: str = Field(primary_key=True, sa_type=Text)
    pos: int = Field(primary_key=True)
    status: int = Field(primary_key=True, sa_type=SmallInteger)
    tasks: int = Field(sa_type=BigInteger)


class TaskContent(TableRow, table=True):
    """A text of a task that is too long for its lane, written before the lane hears of it."""

    __tablename__ = "task_contents"

    task_id: str = Field(primary_key=True, sa_type=Text)
    ref: str = Field(primary_key=True, sa_type=Text)
    body: str = Field(sa_type=Text)
    # When somebody last was about to hand it to a lane; nothing for texts from before that was kept.
    written_at: datetime | None = Field(
        sa_column=Column(UtcTime, nullable=True, server_default=text("now()"), index=True)
    )


class TaskTextsSettled(TableRow, table=True):
    """Up to when texts have been looked at, whether they became their tasks'. One row at most."""

    __tablename__ = "task_texts_settled"

    is_one: bool = Field(
        sa_column=Column(Boolean, CheckConstraint("is_one", name="one"), primary_key=True, server_default=text("true"))
    )
    settled_until: datetime = Field(sa_column=Column(UtcTime, nullable=False))
