"""`haulage backup`: database, engine and object store of one installation, as of one moment.

Engine and database are seen at the same moment: the engine cannot write between the two snapshots. So the backup is
what a crash of all processes at that moment would have left behind. Objects are copied afterwards, since what the
database names is in the store before it is named.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from pydantic import AwareDatetime, BaseModel, SecretStr, ValidationError

from cli.command import print_line
from dev.embedded.components import ENGINE_FILE
from dev.embedded.run_file import ENGINE
from domain import VERSION
from domain.downloads import names as download_names
from domain.faults import Conflict, Invalid, Missing
from domain.orders import names as order_names
from domain.secrets import derive_pepper_id
from infra.component_settings import DatabaseSettings
from infra.objects import ObjectMissing, ObjectStore
from infra.objects.store import WRITE_CHECK_KEY
from infra.settings import Settings
from stores import table_copies
from stores.table_copies import DumpedDatabase

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
INDEX: Final = "objects.jsonl"
HAULAGE: Final = "haulage"
OBJECTS_AT_A_TIME: Final = 8
LOCK_SECONDS: Final = 20.0
NOT_COPIED: Final = (download_names.STAGING, order_names.STAGING, WRITE_CHECK_KEY)
"""What unfinished work has staged: uploads in parts cannot be copied, and such work begins anew without it."""


class FileSizeAndDigest(BaseModel):
    """Size and SHA-256 of a file of the backup."""

    bytes: int
    sha256: str


class ObjectRecord(BaseModel):
    """An object of the bucket, and its file in the backup."""

    key: str
    file: str
    sha256: str
    content_type: str
    metadata: dict[str, str]


class BackupManifest(BaseModel):
    """What a backup has; written last, so that a backup without it was not finished."""

    format: int = FORMAT
    version: str = VERSION
    taken_at: AwareDatetime
    key_ids: list[str]
    """Ids of the sealing keys and peppers, which are not in the backup themselves."""
    databases: list[DumpedDatabase]
    files: dict[str, FileSizeAndDigest]

    @property
    def is_embedded(self) -> bool:
        """Whether the engine is Temporal's dev server with its SQLite file."""
        return ENGINE_FILE in self.files

    def find_database(self, name: str) -> DumpedDatabase | None:
        """Return the copy of a database by its name."""
        return next((copy for copy in self.databases if copy.name == name), None)


@dataclass(frozen=True, slots=True)
class EngineDatabases:
    """Where Temporal keeps its state: the file of the dev server, or its databases on PostgreSQL."""

    file: Path | None = None
    databases: Sequence[DatabaseSettings] = ()


def choose_engine_databases(
    settings: Settings, data_dir: Path, urls: Sequence[str], *, is_embedded: bool
) -> EngineDatabases:
    """Return the databases of the engine: those that were named, or the file of the `haulage up` that runs.

    Raises:
        Invalid: No database was named, and no `haulage up` runs in the folder.
    """
    if is_embedded and not urls:
        return EngineDatabases(file=data_dir / ENGINE / ENGINE_FILE)
    if not urls:
        raise Invalid(
            "engine_not_named",
            f"No `haulage up` runs in {data_dir}, and no database of Temporal was named.",
            "Start it, or name each database by --engine-database postgresql://…/temporal. Without the engine a backup "
            "has no tasks and no work under way.",
        )
    return build_engine_databases(settings, urls)


def build_engine_databases(settings: Settings, urls: Sequence[str]) -> EngineDatabases:
    """Return the databases of Temporal at these addresses, reached as the settings say for that of Haulage."""
    shared = settings.database.model_dump(exclude={"url"})
    try:
        return EngineDatabases(databases=[DatabaseSettings(url=SecretStr(url), **shared) for url in urls])
    except ValidationError:
        raise Invalid(
            "engine_database_wrong",
            "An --engine-database is no address of PostgreSQL.",
            "Write postgresql://user:password@host:5432/temporal.",
        ) from None


