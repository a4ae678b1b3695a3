"""Downloads of all projects are listed newest first without sorting them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Go on to this revision."""
    op.create_index("ix_downloads_created_at", "downloads", [sa.text("created_at DESC")])


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_index("ix_downloads_created_at", "downloads")
