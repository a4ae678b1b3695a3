"""When each target of a transfer joined its job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("transfer_targets", sa.Column("joined_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_column("transfer_targets", "joined_at")
