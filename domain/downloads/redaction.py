"""Redaction: what a caller entrusted to us for a source is struck out of what that source is quoted with.

A source may repeat the request in its answer: headers with a token, an address that is signed. Quotes of answers go
into faults, and those into histories, tables and logs, which hold nothing secret.
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
"""Shorter secrets are words of their own, and are looked for in quotes alone: our own sentences may have them, too."""
VALUE_MIN_CHARACTERS: Final = 3
TOKEN_MIN_CHARACTERS: Final = 5
"""Parts of a value that are shorter are left: `en`, `q=1`."""
CUT_MIN_CHARACTERS: Final = 4
"""A quote may end within a secret; so much of it shows which one it is."""
RANDOM_MIN_CHARACTERS: Final = 16

_QUOTE_BEGINS = "“"
_QUOTE_IS_CUT = "…"
_REST = r"[^\s\"”…<>,]*"
_SCHEMES = frozenset({"basic", "bearer", "digest", "negotiate", "token", "apikey"})
_SECRET_NAMES = re.compile(r"auth|cred|key|pass|pwd|secret|session|sig|token|ticket|code", re.IGNORECASE)
_SCHEME = re.compile(rf"(?:{'|'.join(sorted(_SCHEMES))})\s+", re.IGNORECASE)
_BASIC = re.compile(r"basic\s+([A-Za-z0-9+/_=-]+)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,;]+")


class Redactor:
    """Strikes secrets out of sentences.

    Args:
        url: The address of a source; what in it is named as a secret, or looks like one, is one.
        headers: What is sent with each request; every value is a secret.
    """

    def __init__(self, url: str = "", headers: Mapping[str, str] | None = None) -> None:
        found = {spelt for secret in _find_secrets(url, headers or {}) for spelt in _list_spellings(secret)}
        # A secret that holds another one goes first.
        self._secrets = sorted(found, key=lambda secret: (-len(secret), secret))

    def strike(self, text: str) -> str:
        """The same text without secrets, and without the beginnings of those at which a quote ends."""
        for secret in self._secrets:
            text = text.replace(secret, REPLACEMENT) if len(secret) >= SHORT_CHARACTERS else _strike_short(text, secret)
        for secret in self._secrets:
            text = _strike_beginning(text, secret)
        return text


def _find_secrets(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    for value in headers.values():
        yield from _split_header(value)
    parts = urlsplit(url)
    for name, value in parse_qsl(parts.query):
        if _SECRET_NAMES.search(name) or _looks_random(value):
            yield from _filter_long([value], VALUE_MIN_CHARACTERS)
    yield from filter(_looks_random, parts.path.split("/"))


def _split_header(value: str) -> Iterator[str]:
    """The value without its scheme, its tokens, what they name, and the user and password of Basic credentials."""
    yield from _filter_long([_SCHEME.sub("", value.strip())], VALUE_MIN_CHARACTERS)
    tokens = [token for token in _SEPARATORS.split(value) if token.lower() not in _SCHEMES]
    yield from _filter_long(tokens, TOKEN_MIN_CHARACTERS)
    yield from _filter_long((token.partition("=")[2].strip('"') for token in tokens), TOKEN_MIN_CHARACTERS)
    if basic := _BASIC.search(value):
        try:
            # Whoever forgets the padding is understood by most servers.
            pair = base64.b64decode(basic[1] + "=" * (-len(basic[1]) % 4)).decode(errors="replace")
        except ValueError:
            return
        user, _, password = pair.partition(":")
        yield from _filter_long([pair, user, password], VALUE_MIN_CHARACTERS)


def _filter_long(values: Iterable[str], characters: int) -> Iterator[str]:
    return (value for value in values if len(value) >= characters)


def _looks_random(text: str) -> bool:
    """Whether a part of an address is rather made by a machine than a word: long, of letters and digits."""
    is_mixed = any(letter.isdigit() for letter in text) and any(letter.isalpha() for letter in text)
    return len(text) >= RANDOM_MIN_CHARACTERS and is_mixed and not any(map(str.isspace, text))


def _list_spellings(secret: str) -> set[str]:
    """How a source may write it: as it is, within JSON, HTML or an address."""
    in_json = json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]
    escaped = {*in_json, *(text.replace("/", "\\/") for text in in_json)}
    return {secret, *escaped, html.escape(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)}


def _strike_short(text: str, secret: str) -> str:
    ours, begins, quoted = text.partition(_QUOTE_BEGINS)
    return ours + begins + re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REPLACEMENT, quoted)


def _strike_beginning(text: str, secret: str) -> str:
    """Without what begins as the secret and goes on in another spelling, and without so much of it as ends a quote."""
    if len(secret) >= SHORT_CHARACTERS:
        text = re.sub(re.escape(secret[:SHORT_CHARACTERS]) + _REST, REPLACEMENT, text)
    for length in range(min(len(secret), SHORT_CHARACTERS) - 1, CUT_MIN_CHARACTERS - 1, -1):
        text = text.replace(secret[:length] + _QUOTE_IS_CUT, REPLACEMENT + _QUOTE_IS_CUT)
    return text
