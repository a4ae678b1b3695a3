"""What each project may send by transfers, as the operator opens it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Go on to this revision."""
    op.create_table(
        "transfer_openings",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("biz_id", sa.BigInteger(), nullable=False),
        sa.Column("app_id", sa.BigInteger(), nullable=True),
        sa.Column("path_prefixes", ARRAY(sa.Text()), nullable=False),
        sa.Column("folder_prefixes", ARRAY(sa.Text()), nullable=False),
        sa.Column("users", ARRAY(sa.Text()), nullable=False),
        sa.Column("hosts", ARRAY(sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_transfer_openings_project_id_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transfer_openings")),
    )
    op.create_index("ix_transfer_openings_project_id", "transfer_openings", ["project_id"])
    op.create_index("ix_transfer_openings_biz_id", "transfer_openings", ["biz_id"])


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_table("transfer_openings")
