"""The sealer: encrypts at the door what only one activity may read. Keys rotate: the first seals, all of them open."""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from domain.sealed import SealedText
from infra.settings import SecretSettings


class SealUnreadableError(Exception):
    """No key in HAULAGE_SECRETS__SEAL opens this sealed value. Put the key that made it back at the end of the list."""


class Sealer:
    """Seals and opens text with the installation's keys."""

    def __init__(self, settings: SecretSettings) -> None:
        keys = [Fernet(key.get_secret_value()) for key in settings.seal]
        if not keys:
            raise ValueError(
                "HAULAGE_SECRETS__SEAL is empty, so nothing can be sealed. "
                "Set it to a JSON list of Fernet keys, e.g. '[\"<32 bytes, url-safe base64>\"]'."
            )
        self._fernet = MultiFernet(keys)

    def seal(self, text: str) -> SealedText:
        """Encrypt text."""
        return SealedText(token=self._fernet.encrypt(text.encode()).decode())

    def open(self, sealed: SealedText) -> str:
        """Decrypt text.

        Raises:
            SealUnreadableError: No key of ours made it.
        """
        try:
            return self._fernet.decrypt(sealed.token.encode()).decode()
        except InvalidToken as error:
            raise SealUnreadableError(SealUnreadableError.__doc__) from error
