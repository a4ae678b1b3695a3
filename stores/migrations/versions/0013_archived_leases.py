"""Archived tasks keep the lease under which they ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("tasks_archive", sa.Column("lease", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_column("tasks_archive", "lease")
