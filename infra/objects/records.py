"""What the object store answers: plain records, with keys relative to the configured prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

MIN_PART_BYTES = 5 * 1024 * 1024
"""S3 refuses to complete an upload when any part but the last is smaller."""

MAX_COPY_BYTES = 5 * 1024 * 1024 * 1024
"""S3 copies no more than this into one part."""

MAX_PARTS = 9_999
"""One less than S3 allows: SeaweedFS sorts part 10000 before 1000 and then skips parts when it lists by page."""

PART_BYTES = 8 * 1024 * 1024
"""What we cut streams into: large enough for full speed, small enough to hold a few in memory."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a time that the store did not tell."""

PART_TYPE = "application/vnd.haulage.part"
"""What pieces of a file are sent as. A type that says text, or nothing, makes SeaweedFS gzip what it is given, which
costs it as much processor time again as storing it; the finished object has the type that its upload was begun with."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object that we wrote, with the SHA-256 of what we sent."""

    key: str
    size: int
    etag: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Joined:
    """An object that the store joined from others; its bytes never passed through here, so it has no SHA-256."""

    key: str
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class Head:
    """What the store knows about an object. Metadata names are lower case."""

    key: str
    size: int
    etag: str
    content_type: str
    metadata: Mapping[str, str]
    modified: datetime
    disposition: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of a listing."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an upload in progress."""

    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class SentPart(Part):
    """A part whose bytes came from here, with the SHA-256 of what we sent."""

    sha256: str


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    started: datetime


class Uploads(Protocol):
    """What joins and streams need of the store."""

    async def head(self, key: str) -> Head | None: ...

    async def put(
        self, key: str, data: bytes, *, content_type: str = ..., metadata: Mapping[str, str] = ...
    ) -> Stored: ...

    async def begin_upload(self, key: str, *, content_type: str = ..., metadata: Mapping[str, str] = ...) -> str: ...

    async def put_part(self, key: str, upload_id: str, number: int, data: bytes) -> SentPart: ...

    async def copy_part(self, key: str, upload_id: str, number: int, source: Head) -> Part: ...

    async def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> str: ...

    async def abort(self, key: str, upload_id: str) -> None: ...
