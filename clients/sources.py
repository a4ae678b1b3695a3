"""The client of a source: requests each page once, and raises a fault for every answer that is no page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

from clients.http import BUSY_STATUSES, GuardedClient, HttpResponse, ReadThreshold, parse_retry_after
from domain import egress
from domain.downloads.pages import LARGE_BYTES
from domain.faults import SourceFault
from infra.limits import HostGate
from infra.settings import DownloadSettings

SAID_MAX_BYTES = 300


class SourceClient:
    """Requests pages from a source URL, with `page` and `page_size` added to it.

    A large page takes a slot for large pages in this process, and keeps it until `release`.

    Args:
        gate: Limits concurrent requests to a host.
        large_pages: Limits the sources of this process with large pages in memory.
    """

    def __init__(
        self,
        http: GuardedClient,
        gate: HostGate,
        settings: DownloadSettings,
        url: str,
        headers: Mapping[str, str],
        large_pages: asyncio.Semaphore,
    ) -> None:
        self._http = http
        self._gate = gate
        self._settings = settings
        self._headers = {"Accept": "application/json", **headers}
        self._host = str(egress.parse_url(url).host)
        bare = url.split("#", 1)[0]
        self._stem = bare + ("&" if "?" in bare else "?")
        self._large_pages = large_pages
        self._has_slot = False
        self._taking = asyncio.Lock()

    async def fetch_page(self, page: int, page_size: int) -> bytes:
        """Return the body of a page; empty if the source answers 204.

        Raises:
            SourceFault: There was no answer, or one without a page.
        """
        async with self._gate.permit(self._host):
            answer = await self._http.get(
                f"{self._stem}page={page}&page_size={page_size}",
                headers=self._headers,
                max_bytes=self._settings.page_max_bytes,
                timeout_seconds=self._settings.page_timeout_seconds,
                threshold=None if self._has_slot else ReadThreshold(LARGE_BYTES, self._take_slot),
            )
        if answer.status == HTTPStatus.NO_CONTENT:
            return b""
        if answer.status != HTTPStatus.OK:
            raise _build_refused(answer, page)
        return answer.body

    def release(self) -> None:
        """Release the slot for large pages."""
        if self._has_slot:
            self._has_slot = False
            self._large_pages.release()

    async def _take_slot(self) -> None:
        # The next page, which is requested ahead, may need the slot at the same time.
        async with self._taking:
            if not self._has_slot:
                await self._large_pages.acquire()
                self._has_slot = True


def _build_refused(answer: HttpResponse, page: int) -> SourceFault:
    transient = answer.status in BUSY_STATUSES
    if 300 <= answer.status < 400:
        hint = "Redirects are not followed: give the address that answers directly."
    elif answer.status in (401, 403):
        hint = "Send what the source wants to know of us as `headers`, e.g. Authorization; it may have run out."
    elif transient:
        hint = "The source was busy or failing: try again later, or ask its owner."
    else:
        hint = "Open the URL with page and page_size added; it must answer 200 and JSON."
    return SourceFault(
        "source_status",
        f"The source answered {answer.status} for page {page}{_quote_body(answer)}.",
        hint,
        transient=transient,
        doubtful=not transient,
        is_busy=answer.status == 429,
        retry_after_seconds=parse_retry_after(answer.headers) if answer.status in (429, 503) else None,
    )


def _quote_body(answer: HttpResponse) -> str:
    """Quote the beginning of the answer, if it is readable text."""
    text = " ".join(answer.body[:SAID_MAX_BYTES].decode(errors="replace").split())
    if not text or text.startswith("<") or not text.isprintable():
        return ""
    return f": “{text}”" if len(answer.body) <= SAID_MAX_BYTES else f": “{text}…”"
