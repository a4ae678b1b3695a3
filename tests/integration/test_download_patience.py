"""Sources that are slow or wrong for good: how long they are retried, and what the status shows meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from clients import sources
from domain.downloads.shape import EncodedPage, PageEncoder
from infra.settings import Settings
from tests.support.downloads import Downloads, parse_csv
from tests.support.pace import measure_pace
from tests.support.pages import Late, asking, part
from tests.support.waiting import eventually

TRUTH = [{"id": number} for number in range(300)]
HEARTBEAT_SECONDS = 5.0

pytestmark = pytest.mark.stack


def impatient(settings: Settings, seconds: float) -> Settings:
    """The same with less time for a page."""
    downloads = settings.downloads.model_copy(update={"page_timeout_seconds": seconds})
    return settings.model_copy(update={"downloads": downloads})


@pytest.mark.parametrize("slow_from", [0, 200])
async def test_pages_that_take_too_long_are_asked_for_with_fewer_rows(settings: Settings, slow_from: int) -> None:
    """From the first page on, or from one in the middle on; the file is whole."""
    seconds = measure_pace()
    asked: Counter[tuple[int, int]] = Counter()

    def answer(page: int, size: int) -> dict[str, Any] | Late:
        asked[page, size] += 1
        body = {"total": len(TRUTH), "data": part(TRUTH, page, size)}
        return Late(2 * seconds, body) if size > 20 and page * size >= slow_from else body

    async with asking(impatient(settings, seconds), answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)
        rows = parse_csv(await downloads.file(ended["task_id"]))

    assert (ended["state"], ended["warnings"]) == ("succeeded", [])
    assert rows == [["id"], *([str(row["id"])] for row in TRUTH)]
    assert asked[slow_from // 100, 100] == (2 if slow_from else 1)
    assert asked[14, 20] == 1


@pytest.mark.parametrize("tables", [1, 2])
async def test_a_source_that_answers_one_row_and_no_more_comes_to_an_end(settings: Settings, tables: int) -> None:
    """Fewer and fewer rows are asked for, of each table by itself, and then no more."""
    seconds = measure_pace()
    asked: Counter[int] = Counter()

    def answer(page: int, size: int) -> dict[str, Any] | Late:
        asked[size] += 1
        body = {"total": len(TRUTH), "data": part(TRUTH, page, size)}
        return body if size == 1 else Late(2 * seconds, body)

    async with asking(impatient(settings, seconds), answer) as (downloads, url):
        sheets = {"sheets": [{"source_url": url}] * tables, "type": "excel", "page_size": 500}
        reply = await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, json=sheets)
        ended = await downloads.wait_for_end(reply.body["task_id"])

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_timeout")
    assert (asked[500], asked[50], asked[20]) == (1, 1, 1)


@pytest.mark.parametrize("hangs_from", [0, 1])
async def test_a_source_that_always_takes_too_long_is_not_waited_for_again_and_again(
    settings: Settings, hangs_from: int
) -> None:
    """Twice, and once more for one row: then the fault says which page it was."""
    seconds = measure_pace()
    asked: Counter[tuple[int, int]] = Counter()

    def answer(page: int, size: int) -> dict[str, Any] | Late:
        asked[page, size] += 1
        body = {"total": len(TRUTH), "data": part(TRUTH, page, size)}
        is_hanging = hangs_from == 0 or asked[hangs_from, 100] > 0
        return Late(2 * seconds, body) if is_hanging else body

    async with asking(impatient(settings, seconds), answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_timeout")
    assert f"Page {hangs_from} failed twice" in ended["fault"]["message"]
    assert asked[hangs_from, 100 if hangs_from else 1] == 2
    assert sum(asked.values()) <= 6


async def test_the_same_wrong_answer_twice_ends_within_20_seconds(settings: Settings) -> None:
    """With the pauses that are installed by default."""

    def answer(page: int, size: int) -> dict[str, Any]:
        return {"total": len(TRUTH), "data": part(TRUTH, page, size)[: 50 if page == 1 else None]}

    began = time.monotonic()
    async with asking(settings, answer, retry_pause_seconds=settings.downloads.retry_pause_seconds) as (downloads, url):
        ended = await downloads.run(url, page_size=100)

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_page_size")
    assert time.monotonic() - began < 20 * measure_pace()


async def test_what_is_tried_again_is_told_once_it_lasts(settings: Settings) -> None:
    """A page that fails for more than a second, and then comes slowly: the status says why, until it has come."""
    asked: Counter[int] = Counter()
    seconds = 3 * measure_pace()

    def answer(page: int, size: int) -> dict[str, Any] | int | Late:
        asked[page] += size > 1
        body = {"total": len(TRUTH), "data": part(TRUTH, page, size)}
        if page != 1:
            return body
        return 503 if asked[page] <= 2 else Late(seconds, body)

    async with asking(settings, answer, retry_pause_seconds=0.6) as (downloads, url):
        task_id = await downloads.start(url, page_size=100)
        told = await eventually(lambda: _find_trouble(downloads, task_id, lambda: asked[1] > 2))
        ended = await downloads.wait_for_end(task_id)

    assert (told["code"], told["attempts"]) == ("source_status", 2)
    assert "503" in told["message"]
    assert (ended["state"], ended["trouble"]) == ("succeeded", None)


@pytest.mark.long
async def test_a_page_that_arrived_is_not_asked_for_again_while_it_is_decoded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding takes longer than a heartbeat may be late, in the probe and in a fetcher; the loop turns meanwhile."""
    asked: Counter[tuple[int, int]] = Counter()
    threads: list[bool] = []
    encode = PageEncoder.encode

    def encode_slowly(encoder: PageEncoder, body: bytes) -> EncodedPage:
        threads.append(threading.current_thread() is threading.main_thread())
        if len(threads) <= 2:
            time.sleep(HEARTBEAT_SECONDS + 1)
        return encode(encoder, body)

    def answer(page: int, size: int) -> dict[str, Any]:
        asked[page, size] += 1
        return {"total": 250, "data": part(TRUTH[:250], page, size)}

    monkeypatch.setattr(PageEncoder, "encode", encode_slowly)
    monkeypatch.setattr(sources, "LONG_BYTES", 1)
    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)

    assert ended["state"] == "succeeded"
    assert not any(threads)
    assert asked == {(0, 1): 1, (0, 100): 2, (1, 100): 1, (2, 100): 1}


