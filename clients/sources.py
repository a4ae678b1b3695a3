"""Sources: request each page once, or until it is right or its fault is final; an answer without a page is a fault."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Protocol, TypeVar

from clients.http import BUSY_STATUSES, GuardedClient, HttpResponse, WaitBeforeReadingBeyondSize, parse_retry_after
from domain import egress
from domain.downloads.models import DownloadSpec
from domain.downloads.pages import LARGE_BYTES
from domain.downloads.retries import (
    TIMEOUTS_MAX,
    PageAttempts,
    PageRetryRules,
    RetryWait,
    build_wait_for_sealing_key,
)
from domain.faults import SourceFault
from domain.redaction import SecretRedactor
from infra import log, metrics
from infra.limits import HostRequestLimiter
from infra.objects import ObjectMissing, ObjectStore
from infra.secrets import SEAL_UNREADABLE, SealUnreadableError, SecretSealer
from infra.settings import DownloadSettings

SAID_MAX_BYTES = 300
# A request that waits longer gives its activity slot back, and the status shows why.
SLOT_HELD_MAX_SECONDS = 1.0
LONG_BYTES = 256 * 1024

T = TypeVar("T")


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
        gate: HostRequestLimiter,
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
        async with self._gate.permit(self._host) as permit:
            answer = await self._http.get(
                f"{self._stem}page={page}&page_size={page_size}",
                headers=self._headers,
                max_bytes=self._settings.page_max_bytes,
                timeout_seconds=self._settings.page_timeout_seconds,
                wait_beyond=None
                if self._has_slot
                else WaitBeforeReadingBeyondSize(
                    LARGE_BYTES, partial(permit.give_back_during, self._take_large_page_slot)
                ),
            )
        if answer.status == HTTPStatus.NO_CONTENT:
            return b""
        if answer.status != HTTPStatus.OK:
            raise _build_status_fault(answer, page)
        return answer.body

    def release_large_page_slot_if_held(self) -> None:
        """Release the slot for large pages."""
        if self._has_slot:
            self._has_slot = False
            self._large_pages.release()

    async def _take_large_page_slot(self) -> None:
        # The next page, which is requested ahead, may need the slot at the same time.
        async with self._taking:
            if not self._has_slot:
                await self._large_pages.acquire()
                self._has_slot = True


class SinglePageRequester(Protocol):
    """Requests pages once, without retries."""

    async def fetch_page(self, page: int, page_size: int) -> bytes:
        """Return the body of a page."""

    def release_large_page_slot_if_held(self) -> None:
        """Release what was reserved for large pages."""


async def parse_in_thread_if_large(parse: Callable[[bytes], T], body: bytes) -> T:
    """Parse a body; a large one is parsed in a thread, so that it does not block the event loop."""
    return await asyncio.to_thread(parse, body) if len(body) >= LONG_BYTES else parse(body)


def means_beyond_last_page(fault: SourceFault) -> bool:
    """Return whether sources answer with such a fault if a page does not exist; an unreadable page may have rows."""
    return fault.record.code in ("source_status", "source_refused", "source_no_data")


class RetryLater(Exception):
    """Raised if a page is to be requested again, but later than the activity may keep its slot."""

    def __init__(self, wait: RetryWait) -> None:
        self.wait = wait
        super().__init__(f"in {wait.seconds:g} s")


def open_source_address(
    sealer: SecretSealer, spec: DownloadSpec, failed_tries: Sequence[PageAttempts] = ()
) -> tuple[str, dict[str, str]]:
    """Return the address and the headers of the source of a table.

    Raises:
        RetryLater: No key of this worker opens them. Another worker may have the key, or it is put back.
        ValueError: It has none.
    """
    if spec.source_url is None:
        raise ValueError(f"download {spec.task_id} has neither a source URL nor rows of its own")
    try:
        headers = json.loads(sealer.open(spec.source_headers)) if spec.source_headers else {}
        return sealer.open(spec.source_url), headers
    except SealUnreadableError as error:
        log.get(__name__).error("source_seal_unreadable", task_id=spec.task_id, error=str(error))
        raise RetryLater(build_wait_for_sealing_key(SEAL_UNREADABLE, spec.table, failed_tries)) from error


class RetryingPageReader:
    """Reads pages, each requested until it is right or until its fault is final.

    Args:
        settings: The limits of retries.
        pages: Requests pages once.
        first_page: The number that the source gives to its first page.
        redactor: Removes secrets from quotes of the source's answers.
        table: The number of its table.
        pause_max_seconds: How long it pauses by itself; a longer pause is left to the caller.
    """

    def __init__(
        self,
        settings: DownloadSettings,
        pages: SinglePageRequester,
        first_page: int = 0,
        redactor: SecretRedactor | None = None,
        table: int = 0,
        pause_max_seconds: float = SLOT_HELD_MAX_SECONDS,
    ) -> None:
        self._rules = PageRetryRules(
            retries=settings.page_retries,
            pause_seconds=settings.retry_pause_seconds,
            retry_after_max_seconds=settings.retry_after_max_seconds,
        )
        self._pages = pages
        self._first_page = first_page
        self._redactor = redactor or SecretRedactor()
        self._table = table
        self._pause_max_seconds = pause_max_seconds

    async def read_page(
        self,
        page: int,
        page_size: int,
        parse: Callable[[bytes], T],
        failed_tries: Sequence[PageAttempts] = (),
        timeouts_max: int = TIMEOUTS_MAX,
    ) -> T:
        """Request a page and parse it; on failure, repeat after a pause.

        Args:
            page: The page, from 0.
            page_size: Its maximum number of rows.
            parse: Parses the body, and raises a fault if it is wrong.
            failed_tries: Failed attempts at this page and at others.
            timeouts_max: Timeouts after which it fails.

        Raises:
            SourceFault: The fault is final.
            RetryLater: It may pass, but not soon.
        """
        number, began = page + self._first_page, time.monotonic()
        no_tries = PageAttempts(table=self._table, page=number, page_size=page_size)
        tries_so_far = next((each for each in failed_tries if each.request_key == no_tries.request_key), no_tries)
        tries_so_far = tries_so_far.model_copy(
            update={"timeouts": max(tries_so_far.timeouts, TIMEOUTS_MAX - timeouts_max)}
        )
        while True:
            try:
                result = await self._read_once(number, page_size, parse)
            except SourceFault as fault:
                metrics.PAGES.labels(fault.record.code).inc()
                pause = tries_so_far.compute_pause(fault, self._rules)
                if pause is None:
                    raise tries_so_far.build_fault_with_attempt_count(fault) from None
                tries_so_far = tries_so_far.add_failure(fault)
                log.get(__name__).info(
                    "page_retry_scheduled",
                    code=fault.record.code,
                    pause_seconds=pause,
                    page=number,
                    retry=tries_so_far.total_attempts,
                )
                if time.monotonic() - began + pause > self._pause_max_seconds:
                    raise RetryLater(RetryWait(tries=tries_so_far, seconds=pause)) from None
                await asyncio.sleep(pause)
            else:
                metrics.PAGES.labels("done").inc()
                return result

    async def can_fetch_first_page(self) -> bool:
        """Return whether the source answers at all."""
        try:
            await self._pages.fetch_page(self._first_page, 1)
        except SourceFault:
            return False
        return True

    @contextmanager
    def redact_faults_and_release_slot(self) -> Iterator[None]:
        """Read pages within the context; redact its faults, and release large pages behind it."""
        try:
            with self._redact_faults():
                yield
        finally:
            self._pages.release_large_page_slot_if_held()

    @contextmanager
    def _redact_faults(self) -> Iterator[None]:
        """Remove the caller's secrets from faults, which may quote what the source answered."""
        try:
            yield
        except SourceFault as fault:
            fault.replace_message(self._redactor.redact(fault.record.message))
            raise

    async def _read_once(self, number: int, page_size: int, parse: Callable[[bytes], T]) -> T:
        # Redacted here, too: the fault of an attempt is compared with the next one, and is written to histories.
        with self._redact_faults():
            body = await self._pages.fetch_page(number, page_size)
            try:
                return await parse_in_thread_if_large(parse, body)
            except SourceFault as fault:
                fault.doubtful = not fault.transient
                raise
            except RecursionError:
                raise SourceFault(
                    "source_bad_data",
                    f"The source's answer for page {number} has arrays or objects nested in each other too deeply.",
                    "Answer values that are nested at most some hundred levels deep.",
                ) from None


