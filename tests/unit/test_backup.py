"""What `haulage backup` and `haulage restore` refuse, each in a sentence that says what to do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import SecretStr

from cli.backups import backup, restore
from dev import local
from dev.embedded.components import ENGINE_FILE
from dev.embedded.run_file import lock_data_dir
from dev.embedded.secrets import load_or_create_secrets
from domain.faults import Conflict, Fault
from infra.component_settings import DatabaseSettings
from infra.settings import SecretSettings, Settings
from stores import table_copies
from stores.table_copies import DumpedDatabase


def make_backup(folder: Path, key_ids: list[str]) -> Path:
    """A finished backup of an installation without rows."""
    folder.mkdir()
    (folder / ENGINE_FILE).write_bytes(b"the engine")
    (folder / backup.INDEX).write_text("")
    manifest = backup.BackupManifest(
        taken_at=datetime.now(UTC),
        key_ids=key_ids,
        databases=[DumpedDatabase(name=backup.HAULAGE, revision="r", tables=[], sequences={})],
        files=backup.compute_size_and_digest_of_files(folder),
    )
    backup.write_manifest(folder, manifest)
    return folder


def change_manifest(**changes: object) -> Callable[[Path], object]:
    """Replace fields of the manifest."""

    def change(folder: Path) -> None:
        path = folder / backup.MANIFEST
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda folder: (folder / backup.MANIFEST).unlink(), "one that was not finished"),
    "half a manifest": (lambda folder: (folder / backup.MANIFEST).write_text('{"format": 1'), "cannot be read"),
    "a changed file": (
        lambda folder: (folder / ENGINE_FILE).write_bytes(b"the enginE"),
        "not the one that was",
    ),
    "a short file": (lambda folder: (folder / ENGINE_FILE).write_bytes(b"the"), "not the one that was"),
    "a lost file": (lambda folder: (folder / backup.INDEX).unlink(), "objects.jsonl is missing"),
    "another version": (change_manifest(version="9.9.9"), "Restore with Haulage 9.9.9"),
    "another format": (change_manifest(format=2), "was made with"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_backup_that_is_not_whole_is_refused(tmp_path: Path, damage: str) -> None:
    """Nothing is written before every file is seen to be what it was."""
    folder = make_backup(tmp_path / "copy", [])
    apply, sentence = DAMAGES[damage]
    apply(folder)
    with pytest.raises(Fault, match=sentence):
        await restore.restore_embedded(folder, tmp_path / "data")
    assert not (tmp_path / "data").exists()


async def test_a_data_folder_with_data_is_refused(tmp_path: Path) -> None:
    """Nothing is overwritten."""
    load_or_create_secrets(tmp_path)
    (tmp_path / "database").mkdir()
    (tmp_path / "database" / "cluster").touch()
    with pytest.raises(Fault, match=r"has data already\. Nothing is overwritten"):
        await restore.restore_embedded(make_backup(tmp_path / "copy", []), tmp_path)


async def test_a_folder_without_the_secrets_is_refused(tmp_path: Path) -> None:
    """The backup does not hold them, and new ones would open nothing."""
    with pytest.raises(Fault, match=r"secrets\.json does not exist, and the backup does not hold it"):
        await restore.restore_embedded(make_backup(tmp_path / "copy", []), tmp_path / "data")


async def test_other_secrets_are_refused(tmp_path: Path) -> None:
    """Keys that opened what is sealed in the backup are named by their ids, which reveal nothing."""
    load_or_create_secrets(tmp_path)
    with pytest.raises(Fault, match=r"lacks: seal 123\. Put back those"):
        await restore.restore_embedded(make_backup(tmp_path / "copy", ["seal 123"]), tmp_path)
    assert not (tmp_path / "engine").exists()


async def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """A `haulage up` that runs there holds it."""
    load_or_create_secrets(tmp_path)
    folder = make_backup(tmp_path / "copy", [])
    with lock_data_dir(tmp_path), pytest.raises(Fault, match=r"is held by .* Stop that one first"):
        await restore.restore_embedded(folder, tmp_path)


async def test_nothing_starts_on_a_restore_that_was_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine was there already, and the database empty: `haulage up` had the engine work on an empty database."""

    def break_off(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(restore, "run_stack", break_off)
    folder, data_dir = make_backup(tmp_path / "copy", []), tmp_path / "data"
    data_dir.mkdir()
    load_or_create_secrets(data_dir)
    with pytest.raises(KeyboardInterrupt):
        await restore.restore_embedded(folder, data_dir)

    sentence = r"was broken off, or is under way\. Remove the folder, and restore into a new one"
    with pytest.raises(Fault, match=sentence):
        async with local.run_installation(Settings().model_copy(update={"data_dir": data_dir})):
            pass
    with pytest.raises(Fault, match=sentence):
        await restore.restore_embedded(folder, data_dir)


@pytest.mark.parametrize(
    ("filled", "revisions", "sentence"),
    [
        ("haulage", {}, "has data already"),
        ("", {"temporal": "1.19"}, "database temporal has revision r, this database 1.19"),
        ("", {"haulage": "9999"}, "at revision 9999"),
        ("", {"haulage": ""}, "database haulage has revision r, this database 0"),
    ],
    ids=["rows", "revision of Temporal", "later revision", "backup of another version"],
)
async def test_nothing_is_restored_where_one_of_the_databases_does_not_suit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filled: str, revisions: dict[str, str], sentence: str
) -> None:
    """Those of the engine were written before, and in the way of the next attempt."""
    folder = make_backup(tmp_path / "copy", [])
    (folder / ENGINE_FILE).unlink()
    databases = [
        DumpedDatabase(name=name, revision="r", tables=[], sequences={}) for name in (backup.HAULAGE, "temporal")
    ]
    files = backup.compute_size_and_digest_of_files(folder)
    files.pop(backup.MANIFEST)
    dump = [each.model_dump() for each in databases]
    change_manifest(databases=dump, files={name: each.model_dump() for name, each in files.items()})(folder)
    written: list[str] = []

    @asynccontextmanager
    async def connect(settings: DatabaseSettings) -> AsyncIterator[str]:
        yield backup.get_database_name(settings)

    async def require_database_without_rows(connection: str) -> None:
        if connection == filled:
            raise Conflict("restore_not_empty", "The database has data already.", "Restore into a new database.")

    async def copy_files_into_empty_tables(connection: str, *_: object) -> None:
        written.append(connection)

    async def read_haulage_or_temporal_revision(connection: str) -> str:
        return revisions.get(connection, "r")

    for each in (require_database_without_rows, copy_files_into_empty_tables, read_haulage_or_temporal_revision):
        monkeypatch.setattr(table_copies, each.__name__, each)
    monkeypatch.setattr(table_copies, "open_connection_without_limits", connect)
    url = SecretStr("postgresql://haulage:p@h:5432/haulage")
    settings = Settings(database=DatabaseSettings(url=url), secrets=SecretSettings())
    engine = backup.build_engine_databases(settings, ["postgresql://u:p@h:5432/temporal"])

    with pytest.raises(Fault, match=sentence):
        await restore.restore_deployed(settings, folder, engine)
    assert written == []


