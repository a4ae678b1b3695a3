"""The list of logical deletes: addresses that modules keep because of orders in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg
from sqlmodel import col, select

from domain.addresses.results import IN_FLIGHT_MODULES, ListedLogicalDelete
from infra.database import Database
from stores import keyset
from stores.keyset import SqlOrderAndAfterCondition
from stores.tables.addresses import LogicalDelete

_COLUMNS: Final = "address_id, uprn, log_id, od_flag, wfm_flag, ed_flag"
_PLACE: Final = SqlOrderAndAfterCondition(("address_id",), is_descending=False)
_PAGE: Final = f"""
    SELECT {_COLUMNS} FROM addr_logical_deletes WHERE purged_at IS NULL AND {_PLACE.format_after_condition("$1")}
    {_PLACE.order_by} LIMIT $2
    """  # noqa: S608 - constants only
_FIND: Final = f"""
    SELECT {_COLUMNS} FROM addr_logical_deletes WHERE purged_at IS NULL AND address_id = ANY($1::bigint[])
    ORDER BY address_id
    """  # noqa: S608 - constants only
# `log_id` must match: an address that was revived or deleted again meanwhile is not the one that was checked.
_WRITE_CHECKS: Final = """
    UPDATE addr_logical_deletes AS listed SET
        od_flag = given.od, wfm_flag = given.wfm, ed_flag = given.ed,
        checked_at = CASE WHEN given.is_checked THEN now() ELSE listed.checked_at END,
        removable_at = CASE
            WHEN given.removable THEN coalesce(listed.removable_at, now())
            WHEN NOT given.is_needed THEN listed.removable_at
        END
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::boolean[],
        $8::boolean[]) AS given (address_id, log_id, od, wfm, ed, is_checked, removable, is_needed)
    WHERE listed.address_id = given.address_id AND listed.log_id = given.log_id AND listed.purged_at IS NULL
    """
_MARK_PURGED: Final = """
    WITH purged AS (
        UPDATE addr_logical_deletes AS listed SET purged_at = now()
        FROM unnest($1::bigint[], $2::bigint[]) AS given (address_id, log_id)
        WHERE listed.address_id = given.address_id AND listed.log_id = given.log_id AND listed.purged_at IS NULL
        RETURNING listed.address_id, listed.log_id
    )
    INSERT INTO addr_audit (who, action, log_id, address_id, reason)
    SELECT $3, 'purge', log_id, address_id, $4 FROM purged
    """
_REMOVE: Final = """
    DELETE FROM addr_logical_deletes AS listed USING unnest($1::bigint[], $2::bigint[]) AS given (address_id, log_id)
    WHERE listed.address_id = given.address_id AND listed.log_id = given.log_id AND listed.purged_at IS NULL
    """


@dataclass(frozen=True, slots=True)
class LogicalDeleteFilter:
    """Conditions on listed addresses; None sets none."""

    uprn: int | None = None
    address_id: int | None = None
    is_removable: bool | None = None
    """Whether no module needs it any more."""

    is_purged: bool = False
    """List removed addresses instead of those that remain."""


async def load_unpurged_page(database: Database, after: int, limit: int) -> list[ListedLogicalDelete]:
    """Return a page of listed addresses that are not purged, in order of their ids."""
    async with database.connection() as connection:
        return [_build_listed_delete(row) for row in await connection.fetch(_PAGE, after, limit)]


async def find_unpurged(database: Database, address_ids: Sequence[int]) -> list[ListedLogicalDelete]:
    """Return those of these addresses that are listed and not purged."""
    async with database.connection() as connection:
        return [_build_listed_delete(row) for row in await connection.fetch(_FIND, address_ids)]


async def list_logical_delete_page_plus_one(
    database: Database, filter_: LogicalDeleteFilter, after: tuple[datetime, int] | None, limit: int
) -> Sequence[LogicalDelete]:
    """List logically deleted addresses, newest first, one more than a page."""
    gone, removable = col(LogicalDelete.purged_at), col(LogicalDelete.removable_at)
    statement = select(LogicalDelete).where(gone.is_not(None) if filter_.is_purged else gone.is_(None))
    if filter_.uprn is not None:
        statement = statement.where(LogicalDelete.uprn == filter_.uprn)
    if filter_.address_id is not None:
        statement = statement.where(LogicalDelete.address_id == filter_.address_id)
    if filter_.is_removable is not None:
        statement = statement.where(removable.is_not(None) if filter_.is_removable else removable.is_(None))
    place = (LogicalDelete.create_date, LogicalDelete.address_id)
    async with database.session() as session:
        return (await session.exec(keyset.select_page_plus_one(statement, place, after, limit))).all()


async def write_check_results(database: Database, checked: Sequence[ListedLogicalDelete]) -> None:
    """Write which modules need each address, and since when none does; a missing answer changes neither."""
    if not checked:
        return
    flags = [["Y" if module in each.busy else "N" for each in checked] for module in IN_FLIGHT_MODULES]
    async with database.connection() as connection:
        await connection.execute(
            _WRITE_CHECKS,
            [each.address_id for each in checked],
            [each.log_id for each in checked],
            *flags,
            [each.is_checked for each in checked],
            [each.is_removable for each in checked],
            [bool(each.busy) for each in checked],
        )


async def mark_purged_with_audit_entry(
    database: Database, purged: Sequence[ListedLogicalDelete], who: str, reason: str | None
) -> None:
    """Mark addresses as purged, and record who did it in the audit; a repetition changes nothing."""
    if not purged:
        return
    async with database.connection() as connection:
        await connection.execute(
            _MARK_PURGED, [each.address_id for each in purged], [each.log_id for each in purged], who, reason
        )


async def remove_revived_from_logical_deletes(database: Database, revived: Sequence[ListedLogicalDelete]) -> None:
    """Remove revived addresses from the list; one that was deleted again is listed by that delete, and stays."""
    if not revived:
        return
    async with database.connection() as connection:
        await connection.execute(_REMOVE, [each.address_id for each in revived], [each.log_id for each in revived])


def _build_listed_delete(row: asyncpg.Record) -> ListedLogicalDelete:
    busy = frozenset(module for module in IN_FLIGHT_MODULES if row[f"{module}_flag"] == "Y")
    return ListedLogicalDelete(row["address_id"], row["uprn"], row["log_id"], busy)
