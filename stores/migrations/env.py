"""Alembic's environment: it migrates the connection of `stores.migrate`, and knows every table."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from infra.database import TableRow, UtcTime
from stores import tables


def render_utc_time_as_sqlalchemy_type(kind: str, item: Any, _: AutogenContext) -> str | Literal[False]:
    """Write our column types as SQLAlchemy's own, so that a migration does not change when our code does."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcTime) else False


for table in pkgutil.iter_modules(tables.__path__, f"{tables.__name__}."):
    importlib.import_module(table.name)
# Limits serve all systems, and have their tables in their own module.
importlib.import_module("infra.limits.limiter")

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=TableRow.metadata,
    compare_type=True,
    compare_server_default=True,
    render_item=render_utc_time_as_sqlalchemy_type,
)
with context.begin_transaction():
    context.run_migrations()
