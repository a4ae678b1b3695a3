"""Addresses: what was mended in quarantine, by whom, and which message of the log it became."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Go on to this revision."""
    table = "addr_sync_quarantine"
    op.add_column(table, sa.Column("mended_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(table, sa.Column("mended_by", sa.Text(), nullable=True))
    op.add_column(table, sa.Column("mended_as", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Go back to the one before."""
    for column in ("as", "by", "at"):
        op.drop_column("addr_sync_quarantine", f"mended_{column}")
