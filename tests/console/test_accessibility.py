"""Every page, with something on it: axe finds nothing serious, light or dark, and no page is wider than a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from playwright.async_api import Browser, Page, ViewportSize

from tests.console import axe
from tests.console.browsing import Troubles, signed_in, visiting
from tests.console.installation import Console
from tests.console.showcase import Showcase, Shown, furnish, open_and_wait

pytestmark = [pytest.mark.stack, pytest.mark.long]

WIDE, NARROW = ViewportSize(width=1280, height=800), ViewportSize(width=360, height=740)


@dataclass
class Seen:
    """What was found on the pages, by their names; a page that has nothing wrong is in none of them."""

    light: dict[str, list[str]] = field(default_factory=dict)
    dark: dict[str, list[str]] = field(default_factory=dict)
    too_wide: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
async def showcase(console: Console) -> AsyncIterator[Showcase]:
    """An installation with items of every kind."""
    showcase = await furnish(console)
    yield showcase
    await showcase.end(console)


@pytest.fixture(scope="module")
def checker(request: pytest.FixtureRequest) -> str:
    """The script that checks a page."""
    return axe.script(request.config.cache.mkdir("axe"))


@pytest.fixture(scope="module")
async def seen(browser: Browser, console: Console, showcase: Showcase, checker: str) -> Seen:
    """Every page, visited once: its words and shapes, its contrast in the dark, and its width on a phone."""
    seen, troubles = Seen(), Troubles()
    async with AsyncExitStack() as held:
        pages = {
            "visitor": await held.enter_async_context(visiting(browser, console.address, troubles)),
            "project": await held.enter_async_context(
                signed_in(browser, console.address, showcase.project.key, troubles)
            ),
            "admin": await held.enter_async_context(signed_in(browser, console.address, console.admin_key, troubles)),
        }
        for shown in showcase.pages:
            await visit(pages[shown.who], shown, checker, seen)
    assert troubles.found == []
    return seen


async def visit(page: Page, shown: Shown, checker: str, seen: Seen) -> None:
    """Look at one page in three ways."""
    await page.set_viewport_size(WIDE)
    await page.emulate_media(color_scheme="light")
    await open_and_wait(page, shown)
    seen.names.append(shown.name)
    if faults := await axe.grave_faults(page, checker):
        seen.light[shown.name] = faults
    await page.emulate_media(color_scheme="dark")
    if faults := await axe.grave_faults(page, checker, axe.CONTRAST):
        seen.dark[shown.name] = faults
    await page.set_viewport_size(NARROW)
    width = await page.evaluate("document.documentElement.scrollWidth")
    if width > NARROW["width"]:
        seen.too_wide[shown.name] = width


async def test_no_page_has_a_grave_fault(seen: Seen, showcase: Showcase) -> None:
    """Names, roles, order, contrast: whatever axe calls serious or critical is on no page."""
    assert seen.names == [shown.name for shown in showcase.pages]
    assert seen.light == {}


async def test_no_page_is_hard_to_read_in_the_dark(seen: Seen) -> None:
    """The other colours have contrast, too."""
    assert seen.dark == {}


async def test_no_page_is_wider_than_a_phone(seen: Seen) -> None:
    """Lists stack or scroll by themselves; the page itself does not scroll sideways."""
    assert seen.too_wide == {}


async def test_the_check_sees_faults(page: Page, checker: str) -> None:
    """A picture without words and a field without a name are found."""
    await open_and_wait(page, Shown("overview", "/console"))
    main = page.get_by_role("main")
    await main.evaluate("(main) => main.append(document.createElement('img'), document.createElement('input'))")
    assert {fault.split(":")[0] for fault in await axe.grave_faults(page, checker)} == {"image-alt", "label"}
