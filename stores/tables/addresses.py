"""Addresses: the log of change messages and its history, what was ever taken in, quarantine, logical deletes, audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    CHAR,
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    LargeBinary,
    SmallInteger,
    String,
    Text,
    TextClause,
)
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field

from infra.database import TableRow, UtcTime

QUEUES: Final = (
    ("swaps", "swapDeleteInfinityAddress"),
    ("creates", "createUpdateInfinityAddress"),
    ("deletes", "deleteInfinityAddress"),
)
BEGUN: Final = sql("proc_flag IS NOT NULL")

MODULES: Final = ("ed", "im", "wfm", "od")

_FLAG: Any = CHAR(1)
_TOPIC: Any = String(50)
_MSG_NO: Any = String(32)
# JSON keeps the payload as it was sent; JSONB sorts its fields, and refuses some valid JSON.
_PAYLOAD: Any = JSON(none_as_null=True)
_WAIT: Any = JSONB(none_as_null=True)
_NOW: Final = {"server_default": sql("now()")}


def build_unfinished_condition(topic: str) -> TextClause:
    """Return the SQL condition for the unfinished messages of a topic. Use this very text, so that its index is used.

    There is one index per topic, of ids alone. With one over (topic, id) PostgreSQL does not see that it is in the
    table's order, and would rather read the whole log by its ids.
    """
    return sql(f"topic = '{topic}' AND (proc_flag IS NULL OR proc_flag <> 'Y')")


class _MessageColumns(TableRow):
    """The columns of a change message: those that the specification names, then those added by Haulage."""

    topic: str = Field(sa_type=_TOPIC)
    uprn_1: int = Field(sa_type=BigInteger)
    uprn_2: int | None = Field(default=None, sa_type=BigInteger)
    msg_no: str = Field(sa_type=_MSG_NO)
    payload: dict[str, Any] | None = Field(default=None, sa_type=_PAYLOAD)
    # Null: waiting, P: processing, Y: done, N: failed.
    proc_flag: str | None = Field(default=None, sa_type=_FLAG)
    proc_update_date: datetime | None = Field(default=None, sa_type=UtcTime)
    retry_times: int = Field(default=0, sa_type=SmallInteger, sa_column_kwargs={"server_default": sql("0")})
    ed_ack: str | None = Field(default=None, sa_type=_FLAG)
    im_ack: str | None = Field(default=None, sa_type=_FLAG)
    wfm_ack: str | None = Field(default=None, sa_type=_FLAG)
    od_ack: str | None = Field(default=None, sa_type=_FLAG)
    ed_stack_trace: str | None = Field(default=None, sa_type=Text)
    im_stack_trace: str | None = Field(default=None, sa_type=Text)
    wfm_stack_trace: str | None = Field(default=None, sa_type=Text)
    od_stack_trace: str | None = Field(default=None, sa_type=Text)
    createdat: datetime = Field(sa_type=UtcTime, sa_column_kwargs=_NOW)
    ed_ack_date: datetime | None = Field(default=None, sa_type=UtcTime)
    im_ack_date: datetime | None = Field(default=None, sa_type=UtcTime)
    wfm_ack_date: datetime | None = Field(default=None, sa_type=UtcTime)
    od_ack_date: datetime | None = Field(default=None, sa_type=UtcTime)
    address_id: int | None = Field(default=None, sa_type=BigInteger)
    # The cycle that loaded it last.
    cycle_id: str | None = Field(default=None, sa_type=Text)
    # The id of the message that superseded this one.
    superseded_by: int | None = Field(default=None, sa_type=BigInteger)
    # The earliest time of the next try.
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcTime)
    # Why it is not done, see `WaitReason`.
    wait_reason: dict[str, Any] | None = Field(default=None, sa_type=_WAIT)
    # Why it ended without success.
    reason: str | None = Field(default=None, sa_type=Text)
    published_at: datetime | None = Field(default=None, sa_type=UtcTime)
    event_id: str | None = Field(default=None, sa_type=Text)


def _build_check_constraints() -> list[CheckConstraint]:
    acks = [CheckConstraint(f"{module}_ack IN ('Y', 'N')", name=f"{module}_ack") for module in MODULES]
    return [CheckConstraint("proc_flag IN ('P', 'Y', 'N')", name="proc_flag"), *acks]


class AddressMessage(_MessageColumns, table=True):
    """A change message that is not archived. Ids grow in the order of commits."""

    __tablename__ = "im_infi_addr_sync_log"
    __table_args__ = (
        *_build_check_constraints(),
        *(
            Index(f"ix_im_infi_addr_sync_log_{name}", "id", postgresql_where=build_unfinished_condition(topic))
            for name, topic in QUEUES
        ),
        Index("ix_im_infi_addr_sync_log_begun", "proc_flag", "id", postgresql_where=BEGUN),
        Index("ix_im_infi_addr_sync_log_uprn_1", "uprn_1", "id"),
        Index("ix_im_infi_addr_sync_log_uprn_2", "uprn_2", "id", postgresql_where=sql("uprn_2 IS NOT NULL")),
        Index("ix_im_infi_addr_sync_log_createdat", "createdat", "id"),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))


class ArchivedMessage(_MessageColumns, table=True):
    """A message that is done."""

    __tablename__ = "im_infi_addr_sync_log_his"
    __table_args__ = (
        *_build_check_constraints(),
        Index("ix_im_infi_addr_sync_log_his_uprn_1", "uprn_1", "id"),
        Index("ix_im_infi_addr_sync_log_his_uprn_2", "uprn_2", "id", postgresql_where=sql("uprn_2 IS NOT NULL")),
        Index("ix_im_infi_addr_sync_log_his_createdat", "createdat", "id"),
        Index("ix_im_infi_addr_sync_log_his_archived_at", "archived_at"),
    )

    id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    archived_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs=_NOW)


class ReceivedMessageKeyRow(TableRow, table=True):
    """The key of a received message, wherever the message is now; it identifies repeated deliveries."""

    __tablename__ = "addr_sync_keys"
    __table_args__ = (
        # A publisher that publishes an event twice gets another msg_no, but repeats the event_id.
        Index(
            "uq_addr_sync_keys_event",
            "topic",
            "event_id",
            unique=True,
            postgresql_where=sql("event_id IS NOT NULL"),
        ),
        # Rows are inserted in the order of time, which is what BRIN needs.
        Index("ix_addr_sync_keys_created_at", "created_at", postgresql_using="brin"),
    )

    topic: str = Field(primary_key=True, sa_type=_TOPIC)
    msg_no: str = Field(primary_key=True, sa_type=_MSG_NO)
    event_id: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs=_NOW)


class QuarantinedMessage(TableRow, table=True):
    """A message that could not be read, and why."""

    __tablename__ = "addr_sync_quarantine"
    __table_args__ = (
        Index("uq_addr_sync_quarantine_topic_msg_no", "topic", "msg_no", unique=True),
        Index("ix_addr_sync_quarantine_created_at", "created_at", "id"),
        Index("ix_addr_sync_quarantine_unmended", "created_at", "id", postgresql_where=sql("mended_as IS NULL")),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    topic: str = Field(sa_type=Text)
    msg_no: str = Field(sa_type=Text)
    # The message as it came, up to RAW_MAX_BYTES.
    raw: bytes = Field(sa_type=LargeBinary)
    raw_bytes: int = Field(sa_type=BigInteger)
    reason: str = Field(sa_type=Text)
    published_at: datetime | None = Field(default=None, sa_type=UtcTime)
    created_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs=_NOW)
    # The message of the log that the corrected text became. The row stays, so that a late delivery is recognised.
    mended_at: datetime | None = Field(default=None, sa_type=UtcTime)
    mended_by: str | None = Field(default=None, sa_type=Text)
    mended_as: int | None = Field(default=None, sa_type=BigInteger)


class LogicalDelete(TableRow, table=True):
    """An address that modules with orders in flight keep; `purged_at` is null until it is removed."""

    __tablename__ = "addr_logical_deletes"
    __table_args__ = (
        *(CheckConstraint(f"{module}_flag IN ('Y', 'N')", name=f"{module}_flag") for module in ("od", "wfm", "ed")),
        Index("ix_addr_logical_deletes_listed", "create_date", "address_id", postgresql_where=sql("purged_at IS NULL")),
        Index("ix_addr_logical_deletes_uprn", "uprn"),
    )

    address_id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    # Whether the module has orders in flight for it.
    od_flag: str = Field(sa_type=_FLAG)
    wfm_flag: str = Field(sa_type=_FLAG)
    ed_flag: str = Field(sa_type=_FLAG)
    create_date: datetime = Field(sa_type=UtcTime, sa_column_kwargs=_NOW)
    uprn: int = Field(sa_type=BigInteger)
    # The message that deleted it.
    log_id: int = Field(sa_type=BigInteger)
    checked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    removable_at: datetime | None = Field(default=None, sa_type=UtcTime)
    purged_at: datetime | None = Field(default=None, sa_type=UtcTime)


class AddressOptionsVersion(TableRow, table=True):
    """One version of the settings of cycles and modules; the newest is in force."""

    __tablename__ = "addr_settings"

    version: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    options: dict[str, Any] = Field(sa_column=Column(JSONB, nullable=False))
    changed_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs=_NOW)
    who: str = Field(sa_type=Text)
    reason: str = Field(sa_type=Text)


class AddressAction(TableRow, table=True):
    """An action of an operator on a message or an address, with its reason."""

    __tablename__ = "addr_audit"
    __table_args__ = (
        Index("ix_addr_audit_log_id", "log_id", postgresql_where=sql("log_id IS NOT NULL")),
        Index("ix_addr_audit_address_id", "address_id", postgresql_where=sql("address_id IS NOT NULL")),
    )

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    done_at: datetime = Field(sa_type=UtcTime, sa_column_kwargs=_NOW)
    who: str = Field(sa_type=Text)
    action: str = Field(sa_type=Text)
    log_id: int | None = Field(default=None, sa_type=BigInteger)
    address_id: int | None = Field(default=None, sa_type=BigInteger)
    reason: str | None = Field(default=None, sa_type=Text)
