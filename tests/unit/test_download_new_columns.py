"""New columns in the middle of a range: it is read to its end for them, slice after slice, and never anew."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from activities.downloads import stager
from activities.downloads.fetching import RangeFetcher
from activities.downloads.stager import RangeStager, load_ledger_and_tail
from clients.sources import RetryLater
from domain.downloads import shape
from domain.downloads.activity_models import FetchRangeInput, FetchRangeResult, TableProbe
from domain.downloads.models import DownloadSpec, NewColumnPolicy
from domain.downloads.plan import PageRange, SourceExtent
from domain.downloads.retries import PageAttempts, RetryWait
from domain.downloads.shape import TableShape
from domain.faults import SourceFault
from infra.objects import ObjectMissing

PAGES, PAGE_SIZE = 30, 2
LATE_COLUMNS = {3: "b", 20: "c"}
WAIT = RetryWait(tries=PageAttempts(page=10, page_size=PAGE_SIZE), seconds=60)


@dataclass
class Objects:
    """A store in memory."""

    objects: dict[str, bytes] = field(default_factory=dict)

    async def put(self, key: str, data: bytes, **_: Any) -> SimpleNamespace:
        """Store an object."""
        self.objects[key] = data
        return SimpleNamespace(sha256=hashlib.sha256(data).hexdigest(), size=len(data), etag="e")

    async def get(self, key: str) -> bytes:
        """Return an object."""
        if key not in self.objects:
            raise ObjectMissing("There is none.", key=key, code="NoSuchKey")
        return self.objects[key]

    async def delete(self, key: str) -> None:
        """Delete an object."""
        self.objects.pop(key, None)


@dataclass
class Pages:
    """A source with late columns; it counts how often each page is requested, and fails once where it is planned."""

    failures: dict[int, Exception] = field(default_factory=dict)
    repeats_from: int = 10**6
    requests: Counter[int] = field(default_factory=Counter)

    async def read_page(
        self, position: int, page_size: int, parse: Callable[[bytes], Any], tries: Sequence[PageAttempts] = ()
    ) -> Any:
        """Answer a page."""
        self.requests[position] += 1
        if (failure := self.failures.pop(position, None)) is not None:
            raise failure
        number = min(position, self.repeats_from)
        rows = [{"a": number * page_size + row} for row in range(page_size)]
        rows[0] |= {LATE_COLUMNS[number]: 1} if number in LATE_COLUMNS else {}
        return parse(json.dumps({"data": rows if position < PAGES or self.repeats_from < PAGES else []}).encode())

    async def can_fetch_first_page(self) -> bool:
        """Answer, that it does."""
        return True


def build_fetch(*, has_total: bool = True) -> FetchRangeInput:
    spec = DownloadSpec(task_id="t", project_id="p", file_name="f.csv", columns=NewColumnPolicy.OPEN)
    extent = SourceExtent(total=PAGES * PAGE_SIZE if has_total else None, page_size=PAGE_SIZE, first_page=1)
    probe = TableProbe(extent=extent, shape=TableShape(columns=["a"]), row_bytes=5, upload_id="u")
    pages = PageRange(index=0, first=0, end=PAGES if has_total else None)
    return FetchRangeInput(spec=spec, probe=probe, pages=pages, ranges=1, slice_seconds=0)


async def fetch_slice(objects: Any, source: Any, fetch: FetchRangeInput, seconds: float = 0) -> FetchRangeResult:
    """Fetch for some seconds: by default one page, as from a source so slow that no slice has time for two."""
    ledger, tail = await load_ledger_and_tail(objects, fetch)
    fetcher = RangeFetcher(source, RangeStager(objects, fetch, ledger, tail), fetch)
    return await fetcher.fetch_and_stage_until(time.monotonic() + seconds)


@pytest.mark.parametrize("has_total", [True, False], ids=["total", "no total"])
async def test_a_slow_source_is_read_on_for_new_columns_slice_after_slice(has_total: bool) -> None:
    """Each slice ends in time and goes on where the one before ended, so that a range of any length has an end."""
    objects, source, fetch = Objects(), Pages(), build_fetch(has_total=has_total)
    results = [await fetch_slice(objects, source, fetch)]
    while not results[-1].done:
        results.append(await fetch_slice(objects, source, fetch))

    assert [result.new_columns for result in results] == [[]] * (len(results) - 1) + [["b", "c"]]
    assert len(results) >= PAGES - 1
    assert {position for position, requests in source.requests.items() if requests > 1} <= {3}


async def test_a_lost_attempt_goes_on_behind_the_pages_that_were_read_for_new_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt that times out, or whose worker is lost, has secured its place."""
    monkeypatch.setattr(stager, "SECURE_EVERY_SECONDS", 0.0)
    objects, source, fetch = Objects(), Pages(failures={25: ConnectionError("lost")}), build_fetch()
    with pytest.raises(ConnectionError):
        await fetch_slice(objects, source, fetch, seconds=60)
    source.requests.clear()
    result = await fetch_slice(objects, source, fetch, seconds=60)

    assert (result.done, result.new_columns) == (True, ["b", "c"])
    assert min(source.requests) == 25


async def test_a_pause_of_the_source_keeps_the_new_columns() -> None:
    """What was found before the page that is to be requested later is not looked for again."""
    objects, source, fetch = Objects(), Pages(failures={10: RetryLater(WAIT)}), build_fetch()
    waiting = await fetch_slice(objects, source, fetch, seconds=60)
    source.requests.clear()
    result = await fetch_slice(objects, source, fetch, seconds=60)

    assert (waiting.done, waiting.new_columns, waiting.wait) == (False, [], WAIT)
    assert (result.done, result.new_columns) == (True, ["b", "c"])
    assert min(source.requests) == 10


async def test_new_columns_have_the_bounds_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They travel in the result of a slice: without a bound no engine would take that, and the slice be read again."""
    monkeypatch.setattr(shape, "COLUMNS_MAX", 2)

    with pytest.raises(SourceFault, match="have 3 keys; at most 2 are allowed"):
        await fetch_slice(Objects(), Pages(), build_fetch(), seconds=60)


async def test_a_source_without_end_is_named_by_its_own_page() -> None:
    """Its first page is 1 here: of the pages from its sixth on, the fifty-first is the same as fifty before it."""
    with pytest.raises(SourceFault, match="up to page 56") as endless:
        await fetch_slice(Objects(), Pages(repeats_from=5), build_fetch(has_total=False), seconds=60)
    assert endless.value.record.code == "source_endless"


async def test_a_cancellation_while_a_page_is_given_up_ends_the_fetcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another failure is under way, and the page that was requested ahead takes long to end."""
    is_given_up, source, fetch = asyncio.Event(), Pages(), build_fetch()
    read_page = source.read_page

    async def read_page_unless_ahead(position: int, *args: Any) -> Any:
        if position == 0:
            return await read_page(position, *args)
        try:
            return await asyncio.Event().wait()
        finally:
            is_given_up.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def fail_after_the_next_page_began(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0)
        raise ConnectionError("The store is away.")

    monkeypatch.setattr(source, "read_page", read_page_unless_ahead)
    monkeypatch.setattr(RangeStager, "add_page_and_store_due_parts", fail_after_the_next_page_began)
    fetching = asyncio.create_task(fetch_slice(Objects(), source, fetch, seconds=60))
    async with asyncio.timeout(30):
        await is_given_up.wait()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
