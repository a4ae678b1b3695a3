"""Links for browsers: a text that opens one file until a moment, made and known again with a key of ours alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime

PATTERN = r"^[0-9A-Za-z_-]{40,200}\.[0-9A-Za-z_-]{43}$"

_TEXT = re.compile(r"([0-9]{1,12}) (prj_[0-9A-Za-z]+) (dl_[0-9a-z]+)", re.ASCII)
_PURPOSE = b"haulage download link 1"


@dataclass(frozen=True, slots=True)
class Link:
    """What a link opens, and until when."""

    project_id: str
    task_id: str
    expires_at: datetime


def write(pepper: str, link: Link) -> str:
    """The link as text, signed."""
    text = f"{int(link.expires_at.timestamp())} {link.project_id} {link.task_id}".encode()
    return f"{_encode(text)}.{_encode(_signature(pepper, text))}"


def read(pepper: str, token: str) -> Link | None:
    """The link that a text is, if we signed it; whether it is still good is the reader's to judge."""
    body, _, signature = token.partition(".")
    try:
        text, signed = _decode(body), _decode(signature)
    except ValueError:
        return None
    if not hmac.compare_digest(signed, _signature(pepper, text)):
        return None
    match = _TEXT.fullmatch(text.decode("ascii"))
    return Link(match[2], match[3], datetime.fromtimestamp(int(match[1]), UTC)) if match else None


def _signature(pepper: str, text: bytes) -> bytes:
    key = hmac.digest(pepper.encode(), _PURPOSE, hashlib.sha256)
    return hmac.digest(key, text, hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
