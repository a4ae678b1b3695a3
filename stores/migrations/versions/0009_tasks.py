"""Tasks: types, heads of lanes, keys that callers chose, the archive with its counts, and long texts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Go on to this revision."""
    _create_types()
    _create_heads()
    _create_keys()
    _create_archive()
    _create_contents()


def downgrade() -> None:
    """Go back to the one before."""
    for table in ("task_contents", "task_counts", "tasks_archive", "task_keys", "task_heads", "task_types"):
        op.drop_table(table)


def _create_types() -> None:
    op.create_table(
        "task_types",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("schedule_limit", sa.Integer(), nullable=False),
        sa.Column("schedule_interval", sa.Integer(), nullable=False),
        sa.Column("max_retry_num", sa.Integer(), nullable=False),
        sa.Column("max_retry_interval", sa.Integer(), nullable=False),
        sa.Column("max_processing_time", sa.Integer(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("begin_pos", sa.Integer(), nullable=False),
        sa.Column("end_pos", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_task_types_project_id_projects")),
        sa.PrimaryKeyConstraint("type", name=op.f("pk_task_types")),
    )
    op.create_index(op.f("ix_task_types_project_id"), "task_types", ["project_id"])


def _create_heads() -> None:
    op.create_table(
        "task_heads",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("pos", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("next_order_time", sa.BigInteger(), nullable=True),
        sa.Column("next_lease_end", sa.BigInteger(), nullable=True),
        sa.Column("due", sa.Integer(), nullable=False),
        sa.Column("pending", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("success", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("held", sa.BigInteger(), nullable=False),
        sa.Column("retries", sa.BigInteger(), nullable=False),
        sa.Column("timeouts", sa.BigInteger(), nullable=False),
        sa.Column("is_full", sa.Boolean(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["type"], ["task_types.type"], name=op.f("fk_task_heads_type_task_types"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("type", "pos", name=op.f("pk_task_heads")),
    )


def _create_keys() -> None:
    op.create_table(
        "task_keys",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("type", "key", name=op.f("pk_task_keys")),
    )


def _create_archive() -> None:
    op.create_table(
        "tasks_archive",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("pos", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("crt_retry_num", sa.Integer(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("schedule_log", sa.Text(), nullable=False),
        sa.Column("refs", sa.SmallInteger(), nullable=False),
        sa.Column("order_time", sa.BigInteger(), nullable=False),
        sa.Column("create_time", sa.BigInteger(), nullable=False),
        sa.Column("modify_time", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_tasks_archive")),
    )
    op.create_index("ix_tasks_archive_type_status", "tasks_archive", ["type", "status", sa.text("create_time DESC")])
    op.create_table(
        "task_counts",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("pos", sa.Integer(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("tasks", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type", "pos", "status", name=op.f("pk_task_counts")),
    )


def _create_contents() -> None:
    op.create_table(
        "task_contents",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "ref", name=op.f("pk_task_contents")),
    )
