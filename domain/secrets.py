"""Project ids, API keys and sealed text.

A key is `hlg_<id>_<secret><check>`: check digits catch typos, and scanners know the prefix.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import string
import zlib
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

PREFIX = "hlg"
ALPHABET = string.digits + string.ascii_letters
PROJECT_ID_LENGTH = 16
KEY_ID_LENGTH = 12
SECRET_LENGTH = 32  # 190 bits
CHECK_LENGTH = 6  # 62**6 > 2**32
PEPPER_MIN_CHARACTERS = 32
ADMIN_KEY_MIN_CHARACTERS = 24
LOCAL_KEYS_HINT = (
    "`haulage up` keeps the admin key as `admin_key` in `.haulage/secrets.json`, "
    "and a project's key in `.haulage/project-key`."
)

PROJECT_ID_PATTERN = rf"^prj_[0-9A-Za-z]{{{PROJECT_ID_LENGTH}}}$"
KEY_ID_PATTERN = rf"^[0-9A-Za-z]{{{KEY_ID_LENGTH}}}$"

_KEY = re.compile(
    rf"{PREFIX}_([0-9A-Za-z]{{{KEY_ID_LENGTH}}})_([0-9A-Za-z]{{{SECRET_LENGTH}}})([0-9A-Za-z]{{{CHECK_LENGTH}}})",
    re.ASCII,
)


class KeyRight(StrEnum):
    """What a key may do; each right includes those before it."""

    READ = "read"
    WRITE = "write"
    OPERATE = "operate"  # also manages the project's keys and secrets

    def includes(self, other: KeyRight) -> bool:
        """Return whether a key with this right may do what needs the other."""
        return _RANKS[self] >= _RANKS[other]


_RANKS = {right: rank for rank, right in enumerate(KeyRight)}


@dataclass(frozen=True, slots=True)
class ApiKeyText:
    """An API key in plain text, which is never stored."""

    key_id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """The key as its owner sends it."""
        body = f"{PREFIX}_{self.key_id}_{self.secret}"
        return body + _compute_check_digits(body)


class SealedText(BaseModel):
    """Encrypted text; its repr shows nothing of it."""

    model_config = ConfigDict(frozen=True)

    token: str

    def __repr__(self) -> str:
        return "Sealed(…)"

    __str__ = __repr__


def parse_api_key(text: str) -> ApiKeyText | None:
    """Parse a key; return None if its form or its check digits are wrong."""
    match = _KEY.fullmatch(text)
    if match is None:
        return None
    key = ApiKeyText(key_id=match[1], secret=match[2])
    return key if key.text == text else None


def digest_secret(pepper: str, secret: str) -> bytes:
    """Return the hash that is stored. A fast hash is enough: 190 random bits cannot be guessed."""
    return hmac.digest(pepper.encode(), secret.encode(), hashlib.sha256)


def derive_pepper_id(pepper: str) -> str:
    """Return an id by which rows name the pepper that they were hashed with; it reveals nothing of it."""
    return hashlib.sha256(b"haulage pepper\0" + pepper.encode()).hexdigest()[:16]


def _compute_check_digits(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(CHECK_LENGTH):
        number, rest = divmod(number, len(ALPHABET))
        digits = ALPHABET[rest] + digits
    return digits
