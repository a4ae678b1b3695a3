"""Webhooks: signing secrets, deliveries and their attempts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Go on to this revision."""
    _create_secrets()
    _create_deliveries()
    _create_attempts()


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_table("webhook_attempts")
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_secrets")


def _create_secrets() -> None:
    op.create_table(
        "webhook_secrets",
        sa.Column("secret_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("last4", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("secret_id", name=op.f("pk_webhook_secrets")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_webhook_secrets_project_id_projects")),
    )
    op.create_index(
        "uq_webhook_secrets_current",
        "webhook_secrets",
        ["project_id"],
        unique=True,
        postgresql_where=sa.text("expires_at IS NULL"),
    )
    op.create_index("ix_webhook_secrets_project_id", "webhook_secrets", ["project_id"])


def _create_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("receiver", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'succeeded', 'failed', 'disabled')", name=op.f("ck_webhook_deliveries_state")
        ),
        sa.PrimaryKeyConstraint("delivery_id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "ix_webhook_deliveries_task_id_created_at", "webhook_deliveries", ["task_id", sa.text("created_at DESC")]
    )
    op.create_index(
        "ix_webhook_deliveries_endpoint_finished_at", "webhook_deliveries", ["endpoint", sa.text("finished_at DESC")]
    )


def _create_attempts() -> None:
    op.create_table(
        "webhook_attempts",
        sa.Column("attempt_id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("delivery_id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("duration_seconds", sa.Float(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_webhook_attempts")),
        sa.ForeignKeyConstraint(
            ["delivery_id"],
            ["webhook_deliveries.delivery_id"],
            name=op.f("fk_webhook_attempts_delivery_id_webhook_deliveries"),
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_webhook_attempts_delivery_id", "webhook_attempts", ["delivery_id", sa.text("attempt_id DESC")])
