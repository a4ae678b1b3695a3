"""A backup, what was restored from it, and what reconciling mends."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pydantic import SecretStr
from sqlmodel import select
from temporalio.client import Client

from cli.backups import backup, restore
from cli.backups.reconcile import reconcile_all_systems, reconcile_and_print_findings
from dev.embedded.stack import EmbeddedStack
from domain.downloads.models import DownloadSpec, StoredFile
from domain.faults import Conflict, Invalid
from domain.tasks.activity_models import LaneInput
from domain.tasks.messages import TaskTypeRules
from domain.transfers.models import FailureReason, TransferState
from domain.webhooks import WebhookEvent
from infra import temporal
from infra.component_settings import DatabaseSettings
from infra.database import Database
from infra.objects import ObjectStore
from infra.secrets import SecretSealer
from infra.settings import Settings
from stores import migrate, table_copies
from stores.table_copies import GAP, DumpedDatabase, DumpedTable
from stores.tables.downloads import Download
from stores.tables.orders import OrderPlatform
from stores.tables.shared import Delivery, Project
from stores.tables.tasks import OpenLaneHead, TaskType
from stores.tables.transfers import TransferJobTimesRow, TransferShard, TransferTarget
from tests.support.stack import own_database
from tests.support.waiting import PATIENCE_SECONDS, eventually
from workflows.tasks import handle as lanes

pytestmark = pytest.mark.stack

KEEP_NEWEST_REVISION = "DELETE FROM schema_revisions WHERE revision < (SELECT max(revision) FROM schema_revisions)"
TASK_TYPE = "prj_1/t"
LOST_DELIVERY = f"msg_{7:032x}"

Json = dict[str, Any]


def make_task_type() -> TaskType:
    """A type whose first lane is open."""
    numbers = ("schedule_limit", "schedule_interval", "max_retry_num", "max_retry_interval", "max_processing_time")
    rules: Json = dict.fromkeys(numbers, 1)
    now = datetime.now(UTC)
    return TaskType(type=TASK_TYPE, project_id="prj_1", name="t", created_at=now, changed_at=now, **rules)


async def test_no_process_starts_before_a_restore_is_reconciled(database_url: str) -> None:
    """The mark stands instead of a revision: it is refused with what to do, by processes and by a migration."""
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    try:
        await connection.execute("UPDATE alembic_version SET version_num = $1", migrate.RESTORED)
        with pytest.raises(migrate.WrongRevision, match="Run `haulage reconcile`"):
            await migrate.migrate(database_url)
    finally:
        await connection.execute("UPDATE alembic_version SET version_num = $1", migrate.get_head_revision())
        await connection.close()


async def test_rows_and_workflows_without_each_other_are_mended(
    settings: Settings, environment: Mapping[str, str], database: Database, objects: ObjectStore
) -> None:
    """Each is ended, started or reported once, what nothing can mend again; ids go on far above."""
    renamed = settings.database.model_copy(update={"application_name": "renamed"})
    quiet = settings.model_copy(update={"database": renamed})
    engine = await temporal.connect(environment)
    await insert_rows_of_lost_workflows(SecretSealer(settings.secrets), database)
    for lane in ((TASK_TYPE, 5), ("prj_gone/x", 1)):
        await lanes.start_lane(engine, LaneInput(type=lane[0], pos=lane[1], rules=TaskTypeRules()), "a lane")
    await eventually(lambda: count_runs(engine, 2))
    await objects.put("files/prj_1/dl_late/data.csv", b"finished after the backup")

    unknown_files = "Files of 1 unknown downloads are in the store: only a rule of the bucket removes them."
    first = await reconcile_all_systems(quiet, engine)
    await eventually(lambda: count_runs(engine, 4))
    second = await reconcile_all_systems(quiet, engine)

    assert first == [
        "tasks/prj_gone/x/1: ended, because its project prj_gone is not in the database.",
        "Download dl_lost: its workflow was gone, and it is begun anew.",
        "Download dl_file: its file a.csv is not in the store, and it is marked as expired.",
        unknown_files,
        "Transfer job-lost: its workflow was gone; targets without a result end as Timeout.",
        "Platform shop: its schedule was gone, and is made again.",
        "Platform shop: its orders are read again from its start on.",
        "Lane 1 of prj_1/t: its workflow was gone with its tasks, 3 when last saved.",
        "Lane 5 of prj_1/t: the database did not know it, and does now.",
        f"Webhook {LOST_DELIVERY}: its workflow was gone, and it is attempted again.",
    ]
    assert second == [unknown_files, "Platform shop: its orders are read again from its start on."]
    async with database.session() as session:
        target = (await session.exec(select(TransferTarget))).one()
    assert (target.state, target.reason) == (TransferState.TIMEOUT, FailureReason.DEADLINE)
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT nextval('transfer_jobs_id_seq')") > GAP


async def count_runs(engine: Client, count: int) -> bool:
    """Return whether visibility has caught up with the workflows that run."""
    return len([run async for run in engine.list_workflows("ExecutionStatus = 'Running'")]) == count


async def insert_rows_of_lost_workflows(sealer: SecretSealer, database: Database) -> None:
    """A row of each kind whose workflow, schedule or object is not there."""
    now = datetime.now(UTC)
    spec = DownloadSpec(
        task_id="dl_lost", project_id="prj_1", file_name="a.csv", source_url=sealer.seal("http://127.0.0.1/")
    )
    file = StoredFile(key="files/gone", name="a.csv", rows=1, bytes=1, etag="e")
    shared: Json = {"project_id": "prj_1", "file_name": "a.csv", "type": spec.type, "created_at": now}
    finished: Json = {"state": "succeeded", "file": file.model_dump(), "expires_at": now + timedelta(days=1)}
    other = spec.model_copy(update={"task_id": "dl_file"})
    event = WebhookEvent(type="download.succeeded", timestamp=now, data={})
    delivery: Json = {
        "delivery_id": LOST_DELIVERY,
        "project_id": "prj_1",
        "owner_system": "downloads",
        "owner_id": "dl_file",
        "event_type": event.type,
        "receiver": "r",
        "endpoint": b"e",
        "state": "pending",
        "created_at": now,
        "pending_since": now,
    }
    rows = [
        Download(**shared, task_id="dl_lost", state="running", request=spec.model_dump(mode="json")),
        Download(**shared, **finished, task_id="dl_file", request=other.model_dump(mode="json")),
        TransferJobTimesRow(job_id="job-lost", closes_at=now, deadline_at=now, expires_at=now + timedelta(hours=1)),
        OrderPlatform(platform="shop", project_id="prj_1", kind="plain", shop="s", base_url="http://s", created_at=now),
        make_task_type(),
        Delivery(**delivery, body=event.body.decode(), url=sealer.seal("http://127.0.0.1/").token),
    ]
    async with database.session() as session:
        session.add(Project(project_id="prj_1", name="p", created_at=now))
    async with database.session() as session:
        session.add_all(rows)
    async with database.session() as session:
        job = (await session.exec(select(TransferJobTimesRow.id))).one()
        assert job is not None
        shard: Json = {"signature": "s", "target_user": "u", "folder": "/f", "file_name": "n", "project_id": "prj_1"}
        session.add(TransferShard(job=job, number=0, **shard))
        session.add(TransferTarget(job=job, key=1, shard=0, agent_id="a", container_id="", state="Running"))
        session.add(OpenLaneHead(type=TASK_TYPE, pos=1, pending=2, running=1, updated_at=now))


async def test_nothing_starts_on_a_database_that_a_restore_has_not_filled_yet(empty_database_url: str) -> None:
    """The mark came with the rows: an API that is started again and again began on the empty tables before."""
    await migrate.migrate(empty_database_url)
    copy = table_copies.DumpedDatabase(name="haulage", revision=migrate.get_head_revision(), tables=[], sequences={})
    settings = DatabaseSettings(url=SecretStr(empty_database_url))
    async with table_copies.open_connection_without_limits(settings) as connection:
        with pytest.raises(Conflict, match="has revision 0000_other"):
            await table_copies.block_starts_before_restore(
                connection, copy.model_copy(update={"revision": "0000_other"})
            )
        await table_copies.block_starts_before_restore(connection, copy)
        with pytest.raises(migrate.WrongRevision, match="is being restored"):
            await migrate.migrate(empty_database_url)
        await table_copies.copy_files_into_empty_tables(connection, copy, Path())
        await table_copies.allow_starts_on_restored_database(connection)
    await migrate.migrate(empty_database_url)


async def test_a_restore_that_broke_off_before_the_rows_came_is_begun_again(
    settings: Settings, empty_database_url: str
) -> None:
    """Its mark is no reason to refuse the database, but to reconcile nothing in it; a database of later code is one."""
    await migrate.migrate(empty_database_url)
    copy = table_copies.DumpedDatabase(name="haulage", revision=migrate.get_head_revision(), tables=[], sequences={})
    other = copy.model_copy(update={"revision": "0000_other"})
    ours = DatabaseSettings(url=SecretStr(empty_database_url))
    async with table_copies.open_connection_without_limits(ours) as connection:
        await table_copies.block_starts_before_restore(connection, copy)
        await table_copies.require_migration_will_reach_copy_revision(connection, copy)
        with pytest.raises(Conflict, match="has revision 0000_other"):
            await table_copies.require_migration_will_reach_copy_revision(connection, other)
        with pytest.raises(Conflict, match="broke off before all rows"):
            await reconcile_and_print_findings(settings.model_copy(update={"database": ours}))
        await connection.execute(KEEP_NEWEST_REVISION)
        await connection.execute("UPDATE schema_revisions SET revision = '9999'")
        with pytest.raises(migrate.WrongRevision, match="run that version"):
            await table_copies.require_migration_will_reach_copy_revision(connection, copy)


def write_backup(folder: Path, *engine: DumpedDatabase) -> None:
    """A backup of a project, of an object whose file may be lost, and of databases of the engine."""
    (folder / backup.MANIFEST).unlink(missing_ok=True)
    (folder / backup.HAULAGE).mkdir(exist_ok=True)
    (folder / backup.HAULAGE / "projects.gz").write_bytes(gzip.compress(b"prj_1\tp\t2026-11-26 00:00:00+00\n"))
    table = DumpedTable(name="projects", columns=["id", "name", "created_at"], rows=1, file="projects.gz")
    copy = DumpedDatabase(name=backup.HAULAGE, revision=migrate.get_head_revision(), tables=[table], sequences={})
    record = backup.ObjectRecord(key="a", file="lost", sha256="", content_type="text/plain", metadata={})
    (folder / backup.INDEX).write_text(f"{record.model_dump_json()}\n")
    manifest = backup.BackupManifest(
        taken_at=datetime.now(UTC),
        key_ids=[],
        databases=[copy, *engine],
        files=backup.compute_size_and_digest_of_files(folder),
    )
    backup.write_manifest(folder, manifest)


def build_settings_of_restore(settings: Settings, database_url: str, prefix: str) -> Settings:
    """The settings of a new installation."""
    objects = settings.objects.model_copy(update={"prefix": prefix})
    return settings.model_copy(update={"database": DatabaseSettings(url=SecretStr(database_url)), "objects": objects})


async def read_mark(settings: Settings) -> str:
    """The revision of the database, or the mark of a restore."""
    async with table_copies.open_connection_without_limits(settings.database) as connection:
        return await table_copies.read_haulage_or_temporal_revision(connection)


async def test_a_restore_that_broke_off_between_objects_is_not_reconciled(
    settings: Settings, environment: Mapping[str, str], stack: EmbeddedStack, empty_database_url: str, tmp_path: Path
) -> None:
    """Downloads whose files had not come yet were marked as expired, and processes were let in."""
    ours = build_settings_of_restore(settings, empty_database_url, "broke-off/")
    write_backup(tmp_path)

    with pytest.raises(FileNotFoundError):
        await restore.restore_deployed(ours, tmp_path, backup.EngineDatabases())
    with pytest.raises(Conflict, match="broke off before all rows and objects were there"):
        await reconcile_and_print_findings(ours)
    async with table_copies.open_connection_without_limits(ours.database) as connection:
        assert await connection.fetchval("SELECT count(*) FROM projects") == 1

    # With its file it is a whole one.
    (tmp_path / "lost").write_bytes(b"found")
    write_backup(tmp_path)
    async with own_database(stack) as new_url:
        new = build_settings_of_restore(settings, new_url, "begun-anew/")
        await restore.restore_deployed(new, tmp_path, backup.EngineDatabases())
        assert await read_mark(new) == migrate.RESTORED
        assert await reconcile_all_systems(new, await temporal.connect(environment)) == []
        assert await read_mark(new) == migrate.get_head_revision()


async def test_a_restore_that_broke_off_in_the_databases_of_the_engine_is_not_reconciled(
    settings: Settings,
    stack: EmbeddedStack,
    empty_database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Haulage's was marked after them; and the next attempt took the mark off to migrate."""
    ours = build_settings_of_restore(settings, empty_database_url, "engine-broke-off/")
    async with own_database(stack) as engine_url:
        engine = backup.build_engine_databases(settings, [engine_url])
        async with table_copies.open_connection_without_limits(engine.databases[0]) as connection:
            await connection.execute("CREATE TABLE shards (range_id int)")
        name = backup.get_database_name(engine.databases[0])
        table = DumpedTable(name="shards", columns=["range_id"], rows=1, file="lost.gz")
        write_backup(tmp_path, DumpedDatabase(name=name, revision="", tables=[table], sequences={}))
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                await restore.restore_deployed(ours, tmp_path, engine)
            assert await read_mark(ours) == migrate.RESTORING
            with pytest.raises(Conflict, match="broke off before all rows and objects were there"):
                await reconcile_and_print_findings(ours)
            # The next attempt goes on without taking the mark off.
            monkeypatch.setattr(table_copies, "allow_starts_on_restored_database", None)


