"""Projects choose the names of their task types without regard to each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

OWNED = ("task_keys", "tasks_archive", "task_counts")
REFUSAL = (
    "{live} tasks wait or run in lanes, whose workflows had other ids before this revision. "
    "Pause their types, let what is held end and cancel what waits, or let workers do it; then migrate again."
)


def upgrade() -> None:
    """Go on to this revision."""
    connection = op.get_bind()
    live = connection.execute(sa.text("SELECT coalesce(sum(pending + running), 0) FROM task_heads")).scalar_one()
    if live:
        raise RuntimeError(REFUSAL.format(live=live))
    op.add_column("task_types", sa.Column("name", sa.Text(), nullable=True))
    op.execute("UPDATE task_types SET name = type")
    for table in OWNED:
        op.execute(
            f"UPDATE {table} SET type = t.project_id || '/' || t.name FROM task_types t "  # noqa: S608 - a constant
            f"WHERE t.type = {table}.type"
        )
    # Lanes of before count what they have archived themselves; those that come begin behind them.
    op.execute("DELETE FROM task_heads")
    op.execute("UPDATE task_types SET type = project_id || '/' || name, begin_pos = end_pos + 1, end_pos = end_pos + 1")
    op.execute(
        "INSERT INTO task_heads (type, pos, number, due, pending, running, success, failed, held, retries, timeouts, "
        "is_full) SELECT type, end_pos, 0, 0, 0, 0, 0, 0, 0, 0, 0, false FROM task_types"
    )
    op.alter_column("task_types", "name", nullable=False)
    op.create_check_constraint(op.f("ck_task_types_type"), "task_types", "type = project_id || '/' || name")
    op.create_index("ix_task_types_name", "task_types", ["name", "project_id"])


def downgrade() -> None:
    """Go back to the one before; two projects with a type of the same name are too many for it."""
    op.drop_index("ix_task_types_name", "task_types")
    op.drop_constraint(op.f("ck_task_types_type"), "task_types")
    for table in OWNED:
        op.execute(
            f"UPDATE {table} SET type = t.name FROM task_types t WHERE t.type = {table}.type"  # noqa: S608 - a constant
        )
    op.execute("DELETE FROM task_heads")
    op.execute("UPDATE task_types SET type = name, begin_pos = end_pos + 1, end_pos = end_pos + 1")
    op.execute(
        "INSERT INTO task_heads (type, pos, number, due, pending, running, success, failed, held, retries, timeouts, "
        "is_full) SELECT type, end_pos, 0, 0, 0, 0, 0, 0, 0, 0, 0, false FROM task_types"
    )
    op.drop_column("task_types", "name")
