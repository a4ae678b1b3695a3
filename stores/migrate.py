"""The schema: migrate a database to this version's revision, and refuse to work on one that does not suit the code.

A version works on databases of a range of revisions, so that it can be replaced while it runs: from `OLDEST_REVISION`
to those later ones that say in their `oldest_code` that this version still works on them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asyncpg.exceptions import LockNotAvailableError
from sqlalchemy import Connection, NullPool, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlmodel import select

from domain.faults import Fault
from infra import log
from infra.database import Database, connect_or_raise_unreachable
from stores.tables.shared import SchemaRevision

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
LOCK = 0x4861756C61676501
"""The advisory lock of a migration: "Haulage", 1."""
OLDEST_REVISION: Final = "0001_initial"
"""The oldest revision of a database that this version of the code works on."""
LOCK_TIMEOUT_SECONDS: Final = 5
"""A statement that waits for a table's lock holds up all that come after it."""
STATEMENT_TIMEOUT_SECONDS: Final = 600
PATIENCE_SECONDS: Final = 300.0
"""How long migrations are repeated that did not get a lock in time."""
PAUSE_SECONDS: Final = 2.0
NO_OPTIONS: Final[Mapping[str, Any]] = {}
RESTORING: Final = "restoring"
"""Instead of a revision, until rows and objects of a backup are there: nothing may work on them, or reconcile them."""
RESTORED: Final = "restored"
"""Then, until they are reconciled: no process may work on them before."""
MARKS_OF_RESTORES: Final = frozenset({RESTORING, RESTORED})

_log = log.get(__name__)


class WrongRevision(Fault):
    """The database is at a revision that this version of Haulage does not work on.

    Args:
        found: The database's revision; None if it has no schema yet.
        needed: This version's.
    """

    def __init__(self, found: str | None, needed: str) -> None:
        self.found = found
        self.needed = needed
        if found in MARKS_OF_RESTORES:
            super().__init__(
                "restore_unfinished",
                "The database is being restored from a backup.",
                "Run `haulage reconcile`, which ends it."
                if found == RESTORED
                else "Wait for `haulage restore`. If it broke off, begin anew with new databases and an empty bucket.",
            )
            return
        is_known = found is None or found in list_known_revisions()
        super().__init__(
            "wrong_revision",
            f"The database is at revision {found or 'none'}, this version of Haulage needs {needed}.",
            "Run `haulage migrate`."
            if is_known
            else "Another version migrated it: run that version, or start with a new data folder or database.",
        )


async def migrate(database_url: str, options: Mapping[str, Any] = NO_OPTIONS) -> None:
    """Migrate the database to this version's revision, each migration whole or not at all. Callers take turns.

    A migration that waits too long for a lock on a table is undone and repeated, as others wait behind it.

    Args:
        options: Further arguments of the driver, such as those for TLS.

    Raises:
        WrongRevision: The database is at a revision that this version does not know.
    """

    def upgrade_to_head(config: Config) -> None:
        from alembic import command  # noqa: PLC0415 - see `list_known_revisions`

        command.upgrade(config, "head")

    # A start on a migrated database waits for the import of Alembic otherwise.
    await _run_migration_under_lock(database_url, upgrade_to_head, options, done_at=get_head_revision())


async def draft_migration(database_url: str, title: str) -> Path:
    """Write a migration from this version's revision to the present table models; read it before you commit it."""
    from alembic import command  # noqa: PLC0415 - see `list_known_revisions`
    from alembic.script import Script  # noqa: PLC0415

    written: list[Path] = []

    def autogenerate_numbered_revision(config: Config) -> None:
        words = "_".join(re.findall(r"[a-z0-9]+", title.lower()))
        revision = f"{len(list_known_revisions()) + 1:04d}_{words}"
        config.set_main_option("file_template", "%%(rev)s")
        script = command.revision(config, title, autogenerate=True, rev_id=revision)
        written.extend(Path(one.path) for one in [script] if isinstance(one, Script))

    await _run_migration_under_lock(database_url, autogenerate_numbered_revision)
    [path] = written
    return path


async def read_schema_revision(database: Database) -> str | None:
    """Return the database's revision; None if it has no schema yet."""
    async with database.session() as session:
        connection = await session.connection()
        return await connection.run_sync(_read_current_revision)


async def require_supported_revision(database: Database) -> None:
    """Check that this version of the code works on the database.

    Raises:
        WrongRevision: It does not.
    """
    async with database.session() as session:
        connection = await session.connection()
        found = await connection.run_sync(_read_current_revision)
        supported = _list_revisions_from(OLDEST_REVISION)
        if found in supported:
            return
        if found is not None and found not in list_known_revisions():
            statement = select(SchemaRevision.oldest_code).where(SchemaRevision.revision == found)
            if (await session.exec(statement)).first() in list_known_revisions():
                return
    raise WrongRevision(found, supported[-1])


def get_head_revision() -> str:
    """Return this version's revision."""
    return list_known_revisions()[-1]


async def _run_migration_under_lock(
    database_url: str, step: Callable[[Config], None], options: Mapping[str, Any] = NO_OPTIONS, done_at: str = ""
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
        if before is not None and before not in list_known_revisions():
            raise WrongRevision(before, get_head_revision())
        if before == done_at:
            return
        # Within an open transaction, Alembic would leave the commit to the caller.
        await connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'"))
        await connection.execute(text(f"SET statement_timeout = '{STATEMENT_TIMEOUT_SECONDS}s'"))
        await connection.commit()
        await _repeat_while_locked(connection, step)
        after = await connection.run_sync(_read_current_revision)
    _log.info("database_migrated", before=before, after=after)


async def _repeat_while_locked(connection: AsyncConnection, step: Callable[[Config], None]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            await connection.run_sync(lambda migrating: step(_build_alembic_config(migrating)))
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != LockNotAvailableError.sqlstate or time.monotonic() > end:
                raise
            await connection.rollback()
            _log.warning("migration_waits_for_lock", error=str(error.orig))
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return


def _build_alembic_config(connection: Connection) -> Config:
    from alembic.config import Config  # noqa: PLC0415 - see `list_known_revisions`

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def list_known_revisions() -> list[str]:
    """Return all revisions, the oldest first: the names of their files, which a test compares with what is in them.

    API and workers check the revision at each start: that must not import Alembic and all migrations.
    """
    return sorted(path.stem for path in (MIGRATIONS / "versions").glob("*.py"))


def _list_revisions_from(oldest: str) -> list[str]:
    known = list_known_revisions()
    return known[known.index(oldest) :]


def _read_current_revision(connection: Connection) -> str | None:
    if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision
