"""Credentials by reference: a file for each name, read again when a platform calls what it was given expired."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from clients.platforms import TokenExpired
from domain.orders.access import Credentials, CredentialsReader

_WANTED: Final = "it is no JSON object of key, secret, token and refresh_token"


def keyring(folder: Path, name: str | None) -> CredentialsReader:
    """What reads the credentials of this name; without a name there are none to show."""

    async def read(renew: bool) -> Credentials:
        return Credentials() if name is None else await asyncio.to_thread(_read, folder / f"{name}.json")

    return read


def _read(path: Path) -> Credentials:
    try:
        return Credentials.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else _WANTED
        raise TokenExpired(
            f"The credentials {path.stem!r} cannot be read from HAULAGE_ORDERS__CREDENTIALS_FOLDER: {reason}.",
            f'Put a file {path.name} there, like {{"key": "…", "secret": "…", "token": "…"}}, or with a '
            '"refresh_token" where tokens renew themselves.',
        ) from None
