"""Sealed values in tables: which of them an old key made, and sealing these anew under the first one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from domain.secrets import SealedText
from infra.database import Database
from infra.secrets import SealUnreadableError, SecretSealer
from stores.keyset import SqlOrderAndAfterCondition

BATCH_ROWS: Final = 500


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """A column that holds sealed values, with the key of its table."""

    name: str
    table: str
    key: str
    column: str
    is_request: bool = False
    """Whether it holds the request of a download as JSON, with sealed values within."""


COLUMNS: Final = (
    SealedColumn("signing secrets of webhooks", "webhook_secrets", "secret_id", "sealed"),
    SealedColumn("addresses of deliveries", "webhook_deliveries", "delivery_id", "url"),
    SealedColumn("alarm addresses of platforms", "order_platforms", "platform", "notify"),
    SealedColumn("requests of downloads", "downloads", "task_id", "request", is_request=True),
)
"""Every column that is marked as sealed in its table: rotation passes over others."""
REQUEST_FIELDS: Final = ("source_url", "source_headers", "callback")


@dataclass(slots=True)
class SealedRowCounts:
    """The rows of a column that were read, and what they need."""

    name: str
    rows: int = 0
    old: int = 0
    """Sealed under another key than the first; after `reseal_values_under_old_keys` under the first."""

    unreadable: int = 0
    """No key opens them."""


async def count_values_of_old_keys(
    database: Database, sealer: SecretSealer, column: SealedColumn, rows_max: int
) -> SealedRowCounts:
    """Count the rows of a column, at most so many, that an old key or none opens."""
    return await _count_and_maybe_reseal_in_batches(database, sealer, column, rows_max, is_written=False)


async def reseal_values_under_old_keys(
    database: Database, sealer: SecretSealer, column: SealedColumn
) -> SealedRowCounts:
    """Seal the values of a column anew that an old key made.

    Each batch is one statement, and a row that changed since it was read is left alone: the server may run meanwhile,
    and what was interrupted is completed by the next call.
    """
    return await _count_and_maybe_reseal_in_batches(database, sealer, column, None, is_written=True)


async def _count_and_maybe_reseal_in_batches(
    database: Database, sealer: SecretSealer, column: SealedColumn, rows_max: int | None, *, is_written: bool
) -> SealedRowCounts:
    count, after = SealedRowCounts(column.name), ""
    change = reseal_values_in_download_request if column.is_request else _reseal_text
    while rows_max is None or count.rows < rows_max:
        async with database.connection() as connection:
            rows = await connection.fetch(_build_select_page_statement(column), after, BATCH_ROWS)
            changed = _collect_resealed_and_count(sealer, rows, change, count)
            if changed and is_written:
                columns = (list(each) for each in zip(*changed, strict=True))
                await connection.execute(build_compare_and_replace_statement(column), *columns)
        if len(rows) < BATCH_ROWS:
            break
        after = rows[-1]["key"]
    return count


def _collect_resealed_and_count(
    sealer: SecretSealer, rows: list[Any], change: Callable[[SecretSealer, str], str | None], count: SealedRowCounts
) -> list[tuple[str, str, str]]:
    """Return key, old and new value of the rows to change, and count them."""
    changes: list[tuple[str, str, str]] = []
    for row in rows:
        count.rows += 1
        try:
            new = change(sealer, row["value"])
        except SealUnreadableError:
            count.unreadable += 1
            continue
        if new is not None:
            count.old += 1
            changes.append((row["key"], row["value"], new))
    return changes


def _reseal_text(sealer: SecretSealer, token: str) -> str | None:
    resealed = sealer.reseal(SealedText(token=token))
    return resealed.token if resealed else None


def reseal_values_in_download_request(sealer: SecretSealer, text: str) -> str | None:
    """Return the request of a download, which is JSON, with its values sealed anew; None if none needs it."""
    request: dict[str, Any] = json.loads(text)
    is_changed = False
    for part in (request, *request.get("tables", ())):
        for name in REQUEST_FIELDS:
            sealed = part.get(name)
            resealed = sealer.reseal(SealedText.model_validate(sealed)) if sealed else None
            if resealed:
                part[name], is_changed = resealed.model_dump(), True
    return json.dumps(request) if is_changed else None


def _build_select_page_statement(column: SealedColumn) -> str:
    place = SqlOrderAndAfterCondition((f"{column.key}::text",), is_descending=False)
    return (
        f"SELECT {column.key}::text AS key, {column.column}::text AS value FROM {column.table} "  # noqa: S608 - constants
        f"WHERE {column.column} IS NOT NULL AND {place.format_after_condition('$1')} {place.order_by} LIMIT $2"
    )


def build_compare_and_replace_statement(column: SealedColumn) -> str:
    """Return the statement that replaces values, each only where it is what it was: keys, old and new values."""
    value = "v.sealed::jsonb" if column.is_request else "v.sealed"
    return (
        f"UPDATE {column.table} t SET {column.column} = {value} "  # noqa: S608 - constants
        "FROM unnest($1::text[], $2::text[], $3::text[]) AS v(key, before, sealed) "
        f"WHERE t.{column.key}::text = v.key AND t.{column.column}::text = v.before"
    )
