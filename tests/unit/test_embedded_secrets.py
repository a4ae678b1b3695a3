"""The secrets of an embedded installation, and the variables that carry them to children."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from dev.embedded import stack
from dev.embedded.stack import to_variables
from infra.settings import GuardSettings, SecretSettings, Settings


def test_keys_are_drawn_once(tmp_path: Path) -> None:
    """What was sealed or hashed before a restart can be opened after it."""
    path = tmp_path / "secrets.json"
    assert stack.load_secrets(path) == stack.load_secrets(path)
    assert stack.load_secrets(path) != stack.load_secrets(tmp_path / "other.json")


def test_only_the_owner_reads_the_keys(tmp_path: Path) -> None:
    """The file opens everything."""
    path = tmp_path / "secrets.json"
    stack.load_secrets(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_that_an_older_version_did_not_know_is_added(tmp_path: Path) -> None:
    """An update of Haulage keeps the other keys, and the new one from then on."""
    path = tmp_path / "secrets.json"
    path.write_text('{"admin_key": "kept"}')
    loaded = stack.load_secrets(path)
    assert loaded.admin_key == "kept"
    assert Fernet(loaded.seal)
    assert stack.load_secrets(path) == loaded


def test_a_child_reads_the_settings_that_its_parent_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets, lists and nested values survive the way through the environment."""
    written = Settings(
        secrets=SecretSettings(seal=[SecretStr("newest"), SecretStr("older")], pepper=SecretStr('"quoted", 1')),
        guard=GuardSettings(allow=["10.0.0.0/8", "127.0.0.1:8091"], connect_timeout_seconds=2.5),
    )
    for name, value in to_variables(written).items():
        monkeypatch.setenv(name, value)
    assert Settings() == written
