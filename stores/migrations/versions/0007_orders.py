"""Orders: platforms, their configuration, the ledger of slices, orders and the copies that newer ones replaced."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Go on to this revision."""
    _create_platforms()
    _create_settings()
    _create_slices()
    _create_orders()
    _create_copies()


def downgrade() -> None:
    """Go back to the one before."""
    for table in ("order_copies", "orders", "order_slices", "order_settings", "order_platforms"):
        op.drop_table(table)


def _create_platforms() -> None:
    op.create_table(
        "order_platforms",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("shop", sa.Text(), nullable=False),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("capability", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("notify", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("history_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("live_from", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claimed_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("complete_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("skew_seconds", sa.Float(), nullable=True),
        sa.Column("skew_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("proposed_settle_lag", sa.Integer(), nullable=True),
        sa.Column("unserved_since", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_order_platforms_project_id_projects")),
        sa.PrimaryKeyConstraint("platform", name=op.f("pk_order_platforms")),
    )
    op.create_index(op.f("ix_order_platforms_project_id"), "order_platforms", ["project_id"])


def _create_settings() -> None:
    op.create_table(
        "order_settings",
        sa.Column("version", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("options", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_order_settings")),
    )
    op.create_index(
        "ix_order_settings_platform_version", "order_settings", ["platform", sa.literal_column("version DESC")]
    )


def _create_slices() -> None:
    op.create_table(
        "order_slices",
        sa.Column("slice_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("start_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("end_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("track", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("settings_version", sa.BigInteger(), nullable=True),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("skipped_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("split_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fault", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("orders", sa.Integer(), nullable=True),
        sa.Column("changed", sa.Integer(), nullable=True),
        sa.Column("total", sa.Integer(), nullable=True),
        sa.Column("passes", sa.Integer(), nullable=True),
        sa.Column("pages", sa.Integer(), nullable=True),
        sa.Column("outside", sa.Integer(), nullable=True),
        sa.Column("missed", sa.Integer(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("raw_key", sa.Text(), nullable=True),
        sa.CheckConstraint("track IN ('live', 'history')", name=op.f("ck_order_slices_track")),
        sa.ForeignKeyConstraint(
            ["platform"],
            ["order_platforms.platform"],
            name=op.f("fk_order_slices_platform_order_platforms"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("slice_id", name=op.f("pk_order_slices")),
    )
    op.create_index(
        "ix_order_slices_unfinished",
        "order_slices",
        ["platform", "start_at"],
        postgresql_where=sa.text("done_at IS NULL AND skipped_at IS NULL AND split_at IS NULL"),
    )
    op.create_index(
        "ix_order_slices_unswept",
        "order_slices",
        ["platform", "done_at"],
        postgresql_where=sa.text("done_at IS NOT NULL AND swept_at IS NULL"),
    )
    op.create_index(
        "uq_order_slices_leaf",
        "order_slices",
        ["platform", "start_at"],
        unique=True,
        postgresql_where=sa.text("split_at IS NULL"),
    )
    op.create_index("uq_order_slices_window", "order_slices", ["platform", "start_at", "end_at"], unique=True)


def _create_orders() -> None:
    op.create_table(
        "orders",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("shop", sa.Text(), nullable=False),
        sa.Column("order_id", sa.Text(), nullable=False),
        sa.Column("modified_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("platform", "shop", "order_id", name=op.f("pk_orders")),
    )
    op.create_index(
        "ix_orders_platform_modified_at",
        "orders",
        ["platform", sa.literal_column("modified_at DESC"), sa.literal_column("order_id DESC")],
    )


def _create_copies() -> None:
    op.create_table(
        "order_copies",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("shop", sa.Text(), nullable=False),
        sa.Column("order_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("until_revision", sa.BigInteger(), nullable=False),
        sa.Column("modified_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("replaced_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("platform", "shop", "order_id", "revision", name=op.f("pk_order_copies")),
    )
    op.create_index("ix_order_copies_replaced_at", "order_copies", ["replaced_at"])