class RequestRowsAsSinglePage:
    """Rows that were sent with the request: one page in the object store."""

    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key

    def release_large_page_slot_if_held(self) -> None:
        """Do nothing: the API limits the size of such rows."""

    async def fetch_page(self, page: int, page_size: int) -> bytes:
        try:
            return await self._objects.get(self._key)
        except ObjectMissing:
            raise SourceFault(
                "inline_rows_gone",
                "The rows that came with the request are kept for a day and are gone.",
                "Send them again.",
            ) from None


def _build_status_fault(answer: HttpResponse, page: int) -> SourceFault:
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
        f"The source answered {answer.status} for page {page}{_quote_body_if_readable_text(answer)}.",
        hint,
        transient=transient,
        doubtful=not transient,
        is_busy=answer.status == 429,
        retry_after_seconds=parse_retry_after(answer.headers) if answer.status in (429, 503) else None,
    )


def _quote_body_if_readable_text(answer: HttpResponse) -> str:
    """Quote the beginning of the answer, if it is readable text."""
    text = " ".join(answer.body[:SAID_MAX_BYTES].decode(errors="replace").split())
    if not text or text.startswith("<") or not text.isprintable():
        return ""
    return f": “{text}”" if len(answer.body) <= SAID_MAX_BYTES else f": “{text}…”"
