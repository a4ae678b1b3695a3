"""Transfers: jobs, shards, targets and what was cancelled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Go on to this revision."""
    _create_jobs()
    _create_shards()
    _create_targets()
    _create_cancels()


def downgrade() -> None:
    """Go back to the one before."""
    for table in ("transfer_cancels", "transfer_targets", "transfer_shards", "transfer_jobs"):
        op.drop_table(table)


def _create_jobs() -> None:
    op.create_table(
        "transfer_jobs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("closes_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transfer_jobs")),
    )
    op.create_index("uq_transfer_jobs_job_id", "transfer_jobs", ["job_id"], unique=True)
    op.create_index("ix_transfer_jobs_expires_at", "transfer_jobs", ["expires_at"])


def _create_shards() -> None:
    op.create_table(
        "transfer_shards",
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("target_user", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("sendings", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("job", "number", name=op.f("pk_transfer_shards")),
        sa.ForeignKeyConstraint(
            ["job"], ["transfer_jobs.id"], name=op.f("fk_transfer_shards_job_transfer_jobs"), ondelete="CASCADE"
        ),
    )


def _create_targets() -> None:
    op.create_table(
        "transfer_targets",
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.BigInteger(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("container_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sending", sa.SmallInteger(), nullable=False),
        sa.Column("failures", sa.SmallInteger(), nullable=False),
        sa.Column("failed_in", sa.SmallInteger(), nullable=False),
        sa.Column("code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("progress", sa.SmallInteger(), nullable=False),
        sa.Column("speed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job", "key", name=op.f("pk_transfer_targets")),
        sa.CheckConstraint(
            "state IN ('Pending', 'Running', 'Success', 'Failed', 'Timeout')", name=op.f("ck_transfer_targets_state")
        ),
        # Each row changes a few times soon after it was written: room for that on its own page spares the indexes.
        postgresql_with={"fillfactor": "50"},
    )
    op.create_index("ix_transfer_targets_job_shard", "transfer_targets", ["job", "shard"])


def _create_cancels() -> None:
    op.create_table(
        "transfer_cancels",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("key", sa.BigInteger(), nullable=False),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "project_id", "key", name=op.f("pk_transfer_cancels")),
    )
    op.create_index("ix_transfer_cancels_cancelled_at", "transfer_cancels", ["cancelled_at"])
