"""The source as a fetcher sees it: a page asked for until it is right, or until that makes no sense any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeVar

from domain import egress
from domain.downloads.request import DownloadOrder
from domain.faults import SourceFault
from infra import log, metrics
from infra.http import Answer
from infra.objects import ObjectMissing, ObjectStore
from infra.services import Services
from infra.settings import DownloadSettings

T = TypeVar("T")

RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
RETRY_AFTER_MAX_SECONDS = 300.0


def source_of(services: Services, order: DownloadOrder) -> Source:
    """Where the rows of a download come from."""
    if order.inline_key is not None:
        return Source(services.settings.downloads, _Inline(services.objects, order.inline_key))
    if order.source_url is None:
        raise ValueError(f"download {order.task_id} has neither a source URL nor rows of its own")
    sealed = order.source_headers
    headers: dict[str, str] = json.loads(services.sealer.open(sealed)) if sealed else {}
    return Source(services.settings.downloads, _Url(services, services.sealer.open(order.source_url), headers))


class Pages(Protocol):
    """Answers pages as bytes, once, rightly or not."""

    async def body(self, page: int, page_size: int) -> bytes:
        """The body of one page."""


class Source:
    """Pages, each asked for until it is right, or until that makes no sense any more."""

    def __init__(self, settings: DownloadSettings, pages: Pages) -> None:
        self._settings = settings
        self._pages = pages

    async def read(self, page: int, page_size: int, parse: Callable[[bytes], T]) -> T:
        """Fetch a page and parse it, with growing pauses between at most `page_retries` retries.

        Raises:
            SourceFault: It stayed wrong, or is wrong in a way that no retry mends.
        """
        for attempt in range(self._settings.page_retries + 1):
            try:
                result = parse(await self._pages.body(page, page_size))
            except SourceFault as fault:
                metrics.PAGES.labels("fault").inc()
                if not fault.transient:
                    raise
                if attempt == self._settings.page_retries:
                    raise _given_up(fault, page, attempt) from None
                await asyncio.sleep(self._pause(fault, attempt))
            else:
                metrics.PAGES.labels("done").inc()
                return result
        raise AssertionError("the loop above returns or raises")

    def _pause(self, fault: SourceFault, attempt: int) -> float:
        pause: float = self._settings.retry_pause_seconds * 2**attempt
        if fault.retry_after_seconds is not None:
            pause = max(pause, min(fault.retry_after_seconds, RETRY_AFTER_MAX_SECONDS))
        log.get(__name__).info("page_retry", code=fault.record.code, pause_seconds=pause, retry=attempt + 1)
        return pause


class _Inline:
    """Rows that came with the request: one page, kept in the store."""

    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key

    async def body(self, page: int, page_size: int) -> bytes:
        try:
            return await self._objects.get(self._key)
        except ObjectMissing:
            raise SourceFault(
                "inline_rows_gone",
                "The rows that came with the request are kept for a day and are gone.",
                "Send them again.",
            ) from None


class _Url:
    """One source URL, requested as the user wrote it plus `page` and `page_size`."""

    def __init__(self, services: Services, url: str, headers: dict[str, str]) -> None:
        self._http = services.http
        self._gate = services.gate
        self._settings = services.settings.downloads
        self._headers = {"Accept": "application/json", **headers}
        self._host = str(egress.read_url(url).host)
        bare = url.split("#", 1)[0]
        self._stem = bare + ("&" if "?" in bare else "?")

    async def body(self, page: int, page_size: int) -> bytes:
        async with self._gate.permit(self._host):
            answer = await self._http.get(
                f"{self._stem}page={page}&page_size={page_size}",
                headers=self._headers,
                max_bytes=self._settings.page_max_bytes,
                timeout_seconds=self._settings.page_timeout_seconds,
            )
        if answer.status != 200:
            raise _refused(answer, page)
        return answer.body


def _refused(answer: Answer, page: int) -> SourceFault:
    transient = answer.status in RETRY_STATUSES
    redirected = 300 <= answer.status < 400
    if redirected:
        hint = "Redirects are not followed: give the address that answers directly."
    elif transient:
        hint = "The source was busy or failing: try again later, or ask its owner."
    else:
        hint = "Open the URL with page=0&page_size=1 added; it must answer 200 and JSON."
    return SourceFault(
        "source_status",
        f"The source answered {answer.status} for page {page}.",
        hint,
        transient=transient,
        retry_after_seconds=_retry_after(answer),
    )


def _retry_after(answer: Answer) -> float | None:
    """Seconds that a Retry-After header asks for, in either of its forms."""
    value = answer.headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _given_up(fault: SourceFault, page: int, retries: int) -> SourceFault:
    record = fault.record
    message = f"Page {page} failed {retries + 1} times; at last: {record.message}"
    return SourceFault(record.code, message, record.hint, transient=True)
