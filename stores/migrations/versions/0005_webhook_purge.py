"""Deliveries that ended long ago are found at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Go on to this revision."""
    op.create_index(
        "ix_webhook_deliveries_finished_at",
        "webhook_deliveries",
        ["finished_at"],
        postgresql_where=sa.text("finished_at IS NOT NULL"),
    )


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_index("ix_webhook_deliveries_finished_at", "webhook_deliveries")
