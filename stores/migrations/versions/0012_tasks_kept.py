"""What is kept of tasks: attempts of those that have ended; and what has to be found to be removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("tasks_archive", sa.Column("attempts", sa.Text(), server_default="", nullable=False))
    op.create_index("ix_task_keys_task_id", "task_keys", ["task_id"], postgresql_using="hash")
    # In two steps, so that texts that are there already have no time: nobody knows it.
    op.add_column("task_contents", sa.Column("written_at", sa.DateTime(timezone=True), nullable=True))
    op.alter_column("task_contents", "written_at", server_default=sa.text("now()"))
    op.create_index(op.f("ix_task_contents_written_at"), "task_contents", ["written_at"])
    op.create_table(
        "task_texts_settled",
        sa.Column("is_one", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("settled_until", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("is_one", name=op.f("ck_task_texts_settled_one")),
        sa.PrimaryKeyConstraint("is_one", name=op.f("pk_task_texts_settled")),
    )


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_table("task_texts_settled")
    op.drop_index(op.f("ix_task_contents_written_at"), "task_contents")
    op.drop_column("task_contents", "written_at")
    op.drop_index("ix_task_keys_task_id", "task_keys")
    op.drop_column("tasks_archive", "attempts")
