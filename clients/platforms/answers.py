"""What the head of an answer says, whoever gave it: busy or not, for how long, what time it is, in which charset."""

from __future__ import annotations

import codecs
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final

from clients.http import Answer

BUSY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

_CHARSETS: Final = frozenset(
    {"gbk", "gb2312", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "euc_jp", "euc_kr", "cp949"}
    | {"utf-16", "utf-16-le", "utf-16-be", "iso8859-1", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r"}
)
"""Python knows more, some of which are slow, or no charsets of texts."""


def date_of(answer: Answer) -> datetime | None:
    """When it was given, by the clock of who gave it."""
    return _date(answer.headers.get("Date", ""))


def retry_after_seconds(answer: Answer) -> float | None:
    """How long it asks us to wait."""
    value = answer.headers.get("Retry-After", "")
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    if (moment := _date(value)) is not None:
        return max(0.0, (moment - (date_of(answer) or datetime.now(UTC))).total_seconds())
    return None


def utf8_of(answer: Answer) -> tuple[bytes, bool]:
    """Return the body as UTF-8, and whether all of it could be read.

    A declared charset counts only where the body is not UTF-8: many servers declare a default that they do not heed.
    """
    body = answer.body
    try:
        body.decode()
    except UnicodeDecodeError:
        head = Message()
        head["Content-Type"] = answer.headers.get("Content-Type", "")
        try:
            charset = codecs.lookup(head.get_content_charset("")).name
            if charset in _CHARSETS:
                return body.decode(charset).encode(), True
        except (LookupError, UnicodeError):
            pass
        return body.decode(errors="replace").encode(), False
    return body, True


def _date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
