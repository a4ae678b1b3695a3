"""The repository that files come from, over HTTP or from the object store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from urllib.parse import quote

from domain.faults import SourceFault
from domain.transfers.models import FileByBizAppAndPath
from infra import metrics
from infra.filecache import FetchFile
from infra.objects import ObjectMissing
from services.services import Services

STORE = "store:"
WRITE_BYTES = 1024 * 1024
RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


class RepositoryUnavailable(Exception):
    """The repository does not serve the file at present."""


class FileRepositoryClient:
    """Fetches files by the template in the settings."""

    def __init__(self, services: Services) -> None:
        self._http = services.http
        self._objects = services.objects
        self._settings = services.settings.transfers

    def build_file_writer(self, file: FileByBizAppAndPath, signature: str) -> FetchFile:
        """What writes this file to a path; for the cache.

        The function raises:
            SourceFault: There is no such file, or not for us: asking again would not help.
            RepositoryUnavailable: It may be there in a moment.
        """

        async def fetch_from_store_or_http_and_write(path: Path) -> None:
            template = self._settings.repository
            if template.startswith(STORE):
                path_in_key = file.path.strip("/")
                key = _fill_repository_template(template.removeprefix(STORE), file, path_in_key, signature)
                await self._write_from_store(key, path)
            else:
                path_in_url = quote(file.path.strip("/"), safe="/")
                await self._write_from_http(_fill_repository_template(template, file, path_in_url, signature), path)

        return fetch_from_store_or_http_and_write

    async def _write_from_store(self, key: str, path: Path) -> None:
        max_bytes, seconds = self._settings.file_max_bytes, self._settings.fetch_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                found = await self._objects.head(key)
                if found is not None and found.size > max_bytes:
                    raise _build_too_large_fault(max_bytes)
                async with aclosing(self._objects.stream(key)) as pieces:
                    await _write_file(path, pieces)
        except ObjectMissing:
            raise SourceFault("file_unavailable", f"The object store holds nothing under {key}.", _UPLOAD) from None
        except TimeoutError:
            raise RepositoryUnavailable(f"the object store did not bring the file within {seconds:g} seconds") from None

    async def _write_from_http(self, url: str, path: Path) -> None:
        secret = self._settings.repository_authorization.get_secret_value()
        try:
            async with self._http.stream(
                url,
                headers={"Authorization": secret} if secret else {},
                max_bytes=self._settings.file_max_bytes,
                timeout_seconds=self._settings.fetch_timeout_seconds,
            ) as (head, pieces):
                if head.status in RETRY_STATUSES:
                    raise RepositoryUnavailable(f"the repository answered {head.status}")
                if head.status != 200:
                    raise _build_status_fault(head.status)
                await _write_file(path, pieces)
        except SourceFault as fault:
            if fault.transient:
                raise RepositoryUnavailable(fault.record.message) from fault
            if fault.record.code == "source_too_large":
                raise _build_too_large_fault(self._settings.file_max_bytes) from fault
            raise


async def _write_file(path: Path, pieces: AsyncIterator[bytes]) -> None:
    """Write a file in blocks of a megabyte, because each write takes a thread."""
    buffer = bytearray()
    await asyncio.to_thread(path.touch)
    async for piece in pieces:
        buffer += piece
        metrics.TRANSFER_FILE_BYTES.inc(len(piece))
        if len(buffer) >= WRITE_BYTES:
            await asyncio.to_thread(_append_to_existing_file, path, bytes(buffer))
            buffer.clear()
    await asyncio.to_thread(_append_to_existing_file, path, bytes(buffer))


def _append_to_existing_file(path: Path, block: bytes) -> None:
    """Write at the end of a file; a thread that comes late, when a cancelled fetch has removed it, makes none anew."""
    with path.open("r+b") as out:
        out.seek(0, os.SEEK_END)
        out.write(block)


def _fill_repository_template(template: str, file: FileByBizAppAndPath, path: str, signature: str) -> str:
    return template.format(biz_id=file.biz_id, app_id=file.app_id, path=path, signature=signature)


_UPLOAD = "Upload the file first, and send the signature of what was uploaded; see HAULAGE_TRANSFERS__REPOSITORY."
_REMEDIES = {
    **dict.fromkeys((404, 410), _UPLOAD),
    **dict.fromkeys((401, 403), "See whether HAULAGE_TRANSFERS__REPOSITORY_AUTHORIZATION opens it."),
    **dict.fromkeys(
        (301, 302, 303, 307, 308),
        "Redirects are not followed: name the address itself in HAULAGE_TRANSFERS__REPOSITORY.",
    ),
}


def _build_too_large_fault(max_bytes: int) -> SourceFault:
    message = f"The file has more than {max_bytes:,} bytes."
    return SourceFault("file_unavailable", message, "Send a smaller file; see HAULAGE_TRANSFERS__FILE_MAX_BYTES.")


def _build_status_fault(status: int) -> SourceFault:
    remedy = _REMEDIES.get(status, "Only 200 brings a file; see HAULAGE_TRANSFERS__REPOSITORY.")
    return SourceFault("file_unavailable", f"The repository answered {status} for this file.", remedy)
