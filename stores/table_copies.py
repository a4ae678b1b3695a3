"""Copies of all rows of a database: written to files from one snapshot, and read back into empty tables."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
from pydantic import BaseModel

from domain.faults import Conflict
from infra.component_settings import DatabaseSettings
from infra.database import CONNECT_TIMEOUT_SECONDS, build_tls_arguments
from stores.migrate import (
    MARKS_OF_RESTORES,
    RESTORED,
    RESTORING,
    WrongRevision,
    get_head_revision,
    list_known_revisions,
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

APPLICATION: Final = "haulage backup"
LOCK_TIMEOUT_SECONDS: Final = 20
BLOCK_MAX_SECONDS: Final = 60
"""After this PostgreSQL lets Temporal write again, though the process that keeps it from writing was suspended."""
READ_BYTES: Final = 1024 * 1024
GAP: Final = 1_000_000_000
"""More ids than an installation gives out between a backup and its loss."""

_OF_MIGRATIONS: Final = {"alembic_version", "schema_revisions", "schema_version", "schema_update_history"}
"""What the migrations of Haulage and of Temporal write by themselves."""
_SEEDED: Final = frozenset({"namespace_metadata"})
"""Tables into which Temporal's schema inserts a row, before its server has run: a copy replaces it."""
_TABLES: Final = """
    SELECT c.relname::text AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace GROUP BY c.relname ORDER BY c.relname
"""
_REFERENCES: Final = """
    SELECT child.relname::text AS child, parent.relname::text AS parent FROM pg_constraint
    JOIN pg_class child ON child.oid = conrelid JOIN pg_class parent ON parent.oid = confrelid
    WHERE contype = 'f' AND conrelid <> confrelid AND connamespace = 'public'::regnamespace
"""
_SEQUENCES: Final = """
    SELECT sequencename::text AS name, coalesce(last_value, 0) AS last_value FROM pg_sequences
    WHERE schemaname = 'public'
"""
_SET_SEQUENCE: Final = "SELECT setval(format('public.%I', $1::text)::regclass, $2::bigint)"
# Its migrations wrote there which the last one was; this version of the code may have later ones.
_NAME_REVISION: Final = """
    UPDATE alembic_version SET version_num = (SELECT max(revision) FROM schema_revisions)
    WHERE version_num = ANY($1::text[])
"""
_OTHERS: Final = """
    SELECT DISTINCT application_name FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = $1
"""


class DumpedTable(BaseModel):
    """The rows of a table, in a compressed file of COPY's text."""

    name: str
    columns: list[str]
    rows: int
    file: str


class DumpedDatabase(BaseModel):
    """The tables of a database, in an order in which rows can be inserted, and its sequences."""

    name: str
    revision: str
    """Of its schema."""
    tables: list[DumpedTable]
    sequences: dict[str, int]


@asynccontextmanager
async def open_connection_without_limits(settings: DatabaseSettings) -> AsyncIterator[Connection]:
    """Yield a connection of its own, without the time limits of a pool's."""
    connection = await asyncpg.connect(
        settings.url.get_secret_value().replace("+asyncpg", "", 1),
        timeout=CONNECT_TIMEOUT_SECONDS,
        server_settings={"application_name": APPLICATION, "timezone": "UTC"},
        **build_tls_arguments(settings),
    )
    try:
        yield connection
    finally:
        await connection.close(timeout=CONNECT_TIMEOUT_SECONDS)


@asynccontextmanager
async def block_temporal_writes(settings: DatabaseSettings) -> AsyncIterator[bool]:
    """Keep Temporal from changing workflows while the block runs: each such write reads a row of `shards`.

    Yields False for its database of visibility, which has no such table.

    Raises:
        Conflict: The block took so long that Temporal wrote before its end.
    """
    async with open_connection_without_limits(settings) as connection:
        await connection.execute("BEGIN")
        has_shards = bool(await connection.fetchval("SELECT to_regclass('public.shards') IS NOT NULL"))
        if has_shards:
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
            await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{BLOCK_MAX_SECONDS}s'")
            await connection.execute("LOCK TABLE shards IN EXCLUSIVE MODE")
        yield has_shards
        try:
            await connection.execute("COMMIT")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise Conflict(
                "backup_held_up",
                f"The backup kept Temporal from writing for more than {BLOCK_MAX_SECONDS} s, so that it writes again: "
                "what was copied is not of one moment.",
                "Remove the folder and run the backup again; do not suspend it.",
            ) from error


