"""`python -m tests.console.pictures`: pictures of each page of an installation, for the documents."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from dev.embedded.stack import run_stack
from infra import log
from stores import migrate
from tests.console import installation
from tests.console.browsing import Troubles, launch_browser, signed_in, visiting
from tests.console.installation import Console
from tests.console.showcase import IN_TAB, Showcase, furnish, keep_busy, open_and_wait
from tests.support import stack as parts
from tests.support.requirements import CHROMIUM

FOLDER = Path(__file__).parent.parent.parent / "docs" / "images"
WIDE, NARROW = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=780)
PICTURE_MAX_BYTES = 150_000
TEMPLATE = "template_migrated"
# So that the charts of the overview have something to draw.
WATCHED_MS = 90_000


async def main() -> None:
    """Start everything, furnish it, look at each page."""
    log.configure_json_logging("ERROR")
    chromium = CHROMIUM.find()
    if chromium is None:
        raise SystemExit(f"{CHROMIUM.mark}: apt-get install {CHROMIUM.packages}")
    folder = Path(tempfile.mkdtemp(prefix="haulage-pictures-"))
    try:
        async with AsyncExitStack() as held:
            console = await held.enter_async_context(_start_console(folder))
            playwright = await held.enter_async_context(async_playwright())
            browser = await held.enter_async_context(launch_browser(playwright, chromium))
            showcase = await furnish(console)
            async with _busy(console, showcase):
                await _take_all(browser, console, showcase)
            await showcase.end(console)
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def _start_console(folder: Path) -> AsyncIterator[Console]:
    async with run_stack(folder, ui=False, ports=parts.ANY_PORTS) as stack:
        await parts.administer(stack, f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
        await migrate.migrate(stack.build_database_url(TEMPLATE))
        async with installation.running(stack, TEMPLATE, folder) as console:
            yield console


@asynccontextmanager
async def _busy(console: Console, showcase: Showcase) -> AsyncIterator[None]:
    working = asyncio.create_task(keep_busy(console, showcase))
    try:
        yield
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def _take_all(browser: Browser, console: Console, showcase: Showcase) -> None:
    address, troubles = console.address, Troubles()
    async with AsyncExitStack() as held:
        pages = {
            "visitor": await held.enter_async_context(visiting(browser, address, troubles)),
            "project": await held.enter_async_context(signed_in(browser, address, showcase.project.key, troubles)),
            "admin": await held.enter_async_context(signed_in(browser, address, console.admin_key, troubles)),
        }
        for shown in showcase.pages:
            page = pages[shown.who]
            await page.set_viewport_size(WIDE)
            await open_and_wait(page, shown)
            if shown.name == "overview":
                await page.wait_for_timeout(WATCHED_MS)
                await _take_otherwise(page)
            if shown.shows == IN_TAB:
                # What is open in a tab stands below the picture's edge.
                await page.locator("[role=tablist]").evaluate("(tabs) => tabs.scrollIntoView()")
            await _take(page, shown.name)
    if troubles.found:
        raise SystemExit(f"The pages complain: {troubles.found}")


async def _take_otherwise(page: Page) -> None:
    """The overview dark, on a phone, and in Chinese."""
    await page.emulate_media(color_scheme="dark")
    await _take(page, "overview-dark")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(NARROW)
    await _take(page, "overview-narrow")
    await page.set_viewport_size(WIDE)
    await page.get_by_label("Language").select_option("zh")
    await expect(page.get_by_role("heading", level=1)).to_have_text("总览")
    await _take(page, "overview-zh")
    await page.get_by_label("语言").select_option("en")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


async def _take(page: Page, name: str) -> None:
    path = FOLDER / f"console-{name}.png"
    await page.screenshot(path=path)
    if path.stat().st_size > PICTURE_MAX_BYTES:
        raise SystemExit(f"{path.name} has {path.stat().st_size:,} bytes, and {PICTURE_MAX_BYTES:,} are enough.")


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    # The interpreter may crash at exit once the Temporal client was used (sdk-python #300).
    os._exit(0)
