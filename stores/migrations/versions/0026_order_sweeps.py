"""Sweeps of orders that keep failing: whether a platform's administrator was told, and an index to count them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

_INDEX = "ix_order_slices_sweep_failed"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column(
        "order_platforms", sa.Column("sweeps_told", sa.Boolean(), nullable=False, server_default=sa.text("false"))
    )
    op.create_index(
        _INDEX,
        "order_slices",
        ["platform"],
        postgresql_where=sa.text("done_at IS NOT NULL AND swept_at IS NULL AND failed_at IS NOT NULL"),
    )


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_index(_INDEX, "order_slices")
    op.drop_column("order_platforms", "sweeps_told")
