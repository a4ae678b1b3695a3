"""The schema's history on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from pydantic import SecretStr
from sqlalchemy import Connection, inspect, text
from structlog.testing import capture_logs

from domain.downloads.models import DownloadState
from infra.component_settings import DatabaseSettings
from infra.database import Database, TableRow
from stores import migrate
from stores.tables.downloads import STATES
from tests.support.stack import Databases
from tests.support.waiting import eventually


@pytest.fixture
async def empty(empty_database_url: str) -> AsyncIterator[Database]:
    """A database without any table."""
    database = Database(DatabaseSettings(url=SecretStr(empty_database_url)))
    yield database
    await database.close()


def declared_tables() -> set[str]:
    """The names of all tables that the migrations know: their environment imports each module that declares some."""
    return {*TableRow.metadata.tables, "alembic_version"}


async def tables(database: Database) -> set[str]:
    """The names of a database's tables."""
    async with database.session() as session:
        connection = await session.connection()
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))


async def differences(database: Database) -> list[object]:
    """What a migration would have to change to make the schema what the tables say."""

    def compare(connection: Connection) -> list[object]:
        context = MigrationContext.configure(
            connection,
            opts={"compare_type": True, "compare_server_default": True, "target_metadata": TableRow.metadata},
        )
        return list(compare_metadata(context, TableRow.metadata))

    async with database.session() as session:
        connection = await session.connection()
        return await connection.run_sync(compare)


async def test_tables_and_migrations_agree(database: Database) -> None:
    """What the migrations built is what the models say, and the comparison sees a difference where there is one."""
    assert await differences(database) == []
    async with database.session() as session:
        await session.execute(text("ALTER TABLE downloads ALTER rows TYPE integer, DROP COLUMN etag"))
        await session.execute(text("DROP INDEX ix_downloads_project_id_created_at"))

    assert len(await differences(database)) == 3


async def test_constraints_agree(empty: Database, empty_database_url: str) -> None:
    """Comparison does not look at checks and names, so they are read from a schema made each way."""
    # First, as it loads every system's tables, whichever tests ran before.
    await migrate.migrate(empty_database_url)
    migrated = await constraints(empty)
    async with empty.session() as session:
        await session.execute(text("DROP SCHEMA public CASCADE"))
        await session.execute(text("CREATE SCHEMA public"))
        connection = await session.connection()
        await connection.run_sync(TableRow.metadata.create_all)

    assert await constraints(empty) == migrated
    assert "ck_downloads_state" in {name for name, _ in migrated}


async def constraints(database: Database) -> set[tuple[str, str]]:
    """Names and definitions of our constraints and indexes."""
    async with database.session() as session:
        found = await session.execute(
            text(
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
                "WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version' "
                "UNION SELECT indexname, indexdef FROM pg_indexes "
                "WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
            )
        )
    return {(name, definition) for name, definition in found}


async def downgrade(database_url: str, target: str) -> None:
    """Migrate a database back to an older revision, or to `base`."""
    await migrate._run_migration_under_lock(database_url, lambda config: command.downgrade(config, target))


def test_every_state_that_the_domain_knows_can_be_stored() -> None:
    """The check constraint allows no fewer states than workflows end in."""
    assert {state.value for state in DownloadState} <= set(STATES)


async def test_migrations_go_up_and_down_and_up(empty: Database, empty_database_url: str) -> None:
    """Each way leaves exactly what it should."""
    await migrate.migrate(empty_database_url)
    assert await tables(empty) == declared_tables()
    await downgrade(empty_database_url, "base")
    assert await tables(empty) == {"alembic_version"}
    await migrate.migrate(empty_database_url)
    assert await tables(empty) == declared_tables()
    await migrate.require_supported_revision(empty)


@pytest.mark.parametrize("found", ["0027", "9999"])
async def test_a_database_of_an_unknown_revision_is_not_migrated(
    empty: Database, empty_database_url: str, found: str
) -> None:
    """One sentence says what to do, and nothing has changed; an older or a newer version has migrated it."""
    await migrate.migrate(empty_database_url)
    async with empty.session() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": found})
    with pytest.raises(migrate.WrongRevision, match=f"revision {found}, .* start with a new data folder or database"):
        await migrate.migrate(empty_database_url)
    assert await migrate.read_schema_revision(empty) == found


async def test_those_who_migrate_at_once_take_turns(empty: Database, empty_database_url: str) -> None:
    """Several replicas start together, and each finds the schema whole."""
    await asyncio.gather(*(migrate.migrate(empty_database_url) for _ in range(4)))

    assert await migrate.read_schema_revision(empty) == migrate.get_head_revision()
    assert await differences(empty) == []


async def test_a_migration_that_fails_changes_nothing(empty: Database, empty_database_url: str) -> None:
    """A table in the way stops the migration; what came before it is undone, and the lock is free again."""
    async with empty.session() as session:
        await session.execute(text("CREATE TABLE downloads (id int)"))
    with pytest.raises(Exception, match='"downloads" already exists'):
        await migrate.migrate(empty_database_url)
    assert await tables(empty) == {"downloads"}

    async with empty.session() as session:
        await session.execute(text("DROP TABLE downloads"))
    await migrate.migrate(empty_database_url)
    await migrate.require_supported_revision(empty)


