"""Records of the object store: plain data, with keys relative to the configured prefix."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import quote

MAX_PARTS = 9_999
"""One less than S3 allows: SeaweedFS sorts part 10000 before 1000, and then skips parts when it lists by page."""

PART_BYTES = 8 * 1024 * 1024
"""The size of the parts of a stream: large enough for full speed, small enough to hold a few in memory."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The value of a time that the store does not report."""

PART_TYPE = "application/vnd.haulage.part"
"""The content type of parts of a file. With a text type, or none, SeaweedFS compresses what it is given, which costs as
much processor time again as to store it. The finished object has the type that its upload was begun with."""

_MD5 = re.compile(r"[0-9a-f]{32}")
_DEFAULT_NAME = "download"

_ATTR_CHARS = "!#$&+-.^_`|~"
"""The characters that RFC 8187 leaves unencoded, besides letters and digits."""

_UNSAFE_IN_QUOTES = '"\\/%;'
"""A quote or backslash ends or escapes, a slash names a folder; browsers decode `%` and cut at `;`."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that was written, with the SHA-256 of the bytes that were sent."""

    key: str
    size: int
    etag: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ObjectMetadata:
    """What the store answers to HEAD. Metadata names are in lower case."""

    key: str
    size: int
    etag: str
    content_type: str
    metadata: Mapping[str, str]
    modified: datetime
    disposition: str | None = None


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object in a listing."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A part of an upload in progress."""

    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class SentUploadPart(UploadPart):
    """A part whose bytes this process sent, with their SHA-256."""

    sha256: str


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    started: datetime


class MultipartStore(Protocol):
    """The operations of the store that uploads in parts use."""

    async def put(
        self, key: str, data: bytes, *, content_type: str = ..., metadata: Mapping[str, str] = ...
    ) -> StoredObject: ...

    async def begin_upload(self, key: str, *, content_type: str = ..., metadata: Mapping[str, str] = ...) -> str: ...

    async def put_part(self, key: str, upload_id: str, number: int, data: bytes) -> SentUploadPart: ...

    async def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadPart]) -> str: ...

    async def abort_upload(self, key: str, upload_id: str) -> None: ...


def is_md5(etag: str) -> bool:
    """Return whether an ETag is the MD5 of the content; those of copied parts and of encrypted objects are not."""
    return _MD5.fullmatch(etag) is not None


def compute_composite_etag(part_etags: Sequence[str]) -> str:
    """Return the ETag that S3 gives an upload completed from these parts: the MD5 of their MD5s, and their count.

    Raises:
        ValueError: An ETag is not an MD5, so the composite cannot be known.
    """
    digest = hashlib.md5(usedforsecurity=False)
    for etag in part_etags:
        if not is_md5(etag):
            raise ValueError(f"{etag!r} is not the MD5 of a part: only parts sent as bytes have one.")
        digest.update(bytes.fromhex(etag))
    return f"{digest.hexdigest()}-{len(part_etags)}"


def build_content_disposition(file_name: str) -> str:
    """Return the header that makes a browser save a file under this name, as ASCII (RFC 6266, RFC 8187)."""
    name = _remove_control_characters(file_name) or _DEFAULT_NAME
    return f"attachment; filename=\"{_to_ascii(name)}\"; filename*=UTF-8''{quote(name, safe=_ATTR_CHARS)}"


def _remove_control_characters(name: str) -> str:
    """Remove control characters, unpaired surrogates and bidirectional overrides, which disguise endings."""
    return "".join(character for character in name if unicodedata.category(character) not in {"Cc", "Cf", "Cs"}).strip()


def _to_ascii(name: str) -> str:
    """Return the nearest name in ASCII, for clients that do not know `filename*`."""
    plain = "".join(
        character for character in unicodedata.normalize("NFKD", name) if not unicodedata.combining(character)
    )
    safe = "".join(
        character if character.isascii() and character not in _UNSAFE_IN_QUOTES else "_" for character in plain
    )
    return safe.strip() or _DEFAULT_NAME