async def begin_snapshot_and_get_time(connection: Connection) -> datetime:
    """Begin a transaction that sees the database as it is now; return the moment."""
    # The engine cannot write meanwhile, so a database that hangs must not hold it up for long.
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", timeout=LOCK_TIMEOUT_SECONDS)
    now: datetime = await connection.fetchval("SELECT clock_timestamp()", timeout=LOCK_TIMEOUT_SECONDS)
    return now


async def copy_tables_to_files(connection: Connection, name: str, folder: Path) -> DumpedDatabase:
    """Write all rows that the connection's transaction sees into files of a folder."""
    tables = []
    for table, columns in await _list_tables_in_order(connection):
        path = folder / f"{table}.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:

            async def write(data: bytes, file: gzip.GzipFile = file) -> None:
                await asyncio.to_thread(file.write, data)

            status = await connection.copy_from_table(table, columns=columns, output=write)
        tables.append(DumpedTable(name=table, columns=columns, rows=int(status.split()[-1]), file=path.name))
    sequences = {row["name"]: row["last_value"] for row in await connection.fetch(_SEQUENCES) if row["last_value"]}
    return DumpedDatabase(
        name=name, revision=await read_haulage_or_temporal_revision(connection), tables=tables, sequences=sequences
    )


async def block_starts_before_restore(connection: Connection, copy: DumpedDatabase) -> None:
    """Mark an empty database that has Haulage's schema: no process starts on it until what is restored is reconciled.

    Raises:
        Conflict: The schema is of another revision than the copy.
    """
    _require_same_revision(await read_revision_under_mark(connection), copy)
    await connection.execute("UPDATE alembic_version SET version_num = $1", RESTORING)


async def copy_files_into_empty_tables(connection: Connection, copy: DumpedDatabase, folder: Path) -> None:
    """Insert the rows of a copy into empty tables of the same revision: all of them, or none.

    Raises:
        Conflict: A table has rows, or the schema is of another revision.
    """
    await require_database_without_rows(connection)
    if await read_haulage_or_temporal_revision(connection) != RESTORING:
        await require_revision_of_copy(connection, copy)
    async with connection.transaction():
        for table in copy.tables:
            if table.name in _SEEDED:
                await connection.execute(f'DELETE FROM "{table.name}"')  # noqa: S608 - a constant
            status = await connection.copy_to_table(
                table.name, source=_read_decompressed_pieces(folder / table.file), columns=table.columns
            )
            if (rows := int(status.split()[-1])) != table.rows:
                raise ValueError(f"{table.name} got {rows} rows of {table.rows}")
        for name, last in copy.sequences.items():
            await connection.execute(_SET_SEQUENCE, name, last)
        if await connection.fetchval("SELECT to_regclass('public.alembic_version') IS NOT NULL"):
            await connection.execute("UPDATE alembic_version SET version_num = $1", RESTORING)


async def require_revision_of_copy(connection: Connection, copy: DumpedDatabase) -> None:
    """Require a database whose schema has the revision of a copy.

    Raises:
        Conflict: It has another one.
    """
    _require_same_revision(await read_haulage_or_temporal_revision(connection), copy)


async def require_migration_will_reach_copy_revision(connection: Connection, copy: DumpedDatabase) -> None:
    """Require a database that a migration brings to the revision of a copy; a restore into it may have broken off.

    Raises:
        WrongRevision: A later version has migrated the database.
        Conflict: The copy is of another version than this code.
    """
    found = await read_revision_under_mark(connection)
    if found not in {"", *list_known_revisions()}:
        raise WrongRevision(found, get_head_revision())
    _require_same_revision(get_head_revision(), copy)


def _require_same_revision(found: str, copy: DumpedDatabase) -> None:
    if found != copy.revision:
        raise Conflict(
            "restore_wrong_revision",
            f"The backup of the database {copy.name} has revision {copy.revision}, this database {found or 'none'}.",
            "Restore with the versions that the backup was made with, and upgrade afterwards.",
        )


