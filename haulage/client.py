"""The client: ask for downloads, watch them, fetch their files."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from types import TracebackType

from haulage.errors import DownloadFailed
from haulage.models import Download, DownloadRequest, State
from haulage.saving import Progress, Saved, Saving, nothing
from haulage.transport import Transport

FIRST_POLL_SECONDS = 0.1
LONGEST_POLL_SECONDS = 1.0


class Client:
    """A project's way to a Haulage API.

    Requests are repeated for `patience_seconds` while the API does not answer; none of them can do anything twice.

        async with Client("https://haulage.example.com", key) as client:
            download = await client.create(DownloadRequest(source_url="https://erp.example.com/orders"))
            async for download in client.watch(download.task_id):
                print(download.phase, download.rows)
            await client.save(download, Path("orders.csv"))
    """

    def __init__(self, base_url: str, key: str, *, patience_seconds: float = 60.0) -> None:
        self._transport = Transport(base_url, key, patience_seconds)

    async def __aenter__(self) -> Client:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def create(self, request: DownloadRequest, *, idempotency_key: str | None = None) -> Download:
        """Start a download. The same idempotency key with the same request is the same download."""
        headers = {"Idempotency-Key": idempotency_key or secrets.token_hex(16)}
        body = await self._transport.json("POST", "/v1/downloads", json=request.body(), headers=headers)
        return Download.model_validate(body)

    async def read(self, task_id: str) -> Download:
        """Where a download stands."""
        return Download.model_validate(await self._transport.json("GET", f"/v1/downloads/{task_id}"))

    async def watch(self, task_id: str) -> AsyncIterator[Download]:
        """Where a download stands, whenever that changed, to its end."""
        last, pause = None, FIRST_POLL_SECONDS
        while last is None or not last.state.final:
            if last is not None:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LONGEST_POLL_SECONDS)
            now = await self.read(task_id)
            if now != last:
                yield now
            last = now

    async def list(
        self,
        *,
        state: State | None = None,
        operator_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[Download]:
        """The project's downloads, newest first."""
        asked = {
            "state": state,
            "operator_id": operator_id,
            "created_after": created_after and created_after.isoformat(),
            "created_before": created_before and created_before.isoformat(),
        }
        params = {name: value for name, value in asked.items() if value is not None}
        while True:
            page = await self._transport.json("GET", "/v1/downloads", params=params)
            for item in page["items"]:
                yield Download.model_validate(item)
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]

    async def cancel(self, task_id: str) -> Download:
        """Stop a download: in a moment it is cancelled and nothing of it stays. One that is over stays as it is."""
        return Download.model_validate(await self._transport.json("POST", f"/v1/downloads/{task_id}/cancel"))

    async def save(self, download: Download, path: Path, *, progress: Progress = nothing) -> Saved:
        """Fetch the file of a finished download; the path holds all of it, or what it held before.

        A broken connection is taken up where it broke. Size and, for CSV, the number of rows are checked.

        Raises:
            DownloadFailed: The download has no file.
            FileDamaged: What arrived is not what the API described.
        """
        if download.state is not State.SUCCEEDED:
            raise DownloadFailed(download)
        return await Saving(self._transport, download, path, progress).run()
