"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
# The revision of the oldest code that works on this schema. One migration only adds; a later one takes away.
oldest_code = ${repr(down_revision or up_revision)}


def upgrade() -> None:
    """Migrate to this revision."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Migrate back to the revision before."""
    ${downgrades if downgrades else "pass"}
