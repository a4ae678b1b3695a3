"""Orders: since when a platform refuses an account's credentials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Go on to this revision."""
    table = "order_platforms"
    op.add_column(table, sa.Column("credentials_failed_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column(table, sa.Column("credentials_fault", postgresql.JSONB(), nullable=True))
    op.add_column(table, sa.Column("credentials_good_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(table, sa.Column("credentials_tried_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(table, sa.Column("credentials_told", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    """Go back to the one before."""
    for column in ("told", "tried_at", "good_at", "fault", "failed_since"):
        op.drop_column("order_platforms", f"credentials_{column}")
