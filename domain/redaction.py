"""Redaction: remove the secrets of a request from answers and from quotes of them.

A service may repeat the request in its answer: headers with a token, an address that is signed. Quotes of answers get
into faults, and those into histories, tables and logs, which must hold no secret.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

REPLACEMENT: Final = "[secret]"
SHORT_CHARACTERS: Final = 8
"""Shorter secrets may be ordinary words and are removed from quotes only, since our own sentences may contain them."""
VALUE_MIN_CHARACTERS: Final = 3
TOKEN_MIN_CHARACTERS: Final = 5
"""Shorter parts of a value are left, such as `en` and `q=1`."""
CUT_MIN_CHARACTERS: Final = 4
"""A quote may end within a secret; this many characters identify it."""
RANDOM_MIN_CHARACTERS: Final = 16

_QUOTE_BEGINS = "“"
_QUOTE_IS_CUT = "…"
_REST = r"[^\s\"”…<>,]*"
_SCHEMES = frozenset({"basic", "bearer", "digest", "negotiate", "token", "apikey"})
_SECRET_NAMES = re.compile(r"auth|cred|key|pass|pwd|secret|session|sig|token|ticket|code", re.IGNORECASE)
_SCHEME = re.compile(rf"(?:{'|'.join(sorted(_SCHEMES))})\s+", re.IGNORECASE)
_BASIC = re.compile(r"basic\s+([A-Za-z0-9+/_=-]+)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,;]+")


class SecretRedactor:
    """Removes secrets from sentences.

    Args:
        url: The address of a source; values that are named as secrets or look random are secrets.
        headers: The headers of each request; every value is a secret.
    """

    def __init__(self, url: str = "", headers: Mapping[str, str] | None = None) -> None:
        found = {spelt for secret in _find_secrets(url, headers or {}) for spelt in _list_escaped_forms(secret)}
        # Replace longer secrets first, as they may contain shorter ones.
        self._secrets = sorted(found, key=lambda secret: (-len(secret), secret))

    def redact(self, text: str) -> str:
        """Return the text without secrets, and without the beginning of a secret at the end of a quote."""
        for secret in self._secrets:
            text = (
                text.replace(secret, REPLACEMENT)
                if len(secret) >= SHORT_CHARACTERS
                else _redact_short_secret_in_quote(text, secret)
            )
        for secret in self._secrets:
            text = _redact_secret_prefix(text, secret)
        return text


def remove_long_secrets(body: bytes, secrets: Iterable[str]) -> bytes:
    """Return an answer without these secrets, which its request carried, as they are and escaped.

    Short ones may be ordinary words and are left. A body that does not have them is returned as it is.
    """
    forms = {form for secret in secrets if len(secret) >= SHORT_CHARACTERS for form in _list_escaped_forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        body = body.replace(form.encode(), REPLACEMENT.encode())
    return body


def _find_secrets(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    for value in headers.values():
        yield from _find_header_secrets(value)
    parts = urlsplit(url)
    for name, value in parse_qsl(parts.query):
        if _SECRET_NAMES.search(name) or _looks_random(value):
            yield from _filter_by_min_length([value], VALUE_MIN_CHARACTERS)
    yield from filter(_looks_random, parts.path.split("/"))


def _find_header_secrets(value: str) -> Iterator[str]:
    """Yield the value without its scheme, its tokens, their values, and user and password of Basic credentials."""
    yield from _filter_by_min_length([_SCHEME.sub("", value.strip())], VALUE_MIN_CHARACTERS)
    tokens = [token for token in _SEPARATORS.split(value) if token.lower() not in _SCHEMES]
    yield from _filter_by_min_length(tokens, TOKEN_MIN_CHARACTERS)
    yield from _filter_by_min_length((token.partition("=")[2].strip('"') for token in tokens), TOKEN_MIN_CHARACTERS)
    if basic := _BASIC.search(value):
        try:
            # Most servers accept credentials without padding.
            pair = base64.b64decode(basic[1] + "=" * (-len(basic[1]) % 4)).decode(errors="replace")
        except ValueError:
            return
        user, _, password = pair.partition(":")
        yield from _filter_by_min_length([pair, user, password], VALUE_MIN_CHARACTERS)


def _filter_by_min_length(values: Iterable[str], characters: int) -> Iterator[str]:
    return (value for value in values if len(value) >= characters)


def _looks_random(text: str) -> bool:
    """Return whether a part of an address looks random: long, with letters and digits."""
    is_mixed = any(letter.isdigit() for letter in text) and any(letter.isalpha() for letter in text)
    return len(text) >= RANDOM_MIN_CHARACTERS and is_mixed and not any(map(str.isspace, text))


def _list_escaped_forms(secret: str) -> set[str]:
    """Return the spellings of a secret: as it is, and escaped in JSON, HTML or an address."""
    in_json = json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]
    escaped = {*in_json, *(text.replace("/", "\\/") for text in in_json)}
    return {secret, *escaped, html.escape(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)}


def _redact_short_secret_in_quote(text: str, secret: str) -> str:
    ours, begins, quoted = text.partition(_QUOTE_BEGINS)
    return ours + begins + re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REPLACEMENT, quoted)


def _redact_secret_prefix(text: str, secret: str) -> str:
    """Return the text without the beginning of a secret that goes on in another spelling or ends a quote."""
    if len(secret) >= SHORT_CHARACTERS:
        text = re.sub(re.escape(secret[:SHORT_CHARACTERS]) + _REST, REPLACEMENT, text)
    for length in range(min(len(secret), SHORT_CHARACTERS) - 1, CUT_MIN_CHARACTERS - 1, -1):
        text = text.replace(secret[:length] + _QUOTE_IS_CUT, REPLACEMENT + _QUOTE_IS_CUT)
    return text
