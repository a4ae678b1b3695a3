"""Client for downloads: create, watch and list them, and save their files."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from types import TracebackType

from haulage.errors import DownloadFailed
from haulage.models import Download, DownloadRequest, State
from haulage.saving import FileSaver, Progress, SavedFile, ignore_progress
from haulage.transport import RetryingApiTransport, encode_path_step

FIRST_POLL_SECONDS = 0.05
POLL_GROWTH = 1.25
"""The end of a download is seen late by a quarter of its time and the first pause, at most."""
LONGEST_POLL_SECONDS = 1.0


class Client:
    """Client of a Haulage API, for the project of its key.

    Requests are retried for `patience_seconds` while the API does not answer. Repeating them has no further effect.

        async with Client("https://haulage.example.com", key) as client:
            download = await client.create(DownloadRequest(source_url="https://erp.example.com/orders"))
            async for download in client.watch(download.task_id):
                print(download.phase, download.rows)
            await client.save(download, Path("orders.csv"))
    """

    def __init__(self, base_url: str, key: str, *, patience_seconds: float = 60.0) -> None:
        self._transport = RetryingApiTransport(base_url, key, patience_seconds)

    async def __aenter__(self) -> Client:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def create(self, request: DownloadRequest, *, idempotency_key: str | None = None) -> Download:
        """Start a download. A repeated request with the same idempotency key returns the same download."""
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        body = await self._transport.request_json("POST", "/v1/downloads", json=request.body(), headers=headers)
        return Download.model_validate(body)

    async def read(self, task_id: str) -> Download:
        """Return the current state of a download."""
        return Download.model_validate(await self._transport.request_json("GET", _build_path(task_id)))

    async def watch(self, task_id: str) -> AsyncIterator[Download]:
        """Yield the state of a download whenever it changes, until the download ends."""
        last, pause = None, FIRST_POLL_SECONDS
        while last is None or not last.state.final:
            if last is not None:
                await asyncio.sleep(pause)
                pause = min(pause * POLL_GROWTH, LONGEST_POLL_SECONDS)
            now = await self.read(task_id)
            if now != last:
                yield now
            last = now

    async def list(
        self,
        *,
        state: State | None = None,
        cause: str | None = None,
        operator_id: str | None = None,
        source_host: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[Download]:
        """Yield the project's downloads, newest first; `cause` is the code of a fault, `source_host` without a port."""
        filters = {
            "state": state,
            "cause": cause,
            "operator_id": operator_id,
            "source_host": source_host,
            "created_after": created_after and created_after.isoformat(),
            "created_before": created_before and created_before.isoformat(),
        }
        params = {name: value for name, value in filters.items() if value is not None}
        while True:
            page = await self._transport.request_json("GET", "/v1/downloads", params=params)
            for item in page["items"]:
                yield Download.model_validate(item)
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]

    async def cancel(self, task_id: str) -> Download:
        """Cancel a download and remove its data; a download that has ended is not changed."""
        return Download.model_validate(await self._transport.request_json("POST", _build_path(task_id) + "/cancel"))

    async def retry(self, task_id: str) -> Download:
        """Retry a failed download, under the same id."""
        return Download.model_validate(await self._transport.request_json("POST", _build_path(task_id) + "/retry"))

    async def delete(self, task_id: str) -> Download:
        """Delete the file of a download that has ended."""
        return Download.model_validate(await self._transport.request_json("DELETE", _build_path(task_id)))

    async def save(self, download: Download, path: Path, *, progress: Progress = ignore_progress) -> SavedFile:
        """Save the file of a finished download; on failure the path keeps its former content.

        After a broken connection the transfer resumes. Size and, for CSV, the number of rows are checked.

        Raises:
            DownloadFailed: The download has no file.
            FileDamaged: The file differs from what the API described.
        """
        if download.state is not State.SUCCEEDED:
            raise DownloadFailed(download)
        return await FileSaver(self._transport, download, path, progress).fetch_check_and_move_into_place()


def _build_path(task_id: str) -> str:
    return f"/v1/downloads/{encode_path_step(task_id)}"
