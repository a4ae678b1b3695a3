"""Pages that watch themselves: what the browser or the API complains about fails a test that did not expect it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, Response, expect

PATIENCE_MS = 60_000
# As root, which tests in containers are, Chromium has no sandbox of its own.
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"]
# What a page breaks off itself when it is left.
BROKEN_OFF = "net::ERR_ABORTED"
# What was answered is told by its response, with method and path.
ANSWERED = "Failed to load resource"
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} forbids ${event.blockedURI}`), true);
"""

expect.set_options(timeout=PATIENCE_MS)


class Troubles:
    """What went wrong in the pages of one test."""

    def __init__(self) -> None:
        self._expected = [r"401 GET /v1/session"]
        self._found: list[str] = []

    def expect(self, pattern: str) -> None:
        """Let answers pass whose `status METHOD path` the pattern matches as a whole."""
        self._expected.append(pattern)

    @property
    def found(self) -> list[str]:
        """What nobody expected."""
        return [each for each in self._found if not any(re.fullmatch(known, each) for known in self._expected)]

    def watch(self, page: Page) -> None:
        """Listen to everything that a page complains about."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._found.append(f"error in the page: {error}"))
        page.on("requestfailed", self._note_failed_request)
        page.on("response", self._note_error_response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(ANSWERED):
            self._found.append(f"{message.type} in the console: {message.text}")

    def _note_failed_request(self, request: Request) -> None:
        if request.failure != BROKEN_OFF:
            self._found.append(f"failed {request.method} {_path(request.url)}: {request.failure}")

    def _note_error_response(self, response: Response) -> None:
        if response.status >= 400:
            self._found.append(f"{response.status} {response.request.method} {_path(response.url)}")


@asynccontextmanager
async def launch_browser(playwright: Playwright, chromium: str) -> AsyncIterator[Browser]:
    """A Chromium without a window."""
    browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
    try:
        yield browser
    finally:
        await browser.close()


@asynccontextmanager
async def visiting(browser: Browser, address: str, troubles: Troubles, **options: Any) -> AsyncIterator[Page]:
    """A page on which nobody has signed in; `options` are those of a browser's context, e.g. `color_scheme="dark"`."""
    given = {"base_url": address, "locale": "en-GB", "timezone_id": "UTC", "reduced_motion": "reduce", **options}
    context = await browser.new_context(**given)
    try:
        await context.add_init_script(REPORT_VIOLATIONS)
        context.on("page", troubles.watch)
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page
    finally:
        await context.close()


@asynccontextmanager
async def signed_in(
    browser: Browser, address: str, key: str, troubles: Troubles, **options: Any
) -> AsyncIterator[Page]:
    """A page on which a key has signed in."""
    async with visiting(browser, address, troubles, **options) as page:
        await sign_in(page.context, key)
        yield page


async def sign_in(context: BrowserContext, key: str) -> None:
    """Sign in beside the page: the cookie is the context's."""
    answer = await context.request.post("/v1/session", data={"api_key": key})
    assert answer.status == 200, await answer.text()


def _path(url: str) -> str:
    return urlsplit(url).path
