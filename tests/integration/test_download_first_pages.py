"""Sources whose first page tells what is wrong: counted from 1, changed since it was staged, without keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from infra.settings import Settings
from tests.support.downloads import Downloads, parse_csv, running_downloads

pytestmark = pytest.mark.stack

Answer = Callable[[int, int], dict[str, Any] | int]
"""What a page of a size is answered with: its body, or another status."""


@asynccontextmanager
async def asking(
    settings: Settings, answer: Answer, resume_window_seconds: int = 60
) -> AsyncIterator[tuple[Downloads, str]]:
    """Downloads, and the address of a source that answers so."""

    async def rows(request: web.Request) -> web.Response:
        found = answer(int(request.query["page"]), int(request.query["page_size"]))
        return web.Response(status=found) if isinstance(found, int) else web.json_response(found)

    app = web.Application()
    app.router.add_get("/rows", rows)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        guard = settings.guard.model_copy(update={"allow": [*settings.guard.allow, f"{host}:{port}"]})
        settings = settings.model_copy(update={"guard": guard})
        async with running_downloads(settings, 60) as downloads:
            yield downloads, f"http://{host}:{port}/rows"
    finally:
        await runner.cleanup()


def part(rows: list[dict[str, Any]], page: int, size: int) -> list[dict[str, Any]]:
    """A page of rows, counted from 0."""
    return rows[page * size : (page + 1) * size] if page >= 0 else []


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
        ended = await downloads.ended(reply.body["task_id"])
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


async def test_an_address_that_has_our_parameters_is_refused(settings: Settings) -> None:
    """Each source would heed another one of two."""
    async with asking(settings, lambda page, size: 404) as (downloads, url):
        body = {"source_url": f"{url}?page=7&a=1", "file_name": "x"}
        reply = await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, json=body)

    assert reply.status == 422
    assert "its query has page" in reply.body["errors"][0]["message"]


async def test_what_it_waited_for_is_told_when_the_time_is_over(settings: Settings) -> None:
    """A source that asks to wait for ever is named in the end."""

    def answer(page: int, size: int) -> dict[str, Any] | int:
        return 429 if page else {"total": 200, "data": part([{"id": n} for n in range(200)], page, size)}

    async with asking(settings, answer) as (downloads, url):
        ended = await downloads.run(url, page_size=100, max_exec_time=10)

    assert ended["fault"]["code"] == "max_exec_time"
    assert "429" in ended["fault"]["message"]
