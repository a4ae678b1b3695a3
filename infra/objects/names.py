"""Names in HTTP headers: any Unicode file name as pure ASCII (RFC 6266, RFC 8187)."""

from __future__ import annotations

import unicodedata
from urllib.parse import quote

_NAMELESS = "download"

_ATTR_CHARS = "!#$&+-.^_`|~"
"""What RFC 8187 leaves unencoded, besides letters and digits."""

_UNSAFE_IN_QUOTES = '"\\/%;'
"""A quote or backslash ends or escapes, a slash names a folder; browsers decode `%` and cut at `;`."""


def content_disposition(file_name: str) -> str:
    """The header that makes a browser save a download under this name."""
    name = _without_controls(file_name) or _NAMELESS
    return f"attachment; filename=\"{_ascii_fallback(name)}\"; filename*=UTF-8''{quote(name, safe=_ATTR_CHARS)}"


def _without_controls(name: str) -> str:
    """The name without control characters, unpaired surrogates and bidirectional overrides, which disguise endings."""
    return "".join(character for character in name if unicodedata.category(character) not in {"Cc", "Cf", "Cs"}).strip()


def _ascii_fallback(name: str) -> str:
    """The nearest plain name, for the rare reader that knows no `filename*`. A name of accents alone leaves none."""
    plain = "".join(
        character for character in unicodedata.normalize("NFKD", name) if not unicodedata.combining(character)
    )
    safe = "".join(
        character if character.isascii() and character not in _UNSAFE_IN_QUOTES else "_" for character in plain
    )
    return safe.strip() or _NAMELESS