async def back_up_and_print_summary(settings: Settings, folder: Path, engine: EngineDatabases) -> int:
    """Back up, and print what was copied."""
    manifest = await back_up(settings, folder, engine)
    rows = sum(table.rows for copy in manifest.databases for table in copy.tables)
    size = sum(file.bytes for file in manifest.files.values())
    print_line(
        f"Backed up as of {manifest.taken_at:%Y-%m-%d %H:%M:%S} UTC: {rows:,} rows and {len(manifest.files):,} files, "
        f"{size:,} bytes in {folder}."
    )
    print_line(
        "Secrets are not in it: keep secrets.json of the data folder, or your sealing keys and pepper, apart from it."
    )
    return 0


async def back_up(settings: Settings, folder: Path, engine: EngineDatabases) -> BackupManifest:
    """Copy engine, database and bucket into an empty folder while the installation runs.

    Raises:
        Conflict: The folder is not empty.
        Invalid: No named database of the engine has its workflows.
    """
    await asyncio.to_thread(_create_or_require_empty_folder, folder)
    async with AsyncExitStack() as held:
        ours = await held.enter_async_context(table_copies.open_connection_without_limits(settings.database))
        theirs = [
            await held.enter_async_context(table_copies.open_connection_without_limits(each))
            for each in engine.databases
        ]
        async with AsyncExitStack() as engine_writes_held:
            with_shards = [
                await engine_writes_held.enter_async_context(table_copies.block_temporal_writes(each))
                for each in engine.databases
            ]
            if engine.databases and True not in with_shards:
                raise _build_no_shards_fault(engine)
            reader = held.enter_context(closing(sqlite3.connect(engine.file or ":memory:", check_same_thread=False)))
            if engine.file:
                await engine_writes_held.enter_async_context(_block_sqlite_writes(engine.file))
                await asyncio.to_thread(begin_sqlite_snapshot, reader)
            # Visibility after the database that it is written from: what it lacks then is written again.
            for _, connection in sorted(zip(with_shards, theirs, strict=True), key=lambda pair: not pair[0]):
                await table_copies.begin_snapshot_and_get_time(connection)
            taken_at = await table_copies.begin_snapshot_and_get_time(ours)
        if engine.file:
            await asyncio.to_thread(copy_sqlite_database, reader, folder / ENGINE_FILE)
        databases = [await _copy_database(ours, HAULAGE, folder)]
        for connection, each in zip(theirs, engine.databases, strict=True):
            databases.append(await _copy_database(connection, get_database_name(each), folder))
    await _copy_all_objects_into_backup(settings, folder)
    manifest = BackupManifest(
        taken_at=taken_at,
        key_ids=list_key_ids(settings),
        databases=databases,
        files=await asyncio.to_thread(compute_size_and_digest_of_files, folder),
    )
    await asyncio.to_thread(write_manifest, folder, manifest)
    return manifest


def _create_or_require_empty_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Conflict("backup_folder_not_empty", f"{folder} is not empty.", "Name a new folder for each backup.")


def _build_no_shards_fault(engine: EngineDatabases) -> Invalid:
    names = ", ".join(get_database_name(each) for each in engine.databases)
    return Invalid(
        "engine_database_wrong",
        f"None of the databases {names} has Temporal's table `shards`: its workflows are in another one.",
        "Name that one too; `deploy/` calls it temporal.",
    )


@asynccontextmanager
async def _block_sqlite_writes(path: Path) -> AsyncIterator[None]:
    """Keep the dev server from writing to its file while the block runs; others may read. Ends with this process."""
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)) as lock:
        await asyncio.to_thread(lock.execute, "BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.execute("ROLLBACK")


def begin_sqlite_snapshot(reader: sqlite3.Connection) -> None:
    """Have a connection see the file as it is now until it is closed."""
    reader.isolation_level = None
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_master").fetchone()


def copy_sqlite_database(reader: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path)) as copy:
        reader.backup(copy)


async def _copy_database(connection: table_copies.Connection, name: str, folder: Path) -> DumpedDatabase:
    (folder / name).mkdir()
    return await table_copies.copy_tables_to_files(connection, name, folder / name)


def get_database_name(settings: DatabaseSettings) -> str:
    return settings.url.get_secret_value().rpartition("/")[2].partition("?")[0]


