"""Addresses: the log of change messages, its history and keys, quarantine, logical deletes, and the audit."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"

LOG = "im_infi_addr_sync_log"
HISTORY = "im_infi_addr_sync_log_his"
QUEUES = {
    "swaps": "swapDeleteInfinityAddress",
    "creates": "createUpdateInfinityAddress",
    "deletes": "deleteInfinityAddress",
}


def upgrade() -> None:
    """Go on to this revision."""
    _create_log()
    _create_history()
    _create_keys()
    _create_quarantine()
    _create_logical_deletes()
    _create_audit()


def downgrade() -> None:
    """Go back to the one before."""
    for table in ("addr_audit", "addr_logical_deletes", "addr_sync_quarantine", "addr_sync_keys", HISTORY, LOG):
        op.drop_table(table)


def _message() -> list[sa.Column[Any]]:
    """What the log and its history hold, without the id."""
    return [
        sa.Column("topic", sa.String(50), nullable=False),
        sa.Column("uprn_1", sa.BigInteger(), nullable=False),
        sa.Column("uprn_2", sa.BigInteger(), nullable=True),
        sa.Column("msg_no", sa.String(32), nullable=False),
        sa.Column("payload", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("proc_flag", sa.CHAR(1), nullable=True),
        sa.Column("proc_update_date", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retry_times", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        *(sa.Column(f"{module}_ack", sa.CHAR(1), nullable=True) for module in ("ed", "im", "wfm", "od")),
        *(sa.Column(f"{module}_stack_trace", sa.Text(), nullable=True) for module in ("ed", "im", "wfm", "od")),
        sa.Column("createdat", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *(
            sa.Column(f"{module}_ack_date", sa.DateTime(timezone=True), nullable=True)
            for module in ("ed", "im", "wfm", "od")
        ),
        sa.Column("address_id", sa.BigInteger(), nullable=True),
        sa.Column("cycle_id", sa.Text(), nullable=True),
        sa.Column("superseded_by", sa.BigInteger(), nullable=True),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wait_reason", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("event_id", sa.Text(), nullable=True),
    ]


def _checks(table: str) -> list[sa.CheckConstraint]:
    acks = [
        sa.CheckConstraint(f"{module}_ack IN ('Y', 'N')", name=op.f(f"ck_{table}_{module}_ack"))
        for module in ("ed", "im", "wfm", "od")
    ]
    return [sa.CheckConstraint("proc_flag IN ('P', 'Y', 'N')", name=op.f(f"ck_{table}_proc_flag")), *acks]


def _index_messages(table: str) -> None:
    op.create_index(f"ix_{table}_uprn_1", table, ["uprn_1", "id"])
    op.create_index(f"ix_{table}_uprn_2", table, ["uprn_2", "id"], postgresql_where=sa.text("uprn_2 IS NOT NULL"))
    op.create_index(f"ix_{table}_createdat", table, ["createdat", "id"])


def _create_log() -> None:
    op.create_table(
        LOG,
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        *_message(),
        *_checks(LOG),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{LOG}")),
    )
    _index_messages(LOG)
    for name, topic in QUEUES.items():
        op.create_index(
            f"ix_{LOG}_{name}",
            LOG,
            ["id"],
            postgresql_where=sa.text(f"topic = '{topic}' AND (proc_flag IS NULL OR proc_flag <> 'Y')"),
        )
    op.create_index(f"ix_{LOG}_begun", LOG, ["proc_flag", "id"], postgresql_where=sa.text("proc_flag IS NOT NULL"))


def _create_history() -> None:
    op.create_table(
        HISTORY,
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        *_message(),
        sa.Column("archived_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *_checks(HISTORY),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{HISTORY}")),
    )
    _index_messages(HISTORY)
    op.create_index(f"ix_{HISTORY}_archived_at", HISTORY, ["archived_at"])


def _create_keys() -> None:
    op.create_table(
        "addr_sync_keys",
        sa.Column("topic", sa.String(50), nullable=False),
        sa.Column("msg_no", sa.String(32), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("topic", "msg_no", name=op.f("pk_addr_sync_keys")),
    )
    op.create_index(
        "uq_addr_sync_keys_event",
        "addr_sync_keys",
        ["topic", "event_id"],
        unique=True,
        postgresql_where=sa.text("event_id IS NOT NULL"),
    )
    op.create_index("ix_addr_sync_keys_created_at", "addr_sync_keys", ["created_at"], postgresql_using="brin")


def _create_quarantine() -> None:
    op.create_table(
        "addr_sync_quarantine",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("msg_no", sa.Text(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("raw_bytes", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_addr_sync_quarantine")),
    )
    op.create_index("uq_addr_sync_quarantine_topic_msg_no", "addr_sync_quarantine", ["topic", "msg_no"], unique=True)
    op.create_index("ix_addr_sync_quarantine_created_at", "addr_sync_quarantine", ["created_at", "id"])


def _create_logical_deletes() -> None:
    op.create_table(
        "addr_logical_deletes",
        sa.Column("address_id", sa.BigInteger(), autoincrement=False, nullable=False),
        *(sa.Column(f"{module}_flag", sa.CHAR(1), nullable=False) for module in ("od", "wfm", "ed")),
        sa.Column("create_date", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("uprn", sa.BigInteger(), nullable=False),
        sa.Column("log_id", sa.BigInteger(), nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removable_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("purged_at", sa.DateTime(timezone=True), nullable=True),
        *(
            sa.CheckConstraint(f"{module}_flag IN ('Y', 'N')", name=op.f(f"ck_addr_logical_deletes_{module}_flag"))
            for module in ("od", "wfm", "ed")
        ),
        sa.PrimaryKeyConstraint("address_id", name=op.f("pk_addr_logical_deletes")),
    )
    op.create_index(
        "ix_addr_logical_deletes_listed",
        "addr_logical_deletes",
        ["create_date", "address_id"],
        postgresql_where=sa.text("purged_at IS NULL"),
    )
    op.create_index("ix_addr_logical_deletes_uprn", "addr_logical_deletes", ["uprn"])


def _create_audit() -> None:
    op.create_table(
        "addr_audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("log_id", sa.BigInteger(), nullable=True),
        sa.Column("address_id", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_addr_audit")),
    )
    for column in ("log_id", "address_id"):
        op.create_index(
            f"ix_addr_audit_{column}", "addr_audit", [column], postgresql_where=sa.text(f"{column} IS NOT NULL")
        )
