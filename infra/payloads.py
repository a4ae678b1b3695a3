"""Encryption of what goes through Temporal: payloads, heartbeats, memos, summaries and the texts of failures.

The engine keeps ciphertext, and so do its database, its backups and the Web UI. Payloads that were written before
encryption was switched on, or while it is off, are read as they are.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    EncodingPayloadConverter,
    PayloadCodec,
)

from domain.faults import Invalid
from infra.settings import Settings

ENCODING: Final = b"binary/encrypted"
"""The name by which Temporal's own examples, its Web UI and its command line know encrypted payloads."""
KEY_ID: Final = "encryption-key-id"
CIPHER: Final = b"AES-256-GCM"
KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 12
MESSAGES_MAX: Final = 2**31
"""Of one derived key. With random nonces AES-GCM allows 2**32 messages of a key; a busy lane writes that in weeks."""
DERIVED_KEYS_KEPT: Final = 1_024
KEYS_SETTING: Final = "HAULAGE_SECRETS__PAYLOADS"


class PayloadKeyMissing(Exception):
    """A payload was encrypted with a key that this installation does not hold.

    Args:
        key_id: The id of that key.
    """

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(
            f"Temporal holds data that was encrypted with the key {key_id}, which this installation does not hold. "
            f"Put that key back at the end of {KEYS_SETTING}."
        )


class PayloadDamaged(Exception):
    """An encrypted payload was changed, or cut off, since it was written."""


class PayloadEncryptionKey:
    """A key, known by a digest of it."""

    def __init__(self, text: str) -> None:
        self._secret = _decode_key_or_raise_invalid(text)
        self.key_id = hashlib.sha256(b"haulage payload key\0" + self._secret).hexdigest()[:16]
        # A bound method would keep the cache of one key beside that of another.
        self.derive = lru_cache(DERIVED_KEYS_KEPT)(self._derive_cipher)

    def _derive_cipher(self, salt: bytes) -> AESGCM:
        """Return the cipher of a process, whose salt this is."""
        return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, b"haulage payload").derive(self._secret))


class EncryptingCodec(PayloadCodec):
    """Encrypt with the first key, decrypt with whichever key a payload names; leave other payloads as they are.

    Args:
        keys: The keys, newest first.
        encrypts: Whether payloads are encrypted; without it they are only decrypted.
    """

    def __init__(self, keys: Sequence[str], *, encrypts: bool) -> None:
        self.encrypts = encrypts
        self._keys = {key.key_id: key for key in map(PayloadEncryptionKey, keys)}
        self._first = next(iter(self._keys.values()), None)
        self._salt = b""
        self._left = 0
        self._process = 0

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys, newest first."""
        return list(self._keys)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class."""
        first = self._first if self.encrypts else None
        return [self._encrypt(each, first) for each in payloads] if first else list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class.

        Raises:
            PayloadKeyMissing: A payload names a key that is not here.
            PayloadDamaged: A payload is not what was written.
        """
        return [self.decrypt(each) for each in payloads]

    def _encrypt(self, payload: Payload, key: PayloadEncryptionKey) -> Payload:
        """Return a payload with the given one in it, metadata included."""
        if payload.metadata.get("encoding") == ENCODING:
            return payload
        salt = self._get_or_renew_salt()
        nonce = os.urandom(NONCE_BYTES)
        hidden = key.derive(salt).encrypt(nonce, payload.SerializeToString(), None)
        metadata = {"encoding": ENCODING, KEY_ID: key.key_id.encode(), "encryption-cipher": CIPHER}
        return Payload(metadata=metadata, data=salt + nonce + hidden)

    def decrypt(self, payload: Payload) -> Payload:
        """Return the payload that is in an encrypted one; raise what `decode` does."""
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        key_id = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        if (key := self._keys.get(key_id)) is None:
            raise PayloadKeyMissing(key_id)
        data, nonce_end = payload.data, SALT_BYTES + NONCE_BYTES
        try:
            plain = key.derive(data[:SALT_BYTES]).decrypt(data[SALT_BYTES:nonce_end], data[nonce_end:], None)
        except (InvalidTag, ValueError) as error:
            raise PayloadDamaged(f"A payload of the key {key_id} is not what was written.") from error
        return Payload.FromString(plain)

    def _get_or_renew_salt(self) -> bytes:
        # A forked child must not go on with its parent's key: together they could pass its limit.
        if self._left == 0 or self._process != os.getpid():
            self._salt, self._left, self._process = os.urandom(SALT_BYTES), MESSAGES_MAX, os.getpid()
        self._left -= 1
        return self._salt


class MissingKeyPayloadConverter(EncodingPayloadConverter):
    """Say which key is missing where nothing decrypts payloads, instead of that their encoding is unknown."""

    @property
    def encoding(self) -> str:
        """See base class."""
        return ENCODING.decode()

    def to_payload(self, value: Any) -> Payload | None:
        """See base class."""
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """See base class."""
        raise PayloadKeyMissing(payload.metadata.get(KEY_ID, b"").decode(errors="replace"))


def build_codec(settings: Settings) -> EncryptingCodec | None:
    """Return the codec of an installation; None for one without keys, whose payloads then cost nothing more.

    Raises:
        Invalid: A key is malformed, or there is none to encrypt with.
    """
    keys, encrypts = settings.secrets.payloads, settings.engine.encrypt_payloads
    if encrypts and not keys:
        raise Invalid(
            "payload_keys_missing",
            f"HAULAGE_ENGINE__ENCRYPT_PAYLOADS is true, and {KEYS_SETTING} holds no key.",
            "Set it to a JSON list of keys: 32 random bytes in URL-safe base64 each.",
        )
    return EncryptingCodec([key.get_secret_value() for key in keys], encrypts=encrypts) if keys else None


def add_codec(converter: DataConverter, codec: EncryptingCodec | None) -> DataConverter:
    """Return a converter that encrypts and decrypts as the codec does, messages and stack traces of failures too."""
    if codec is None:
        return converter
    if not codec.encrypts:
        return dataclasses.replace(converter, payload_codec=codec)
    return dataclasses.replace(
        converter, payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
    )


def _decode_key_or_raise_invalid(text: str) -> bytes:
    try:
        secret = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise Invalid(
            "payload_key_malformed",
            f"A key of {KEYS_SETTING} is not 32 bytes in URL-safe base64.",
            "Draw one as you draw those of HAULAGE_SECRETS__SEAL.",
        )
    return secret
