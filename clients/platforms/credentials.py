"""Credentials of an account: read from the file that a name refers to, and completed by an access token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from pydantic import SecretStr, ValidationError

from clients.http import GuardedClient
from clients.platforms.failures import TokenExpired
from clients.platforms.tokens import AccessTokens, TokenEndpoint
from domain.orders.access import Account, Credentials, CredentialsReader, TokenRenewal

_EXPECTED: Final = "it is no JSON object of key, secret, token and refresh_token"


def build_credentials_reader(folder: Path, name: str | None) -> CredentialsReader:
    """Build a reader of the credentials with this name; without a name they are empty."""

    async def read(renew: bool) -> Credentials:
        return Credentials() if name is None else await asyncio.to_thread(_read_file, folder / f"{name}.json")

    return read


def _read_file(path: Path) -> Credentials:
    try:
        return Credentials.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else _EXPECTED
        raise TokenExpired(
            f"The credentials {path.stem!r} cannot be read from HAULAGE_ORDERS__CREDENTIALS_FOLDER: {reason}.",
            f'Put a file {path.name} there, like {{"key": "…", "secret": "…", "token": "…"}}, or with a '
            '"refresh_token" where tokens renew themselves.',
        ) from None


class AccountCredentials:
    """Credentials of one account, read once and again when they are refused.

    Args:
        tokens: Shared by all readers of the account in this process.
        renewal: Where tokens are fetched, if the credentials hold a refresh token.
        who: Name of the account in messages.
    """

    def __init__(
        self,
        http: GuardedClient,
        tokens: AccessTokens,
        renewal: TokenRenewal | None,
        account: Account,
        keyring: CredentialsReader,
        who: str,
    ) -> None:
        self._tokens = tokens
        self._end_point = TokenEndpoint(http, renewal, account.base_url, who) if renewal else None
        self._keyring = keyring
        self._who = who
        self._read: Credentials | None = None

    async def get(self) -> Credentials:
        """Return credentials that are valid as far as is known; raises TokenExpired or PlatformBusy."""
        self._read = self._read or await self._keyring(False)
        return await self._with_token(self._read, None)

    async def renew(self, refused: Credentials) -> Credentials:
        """Return credentials after others were refused: read them again, and fetch a new token."""
        self._read = await self._keyring(True)
        return await self._with_token(self._read, refused.token.get_secret_value())

    async def _with_token(self, read: Credentials, refused: str | None) -> Credentials:
        if not read.refresh_token.get_secret_value():
            return read
        end_point = self._end_point
        if end_point is None:
            raise TokenExpired(
                f"{self._who}: its credentials hold a refresh_token, and its record does not say where it is used.",
                "Declare `access.renewal` in its record, or put a `token` into its credentials instead.",
            )
        token = await self._tokens.get(read).get(refused, lambda: end_point.fetch(read))
        return read.model_copy(update={"token": SecretStr(token)})
