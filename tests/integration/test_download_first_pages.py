"""Sources whose first page shows what is wrong: counted from 1, changed since it was staged, without keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.downloads import plan
from infra.settings import Settings
from tests.support.downloads import parse_csv
from tests.support.pages import asking, part

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("total", [None, 0, 220])
async def test_a_source_that_has_nothing_on_page_0_counts_from_1(settings: Settings, total: int | None) -> None:
    """Its file is not empty: the fault names what to send, and with it the file is whole."""
    truth = [{"id": number} for number in range(220)]

    def answer(page: int, size: int) -> dict[str, Any]:
        told = {} if total is None else {"total": total if page == 0 else len(truth)}
        return {**told, "data": part(truth, page - 1, size)}

    async with asking(settings, answer) as (downloads, url):
        wrong = await downloads.run(url, page_size=100)
        right = await downloads.run(url, page_size=100, first_page=1)
        rows = parse_csv(await downloads.file(right["task_id"]))

    assert (wrong["state"], wrong["fault"]["code"]) == ("failed", "source_first_page")
    assert "`first_page`: 1" in wrong["fault"]["hint"]
    assert rows[1:] == [[str(row["id"])] for row in truth]


@pytest.mark.parametrize("times", [1, 2], ids=["once", "again"])
async def test_rows_before_the_first_page_are_believed_when_they_come_twice(settings: Settings, times: int) -> None:
    """Once a cache may have answered another page; twice the source counts from 0, and rows would be left out."""
    truth = [{"id": number} for number in range(220)]
    asked = 0

    def answer(page: int, size: int) -> dict[str, Any]:
        nonlocal asked
        asked += page == 0
        is_wrong = page == 0 and asked <= times
        return {"total": len(truth), "data": part(truth, 2 if is_wrong else page - 1, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100, first_page=1)

    assert asked == 2
    assert ended["state"] == ("succeeded" if times == 1 else "failed")
    if times == 2:
        assert ended["fault"]["code"] == "source_first_page"
        assert "page 0 has 20 rows that page 1 has not" in ended["fault"]["message"]


async def test_a_retry_does_not_mix_what_is_staged_with_what_has_changed(settings: Settings) -> None:
    """The first page is another one than that which is staged: everything is read anew."""
    generation = 1

    def answer(page: int, size: int) -> dict[str, Any] | int:
        truth = [{"id": number, "of": generation} for number in range(430)]
        return 404 if generation == 1 and page == 3 else {"total": len(truth), "data": part(truth, page, size)}

    async with asking(settings, answer) as (downloads, url):
        failed = await downloads.run(url, page_size=100)
        generation = 2
        reply = await downloads.api_client.ask("POST", f"/v1/downloads/{failed['task_id']}/retry", key=downloads.key)
        ended = await downloads.wait_for_end(reply.body["task_id"])
        rows = parse_csv(await downloads.file(ended["task_id"]))

    assert failed["state"] == "failed"
    assert rows[1:] == [[str(number), "2"] for number in range(430)]


@pytest.mark.parametrize("kind", ["excel", "parquet"])
async def test_rows_without_keys_are_refused(settings: Settings, kind: str) -> None:
    """There is nothing to make columns of; it ends at once, in a sentence."""
    async with asking(settings, lambda page, size: {"total": 2, "data": part([{}, {}], page, size)}) as (
        downloads,
        url,
    ):
        ended = await downloads.run(url, type=kind)

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_no_keys")


async def test_one_small_page_again_and_again_is_no_export(settings: Settings) -> None:
    """Ten rows of a thousand, a hundred times: the total agrees, and the page is not heeded."""
    ten = [{"id": number} for number in range(10)]
    async with asking(settings, lambda page, size: {"total": 1_000, "data": ten[:size]}) as (downloads, url):
        ended = await downloads.run(url, page_size=100)

    assert (ended["state"], ended["fault"]["code"]) == ("failed", "source_pages_repeat")


@pytest.mark.parametrize(("there", "state"), [(100, "succeeded"), (101, "failed")])
async def test_a_source_that_ignores_the_page_is_asked_for_a_larger_one(
    settings: Settings, there: int, state: str
) -> None:
    """Where all its rows are on one page, its total is right; where a larger page has more, its total is not."""
    truth = [{"id": number} for number in range(there)]
    async with asking(settings, lambda page, size: {"total": 100, "data": truth[:size]}) as (downloads, url):
        ended = await downloads.run(url, page_size=100)

    assert (ended["state"], ended["rows"]) == (state, 100)
    assert (ended["fault"] or {}).get("code") == (None if state == "succeeded" else "source_pages_repeat")


async def test_an_address_that_has_our_parameters_is_refused(settings: Settings) -> None:
    """Each source would heed another one of two."""
    async with asking(settings, lambda page, size: 404) as (downloads, url):
        body = {"source_url": f"{url}?page=7&a=1", "file_name": "x"}
        reply = await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, json=body)

    assert reply.status == 422
    assert "its query has page" in reply.body["errors"][0]["message"]


@pytest.mark.long
async def test_what_it_waited_for_is_told_when_the_time_is_over(settings: Settings) -> None:
    """A source that asks to wait for ever is named in the end."""

    def answer(page: int, size: int) -> dict[str, Any] | int:
        return 429 if page else {"total": 200, "data": part([{"id": n} for n in range(200)], page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100, max_exec_time=10)

    assert ended["fault"]["code"] == "max_exec_time"
    assert "429" in ended["fault"]["message"]


@pytest.mark.parametrize("first_page", [0, 1])
async def test_a_source_without_a_total_may_have_so_many_pages(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, first_page: int
) -> None:
    """As many as are allowed, wherever it counts from; one more fails, and its number is that of the source."""
    monkeypatch.setattr(plan, "REQUESTS_MAX", 3)
    truth = [{"id": number} for number in range(400)]

    def answering(rows: int) -> dict[str, Any]:
        return {"answer": lambda page, size: {"data": part(truth[:rows], page - first_page, size)}}

    async with asking(settings, **answering(300)) as (downloads, url):
        whole = await downloads.run(url, page_size=100, first_page=first_page)
    async with asking(settings, **answering(301)) as (downloads, url):
        long = await downloads.run(url, page_size=100, first_page=first_page)

    assert (whole["state"], whole["rows"]) == ("succeeded", 300)
    assert (long["state"], long["fault"]["code"]) == ("failed", "source_too_long")
    assert f"page {3 + first_page} was not the last" in long["fault"]["message"]


@pytest.mark.parametrize("status", [401, 403])
async def test_who_is_not_let_in_is_told_of_headers(settings: Settings, status: int) -> None:
    """The sentence says what to send, and quotes the source."""
    async with asking(settings, lambda page, size: status) as (downloads, url):
        ended = await downloads.run(url)

    assert ended["fault"]["code"] == "source_status"
    assert str(status) in ended["fault"]["message"]
    assert "`headers`" in ended["fault"]["hint"]


async def test_a_byte_order_mark_before_the_answer_is_read_over(settings: Settings) -> None:
    """On the first page and on all others."""
    truth = [{"id": number} for number in range(250)]

    def answer(page: int, size: int) -> bytes:
        return b"\xef\xbb\xbf" + json.dumps({"total": len(truth), "data": part(truth, page, size)}).encode()

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100)
        rows = parse_csv(await downloads.file(ended["task_id"]))

    assert rows == [["id"], *([str(row["id"])] for row in truth)]


@pytest.mark.parametrize(("repeats", "words"), [(True, "have the same rows"), (False, "")])
async def test_pages_that_may_repeat_are_told(settings: Settings, repeats: bool, words: str) -> None:
    """If repeats are allowed, the rows of both are delivered, with a warning that names the pages."""
    hundred = [{"id": number} for number in range(100)]
    answer = {"total": 200, "data": hundred}

    async with asking(settings, lambda page, size: answer if page < 2 and size > 1 else {"total": 200, "data": []}) as (
        downloads,
        url,
    ):
        ended = await downloads.run(url, page_size=100, allow_repeats=repeats)

    assert ended["state"] == ("succeeded" if repeats else "failed")
    assert words in " ".join(ended["warnings"])
    assert "pages 0 and 1" in str([*ended["warnings"], ended["fault"]]).lower()


async def test_an_end_at_a_round_number_is_told(settings: Settings) -> None:
    """Search engines stop at 10,000 rows without a word."""
    truth = [{"id": number} for number in range(10_000)]

    async with asking(settings, lambda page, size: {"data": part(truth, page, size)}) as (downloads, url):
        ended = await downloads.run(url, page_size=1_000)

    assert (ended["state"], ended["rows"]) == ("succeeded", 10_000)
    assert "10,000 rows, a round number" in " ".join(ended["warnings"])


async def test_pages_that_are_empty_at_the_end_are_told(settings: Settings) -> None:
    """Where short pages are allowed, they may be filtered, or be missing."""
    truth = [{"id": number} for number in range(500)]

    def answer(page: int, size: int) -> dict[str, Any]:
        return {"total": len(truth), "data": part(truth[:300], page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100, force_continue=True)

    assert (ended["state"], ended["rows"]) == ("succeeded", 300)
    assert "The last 2 of 5 pages have no rows" in " ".join(ended["warnings"])
