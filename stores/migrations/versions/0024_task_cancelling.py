"""Cancelled tasks are counted by themselves; types demand leases and say how long the first retry waits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("task_heads", sa.Column("cancelled", sa.Integer(), server_default="0", nullable=False))
    op.add_column("task_types", sa.Column("retry_interval", sa.Integer(), server_default="1", nullable=False))
    op.add_column(
        "task_types", sa.Column("lease_required", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )


def downgrade() -> None:
    """Go back to the one before, which knows cancelled tasks as failed ones."""
    op.drop_column("task_types", "lease_required")
    op.drop_column("task_types", "retry_interval")
    op.drop_column("task_heads", "cancelled")
    op.execute(
        "INSERT INTO task_counts (type, pos, status, tasks) SELECT type, pos, 4, tasks FROM task_counts "
        "WHERE status = 5 ON CONFLICT (type, pos, status) DO UPDATE SET tasks = task_counts.tasks + excluded.tasks"
    )
    op.execute("DELETE FROM task_counts WHERE status = 5")
    op.execute("UPDATE tasks_archive SET status = 4 WHERE status = 5")
