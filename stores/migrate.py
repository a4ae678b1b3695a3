"""The schema: migrate a database to this version's revision, and refuse to work on any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, NullPool, event, text
from sqlalchemy.ext.asyncio import create_async_engine

from domain.faults import Fault
from infra import log
from infra.database import Database, connect_or_raise_unreachable

MIGRATIONS = Path(__file__).parent / "migrations"
LOCK = 0x4861756C61676501
"""The advisory lock of a migration: "Haulage", 1."""
NO_OPTIONS: Final[Mapping[str, Any]] = {}

_log = log.get(__name__)


class WrongRevision(Fault):
    """The database is at another revision than this version of Haulage.

    Args:
        found: The database's revision; None if it has no schema yet.
        needed: This version's.
    """

    def __init__(self, found: str | None, needed: str) -> None:
        self.found = found
        self.needed = needed
        is_known = found is None or found in _list_known_revisions()
        super().__init__(
            "wrong_revision",
            f"The database is at revision {found or 'none'}, this version of Haulage needs {needed}.",
            "Run `haulage migrate`."
            if is_known
            else "Another version migrated it: run that version, or start with a new data folder or database.",
        )


async def migrate(database_url: str, options: Mapping[str, Any] = NO_OPTIONS) -> None:
    """Migrate the database to this version's revision, whole or not at all. Concurrent callers take turns.

    Args:
        options: Further arguments of the driver, such as those for TLS.

    Raises:
        WrongRevision: The database is at a revision that this version does not know.
    """
    await _run_migration_under_lock(database_url, lambda config: command.upgrade(config, "head"), options)


async def downgrade(database_url: str, target: str) -> None:
    """Migrate the database back to an older revision, or to `base`; data that only newer ones can hold is lost."""
    await _run_migration_under_lock(database_url, lambda config: command.downgrade(config, target))


async def draft_migration(database_url: str, title: str) -> Path:
    """Write a migration from this version's revision to the present table models; read it before you commit it."""
    written: list[Path] = []

    def write_revision(config: Config) -> None:
        number = f"{len(_list_known_revisions()) + 1:04d}"
        script = command.revision(config, title, autogenerate=True, rev_id=number)
        written.extend(Path(one.path) for one in [script] if isinstance(one, Script))

    await _run_migration_under_lock(database_url, write_revision)
    [path] = written
    return path


async def read_revision(database: Database) -> str | None:
    """Return the database's revision; None if it has no schema yet."""
    async with database.session() as session:
        connection = await session.connection()
        return await connection.run_sync(_read_current_revision)


async def require_head_revision(database: Database) -> None:
    """Check that the database is at this version's revision.

    Raises:
        WrongRevision: It is not.
    """
    found, needed = await read_revision(database), get_head_revision()
    if found != needed:
        raise WrongRevision(found, needed)


def get_head_revision() -> str:
    """Return this version's revision."""
    [revision] = _open_script_directory().get_heads()
    return revision


async def _run_migration_under_lock(
    database_url: str, step: Callable[[Config], None], options: Mapping[str, Any] = NO_OPTIONS
) -> None:
    engine = create_async_engine(
        database_url,
        poolclass=NullPool,
        connect_args={**options, "server_settings": {"application_name": "haulage migrate", "timezone": "UTC"}},
    )
    event.listen(engine.sync_engine, "do_connect", connect_or_raise_unreachable)
    # The lock belongs to the connection, and ends with it when the process is killed.
    async with engine.connect() as connection:
        await connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
        before = await connection.run_sync(_read_current_revision)
        if before is not None and before not in _list_known_revisions():
            raise WrongRevision(before, get_head_revision())
        # Within an open transaction, Alembic would leave the commit to the caller.
        await connection.commit()
        await connection.run_sync(lambda migrating: step(_build_config(migrating)))
        after = await connection.run_sync(_read_current_revision)
    _log.info("database_migrated", before=before, after=after)


def _build_config(connection: Connection) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _open_script_directory() -> ScriptDirectory:
    return ScriptDirectory(str(MIGRATIONS))


def _list_known_revisions() -> set[str]:
    return {script.revision for script in _open_script_directory().walk_revisions()}


def _read_current_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
