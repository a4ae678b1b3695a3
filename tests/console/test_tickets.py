"""Tickets in a real browser: a page of another site watches one download, and its script knows no key."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page

from tests.console.installation import Console, Project

pytestmark = pytest.mark.stack

WATCH = """
(url) => new Promise((resolve) => {
  const heard = [];
  const socket = new WebSocket(url);
  socket.onmessage = (message) => heard.push(JSON.parse(message.data));
  socket.onclose = (end) => resolve({ heard, code: end.code });
})
"""


async def open_shop(browser: Browser, console: Console) -> Page:
    """A page of another origin, that of the source, whose browser has no session."""
    page = await (await browser.new_context()).new_page()
    await page.goto(f"{console.source.base}/stats")
    assert await page.evaluate("location.origin") not in {"null", console.address}
    return page


async def test_a_page_of_another_site_watches_a_download(browser: Browser, console: Console, project: Project) -> None:
    """From its beginning to its end, with the address alone; the same address without its ticket opens nothing."""
    page = await open_shop(browser, console)
    task_id = await console.exports(project).start(console.source.url(rows=1_000, delay_ms=500), page_size=100)
    reply = await console.api_client.ask("POST", f"/v1/downloads/{task_id}/ticket", key=project.key)
    url = str(reply.body["url"])
    assert project.key not in url

    seen = await page.evaluate(WATCH, url)
    assert [seen["heard"][-1]["task_id"], seen["heard"][-1]["state"]] == [task_id, "succeeded"]
    assert len(seen["heard"]) > 1, "it was watched while it ran"

    refused = await page.evaluate(WATCH, url.partition("?")[0])
    assert (refused["heard"], refused["code"]) == ([], 1006)
    await page.context.close()
