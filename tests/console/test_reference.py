"""The API reference at `/docs`, as a reader sees it."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from systems import SYSTEMS
from tests.console.browsing import Troubles, visiting
from tests.console.installation import Console

pytestmark = pytest.mark.stack


async def test_the_reference_begins_with_the_systems(browser: Browser, console: Console, troubles: Troubles) -> None:
    """In the list at the side and on the page; files of the reference and of the console come last."""
    async with visiting(browser, console.address, troubles) as page:
        await page.goto("/docs")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Haulage")
        listed = await page.locator("#index h2").all_text_contents()
        shown = await page.locator("#content > section > h2").all_text_contents()
        assert listed[: len(SYSTEMS)] == [*SYSTEMS]
        assert listed[-2:] == ["docs", "console"]
        assert shown == listed


async def test_texts_of_the_reference_are_paragraphs(browser: Browser, console: Console, troubles: Troubles) -> None:
    """Lines of the source are joined, a blank line begins a paragraph, and `code` is shown as such."""
    async with visiting(browser, console.address, troubles) as page:
        await page.goto("/docs")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Haulage")
        introduction = await page.locator("#content > p").all_inner_texts()
        rotation = await page.locator("article", has_text="/keys/{key_id}/rotate").locator("p.quiet").all_inner_texts()
        assert [text.split(" ")[0] for text in introduction] == ["Haulage", "Send", "Unknown", "OpenAPI"]
        assert "belongs to another one is answered with 404" in introduction[1]
        assert [text.split(".")[0][:15] for text in rotation] == ["The new key is ", "A key that may "]
        assert [text for text in (*introduction, *rotation) if "\n" in text or "`" in text] == []