async def test_rows_are_copied_into_another_database(
    database_url: str, stack: EmbeddedStack, database: Database, tmp_path: Path
) -> None:
    """Rows, also of tables that refer to others, and sequences; what is written meanwhile is not in the copy."""
    await insert_rows_of_lost_workflows(SecretSealer(stack.build_settings().secrets), database)
    async with own_database(stack) as other_url:
        here, there = (DatabaseSettings(url=SecretStr(url)) for url in (database_url, other_url))
        async with table_copies.open_connection_without_limits(here) as connection:
            await table_copies.begin_snapshot_and_get_time(connection)
            async with database.session() as session:
                session.add(Project(project_id="prj_2", name="late", created_at=datetime.now(UTC)))
            copied = await table_copies.copy_tables_to_files(connection, "haulage", tmp_path)
        await migrate.migrate(other_url)
        async with table_copies.open_connection_without_limits(there) as connection:
            await table_copies.copy_files_into_empty_tables(connection, copied, tmp_path)
            [project] = await connection.fetch("SELECT id FROM projects")
            target = await connection.fetchrow("SELECT agent_id, state FROM transfer_targets")
            next_job = await connection.fetchval("SELECT nextval('transfer_jobs_id_seq')")
            with pytest.raises(Conflict, match=r"has data already: its table \w+ has rows"):
                await table_copies.require_database_without_rows(connection)
            assert await table_copies.read_haulage_or_temporal_revision(connection) == migrate.RESTORING
            # As where a later version reconciles what an earlier one has restored.
            await connection.execute(KEEP_NEWEST_REVISION)
            await connection.execute("UPDATE schema_revisions SET revision = '0000_earlier'")
            await table_copies.allow_starts_on_restored_database(connection)
            assert await table_copies.read_haulage_or_temporal_revision(connection) == "0000_earlier"
    assert project["id"] == "prj_1"
    assert target is not None
    assert tuple(target) == ("a", "Running")
    assert next_job == 2


