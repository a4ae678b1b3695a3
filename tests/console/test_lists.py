"""Lists: pages with addresses of their own, filters in the address, the keyboard, and what an empty list shows."""

from __future__ import annotations

import asyncio
import re
import secrets

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.console.catalogue import fill
from tests.console.installation import Console, Project
from tests.console.shops import make_shop
from tests.support.orders import Orders

pytestmark = pytest.mark.stack

ROWS, PAGE_ROWS = 120, 50


def rows(page: Page) -> Locator:
    """The rows of the list."""
    return page.locator("data-list tbody tr")


def button(page: Page, name: str) -> Locator:
    """One of the list's buttons."""
    return page.get_by_role("button", name=name, exact=True)


async def first(page: Page, name: str) -> None:
    """Wait until a file's row comes first."""
    await expect(rows(page).first).to_contain_text(f"{name}.csv")


async def test_each_page_has_an_address_of_its_own(page: Page, console: Console, project: Project) -> None:
    """The second page is the second page again when it is opened anew, and Back leads to the first."""
    await fill(console, project, ROWS)
    await page.goto("/console/downloads")
    await first(page, "Report 120")
    await expect(button(page, "Previous page")).to_be_disabled()

    await button(page, "Next page").click()
    await first(page, "Report 70")
    await page.reload()
    await first(page, "Report 70")
    await expect(rows(page)).to_have_count(PAGE_ROWS)
    await button(page, "Next page").click()
    await first(page, "Report 20")
    await expect(rows(page)).to_have_count(ROWS - 2 * PAGE_ROWS)
    await expect(button(page, "Next page")).to_be_disabled()

    await button(page, "Previous page").click()
    await first(page, "Report 70")
    await page.go_back()
    await first(page, "Report 20")


@pytest.mark.long
async def test_a_page_that_is_slow_is_turned_once(page: Page, console: Console, project: Project) -> None:
    """Pressing again does not load the same page twice, and the focus stays where it was."""
    await fill(console, project, ROWS)
    await page.goto("/console/downloads")
    await first(page, "Report 120")
    free = asyncio.Event()

    async def later(route: Route) -> None:
        await free.wait()
        await route.continue_()

    await page.route(re.compile(r"/v1/downloads\?.*cursor="), later)
    await button(page, "Next page").focus()
    await page.keyboard.press("Enter")
    await expect(button(page, "Next page")).to_be_disabled()
    await expect(button(page, "Previous page")).to_be_disabled()
    free.set()
    await first(page, "Report 70")
    await expect(button(page, "Next page")).to_be_focused()
    await button(page, "Previous page").click()
    await first(page, "Report 120")


async def test_filters_are_in_the_address(page: Page, console: Console, project: Project) -> None:
    """What is typed is found, on the first page; the address finds the same, and Reset takes all of it away."""
    await fill(console, project, ROWS)
    await page.goto("/console/downloads")
    await button(page, "Next page").click()
    await first(page, "Report 70")
    await page.get_by_label("File", exact=True).fill("report 11")

    await first(page, "Report 119")
    await expect(page).to_have_url(re.compile(r"/console/downloads\?file_name=report\+11$"))
    await page.reload()
    await first(page, "Report 119")
    await button(page, "Reset").click()
    await first(page, "Report 120")
    await expect(page).to_have_url(re.compile(r"/console/downloads$"))


@pytest.mark.long
async def test_an_empty_list_says_how_to_begin(page: Page) -> None:
    """It names the call and the command that make the first entry; a filter that finds nothing says so instead."""
    await page.goto("/console/downloads")
    empty = page.locator("data-list .empty")
    await empty.get_by_text("The same by API and by command").click()
    await expect(empty.locator("code").first).to_contain_text("curl -X POST http://127.0.0.1:")
    await expect(empty.locator("code").last).to_contain_text("haulage export")
    await expect(empty.get_by_role("button", name="Copy")).to_have_count(2)

    await page.goto("/console/downloads?state=failed")
    await expect(empty).to_have_text(re.compile("^Nothing matches the filters."))


async def says_how_by_curl_and_by_command(page: Page, path: str) -> None:
    """A list without a row unfolds what asks for the same."""
    await page.goto(path)
    empty = page.locator(".empty")
    await empty.get_by_text("The same by API and by command").click()
    texts = await empty.locator("code").all_inner_texts()
    assert [text.split()[0] for text in texts] == ["curl", "haulage"], path


@pytest.mark.long
async def test_every_list_of_a_project_says_how_by_curl_and_by_command(
    page: Page, console: Console, project: Project
) -> None:
    """An empty list shows how to create its items by a program and by a terminal."""
    queue = console.tasks(project, f"none.{secrets.token_hex(4)}")
    await queue.register()
    of_type = f"/console/tasks/types/{queue.type}"
    lists = [f"/console/{path}" for path in ("downloads", "transfers", "orders", "tasks?prefix=nothing")]
    for path in (*lists, of_type, f"{of_type}/archive", "/console/tasks/named/nobody"):
        await says_how_by_curl_and_by_command(page, path)


@pytest.mark.long
async def test_every_list_of_the_admin_says_how_by_curl_and_by_command(admin_page: Page, orders: Orders) -> None:
    """Also lists that only the administrator opens, and those of a platform."""
    shop = await make_shop(orders)
    addresses = [f"/console/addresses{part}?uprn=1" for part in ("", "/history", "/logical-deletes")]
    for path in (*addresses, f"{shop.page}?tab=slices", f"{shop.page}?tab=reports", "/console/orders/browse?shop=none"):
        await says_how_by_curl_and_by_command(admin_page, path)


async def test_the_keyboard_reaches_everything(page: Page, console: Console, project: Project) -> None:
    """The first Tab offers to skip to the content; from a row's link Enter opens its page, whose heading is next."""
    await fill(console, project, 1)
    await page.goto("/console/downloads")
    await first(page, "Report 1")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_be_focused()

    await rows(page).get_by_role("link").focus()
    await page.keyboard.press("Enter")
    await expect(heading).to_have_text("Report 1.csv")
    await expect(heading).to_be_focused()


async def test_rows_are_announced_and_stack_on_a_phone(page: Page, console: Console, project: Project) -> None:
    """A live region says how many there are; on a narrow screen each cell is beside its heading."""
    await fill(console, project, 3)
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto("/console/downloads")
    await expect(page.get_by_role("status").filter(has_text="3 rows on this page")).to_be_visible()
    cell = rows(page).first.locator("td:not(.tick-cell)").first
    assert await cell.evaluate("(cell) => getComputedStyle(cell, '::before').content") == '"File"'
    await expect(page.get_by_role("columnheader", name="File")).to_have_count(1)