async def _copy_all_objects_into_backup(settings: Settings, folder: Path) -> None:
    """Copy every object but what is staged; one that is removed meanwhile is left out."""
    store = ObjectStore(settings.objects)
    (folder / "objects").mkdir()
    try:
        keys = [listed.key for listed in await store.list("") if not listed.key.startswith(NOT_COPIED)]
        numbered = enumerate(keys)
        with (folder / INDEX).open("w") as index:
            # A few tasks that take one key after the other: a task for each would need memory for millions of them.
            async with asyncio.TaskGroup() as copying:
                for _ in range(OBJECTS_AT_A_TIME):
                    copying.create_task(_copy_next_objects_into_backup(store, numbered, folder, index))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await store.close()


async def _copy_next_objects_into_backup(
    store: ObjectStore, numbered: Iterator[tuple[int, str]], folder: Path, index: TextIO
) -> None:
    """Copy objects until none is left, and write a line of the index for each."""
    for number, key in numbered:
        name = f"objects/{number:08d}"
        try:
            record = await _download_object_into_backup(store, key, folder, name)
        except ObjectMissing:
            (folder / name).unlink(missing_ok=True)
            continue
        if record is not None:
            index.write(f"{record.model_dump_json()}\n")


async def _download_object_into_backup(store: ObjectStore, key: str, folder: Path, name: str) -> ObjectRecord | None:
    if (head := await store.head(key)) is None:
        return None
    digest = hashlib.sha256()
    with (folder / name).open("wb") as file:
        async for piece in store.stream(key):
            digest.update(piece)
            await asyncio.to_thread(file.write, piece)
    return ObjectRecord(
        key=key,
        file=name,
        sha256=digest.hexdigest(),
        content_type=head.content_type,
        metadata=dict(head.metadata),
    )


def list_key_ids(settings: Settings) -> list[str]:
    """Return ids of the sealing keys and of the pepper, which reveal nothing of them."""
    return build_hashed_key_ids(
        [key.get_secret_value() for key in settings.secrets.seal], settings.secrets.list_peppers()
    )


def build_hashed_key_ids(seals: Sequence[str], peppers: Sequence[str]) -> list[str]:
    seal_ids = [f"seal {hashlib.sha256(b'haulage seal' + key.encode()).hexdigest()[:16]}" for key in seals]
    return [*seal_ids, *(f"pepper {derive_pepper_id(pepper)}" for pepper in peppers)]


def compute_size_and_digest_of_files(folder: Path) -> dict[str, FileSizeAndDigest]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): _compute_size_and_digest(path) for path in paths}


def _compute_size_and_digest(path: Path) -> FileSizeAndDigest:
    with path.open("rb") as file:
        return FileSizeAndDigest(bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def write_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Write the manifest last, once all else is on the disk."""
    os.sync()
    draft = folder / f"{MANIFEST}.new"
    with draft.open("w") as file:
        file.write(manifest.model_dump_json(indent=2))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MANIFEST)


def load_manifest_and_verify_files(folder: Path) -> BackupManifest:
    """Return the manifest of a backup whose files are all as they were written.

    Raises:
        Missing: There is no finished backup.
        Conflict: It is damaged, or of another version.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise Missing(
            "backup_unfinished",
            f"{folder} has no {MANIFEST}: it is no backup, or one that was not finished.",
            "Name another one.",
        )
    try:
        manifest = BackupManifest.model_validate_json(path.read_text())
    except ValueError:
        raise _build_damage_fault(folder, f"its {MANIFEST} cannot be read") from None
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        raise Conflict(
            "backup_other_version",
            f"{folder} was made with Haulage {manifest.version}, this is {VERSION}.",
            f"Restore with Haulage {manifest.version}, and upgrade afterwards.",
        )
    for name, record in manifest.files.items():
        if not (folder / name).exists():
            raise _build_damage_fault(folder, f"its file {name} is missing")
        if _compute_size_and_digest(folder / name) != record:
            raise _build_damage_fault(folder, f"its file {name} is not the one that was written")
    return manifest


def _build_damage_fault(folder: Path, what: str) -> Conflict:
    return Conflict("backup_damaged", f"{folder} is damaged: {what}.", "Nothing was restored. Name another backup.")
