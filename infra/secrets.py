"""Secrets: sealing of values that only one activity may read, and random tokens that cannot be guessed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from domain.faults import Conflict, FaultRecord, Invalid
from domain.secrets import SealedText
from infra.settings import SecretSettings

TOKEN_BYTES: Final = 16
BLOCK_TOKENS: Final = 256
"""Tokens of one call to the system's random source, which costs more than a token."""


SEAL_UNREADABLE: Final = FaultRecord(
    code="seal_unreadable",
    message="No key in HAULAGE_SECRETS__SEAL opens a value that this needs, such as an address.",
    hint="Have the operator put the key that made it back at the end of the list, or send a new request.",
    retryable=True,
)


class SealUnreadableError(Exception):
    """No key in HAULAGE_SECRETS__SEAL opens this sealed value. Put the key that made it back at the end of the list."""


class SecretSealer:
    """Seal text with the first of the installation's keys, and open it with any of them, so that keys can rotate."""

    def __init__(self, settings: SecretSettings) -> None:
        try:
            keys = [Fernet(key.get_secret_value()) for key in settings.seal]
            self._fernet = MultiFernet(keys)
        except ValueError:
            raise Invalid(
                "settings_invalid",
                "HAULAGE_SECRETS__SEAL holds no key, or one of another form, so nothing can be sealed.",
                "Set it to a JSON list of Fernet keys, e.g. '[\"<32 bytes, url-safe base64>\"]'.",
            ) from None
        self._first = keys[0]
        self.has_old_keys = len(keys) > 1

    def seal(self, text: str) -> SealedText:
        """Encrypt text."""
        return SealedText(token=self._fernet.encrypt(text.encode()).decode())

    def open(self, sealed: SealedText) -> str:
        """Decrypt text.

        Raises:
            SealUnreadableError: None of the keys made it.
        """
        try:
            return self._fernet.decrypt(sealed.token.encode()).decode()
        except InvalidToken as error:
            raise SealUnreadableError(SealUnreadableError.__doc__) from error

    def reseal(self, sealed: SealedText) -> SealedText | None:
        """Return a sealed text under the first key; None if the first key made it.

        Raises:
            SealUnreadableError: None of the keys made it.
        """
        try:
            self._first.decrypt(sealed.token.encode())
        except InvalidToken:
            return self.seal(self.open(sealed))
        return None


@contextmanager
def refuse_unreadable_seals() -> Iterator[None]:
    """Refuse a request for which the block must open what no key opens.

    Raises:
        Conflict: The block raised `SealUnreadableError`.
    """
    try:
        yield
    except SealUnreadableError:
        raise Conflict(SEAL_UNREADABLE.code, SEAL_UNREADABLE.message, SEAL_UNREADABLE.hint) from None


def create_random_token() -> str:
    """Return 128 random bits as 32 hexadecimal digits."""
    try:
        return _block.pop()
    except IndexError:
        _block.extend(_draw_block_of_random_tokens())
        return _block.pop()


def _draw_block_of_random_tokens() -> Iterator[str]:
    block = os.urandom(BLOCK_TOKENS * TOKEN_BYTES)
    return (block[start : start + TOKEN_BYTES].hex() for start in range(0, len(block), TOKEN_BYTES))


_block: list[str] = []
# A forked child that went on with its parent's block would return the same tokens.
os.register_at_fork(after_in_child=_block.clear)
