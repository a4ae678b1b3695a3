"""Orders: the record of each backfill, and of each slice that is read again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Go on to this revision."""
    slices = "order_slices"
    op.add_column(slices, sa.Column("reread_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column(slices, sa.Column("reread_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(slices, sa.Column("reread_fault", postgresql.JSONB(), nullable=True))
    op.create_index(
        "ix_order_slices_reread",
        slices,
        ["platform", "start_at"],
        postgresql_where=sa.text("reread_since IS NOT NULL"),
    )
    op.create_table(
        "order_backfills",
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("start_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("end_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("slices", sa.Integer(), nullable=False),
        sa.Column("read", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("read_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fault", postgresql.JSONB(), nullable=True),
        sa.CheckConstraint("state IN ('running', 'succeeded', 'failed')", name=op.f("ck_order_backfills_state")),
        sa.ForeignKeyConstraint(
            ["platform"],
            ["order_platforms.platform"],
            name=op.f("fk_order_backfills_platform_order_platforms"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("backfill_id", name=op.f("pk_order_backfills")),
    )
    op.create_index(
        "ix_order_backfills_platform_asked_at",
        "order_backfills",
        ["platform", sa.literal_column("asked_at DESC"), sa.literal_column("backfill_id DESC")],
    )
    op.create_index(
        "ix_order_backfills_running", "order_backfills", ["platform"], postgresql_where=sa.text("state = 'running'")
    )


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_table("order_backfills")
    op.drop_index("ix_order_slices_reread", "order_slices")
    for column in ("reread_fault", "reread_at", "reread_since"):
        op.drop_column("order_slices", column)
