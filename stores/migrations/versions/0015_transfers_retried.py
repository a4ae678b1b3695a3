"""Transfers: what GSE said last of a target that had failed, when it ended, retries, and jobs known after their end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("transfer_jobs", sa.Column("purged_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("transfer_jobs", sa.Column("retry_of", sa.Text(), nullable=True))
    op.create_index("ix_transfer_jobs_retry_of", "transfer_jobs", ["retry_of"])
    op.add_column("transfer_targets", sa.Column("failed_code", sa.Integer(), nullable=True))
    op.add_column("transfer_targets", sa.Column("failed_message", sa.Text(), server_default="", nullable=False))
    op.add_column("transfer_targets", sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("transfer_targets", sa.Column("is_retried", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Go back to the one before."""
    for column in ("is_retried", "ended_at", "failed_message", "failed_code"):
        op.drop_column("transfer_targets", column)
    op.drop_index("ix_transfer_jobs_retry_of", "transfer_jobs")
    op.drop_column("transfer_jobs", "retry_of")
    op.drop_column("transfer_jobs", "purged_at")
