"""Orders: when it was told that a slice takes too long."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("order_slices", sa.Column("stale_told_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_order_slices_stale", "order_slices", ["platform"], postgresql_where=sa.text("stale_told_at IS NOT NULL")
    )


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_index("ix_order_slices_stale", "order_slices")
    op.drop_column("order_slices", "stale_told_at")
