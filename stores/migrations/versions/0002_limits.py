"""Limits: spending, leases and shares; and idempotency keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Go on to this revision."""
    _create_spending()
    _create_leases()
    _create_shares()
    _create_idempotency_keys()


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_table("idempotency_keys")
    op.drop_table("limit_shares")
    op.drop_table("limit_leases")
    op.drop_table("limit_spending")


def _create_spending() -> None:
    op.create_table(
        "limit_spending",
        sa.Column("bucket", sa.Text(), nullable=False),
        sa.Column("returns_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("bucket", "returns_at", name=op.f("pk_limit_spending")),
    )
    op.create_index(op.f("ix_limit_spending_returns_at"), "limit_spending", ["returns_at"])


def _create_leases() -> None:
    op.create_table(
        "limit_leases",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", "holder", name=op.f("pk_limit_leases")),
    )
    op.create_index(op.f("ix_limit_leases_expires_at"), "limit_leases", ["expires_at"])


def _create_shares() -> None:
    op.create_table(
        "limit_shares",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("permits", sa.Integer(), nullable=False),
        sa.Column("demand", sa.Integer(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", "holder", name=op.f("pk_limit_shares")),
    )
    op.create_index(op.f("ix_limit_shares_expires_at"), "limit_shares", ["expires_at"])


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "key", name=op.f("pk_idempotency_keys")),
    )