async def _find_trouble(downloads: Downloads, task_id: str, is_now: Any) -> dict[str, Any]:
    """The trouble in the status; nothing if there is none."""
    was = is_now()
    trouble: dict[str, Any] | None = (await downloads.status(task_id))["trouble"]
    return trouble or {} if was else {}


@pytest.mark.parametrize("tables", [1, 2])
async def test_questions_that_fail_in_turns_do_not_reset_each_others_tries(settings: Settings, tables: int) -> None:
    """The first look asks all tables anew after each wait; it gives up after the retries of any question."""
    answered: Counter[int] = Counter()

    def answer(page: int, size: int) -> dict[str, Any] | int:
        # One table: one row is refused, then the first page. Two: one row of the first, then one row of the second.
        if tables == 1 or size == 1:
            answered.update([1])
            if answered[1] % 3 != 2:
                return 500
        return {"total": len(TRUTH), "data": part(TRUTH, page, size)}

    once = settings.downloads.model_copy(update={"page_retries": 1})
    settings = settings.model_copy(update={"downloads": once})
    # Longer than a place is kept: each retry is a new look.
    async with asking(settings, answer, retry_pause_seconds=1.5 * sources.SLOT_HELD_MAX_SECONDS) as (downloads, url):
        sheets = {"sheets": [{"source_url": url}] * tables, "type": "excel", "page_size": 100, "max_exec_time": 120}
        reply = await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, json=sheets)
        ended = await downloads.wait_for_end(reply.body["task_id"])

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_status")
    assert "Page 0 failed twice" in ended["fault"]["message"]
    assert answered[1] == 4
