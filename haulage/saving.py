"""Save the file of a download: resume after broken connections, check it, and move it into place."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import aiohttp
from yarl import URL

from haulage.errors import ApiUnreachable, FileDamaged
from haulage.models import Download
from haulage.transport import RetryingApiTransport, describe_error

READ_BYTES = 1024 * 1024
PAUSE_SECONDS = 0.2
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)

_NEITHER_QUOTE_NOR_LINE_END = bytes(byte for byte in range(256) if byte not in b'"\n')

Progress = Callable[[int, int], None]
"""Called with the bytes received so far and the size of the file."""


def ignore_progress(_done: int, _size: int) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class SavedFile:
    """A complete file on disk, of the size and the rows that the API reported."""

    path: Path
    bytes: int
    rows: int


class CsvLineCounter:
    """Counts the lines of a CSV file in pieces, without the line ends within quotes."""

    def __init__(self) -> None:
        self.lines = 0
        self._quoted = False

    def add(self, piece: bytes) -> None:
        """Count the lines of the next piece."""
        # Two adjacent quotes change nothing, so only few characters remain.
        parts = piece.translate(None, _NEITHER_QUOTE_NOR_LINE_END).replace(b'""', b"").split(b'"')
        self.lines += sum(part.count(b"\n") for part in parts[self._quoted :: 2])
        self._quoted ^= len(parts) % 2 == 0


class FileSaver:
    """Saves the file of one download."""

    def __init__(self, transport: RetryingApiTransport, download: Download, path: Path, progress: Progress) -> None:
        self._transport = transport
        self._download = download
        self._path = path
        self._progress = progress
        self._size = download.bytes or 0
        self._etag = ""
        self._done = 0
        self._lines = CsvLineCounter()

    async def fetch_check_and_move_into_place(self) -> SavedFile:
        """Fetch the file into a temporary one, check it, and move it into place."""
        # Without the name of the file, which may be as long as the file system allows. Each save has its own.
        part = self._path.with_name(f".{self._download.task_id}.{secrets.token_hex(4)}.part")
        try:
            with part.open("wb") as out:
                await self._fetch_with_resumed_links(out)
                await asyncio.to_thread(_write_to_disk, out)
            self._require_expected_size_and_rows()
            part.replace(self._path)
        finally:
            part.unlink(missing_ok=True)
        return SavedFile(self._path, self._done, self._download.rows)

    async def _fetch_with_resumed_links(self, out: BinaryIO) -> None:
        """Fetch to the end, with a new link after each interruption; give up when no byte arrives for too long."""
        # The link carries its own signature; the object store must not see the project's key.
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            arrived_at, arrived = time.monotonic(), 0
            while True:
                try:
                    return await self._fetch_remaining_bytes(session, out)
                except (aiohttp.ClientError, TimeoutError) as broken:
                    if self._done > arrived:
                        arrived_at, arrived = time.monotonic(), self._done
                    if time.monotonic() - arrived_at > self._transport.patience_seconds:
                        why = describe_error(broken)
                        raise ApiUnreachable(
                            f"The file stopped coming at {self._done:,} of {self._size:,} bytes: {why}."
                        ) from broken
                await asyncio.sleep(PAUSE_SECONDS)

    async def _fetch_remaining_bytes(self, session: aiohttp.ClientSession, out: BinaryIO) -> None:
        link = await self._transport.request_redirect_location(f"/v1/downloads/{self._download.task_id}/file")
        headers = {"Accept-Encoding": "identity"}
        if self._etag:
            headers |= {"Range": f"bytes={self._done}-", "If-Range": self._etag}
        async with session.get(URL(link, encoded=True), headers=headers, raise_for_status=True) as response:
            etag = response.headers.get("ETag", "")
            if response.status != 206 or etag != self._etag:
                self._truncate_and_reset_counts(out, etag)
            if response.status == 206 and not response.headers["Content-Range"].startswith(f"bytes {self._done}-"):
                raise aiohttp.ClientPayloadError(
                    f"asked for byte {self._done}, got {response.headers['Content-Range']}"
                )
            async for piece in response.content.iter_chunked(READ_BYTES):
                await asyncio.to_thread(self._write_and_count, out, piece)
                self._progress(self._done, self._size)

    def _truncate_and_reset_counts(self, out: BinaryIO, etag: str) -> None:
        out.seek(0)
        out.truncate()
        self._done, self._lines, self._etag = 0, CsvLineCounter(), etag

    def _write_and_count(self, out: BinaryIO, piece: bytes) -> None:
        out.write(piece)
        self._lines.add(piece)
        self._done += len(piece)

    def _require_expected_size_and_rows(self) -> None:
        if self._done != self._size:
            raise FileDamaged(f"{self._done:,} bytes arrived of a file of {self._size:,}. Fetch it again.")
        if not self._download.file_name.endswith(".csv"):
            return
        # A source without rows may name no columns either; then there is no line at all.
        rows = max(0, self._lines.lines - 1)
        if rows != self._download.rows:
            raise FileDamaged(f"The file has {rows:,} rows, the download {self._download.rows:,}. Fetch it again.")


def _write_to_disk(out: BinaryIO) -> None:
    """Have the disk hold the file before it takes the place of another one, also in a power failure."""
    out.flush()
    os.fsync(out.fileno())
