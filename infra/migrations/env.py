"""Where Alembic starts: it migrates the connection that `infra.migrate` hands it, and knows every table."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from infra import tables
from infra.tables.base import Row, UtcTime


def render_plainly(kind: str, item: Any, _: AutogenContext) -> str | Literal[False]:
    """Write our column types as SQLAlchemy's own: a migration must not change when our code does."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcTime) else False


for room in pkgutil.iter_modules(tables.__path__, f"{tables.__name__}."):
    importlib.import_module(room.name)

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Row.metadata,
    compare_type=True,
    compare_server_default=True,
    render_item=render_plainly,
)
with context.begin_transaction():
    context.run_migrations()
