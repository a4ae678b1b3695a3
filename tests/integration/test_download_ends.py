"""Sources without a total: an empty page is the end only if the page behind it has no rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clients import sources
from infra.settings import Settings
from tests.support.downloads import parse_csv
from tests.support.pages import asking, part

TRUTH = [{"id": number} for number in range(480)]
EMPTY_PAGE = 2
FAILING = range(1, 100, 3)
"""Which requests for that page fail, counted from 1."""

pytestmark = pytest.mark.stack


async def test_a_page_that_is_empty_once_does_not_end_the_data(settings: Settings) -> None:
    """A source that fails with an empty list for a moment would cut the file short without a word."""
    is_first = True

    def answer(page: int, size: int) -> dict[str, Any]:
        nonlocal is_first
        if page == EMPTY_PAGE and is_first:
            is_first = False
            return {"data": [], "message": "rate limited"}
        return {"data": part(TRUTH, page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)
        rows = parse_csv(await downloads.file(ended["task_id"]))

    assert not is_first
    assert rows[1:] == [[str(row["id"])] for row in TRUTH]


async def test_an_empty_page_with_rows_behind_it_is_a_fault(settings: Settings) -> None:
    """The fault names both pages, and how the source says that more follows."""

    def answer(page: int, size: int) -> dict[str, Any]:
        return {"data": [] if page == EMPTY_PAGE else part(TRUTH, page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)

    fault = ended["fault"]
    assert (ended["state"], fault["code"]) == ("failed", "source_empty_page")
    assert "Page 2 of the source has no rows twice in a row, and page 3 has 100" in fault["message"]
    assert "force_continue" in fault["hint"]


async def test_a_page_behind_the_end_from_a_cache_is_asked_for_again(settings: Settings) -> None:
    """Where the page behind the empty one is another one for a moment, that ended the download."""
    behind = -(-len(TRUTH) // 100) + 1
    asked: Counter[int] = Counter()

    def answer(page: int, size: int) -> dict[str, Any]:
        asked[page] += 1
        return {"data": part(TRUTH, 1 if (page, asked[page]) == (behind, 1) else page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)
        rows = parse_csv(await downloads.file(ended["task_id"]))

    assert (ended["state"], asked[behind]) == ("succeeded", 2)
    assert rows[1:] == [[str(row["id"])] for row in TRUTH]


async def test_a_last_page_once_more_from_a_cache_hides_no_rows(settings: Settings) -> None:
    """A second request detects it: without one, a source with a capped total lost its last rows silently."""
    asked: Counter[int] = Counter()

    def answer(page: int, size: int) -> dict[str, Any]:
        asked[page] += size == 100
        return {"total": 100, "data": part(TRUTH, 0 if (page, asked[page]) == (1, 1) else page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_bad_total")


@pytest.mark.parametrize("finds_columns", [False, True], ids=["an empty page", "new columns"])
async def test_a_page_and_one_behind_it_do_not_reset_each_others_tries(
    settings: Settings, *, finds_columns: bool
) -> None:
    """Both are asked anew after each wait; the download fails after the retries of any of them."""
    asked: Counter[int] = Counter()

    def answer(page: int, size: int) -> dict[str, Any] | int:
        if page < EMPTY_PAGE or size == 1:
            return {"data": part(TRUTH, page, size)}
        asked[page] += 1
        # An empty page 2 fails once, is there until page 3 has failed, and fails again.
        if page > EMPTY_PAGE or (not finds_columns and asked[EMPTY_PAGE] in FAILING):
            return 500
        return {"data": [{"id": 1, "more": 2}] if finds_columns else []}

    once = settings.downloads.model_copy(update={"page_retries": 1})
    settings = settings.model_copy(update={"downloads": once})
    # Longer than a place is kept: each retry is a new slice.
    async with asking(settings, answer, retry_pause_seconds=1.5 * sources.SLOT_HELD_MAX_SECONDS) as (downloads, url):
        ended = await downloads.run(url, page_size=100, columns="open", max_exec_time=120)

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_status")
    assert "failed twice" in ended["fault"]["message"]


async def test_an_error_behind_the_empty_page_is_the_end(settings: Settings) -> None:
    """Some sources refuse pages that are far behind their last row."""

    def answer(page: int, size: int) -> dict[str, Any] | int:
        return 404 if page > 5 else {"data": part(TRUTH, page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)
        rows = parse_csv(await downloads.file(ended["task_id"]))

    assert (ended["state"], ended["warnings"]) == ("succeeded", [])
    assert rows[1:] == [[str(row["id"])] for row in TRUTH]