async def test_a_database_without_a_schema_is_refused(empty: Database) -> None:
    """The sentence names both revisions and the remedy."""
    with pytest.raises(
        migrate.WrongRevision, match=f"at revision none, .* needs {migrate.get_head_revision()}. Run `haulage migrate`"
    ) as refusal:
        await migrate.require_supported_revision(empty)

    assert (refusal.value.found, refusal.value.needed) == (None, migrate.get_head_revision())


async def test_a_newer_database_is_refused_with_another_remedy(database: Database) -> None:
    """Migrating would not help: this version does not know the revision."""
    async with database.session() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(
        migrate.WrongRevision, match=r"at revision 9999, .* Another version migrated it: run that version"
    ):
        await migrate.require_supported_revision(database)


HEAD = migrate.get_head_revision()
NEXT = '''"""Another column."""

from alembic import op

revision = "9998_more"
down_revision = "{head}"
oldest_code = "{oldest_code}"


def upgrade() -> None:
    """Add it."""
    op.execute("ALTER TABLE projects ADD COLUMN note text")


def downgrade() -> None:
    """Drop it."""
    op.execute("ALTER TABLE projects DROP COLUMN note")
'''


def add_next_migration(folder: Path, oldest_code: str) -> Path:
    """Write the history of a version after this one."""
    history = folder / "migrations"
    shutil.copytree(migrate.MIGRATIONS, history, ignore=shutil.ignore_patterns("__pycache__"))
    (history / "versions" / "9998_more.py").write_text(NEXT.format(head=HEAD, oldest_code=oldest_code))
    return history


async def test_old_and_new_code_work_while_one_replaces_the_other(
    empty: Database, empty_database_url: str, tmp_path: Path
) -> None:
    """The new one before and after its migration, the old one after it, too: its processes may start again."""
    await migrate.migrate(empty_database_url)
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(migrate, "MIGRATIONS", add_next_migration(tmp_path, HEAD))
        await migrate.require_supported_revision(empty)
        await migrate.migrate(empty_database_url)
        await migrate.require_supported_revision(empty)

    assert await migrate.read_schema_revision(empty) == "9998_more"
    await migrate.require_supported_revision(empty)
    with pytest.raises(migrate.WrongRevision, match="run that version"):
        await migrate.migrate(empty_database_url)

    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(migrate, "MIGRATIONS", tmp_path / "migrations")
        await downgrade(empty_database_url, HEAD)
        await migrate.require_supported_revision(empty)
    await migrate.require_supported_revision(empty)


async def test_code_does_not_work_beyond_its_range(empty: Database, empty_database_url: str, tmp_path: Path) -> None:
    """After a migration that takes away what it needs, or before one without which it cannot do."""
    await migrate.migrate(empty_database_url)
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(migrate, "MIGRATIONS", add_next_migration(tmp_path, "9998_more"))
        newer.setattr(migrate, "OLDEST_REVISION", "9998_more")
        with pytest.raises(migrate.WrongRevision, match=rf"at revision {HEAD}, .* needs 9998_more. Run `haulage"):
            await migrate.require_supported_revision(empty)
        await migrate.migrate(empty_database_url)
        await migrate.require_supported_revision(empty)

    with pytest.raises(migrate.WrongRevision, match=r"at revision 9998_more, .* Another version migrated it"):
        await migrate.require_supported_revision(empty)


async def test_a_migration_does_not_make_others_wait_behind_it(
    empty: Database, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives up its wait for a lock, is undone, and is repeated until it gets the lock."""
    await migrate.migrate(empty_database_url)
    monkeypatch.setattr(migrate, "MIGRATIONS", add_next_migration(tmp_path, HEAD))
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_SECONDS", 1)
    monkeypatch.setattr(migrate, "PAUSE_SECONDS", 0.5)
    with capture_logs() as logs:
        async with empty.session() as session:
            await session.execute(text("LOCK TABLE projects IN ACCESS SHARE MODE"))
            migrating = asyncio.create_task(migrate.migrate(empty_database_url))
            await eventually(lambda: sum(each["event"] == "migration_waits_for_lock" for each in logs) >= 2)
            assert await migrate.read_schema_revision(empty) == HEAD
        await migrating

    assert await migrate.read_schema_revision(empty) == "9998_more"


async def test_a_database_at_another_revision_is_not_lent_again(databases: Databases) -> None:
    """The next test would find itself behind or ahead of its own tree."""
    change = "UPDATE alembic_version SET version_num = '9999'"
    addresses = []
    for statement in (change, "SELECT 1"):
        async with databases.lend() as url:
            addresses.append(url)
            database = Database(DatabaseSettings(url=SecretStr(url)))
            await migrate.require_supported_revision(database)
            async with database.session() as session:
                await session.execute(text(statement))
                await session.commit()
            await database.close()
    assert len(set(addresses)) == 2


async def test_a_drafted_migration_builds_what_the_tables_say(
    empty: Database, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an empty history the draft is the whole schema, in types of SQLAlchemy alone."""
    history = tmp_path / "migrations"
    shutil.copytree(migrate.MIGRATIONS, history, ignore=shutil.ignore_patterns("0*", "__pycache__"))
    monkeypatch.setattr(migrate, "MIGRATIONS", history)
    path = await migrate.draft_migration(empty_database_url, "All tables")
    await migrate.migrate(empty_database_url)

    assert path == history / "versions" / "0001_all_tables.py"
    assert path.read_text().startswith('"""All tables."""\n')
    assert "infra" not in path.read_text()
    assert await differences(empty) == []
