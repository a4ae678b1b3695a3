"""`haulage restore`: a backup into an installation that has no data yet; nothing is overwritten.

The database is marked until what was restored is reconciled, so that no process works on half of it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path

from cli.backups import reconcile
from cli.backups.backup import (
    HAULAGE,
    INDEX,
    BackupManifest,
    EngineDatabases,
    ObjectRecord,
    build_engine_databases,
    build_hashed_key_ids,
    get_database_name,
    list_key_ids,
    load_manifest_and_verify_files,
)
from cli.command import print_line
from dev.embedded.components import ENGINE_FILE
from dev.embedded.run_file import (
    ENGINE,
    begin_restore_into,
    create_data_folder,
    end_restore_into,
    has_data,
    lock_data_dir,
    require_no_unfinished_restore,
)
from dev.embedded.secrets import SECRETS_FILE, load_or_create_secrets
from dev.embedded.stack import run_stack
from domain.faults import Conflict, Missing
from infra import temporal
from infra.component_settings import EmbeddedPortSettings
from infra.database import build_tls_arguments
from infra.objects import ObjectStore
from infra.objects.store import WRITE_CHECK_KEY
from infra.settings import Settings
from stores import migrate, table_copies


async def restore_and_print_findings(settings: Settings, folder: Path, engine_urls: Sequence[str]) -> int:
    """Restore for `haulage up`, or into the databases that were named; print what was found and what is to be done."""
    engine = build_engine_databases(settings, engine_urls)
    taken_at = (await asyncio.to_thread(load_manifest_and_verify_files, folder)).taken_at
    if engine.databases:
        await restore_deployed(settings, folder, engine)
        print_line(f"Restored as of {taken_at:%Y-%m-%d %H:%M:%S} UTC.")
        print_line("Start Temporal, run `haulage reconcile`, then start API and workers; they refuse to start before.")
        return 0
    found = await restore_embedded(folder, settings.data_dir)
    print_line(f"Restored as of {taken_at:%Y-%m-%d %H:%M:%S} UTC into {settings.data_dir}.")
    reconcile.print_findings_and_manual_checks(found, taken_at)
    print_line("Start it with `haulage up`.")
    return 0


def require_all_keys_of_backup(manifest: BackupManifest, key_ids: Collection[str], place: str) -> None:
    """Require the keys that open what is sealed in a backup.

    Raises:
        Conflict: One is missing.
    """
    if lacking := sorted(set(manifest.key_ids).difference(key_ids)):
        raise Conflict(
            "backup_keys_missing",
            f"The backup needs keys that {place} lacks: {', '.join(lacking)}.",
            "Put back those of the time of the backup; newer ones may come before them.",
        )


async def restore_embedded(folder: Path, data_dir: Path, ports: EmbeddedPortSettings | None = None) -> list[str]:
    """Restore a backup into a data folder without data, for `haulage up`; return what reconciling has found.

    Raises:
        Conflict: Something runs in the folder, or it has data, or lacks the secrets of the backup.
    """
    manifest = await asyncio.to_thread(load_manifest_and_verify_files, folder)
    if not manifest.is_embedded:
        raise Conflict(
            "backup_other_kind",
            f"{folder} is of an installation whose engine is on PostgreSQL.",
            "Name its new databases by --engine-database.",
        )
    _put_engine_file_into_data_folder(manifest, folder, data_dir)
    async with run_stack(data_dir, ui=False, ports=ports) as stack:
        settings = stack.build_settings()
        await _require_empty_and_block_starts(settings, manifest)
        await _restore_database_and_objects(settings, manifest, folder)
        environment = stack.build_environment(settings)
        found = await reconcile.reconcile_all_systems(settings, await temporal.connect(environment))
        end_restore_into(stack.data_dir)
        return found


def _put_engine_file_into_data_folder(manifest: BackupManifest, folder: Path, data_dir: Path) -> None:
    """Put the engine's file into a data folder that has secrets, and nothing else of an installation."""
    data_dir = create_data_folder(data_dir)
    if not (data_dir / SECRETS_FILE).exists():
        raise Missing(
            "secrets_missing",
            f"{data_dir / SECRETS_FILE} does not exist, and the backup does not hold it.",
            "Put the file of the lost installation there: only its keys open what is sealed in the backup.",
        )
    with lock_data_dir(data_dir):
        require_no_unfinished_restore(data_dir)
        if has_data(data_dir):
            raise Conflict(
                "restore_not_empty", f"{data_dir} has data already.", "Nothing is overwritten. Name another --data-dir."
            )
        secrets = load_or_create_secrets(data_dir)
        held = build_hashed_key_ids(
            [secrets.seal, *secrets.old.get("seal", [])], [secrets.pepper, *secrets.old.get("pepper", [])]
        )
        require_all_keys_of_backup(manifest, held, str(data_dir / SECRETS_FILE))
        begin_restore_into(data_dir)
        (data_dir / ENGINE).mkdir(exist_ok=True)
        shutil.copyfile(folder / ENGINE_FILE, data_dir / ENGINE / ENGINE_FILE)


