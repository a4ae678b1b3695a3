"""`haulage up` on a folder that cannot be used: one clear sentence, no traceback, and nothing of the folder changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dev import local
from dev.embedded.run_file import POSTGRES_MAJOR, record_version, require_no_data_of_other_versions
from dev.embedded.supervisor import StartFailed
from domain import VERSION
from domain.faults import Conflict
from infra.settings import Settings

ROOT = Path(__file__).parents[2]
SECRETS = '{"database_password": "d", "object_secret_key": "o", "admin_key": "a", "seal": "s", "pepper": "p"}'


def start(data_dir: Path) -> subprocess.CompletedProcess[str]:
    """Run `haulage up` until it ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "cli", "up", "--data-dir", str(data_dir)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def read_files(folder: Path) -> dict[str, bytes]:
    """Return what every file holds, but the lock and the preloader's log, which are empty."""
    empty = {"run.lock", "run.json", "preloader.log"}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in empty]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def lay_down_data(folder: Path, secrets: str | None) -> None:
    """Make a folder as an installation leaves it."""
    (folder / "database" / "cluster").mkdir(parents=True)
    (folder / "database" / "cluster" / "PG_VERSION").write_text(f"{POSTGRES_MAJOR}\n")
    if secrets is not None:
        (folder / "secrets.json").write_text(secrets)


@pytest.mark.parametrize(
    ("secrets", "sentence"),
    [
        (SECRETS[:40], "secrets.json is damaged"),
        pytest.param("", "secrets.json is damaged", marks=pytest.mark.long),
        pytest.param("[]", "secrets.json is damaged", marks=pytest.mark.long),
        (None, "secrets.json is missing, but"),
        pytest.param(
            '{"database_password": "d"}',
            "secrets.json lacks admin_key, object_secret_key, pepper, seal, but",
            marks=pytest.mark.long,
        ),
    ],
    ids=["truncated", "empty", "another thing", "missing", "incomplete"],
)
def test_damaged_secrets_are_refused(tmp_path: Path, secrets: str | None, sentence: str) -> None:
    """No secret is drawn anew beside data that only the old ones open."""
    lay_down_data(tmp_path, secrets)
    before = read_files(tmp_path)

    done = start(tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert "Restore the file from a backup" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert read_files(tmp_path) == before


@pytest.mark.parametrize(
    ("file", "content", "sentence", "advice"),
    [
        ("version", "99.0.0", f"has been used by Haulage 99.0.0, and this is the older {VERSION}.", "or a newer one"),
        (
            "database/cluster/PG_VERSION",
            "9.6",
            "is of PostgreSQL 9.6, and Haulage",
            "the version of Haulage that made it",
        ),
        (
            "database/cluster/PG_VERSION",
            "99",
            "is of PostgreSQL 99, and Haulage",
            "the version of Haulage that made it",
        ),
    ],
    ids=["newer Haulage", "older PostgreSQL", "newer PostgreSQL"],
)
def test_data_of_another_version_are_refused(
    tmp_path: Path, file: str, content: str, sentence: str, advice: str
) -> None:
    """Before a component starts on them."""
    lay_down_data(tmp_path, SECRETS)
    (tmp_path / file).write_text(f"{content}\n")
    before = read_files(tmp_path)

    done = start(tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert advice in done.stderr
    assert "name another folder by HAULAGE_DATA_DIR" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert read_files(tmp_path) == before


@pytest.mark.parametrize("kept", ["0.0.9", f"{VERSION}99", VERSION, "", None])
def test_data_of_an_older_release_or_a_patch_release_are_accepted(tmp_path: Path, kept: str | None) -> None:
    """And those of a folder that no version was written into."""
    lay_down_data(tmp_path, SECRETS)
    if kept is not None:
        (tmp_path / "version").write_text(kept)

    require_no_data_of_other_versions(tmp_path)
    record_version(tmp_path)

    assert (tmp_path / "version").read_text().strip() == VERSION


async def test_the_version_is_written_before_a_component_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer engine changes its file at once."""

    def fail(*_: object, **__: object) -> None:
        raise KeyError("not yet")

    monkeypatch.setattr("dev.embedded.stack._build_components", fail)
    with pytest.raises(StartFailed):
        async with local.run_installation(Settings().model_copy(update={"data_dir": tmp_path})):
            pass
    assert (tmp_path / "version").read_text() == f"{VERSION}\n"


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The system's own words, without a traceback."""
    path = tmp_path / "file"
    path.touch()
    done = start(path)
    assert done.returncode == 1
    assert done.stderr.startswith("haulage: The installation did not start: FileExistsError: ")
    assert "Traceback" not in done.stderr


async def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written."""
    usage = SimpleNamespace(total=10**12, used=10**12 - 5_000_000, free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(Conflict, match=r"has 5 MB free, and a start needs 200 MB\. Free some space"):
        async with local.run_installation(Settings().model_copy(update={"data_dir": tmp_path})):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_an_error_of_ours_is_one_sentence_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback is for us: it is kept beside the logs."""

    def fail(*_: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr("dev.embedded.stack.load_or_create_secrets", fail)
    with pytest.raises(StartFailed) as failed:
        async with local.run_installation(Settings().model_copy(update={"data_dir": tmp_path})):
            pass
    log_path = tmp_path / "logs" / "start.log"
    assert failed.value.record.message == "The installation did not start: KeyError: 'no such thing'."
    assert str(log_path) in failed.value.record.hint
    assert "Traceback" in log_path.read_text()
