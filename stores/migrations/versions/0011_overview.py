"""What the overview counts of downloads: those that are not done, and those that failed lately."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Go on to this revision."""
    unfinished = sa.text("state IN ('pending', 'running')")
    op.create_index("ix_downloads_unfinished", "downloads", ["project_id", "state"], postgresql_where=unfinished)
    op.create_index("ix_downloads_failed", "downloads", ["finished_at"], postgresql_where=sa.text("state = 'failed'"))


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_index("ix_downloads_failed", "downloads")
    op.drop_index("ix_downloads_unfinished", "downloads")
