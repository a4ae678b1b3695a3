"""Orders in the browser: time line, failed slices, pausing, reading again, comparisons, the orders."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Page, expect
from sqlmodel import col, update

from sims.platforms.scenario import PlatformFaults
from stores.tables.orders import OrderSlice
from tests.console.browsing import Troubles
from tests.console.installation import Console, Project
from tests.console.operators import sign
from tests.console.shops import Shop, confirm, facts, make_shop, write_ledger
from tests.support.orders import Orders
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

BROKEN = PlatformFaults(errors=1)
SLICES = 5


async def test_a_platform_is_watched_until_its_orders_are_in(
    admin_page: Page, orders: Orders, project: Project
) -> None:
    """Its page updates by itself when they are, and shows each as its platform wrote it."""
    shop = await make_shop(orders)
    await admin_page.goto("/console/orders")
    await admin_page.get_by_label("Project", exact=True).select_option(project.project_id)
    await expect(admin_page.get_by_role("row").filter(has_text=shop.number)).to_contain_text("Not begun")
    await admin_page.get_by_role("row").filter(has_text=shop.number).get_by_role("link").click()
    await expect(admin_page.get_by_text("Nothing has been claimed yet.")).to_be_visible()
    await shop.fetch()

    await expect(admin_page.get_by_text("No gaps: everything that is claimed is in.")).to_be_visible()
    line = admin_page.locator(".line-card")
    await expect(line.get_by_role("status")).to_contain_text("no gaps")
    await expect(line.get_by_role("img", name=re.compile("Complete"))).to_have_count(1)
    await admin_page.goto(f"/console/orders/browse?platform={shop.number}")
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(50)
    await rows.first.get_by_text("Show").click()
    written = await rows.first.locator("pre").inner_text()
    assert f'"order":{_remove_spaces(written)}}}' in _remove_spaces(await shop.newest())


async def test_the_list_says_which_platforms_are_paused_and_not_configured(
    admin_page: Page, orders: Orders, project: Project
) -> None:
    """One that was set up and not configured is told from one that is only paused."""
    shop = await make_shop(orders)
    await orders.set_up(f"{shop.number}-new")
    await admin_page.goto("/console/orders")
    await admin_page.get_by_label("Project", exact=True).select_option(project.project_id)
    rows = admin_page.get_by_role("row")
    await expect(rows.filter(has_text="Paused, not configured")).to_have_count(1)
    await expect(rows.filter(has_text=f"{shop.number}-new")).to_contain_text("Paused, not configured")
    await expect(rows.filter(has_text="Paused")).to_have_count(2)


@pytest.mark.long
async def test_a_time_line_draws_what_is_claimed_complete_failed_and_swept(admin_page: Page, orders: Orders) -> None:
    """Thousands of slices in a few shapes; a gap is shown closely, and a press leads to the slices behind it."""
    shop = await make_shop(orders)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=14)
    await write_ledger(shop, begin, 2_000, {1_000, 1_001})
    await admin_page.goto(shop.page)
    line = admin_page.locator("svg.time-line")
    await expect(line.get_by_role("button")).to_have_count(1)
    await expect(line.locator("rect.swept")).not_to_have_count(0)
    await expect(line.locator("rect.gap")).to_have_count(1)
    await expect(line.locator("text.mark-name")).to_have_text(["Complete to", "Now"])
    assert await line.locator("rect").count() < 50

    gap = admin_page.locator(".gaps li")
    await expect(gap).to_have_count(1)
    show = gap.get_by_role("button", name="Show on the time line")
    async with admin_page.expect_response(re.compile("/timeline")):
        await show.focus()
    await expect(show).to_be_focused()
    await admin_page.keyboard.press("Enter")
    await expect(admin_page).to_have_url(re.compile("from=.*to="))
    await expect(admin_page.locator(".line-card").get_by_role("status")).to_contain_text("1 gap")
    failed = line.get_by_role("button", name=re.compile("Failed"))
    async with admin_page.expect_response(re.compile("/timeline")):
        await failed.focus()
    # It was drawn anew meanwhile, and the part with the keyboard focus keeps it.
    await expect(failed).to_be_focused()
    await admin_page.keyboard.press("Enter")
    await expect(admin_page.get_by_role("tab", name="Slices")).to_have_attribute("aria-selected", "true")
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows.filter(has_text="Failed")).to_have_count(2)
    await admin_page.get_by_role("button", name="All", exact=True).click()
    await expect(admin_page.get_by_role("button", name="All", exact=True)).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("deed", ["Redo", "Split"])
@pytest.mark.long
async def test_failed_slices_are_mended(admin_page: Page, orders: Orders, deed: str) -> None:
    """The failed set shows the causes; all of it is redone or split after saying what that does to how many."""
    shop = await make_shop(orders, BROKEN)
    failed = await shop.fail()
    await admin_page.goto(f"{shop.page}?tab=slices&state=failed")
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(failed)
    await expect(rows.first).to_contain_text("platform_busy")
    shop.mend()
    await admin_page.get_by_label("Select all rows").check()
    await admin_page.locator(".list-actions").get_by_role("button", name=deed).click()
    title = {"Redo": f"Read {failed} slices again?", "Split": f"Split {failed} slices?"}[deed]
    await confirm(admin_page, title, f"{deed} {failed} slices", reason="the shop is well again")

    await expect(rows).to_have_count(0)

    async def whole() -> bool:
        await shop.fetch()
        return await orders.is_complete(shop.number)

    await eventually(whole)
    await expect(admin_page.locator(".line-card").get_by_role("status")).to_contain_text("no gaps")
    action = f"POST /v1/platforms/{{platform}}/slices:{deed.lower()}"
    entries = (await orders.ask("GET", "/v1/audit", params={"action": action})).body["items"]
    mine = [each for each in entries if shop.number in each["path"]]
    assert [(each["who"], each["reason"]) for each in mine] == [("ann", "the shop is well again")]


@pytest.mark.long
async def test_a_failed_slice_is_skipped_with_a_reason(admin_page: Page, orders: Orders) -> None:
    """Nothing happens without one; afterwards the mark moves on and the ledger shows the reason."""
    shop = await make_shop(orders, BROKEN)
    failed = await shop.fail()
    await admin_page.goto(f"{shop.page}?tab=slices&state=failed")
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(failed)
    await rows.last.get_by_role("link").click()
    await expect(admin_page.get_by_text("It holds “complete to” back")).to_be_visible()
    await admin_page.get_by_role("button", name="Skip").click()
    dialog = admin_page.get_by_role("dialog", name="Give up 1 slice?")
    await expect(dialog).to_contain_text("its orders may be missing from now on")
    await dialog.get_by_role("button", name="Skip 1 slice").click()
    await expect(dialog).to_be_visible()
    await confirm(admin_page, "Give up 1 slice?", "Skip 1 slice", reason="the shop was closed")

    await expect(admin_page.get_by_text("Skipped: the shop was closed")).to_be_visible()
    await expect(admin_page.get_by_role("button", name="Skip")).to_have_count(0)
    status = await orders.status(shop.number)
    assert status["complete_to"] > status["starts_at"]
    assert status["slices_failed"] == failed - 1


@pytest.mark.long
async def test_a_deed_that_comes_too_late_is_told_in_the_api_s_words(admin_page: Page, orders: Orders) -> None:
    """Another operator skipped the slice while the question was open."""
    shop = await make_shop(orders, BROKEN)
    await shop.fail()
    reply = await orders.ask("GET", f"/v1/platforms/{shop.number}/slices?state=failed&limit=1")
    name = reply.body["items"][0]["slice"]
    await admin_page.goto(f"{shop.page}/slices/{name}")
    await admin_page.get_by_role("button", name="Split").click()
    await orders.ask("POST", f"/v1/platforms/{shop.number}/slices/{name}/skip", json={"reason": "I was first"})
    await confirm(admin_page, "Split 1 slice?", "Split 1 slice", reason="it is too long")

    alert = admin_page.get_by_role("alert")
    await expect(alert).to_contain_text("only one in the failed set can be split or skipped")


@pytest.mark.long
async def test_a_platform_is_paused_resumed_and_told_to_claim(admin_page: Page, orders: Orders) -> None:
    """The question says what goes on and what not; the reason is shown while it is paused."""
    shop = await make_shop(orders)
    await admin_page.goto(shop.page)
    await admin_page.get_by_role("button", name="Resume").click()
    await sign(admin_page, "Resume", "the shop is open")
    await expect(admin_page.locator(".badges").get_by_text("Claiming")).to_be_visible()
    await expect(facts(admin_page, "Claims next")).not_to_have_text("none")
    await admin_page.get_by_role("button", name="Claim now").click()
    await eventually(lambda: orders.is_complete(shop.number))
    await expect(admin_page.get_by_text("No gaps: everything that is claimed is in.")).to_be_visible()

    await admin_page.get_by_role("button", name="Pause").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text(
        "Nothing new is claimed until you resume. The running cycle ends, too, at its next claim"
    )
    await sign(admin_page, "Pause", "stocktaking")
    await expect(admin_page.locator(".badges")).to_contain_text("ann: stocktaking")
    await expect(facts(admin_page, "Claims next")).to_have_text("none")
    assert (await orders.status(shop.number))["is_paused"]


@pytest.mark.long
async def test_a_time_is_read_again(admin_page: Page, orders: Orders, troubles: Troubles) -> None:
    """A time that is too long is refused at the form; one that is not asks the platform again."""
    troubles.expect(r"422 POST /v1/platforms/.*/backfill")
    shop = await make_shop(orders)
    await shop.fetch()
    platform = orders.platforms.by_number[shop.number]
    asked = len(platform.throttle.times)
    await admin_page.goto(shop.page)
    await admin_page.get_by_role("button", name="Read again").click()
    dialog = admin_page.get_by_role("dialog", name="Read a time again")
    begin = await dialog.get_by_label("From").input_value()
    await dialog.get_by_label("From").fill("2025-01-01T00:00:00")
    await dialog.get_by_role("button", name="Read again").click()
    await expect(dialog).to_contain_text("send at most 12 hours at a time")
    await dialog.get_by_label("From").fill(begin)
    await dialog.get_by_label("Your name").fill("Ada")
    await dialog.get_by_role("button", name="Read again").click()

    await expect(dialog).to_have_count(0)
    await eventually(lambda: len(platform.throttle.times) > asked)
    await admin_page.get_by_role("tab", name="Backfills").click()
    row = admin_page.get_by_role("table").locator("tbody tr")
    await expect(row).to_contain_text("Succeeded")
    await expect(row).to_contain_text("Ada")


@pytest.mark.long
async def test_a_backfill_that_failed_is_seen(admin_page: Page, orders: Orders) -> None:
    """At the platform, in the list of its backfills with the cause, and at the slice that could not be read."""
    shop = await make_shop(orders)
    await shop.fetch()
    [first, *_] = await orders.slices(shop.number)
    shop.mend(errors=1)
    assert (await orders.ask("PATCH", f"/v1/platforms/{shop.number}/config", json={"retries": 0})).status == 200
    times = {"start": first.start_at.isoformat(), "end": first.end_at.isoformat()}
    reply = await orders.ask("POST", f"/v1/platforms/{shop.number}/backfill", json=times)
    assert reply.status == 202, reply.body

    await admin_page.goto(f"{shop.page}?tab=backfills")
    await expect(admin_page.locator(".platform-card .badges")).to_contain_text("The last backfill failed")
    row = admin_page.get_by_role("table").locator("tbody tr")
    await expect(row).to_contain_text("platform_busy")
    await admin_page.goto(f"{shop.page}?tab=slices&reread=failed")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("Could not be read again")


@pytest.mark.long
async def test_a_slice_that_takes_too_long_is_seen(admin_page: Page, orders: Orders) -> None:
    """In the list of platforms, at its own, and in the ledger, which the badge leads to."""
    shop = await make_shop(orders)
    await write_ledger(shop, datetime.now(UTC).replace(microsecond=0) - timedelta(days=2), 5, {1})
    async with orders.services.database.session() as session:
        is_second = (col(OrderSlice.platform) == shop.number, col(OrderSlice.failed_at).is_not(None))
        told = {"failed_at": None, "stale_told_at": datetime.now(UTC)}
        await session.exec(update(OrderSlice).where(*is_second).values(**told))

    await admin_page.goto("/console/orders")
    await expect(admin_page.get_by_role("row").filter(has_text=shop.number)).to_contain_text("1 slice takes too long")
    await admin_page.goto(shop.page)
    await admin_page.locator(".platform-card").get_by_role("link", name="1 slice takes too long").click()
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("Takes too long")


@pytest.mark.long
async def test_a_sweep_that_failed_is_seen(admin_page: Page, orders: Orders) -> None:
    """In the list of platforms, at its own, and in the ledger, with the cause."""
    shop = await make_shop(orders)
    await shop.fetch()
    fault = {"code": "platform_busy", "message": "It answered 503."}
    [first, *_] = await orders.slices(shop.number)
    async with orders.services.database.session() as session:
        failed = {"failed_at": datetime.now(UTC), "fault": fault}
        await session.exec(update(OrderSlice).where(col(OrderSlice.slice_id) == first.slice_id).values(**failed))

    await admin_page.goto("/console/orders")
    await expect(admin_page.get_by_role("row").filter(has_text=shop.number)).to_contain_text("1 sweep failed")
    await admin_page.goto(shop.page)
    await admin_page.locator(".platform-card").get_by_role("link", name="1 sweep failed").click()
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("Sweep failed")
    await expect(rows).to_contain_text("It answered 503.")


@pytest.mark.long
async def test_a_day_is_compared_with_the_platform(admin_page: Page, orders: Orders) -> None:
    """The figures appear when it is made, with the workbook's address."""
    shop = await make_shop(orders)
    await shop.fetch()
    await shop.let_the_day_end()
    await admin_page.goto(f"{shop.page}?tab=reports")
    await expect(admin_page.get_by_text("No day has been compared yet.")).to_be_visible()
    await admin_page.get_by_label("Day (the platform's zone)").fill("2026-01-01")
    await admin_page.get_by_role("button", name="Compare").click()

    row = admin_page.get_by_role("row").filter(has_text="2026-01-01")
    report = await eventually(lambda: _report(orders, shop))
    await expect(row.get_by_role("cell").nth(2)).to_have_text(str(report["listed"]))
    await expect(row.get_by_role("link", name="Open the workbook")).to_have_attribute("href", re.compile("xlsx"))


def _remove_spaces(text: str) -> str:
    return "".join(text.split())


async def _report(orders: Orders, shop: Shop) -> dict[str, int]:
    reply = await orders.ask("GET", f"/v1/platforms/{shop.number}/reports/2026-01-01")
    report: dict[str, int] = reply.body if reply.status == 200 else {}
    return report


async def test_a_project_sees_its_own_orders_and_no_platform(
    page: Page, orders: Orders, console: Console, troubles: Troubles
) -> None:
    """Its key lists what is its own; a platform's page says that it needs the admin key."""
    troubles.expect("403 GET /v1/platforms/.*")
    shop = await make_shop(orders)
    await shop.fetch()
    theirs = await make_shop(console.orders(await console.make_project()))
    await theirs.fetch()
    await page.goto("/console/orders")
    rows = page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(50)
    assert {shop.number in each for each in await rows.all_inner_texts()} == {True}
    await page.get_by_label("Platform").fill(theirs.number)
    await expect(page.get_by_text("Nothing matches the filters.")).to_be_visible()

    await page.goto(shop.page)
    await expect(page.get_by_role("alert")).to_contain_text("This needs the admin key")
