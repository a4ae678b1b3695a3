"""The secrets of an embedded installation: drawn once, kept in `secrets.json`, readable by their owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cryptography.fernet import Fernet
from pydantic import BaseModel, Field

ACCESS_KEY = "haulage"


def _token() -> str:
    return secrets.token_urlsafe(24)


class Keys(BaseModel):
    """Everything that must stay the same over restarts and that nobody else may know."""

    database_password: str = Field(default_factory=_token)
    object_secret_key: str = Field(default_factory=_token)
    admin_key: str = Field(default_factory=_token)
    seal: str = Field(default_factory=lambda: Fernet.generate_key().decode())
    pepper: str = Field(default_factory=_token)


def load(path: Path) -> Keys:
    """Read the keys, or draw and keep them; what an older version did not know yet is added."""
    kept = path.read_text() if path.exists() else "{}"
    keys = Keys.model_validate_json(kept)
    if (text := keys.model_dump_json(indent=2)) != kept:
        _write(path, text)
    return keys


def _write(path: Path, text: str) -> None:
    """Write under another name first: half a secrets file would lock us out of our own data."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)