async def restore_deployed(settings: Settings, folder: Path, engine: EngineDatabases) -> None:
    """Restore a backup into new databases and an empty bucket; Temporal and all processes must be stopped.

    Raises:
        Conflict: A database or the bucket has data, or the settings lack a key of the backup.
    """
    manifest = await asyncio.to_thread(load_manifest_and_verify_files, folder)
    names = {get_database_name(each) for each in engine.databases}
    if manifest.is_embedded or (unknown := names ^ {copy.name for copy in manifest.databases[1:]}):
        which = "that of `haulage up`" if manifest.is_embedded else f"not that of: {', '.join(sorted(unknown))}"
        raise Conflict(
            "backup_other_kind",
            f"The engine in {folder} is {which}.",
            "Name by --engine-database new databases with the names of those that were backed up.",
        )
    require_all_keys_of_backup(manifest, list_key_ids(settings), "this installation")
    # All of them before any is written: what was written would be in the way of the next attempt. Haulage's is marked
    # before the engine's have rows: a restore that breaks off there must not be taken for a whole one.
    for each in engine.databases:
        copy = manifest.find_database(get_database_name(each))
        async with table_copies.open_connection_without_limits(each) as connection:
            await table_copies.require_database_without_rows(connection)
            if copy:
                await table_copies.require_revision_of_copy(connection, copy)
    async with table_copies.open_connection_without_limits(settings.database) as connection:
        await table_copies.require_database_without_rows(connection)
        await table_copies.require_migration_will_reach_copy_revision(connection, manifest.databases[0])
    await _require_empty_and_block_starts(settings, manifest)
    for each in engine.databases:
        copy = manifest.find_database(get_database_name(each))
        async with table_copies.open_connection_without_limits(each) as connection:
            if copy:
                await table_copies.copy_files_into_empty_tables(connection, copy, folder / copy.name)
    await _restore_database_and_objects(settings, manifest, folder)


async def _create_bucket_and_require_it_empty(store: ObjectStore) -> None:
    await store.ensure_bucket()
    if any(not listed.key.startswith(WRITE_CHECK_KEY) for listed in await store.list("")):
        raise Conflict(
            "restore_not_empty",
            f"The bucket {store.settings.bucket} has objects already.",
            "Nothing is overwritten. Name an empty bucket or a new HAULAGE_OBJECTS__PREFIX.",
        )


async def _require_empty_and_block_starts(settings: Settings, manifest: BackupManifest) -> None:
    """Require bucket and database to be empty, and migrate and mark the database: no process begins on it."""
    store = ObjectStore(settings.objects)
    try:
        await _create_bucket_and_require_it_empty(store)
    finally:
        await store.close()
    async with table_copies.open_connection_without_limits(settings.database) as connection:
        await table_copies.require_database_without_rows(connection)
        if await table_copies.read_revision_under_mark(connection) != migrate.get_head_revision():
            # Of a restore by an earlier version that broke off before the rows came: a migration refuses its mark.
            if await table_copies.read_haulage_or_temporal_revision(connection) in migrate.MARKS_OF_RESTORES:
                await table_copies.allow_starts_on_restored_database(connection)
            await migrate.migrate(settings.database.url.get_secret_value(), build_tls_arguments(settings.database))
        await table_copies.block_starts_before_restore(connection, manifest.databases[0])


async def _restore_database_and_objects(settings: Settings, manifest: BackupManifest, folder: Path) -> None:
    store = ObjectStore(settings.objects)
    try:
        async with table_copies.open_connection_without_limits(settings.database) as connection:
            await table_copies.copy_files_into_empty_tables(connection, manifest.databases[0], folder / HAULAGE)
        for record in _iterate_object_records(folder):
            await _upload_object_from_backup(store, record, folder)
        async with table_copies.open_connection_without_limits(settings.database) as connection:
            await table_copies.mark_restored_whole(connection)
    finally:
        await store.close()


def _iterate_object_records(folder: Path) -> Iterator[ObjectRecord]:
    with (folder / INDEX).open() as lines:
        for line in lines:
            yield ObjectRecord.model_validate_json(line)


async def _upload_object_from_backup(store: ObjectStore, record: ObjectRecord, folder: Path) -> None:
    async def read() -> AsyncIterator[bytes]:
        with (folder / record.file).open("rb") as file:
            while piece := await asyncio.to_thread(file.read, table_copies.READ_BYTES):
                yield piece

    await store.put_stream(record.key, read(), content_type=record.content_type, metadata=record.metadata)
