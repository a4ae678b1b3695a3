"""Orders: who reads a complete slice again, orders without a time, and when a platform's zone was checked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("order_slices", sa.Column("reread_holder", sa.Text(), nullable=True))
    op.add_column("order_slices", sa.Column("sweep_holder", sa.Text(), nullable=True))
    op.add_column("order_slices", sa.Column("undated", sa.Integer(), nullable=True))
    op.add_column("order_platforms", sa.Column("zone_checked_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_column("order_platforms", "zone_checked_at")
    op.drop_column("order_slices", "undated")
    op.drop_column("order_slices", "sweep_holder")
    op.drop_column("order_slices", "reread_holder")
