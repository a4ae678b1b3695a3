"""Alembic's environment: it migrates the connection of `stores.migrate`, and knows every table."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection
from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import Script
from sqlalchemy import inspect, text

from infra.database import TableRow, UtcTime
from stores import tables


def render_utc_time_as_sqlalchemy_type(kind: str, item: Any, _: AutogenContext) -> str | Literal[False]:
    """Write our column types as SQLAlchemy's own, so that a migration does not change when our code does."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, UtcTime) else False


def insert_or_delete_revision_row(
    ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Any
) -> None:
    """Note which code works on the schema, in the transaction of the migration."""
    if step.is_upgrade and isinstance(script := step.up_revision, Script):
        row = {"revision": script.revision, "oldest_code": script.module.oldest_code}
        statement = text("INSERT INTO schema_revisions (revision, oldest_code) VALUES (:revision, :oldest_code)")
    else:
        row = {"revision": step.up_revision_id}
        statement = text("DELETE FROM schema_revisions WHERE revision = :revision")
    connection = ctx.connection
    if connection is not None and inspect(connection).has_table("schema_revisions"):
        connection.execute(statement, row)


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
    transaction_per_migration=True,
    on_version_apply=insert_or_delete_revision_row,
)
with context.begin_transaction():
    context.run_migrations()
