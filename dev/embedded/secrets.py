"""The secrets of an embedded installation, in `secrets.json` of its data folder."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field

from dev.embedded.run_file import has_data, lock_data_dir, replace_private_file
from domain import faults

SECRETS_FILE = "secrets.json"


def _create_token() -> str:
    return secrets.token_urlsafe(24)


def _create_sealing_key() -> str:
    """Return a key of Fernet."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


class EmbeddedSecrets(BaseModel):
    """The secrets of an embedded installation: created once, kept in `secrets.json`, and replaced by a rotation."""

    database_password: str = Field(default_factory=_create_token)
    object_secret_key: str = Field(default_factory=_create_token)
    admin_key: str = Field(default_factory=_create_token)
    seal: str = Field(default_factory=_create_sealing_key)
    pepper: str = Field(default_factory=_create_token)
    old: dict[str, list[str]] = {}
    """What rotations replaced and data may still need, by the name of the secret, the newest first."""


SECRET_NAMES: Final = tuple(name for name in EmbeddedSecrets.model_fields if name != "old")
_NEEDED_AFTER_ROTATION: Final = ("database_password", "seal", "pepper")
"""PostgreSQL has the old password until it is started; the others open what was sealed and hashed under them."""


def load_or_create_secrets(data_dir: Path) -> EmbeddedSecrets:
    """Read `secrets.json` of a data folder; create and keep the secrets of a folder that has no data yet.

    Raises:
        Conflict: The file is damaged, or lacks a secret that the data of the folder were made with.
    """
    path = data_dir / SECRETS_FILE
    try:
        kept = path.read_text() if path.exists() else "{}"
        loaded = EmbeddedSecrets.model_validate_json(kept)
    except ValueError:
        raise _build_damage_fault(data_dir, f"{path} is damaged: it is not the JSON object that was written") from None
    absent = sorted(set(SECRET_NAMES) - loaded.model_fields_set)
    if absent and has_data(data_dir):
        what = f"{path} lacks {', '.join(absent)}" if path.exists() else f"{path} is missing"
        raise _build_damage_fault(data_dir, f"{what}, but {data_dir} has data that it belongs to")
    if absent:
        replace_private_file(path, loaded.model_dump_json(indent=2))
    return loaded


def rotate_secrets(data_dir: Path, names: Collection[str]) -> None:
    """Draw secrets of a folder anew; those that its data need are kept beside the new ones. Nothing may run there.

    Raises:
        Conflict: An installation runs in the folder, or the file is damaged.
        Missing: The folder has no secrets yet.
    """
    path = data_dir / SECRETS_FILE
    if not path.exists():
        raise faults.Missing(
            "secrets_missing", f"{path} does not exist.", "Name the folder of a `haulage up` by --data-dir."
        )
    with lock_data_dir(data_dir):
        before = load_or_create_secrets(data_dir)
        drawn = EmbeddedSecrets().model_dump(include=set(names))
        old = {
            name: [getattr(before, name), *before.old.get(name, [])] for name in _NEEDED_AFTER_ROTATION if name in drawn
        }
        rotated = before.model_copy(update={**drawn, "old": {**before.old, **old}})
        replace_private_file(path, rotated.model_dump_json(indent=2))


def remove_old_secrets(data_dir: Path, names: Collection[str]) -> None:
    """Remove what rotations replaced; processes that run keep it until they are started again."""
    loaded = load_or_create_secrets(data_dir)
    old = {name: values for name, values in loaded.old.items() if name not in names}
    replace_private_file(data_dir / SECRETS_FILE, loaded.model_copy(update={"old": old}).model_dump_json(indent=2))


def _build_damage_fault(data_dir: Path, what: str) -> faults.Conflict:
    return faults.Conflict(
        "secrets_damaged",
        f"{what}.",
        "Restore the file from a backup: only its secrets open the database and sealed values, so none is drawn anew. "
        f"To begin anew and lose the data, remove {data_dir}.",
    )
