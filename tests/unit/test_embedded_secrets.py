"""The secrets of an embedded installation, and the variables that carry them to children."""

from __future__ import annotations

import stat
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr
from typer.testing import CliRunner

from cli.__main__ import app
from dev.embedded.secrets import SECRET_NAMES, load_or_create_secrets, remove_old_secrets, rotate_secrets
from dev.embedded.stack import to_environment_variables
from domain.faults import Missing
from infra.settings import EgressGuardSettings, SecretSettings, Settings


def test_keys_are_drawn_once(tmp_path: Path) -> None:
    """What was sealed or hashed before a restart can be opened after it."""
    other = tmp_path / "other"
    other.mkdir()
    assert load_or_create_secrets(tmp_path) == load_or_create_secrets(tmp_path)
    assert load_or_create_secrets(tmp_path) != load_or_create_secrets(other)


def test_only_the_owner_reads_the_keys(tmp_path: Path) -> None:
    """The file opens everything."""
    load_or_create_secrets(tmp_path)
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600


def test_keys_that_are_missing_are_added_before_there_is_data(tmp_path: Path) -> None:
    """An administrator may choose the key before the first start."""
    (tmp_path / "secrets.json").write_text('{"admin_key": "chosen"}')
    loaded = load_or_create_secrets(tmp_path)
    assert loaded.admin_key == "chosen"
    assert Fernet(loaded.seal)
    assert load_or_create_secrets(tmp_path) == loaded


def test_a_rotation_keeps_what_data_need(tmp_path: Path) -> None:
    """The old password, sealing keys and peppers stay beside the new ones, the newest first, until they are removed."""
    loaded = [load_or_create_secrets(tmp_path)]
    for names in (["admin_key"], SECRET_NAMES, ["seal"]):
        rotate_secrets(tmp_path, names)
        loaded.append(load_or_create_secrets(tmp_path))
    changed = [{name for name in SECRET_NAMES if getattr(a, name) != getattr(b, name)} for a, b in pairwise(loaded)]
    assert changed == [{"admin_key"}, set(SECRET_NAMES), {"seal"}]
    first, last = loaded[0], loaded[-1]
    old = {"database_password": [first.database_password], "pepper": [first.pepper]}
    assert last.old == {**old, "seal": [loaded[2].seal, first.seal]}
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600

    remove_old_secrets(tmp_path, ["seal"])
    assert load_or_create_secrets(tmp_path) == last.model_copy(update={"old": old})


def test_a_rotation_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """Nothing is written into a folder without secrets, and options that would have no effect are named."""
    with pytest.raises(Missing, match="does not exist"):
        rotate_secrets(tmp_path, ["seal"])
    typed = {
        "seals is none of database_password": ["rotate", "seals"],
        "--remove-old needs a `haulage up`": ["reseal", "--remove-old"],
    }
    for sentence, arguments in typed.items():
        done = CliRunner().invoke(app, [*arguments, "--data-dir", str(tmp_path)], env={"COLUMNS": "1000"})
        assert (done.exit_code, sentence in done.output) == (2, True), done.output
    assert not list(tmp_path.iterdir())


def test_a_child_reads_the_settings_that_its_parent_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets, lists and nested values survive the way through the environment."""
    written = Settings(
        secrets=SecretSettings(seal=[SecretStr("newest"), SecretStr("older")], pepper=SecretStr('"quoted", 1')),
        guard=EgressGuardSettings(allow=["10.0.0.0/8", "127.0.0.1:8091"], connect_timeout_seconds=2.5),
    )
    for name, value in to_environment_variables(written).items():
        monkeypatch.setenv(name, value)
    assert Settings() == written
