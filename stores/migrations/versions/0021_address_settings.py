"""Addresses: the configuration of cycles and modules, by version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Go on to this revision."""
    op.create_table(
        "addr_settings",
        sa.Column("version", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("options", postgresql.JSONB(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_addr_settings")),
    )


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_table("addr_settings")
