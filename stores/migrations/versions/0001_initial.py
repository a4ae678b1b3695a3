"""The schema of the first release, as SQL in the file beside this one."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001_initial"
down_revision = None
oldest_code = "0001_initial"

_SCHEMA = Path(__file__).with_suffix(".sql")


def upgrade() -> None:
    """Create every table and index."""
    for statement in _read_statements():
        op.execute(statement)


def downgrade() -> None:
    """Drop every table."""
    created = [statement.split()[2] for statement in _read_statements() if statement.startswith("CREATE TABLE")]
    op.execute(f"DROP TABLE {', '.join(created)}")


def _read_statements() -> list[str]:
    lines = [line for line in _SCHEMA.read_text().splitlines() if not line.startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";\n") if statement.strip().strip(";")]