async def test_a_backup_is_made_into_a_new_folder_only(tmp_path: Path) -> None:
    """Two backups never mix."""
    (tmp_path / "something").touch()
    with pytest.raises(Fault, match="Name a new folder for each backup"):
        await backup.back_up(Settings(), tmp_path, backup.EngineDatabases())


def test_an_engine_is_named_or_runs(tmp_path: Path) -> None:
    """A backup without the engine would have no tasks."""
    with pytest.raises(Fault, match=r"No `haulage up` runs in .*--engine-database"):
        backup.choose_engine_databases(Settings(), tmp_path, [], is_embedded=False)
    named = backup.choose_engine_databases(
        Settings(), tmp_path, ["postgresql://u:p@h:5432/temporal"], is_embedded=False
    )
    assert [backup.get_database_name(each) for each in named.databases] == ["temporal"]
    with pytest.raises(Fault, match="is no address of PostgreSQL"):
        backup.choose_engine_databases(Settings(), tmp_path, ["mysql://u:p@h/temporal"], is_embedded=False)


def test_ids_of_keys_tell_keys_apart() -> None:
    """A key that was added keeps the ids of the others."""
    both = Settings(secrets=SecretSettings.model_validate({"seal": ["new", "old"], "pepper": "p"}))
    old = Settings(secrets=SecretSettings.model_validate({"seal": ["old"], "pepper": "p"}))
    assert set(backup.list_key_ids(old)) < set(backup.list_key_ids(both))
    assert not any("old" in key_id for key_id in backup.list_key_ids(both))


def test_the_engine_is_copied_as_of_one_moment(tmp_path: Path) -> None:
    """What is written after the moment is not in the copy, though the file goes on."""
    path = tmp_path / ENGINE_FILE
    with closing(sqlite3.connect(path, isolation_level=None)) as writer, closing(sqlite3.connect(path)) as reader:
        writer.execute("PRAGMA journal_mode=wal")
        writer.execute("CREATE TABLE events (id INTEGER)")
        writer.execute("INSERT INTO events VALUES (1)")
        backup.begin_sqlite_snapshot(reader)
        writer.execute("INSERT INTO events VALUES (2)")
        backup.copy_sqlite_database(reader, tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as copy:
        assert copy.execute("SELECT id FROM events").fetchall() == [(1,)]
