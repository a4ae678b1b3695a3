"""What is kept of tasks: of those that have ended the attempts that did not end them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("tasks_archive", sa.Column("attempts", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_column("tasks_archive", "attempts")
