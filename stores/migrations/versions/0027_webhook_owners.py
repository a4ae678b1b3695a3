"""Deliveries know whose they are: a system, and the download or the platform of orders in it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Go on to this revision."""
    # What the version before still writes meanwhile has no system: most of it is of downloads.
    op.add_column(
        "webhook_deliveries", sa.Column("owner_system", sa.Text(), server_default="downloads", nullable=False)
    )
    op.execute(
        "UPDATE webhook_deliveries SET owner_system = 'orders', task_id = body::jsonb #>> '{data,platform}' "
        "WHERE event_type LIKE 'orders.%'"
    )


def downgrade() -> None:
    """Go back to the one before; of orders, what asked for a delivery is no longer known."""
    op.drop_column("webhook_deliveries", "owner_system")
