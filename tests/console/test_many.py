"""One deed for many: for what is ticked on a page, and for all that the filters find."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Locator, Page, expect

from tests.console.catalogue import fill
from tests.console.installation import Console, Project
from tests.console.shops import confirm, make_shop, write_ledger
from tests.support.orders import Orders
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

WHOLE_PAGE, EVERYWHERE = "Select all rows of this page", "Select all that match, on every page"


def bar(page: Page) -> Locator:
    """What can be done to what is chosen."""
    return page.locator("data-list .list-actions")


async def choose_all(page: Page, says: str) -> None:
    """Choose all that the filters find, and wait until the page says how many these are."""
    await expect(page.locator("data-list tbody tr").first).to_be_visible()
    await page.get_by_label(WHOLE_PAGE).check()
    await page.get_by_role("button", name=EVERYWHERE).click()
    await expect(bar(page)).to_contain_text(says)


async def test_all_tasks_that_match_are_cancelled(page: Page, console: Console, project: Project) -> None:
    """The question tells of those on other pages, too; who thinks better of it has still chosen them."""
    queue = console.tasks(project, f"many.{secrets.token_hex(4)}")
    await queue.register()
    await queue.create_many(120, task_stage="cut")
    await queue.create_many(2, task_stage="mail")
    await page.goto(f"/console/tasks/types/{queue.type}?stage=cut")
    await expect(page.locator("data-list tbody tr")).to_have_count(50)
    await choose_all(page, "All 120 that match are selected")
    await page.get_by_role("button", name="Cancel selected").click()
    dialog = page.get_by_role("dialog", name="Cancel 120 tasks?")
    await dialog.get_by_role("button", name="Cancel", exact=True).click()
    await expect(bar(page)).to_contain_text("All 120 that match are selected")
    await page.get_by_role("button", name="Cancel selected").click()
    await dialog.get_by_role("button", name="Cancel 120 tasks").click()

    await expect(page.get_by_role("status").filter(has_text="120 tasks are cancelled.")).to_be_visible()
    counts = await queue.counts()
    assert (counts["pending"], counts["cancelled"]) == (2, 120)
    await expect(page.get_by_label(WHOLE_PAGE)).not_to_be_checked()


async def test_what_is_ticked_is_chosen_no_more_once_something_else_is_asked_for(
    page: Page, console: Console, project: Project
) -> None:
    """Another page, another filter or another tick: what a deed is for is always what the page says."""
    await fill(console, project, 120)
    await page.goto("/console/downloads")
    await choose_all(page, "All 120 that match are selected")
    await page.get_by_label(re.compile("^Select dl_")).first.uncheck()
    await expect(bar(page)).to_contain_text("49 selected")
    await page.get_by_role("button", name="Next page").click()
    await expect(bar(page)).to_be_empty()
    await expect(page.locator("data-list tbody tr").first).to_contain_text("Report 70.csv")
    await choose_all(page, "All 120 that match are selected")
    await page.get_by_label("File", exact=True).fill("report 11")
    await expect(bar(page)).to_be_empty()
    await expect(page.locator("data-list tbody tr")).to_have_count(11)
    await page.get_by_label(WHOLE_PAGE).check()
    await expect(page.get_by_role("button", name=EVERYWHERE)).to_have_count(0)


async def test_all_failed_slices_are_given_up(admin_page: Page, orders: Orders) -> None:
    """Those whose state does not allow it are counted apart and stay as they are."""
    shop = await make_shop(orders)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
    await write_ledger(shop, begin, 70, set(range(60)))
    await admin_page.goto(f"{shop.page}?tab=slices")
    await expect(admin_page.locator("data-list tbody tr")).to_have_count(50)
    await choose_all(admin_page, "All 70 that match are selected")
    await bar(admin_page).get_by_role("button", name="Skip").click()
    dialog = admin_page.get_by_role("dialog", name="Give up 60 slices?")
    await expect(dialog).to_contain_text("10 more are chosen and stay as they are")
    await confirm(admin_page, "Give up 60 slices?", "Skip 60 slices", reason="the shop was closed")

    await expect(admin_page.get_by_role("status").filter(has_text="60 slices were skipped.")).to_be_visible()
    assert (await orders.status(shop.number))["slices_failed"] == 0


async def test_one_that_has_changed_meanwhile_does_not_hinder_the_rest(admin_page: Page, orders: Orders) -> None:
    """It is counted, with the API's sentence."""
    shop = await make_shop(orders)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
    await write_ledger(shop, begin, 3, {0, 1, 2})
    reply = await orders.ask("GET", f"/v1/platforms/{shop.number}/slices?state=failed")
    name = reply.body["items"][1]["slice"]
    await admin_page.goto(f"{shop.page}?tab=slices&state=failed")
    await expect(admin_page.locator("data-list tbody tr")).to_have_count(3)
    await admin_page.get_by_label(WHOLE_PAGE).check()
    await bar(admin_page).get_by_role("button", name="Skip").click()
    await expect(admin_page.get_by_role("dialog")).to_be_visible()
    await orders.ask("POST", f"/v1/platforms/{shop.number}/slices/{name}/skip", json={"reason": "I was first"})
    await confirm(admin_page, "Give up 3 slices?", "Skip 3 slices", reason="the shop was closed")

    toast = admin_page.get_by_role("status").filter(has_text="2 slices were skipped. 1 not:")
    await expect(toast).to_contain_text("only one in the failed set can be split or skipped")
    assert (await orders.status(shop.number))["slices_failed"] == 0


@pytest.mark.long
async def test_many_downloads_are_cancelled_and_tried_again(page: Page, console: Console, project: Project) -> None:
    """Each deed takes those whose state allows it, and says what stays as it is."""
    exports, url = console.exports(project), console.source.url
    await fill(console, project, 55)
    failed = await exports.run(url(rows=200, seed=1, faults="not_found", rate=1), file_name="broken", page_size=100)
    slow = url(rows=60_000, seed=2, delay_ms=400)
    running = [await exports.start(slow, file_name=f"slow {number}", page_size=200) for number in range(2)]
    await page.goto("/console/downloads")
    await choose_all(page, "All 58 that match are selected")
    await page.get_by_role("button", name="Cancel selected").click()
    dialog = page.get_by_role("dialog", name="Cancel 2 downloads?")
    await expect(dialog).to_contain_text("56 are over already and stay as they are.")
    await dialog.get_by_role("button", name="Cancel 2 downloads").click()
    await expect(page.get_by_role("status").filter(has_text="2 downloads are being cancelled.")).to_be_visible()
    for task_id in running:
        assert (await exports.wait_for_end(task_id))["state"] == "cancelled"

    await page.get_by_label("State").select_option("failed")
    await expect(page.locator("data-list tbody tr")).to_have_count(1)
    await page.get_by_label(WHOLE_PAGE).check()
    await page.get_by_role("button", name="Try selected again").click()
    await page.get_by_role("dialog").get_by_role("button", name="Try 1 download again").click()
    await expect(page.get_by_role("status").filter(has_text="1 download is being tried again.")).to_be_visible()

    async def is_retried() -> bool:
        return bool((await exports.status(failed["task_id"]))["finished_at"] != failed["finished_at"])

    await eventually(is_retried)