async def test_temporal_writes_nothing_while_its_moment_is_chosen(empty_database_url: str) -> None:
    """Each of its writes reads a row of `shards` with a lock, which waits until the block ends; reading goes on."""
    settings = DatabaseSettings(url=SecretStr(empty_database_url))
    async with table_copies.open_connection_without_limits(settings) as temporals:
        await temporals.execute("CREATE TABLE shards (range_id int); INSERT INTO shards VALUES (1)")
        async with table_copies.block_temporal_writes(settings):
            assert await temporals.fetchval("SELECT range_id FROM shards") == 1
            await temporals.execute("SET lock_timeout = '50ms'")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await temporals.execute("SELECT range_id FROM shards FOR SHARE")
        assert await temporals.fetchval("SELECT range_id FROM shards FOR SHARE") == 1


async def test_temporal_writes_again_though_the_backup_is_suspended(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its moment is over after a while; the backup then fails, as it may have missed what was written."""
    monkeypatch.setattr(table_copies, "BLOCK_MAX_SECONDS", 1)
    settings = DatabaseSettings(url=SecretStr(empty_database_url))
    async with table_copies.open_connection_without_limits(settings) as temporals:
        await temporals.execute("CREATE TABLE shards (range_id int); INSERT INTO shards VALUES (1)")
        await temporals.execute(f"SET lock_timeout = '{PATIENCE_SECONDS}s'")
        with pytest.raises(Conflict, match="is not of one moment"):
            async with table_copies.block_temporal_writes(settings):
                assert await temporals.fetchval("SELECT range_id FROM shards FOR SHARE") == 1


async def test_a_row_of_temporals_schema_is_replaced_by_that_of_the_backup(
    empty_database_url: str, tmp_path: Path
) -> None:
    """Its schema tool inserts one into `namespace_metadata`: a database without any other row is a new one."""
    settings = DatabaseSettings(url=SecretStr(empty_database_url))
    async with table_copies.open_connection_without_limits(settings) as connection:
        await connection.execute(
            "CREATE TABLE shards (range_id int); INSERT INTO shards VALUES (1);"
            "CREATE TABLE namespace_metadata (partition_id int, notification_version int);"
            "INSERT INTO namespace_metadata VALUES (54321, 7)"
        )
        copied = await table_copies.copy_tables_to_files(connection, "temporal", tmp_path)
        with pytest.raises(Conflict, match="its table shards has rows"):
            await table_copies.copy_files_into_empty_tables(connection, copied, tmp_path)
        await connection.execute("DELETE FROM shards; UPDATE namespace_metadata SET notification_version = 1")
        await table_copies.copy_files_into_empty_tables(connection, copied, tmp_path)
        assert [*map(tuple, await connection.fetch("SELECT * FROM namespace_metadata"))] == [(54321, 7)]
        assert await connection.fetchval("SELECT count(*) FROM shards") == 1


async def test_a_backup_without_the_workflows_of_temporal_is_refused(
    settings: Settings, empty_database_url: str, tmp_path: Path
) -> None:
    """Its database of visibility alone would restore no work."""
    engine = backup.build_engine_databases(settings, [empty_database_url])
    with pytest.raises(Invalid, match=r"None of the databases .* has Temporal's table `shards`"):
        await backup.back_up(settings, tmp_path / "copy", engine)
