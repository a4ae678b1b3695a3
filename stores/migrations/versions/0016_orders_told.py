"""Orders: what a platform's clock fails by, and how late orders were that only a sweep found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Go on to this revision."""
    op.drop_column("order_platforms", "proposed_settle_lag")
    op.add_column("order_platforms", sa.Column("clock_failed_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("order_platforms", sa.Column("clock_fault", postgresql.JSONB(), nullable=True))
    op.add_column("order_platforms", sa.Column("clock_told", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("order_slices", sa.Column("late_seconds", sa.Float(), nullable=True))


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_column("order_slices", "late_seconds")
    for column in ("clock_told", "clock_fault", "clock_failed_since"):
        op.drop_column("order_platforms", column)
    op.add_column("order_platforms", sa.Column("proposed_settle_lag", sa.Integer(), nullable=True))
