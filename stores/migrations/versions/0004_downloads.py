"""Downloads keep their order for a retry, and the expired ones are found at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Go on to this revision."""
    op.add_column("downloads", sa.Column("fetchers", sa.Integer(), nullable=True))
    order = postgresql.JSONB(astext_type=sa.Text())
    op.add_column("downloads", sa.Column("request", order, nullable=False, server_default="{}"))
    op.alter_column("downloads", "request", server_default=None)
    op.create_index(
        "ix_downloads_expires_at", "downloads", ["expires_at"], postgresql_where=sa.text("state = 'succeeded'")
    )


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_index("ix_downloads_expires_at", "downloads")
    op.drop_column("downloads", "request")
    op.drop_column("downloads", "fetchers")