async def require_database_without_rows(connection: Connection) -> None:
    """Require a database without rows, but for what migrations write.

    Raises:
        Conflict: A table has rows.
    """
    for table, _ in await _list_tables_in_order(connection):
        if table not in _SEEDED and await connection.fetchval(f'SELECT EXISTS (SELECT 1 FROM "{table}")'):  # noqa: S608 - a table's name
            raise Conflict(
                "restore_not_empty",
                f"The database has data already: its table {table} has rows.",
                "Nothing is overwritten. Restore into a new database.",
            )


async def mark_restored_whole(connection: Connection) -> None:
    """Mark that rows and objects of a backup are all there: what was restored can be reconciled."""
    await connection.execute("UPDATE alembic_version SET version_num = $1", RESTORED)


async def require_no_unfinished_restore(connection: Connection) -> None:
    """Require that a restore into the database, if there was one, has ended: files that it lacks would be given up.

    Raises:
        Conflict: It broke off, or is under way.
    """
    if await read_haulage_or_temporal_revision(connection) == RESTORING:
        raise Conflict(
            "restore_unfinished",
            "The restore into this database broke off before all rows and objects were there, or is under way.",
            "Run `haulage restore` again; what has rows or objects already must be replaced by new databases and "
            "buckets.",
        )


async def read_haulage_or_temporal_revision(connection: Connection) -> str:
    """Return the revision of the schema of Haulage or of Temporal; empty without one."""
    for table, column in (("alembic_version", "version_num"), ("schema_version", "curr_version")):
        if await connection.fetchval("SELECT to_regclass('public.' || $1) IS NOT NULL", table):
            return str(await connection.fetchval(f"SELECT {column} FROM {table}") or "")  # noqa: S608 - constants
    return ""


async def read_revision_under_mark(connection: Connection) -> str:
    """Return the revision of the schema, though the mark of a restore is in its place."""
    found = await read_haulage_or_temporal_revision(connection)
    if found not in MARKS_OF_RESTORES:
        return found
    return str(await connection.fetchval("SELECT max(revision) FROM schema_revisions"))


async def require_no_connected_process(connection: Connection, application: str) -> None:
    """Require that no API and no worker is connected to the database.

    Raises:
        Conflict: One is.
    """
    if await connection.fetch(_OTHERS, application):
        raise Conflict(
            "processes_running",
            "API or worker processes are connected to this database, and would go on with what is to be reconciled.",
            "Stop all of them first.",
        )


async def skip_ids_possibly_used_after_backup(connection: Connection) -> None:
    """Skip every id that may have been given out after the backup.

    Modules of addresses know an operation by the id of its message, and would answer a new message under an old id
    with "already applied". Marks of orders must not name two states either.
    """
    async with connection.transaction():
        for row in await connection.fetch(_SEQUENCES):
            await connection.execute(_SET_SEQUENCE, row["name"], row["last_value"] + GAP)
        await connection.execute("UPDATE order_platforms SET revision = revision + $1", GAP)


async def allow_starts_on_restored_database(connection: Connection) -> None:
    """Put the revision that a database's schema has in place of the mark of a restore, so that processes start."""
    await connection.execute(_NAME_REVISION, [*MARKS_OF_RESTORES])


async def _list_tables_in_order(connection: Connection) -> Sequence[tuple[str, list[str]]]:
    """Return tables with their columns, those that others refer to first."""
    columns = {row["name"]: row["columns"] for row in await connection.fetch(_TABLES)}
    graph: dict[str, set[Any]] = {name: set() for name in columns}
    for row in await connection.fetch(_REFERENCES):
        graph[row["child"]].add(row["parent"])
    return [(name, columns[name]) for name in TopologicalSorter(graph).static_order() if name not in _OF_MIGRATIONS]


async def _read_decompressed_pieces(path: Path) -> AsyncIterator[bytes]:
    with gzip.open(path, "rb") as file:
        while piece := await asyncio.to_thread(file.read, READ_BYTES):
            yield piece
