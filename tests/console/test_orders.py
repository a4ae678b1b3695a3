"""Orders in the browser: time line, failed slices, configuration, pausing, reading again, comparisons, the orders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex

import pytest
from playwright.async_api import Locator, Page, expect
from sqlalchemy import update
from sqlmodel import col

from infra.tables.orders import OrderPlatform, OrderSlice
from sims.platforms.scenario import Faults, Scenario
from tests.console.browsing import Troubles
from tests.console.house import Console, Project
from tests.orders import Orders, since
from tests.stack import eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
SLICE = timedelta(minutes=10)
DEAD = Faults(token_dead=True)
SLICES = 5


@dataclass(frozen=True)
class Shop:
    """A platform of the test's own, with an hour of orders that are not fetched yet."""

    orders: Orders
    number: str

    @property
    def page(self) -> str:
        """The address of its page."""
        return f"/console/orders/platforms/{self.number}"

    async def fetch(self) -> None:
        """One cycle to its end."""
        await self.orders.fetch(self.number)

    def mend(self, **faults: bool) -> None:
        """Let the platform answer rightly again."""
        platform = self.orders.platforms.by_number[self.number]
        platform.set(platform.scenario.model_copy(update={"faults": Faults(**faults)}))

    async def newest(self) -> str:
        """The page of its newest order, as the API writes it."""
        headers = {"Authorization": f"Bearer {self.orders.key}"}
        address = f"{self.orders.door.address}/v1/orders?platform={self.number}&limit=1"
        async with self.orders.door.session.get(address, headers=headers) as answer:
            return await answer.text()

    async def fail(self) -> int:
        """Cycles until every slice is in the failed set; how many there are."""

        async def all_failed() -> int:
            await self.fetch()
            status = await self.orders.status(self.number)
            whole = [{"start": status["starts_at"], "end": status["claimed_to"]}]
            failed: int = status["failed"]
            return failed if status["holes"] == whole and not status["open"] else 0

        return await eventually(all_failed)


async def make_shop(orders: Orders, faults: Faults | None = None) -> Shop:
    """Set one up, paused, so that only the test says when it claims."""
    number = f"shop-{token_hex(4)}"
    scenario = Scenario(orders=90, span_seconds=SPAN_SECONDS, faults=faults or Faults())
    platform = orders.play(scenario, number)
    await orders.set_up(number)
    await orders.configure(number, starttime=since(platform, seconds=SPAN_SECONDS), interval=600)
    return Shop(orders, number)


@pytest.fixture
def orders(console: Console, project: Project) -> Orders:
    """Orders of the test's project."""
    return console.orders(project)


async def write_ledger(shop: Shop, begin: datetime, count: int, failed: set[int]) -> None:
    """A ledger of so many slices, as if they had been read."""
    rows = [
        OrderSlice(
            platform=shop.number,
            start_at=begin + number * SLICE,
            end_at=begin + (number + 1) * SLICE,
            track="live",
            claimed_at=begin,
            orders=3,
            done_at=None if number in failed else begin,
            failed_at=begin if number in failed else None,
            swept_at=None if number in failed else begin,
            missed=0,
        )
        for number in range(count)
    ]
    end = begin + count * SLICE
    marks = {"starts_at": begin, "history_to": begin, "live_from": begin, "claimed_to": end}
    marks["complete_to"] = begin + min(failed) * SLICE
    async with shop.orders.services.database.session() as session:
        session.add_all(rows)
        await session.execute(update(OrderPlatform).where(col(OrderPlatform.platform) == shop.number).values(**marks))


def facts(page: Page, label: str) -> Locator:
    """The value beside a label."""
    return page.locator("dl.facts > div").filter(has=page.get_by_text(label, exact=True)).locator("dd")


async def confirm(page: Page, title: str, action: str, reason: str = "") -> None:
    """Answer the question that a press has raised."""
    dialog = page.get_by_role("dialog", name=title)
    if reason:
        await dialog.get_by_label("Reason").fill(reason)
    await dialog.get_by_role("button", name=action, exact=True).click()


async def test_a_platform_is_watched_until_its_orders_are_in(
    admin_page: Page, orders: Orders, project: Project
) -> None:
    """Its page tells by itself when they are, and shows each as its platform wrote it."""
    shop = await make_shop(orders)
    await admin_page.goto("/console/orders")
    await admin_page.get_by_label("Project", exact=True).select_option(project.project_id)
    await expect(admin_page.get_by_role("row").filter(has_text=shop.number)).to_contain_text("Not begun")
    await admin_page.get_by_role("row").filter(has_text=shop.number).get_by_role("link").click()
    await expect(admin_page.get_by_text("Nothing has been claimed yet.")).to_be_visible()
    await shop.fetch()

    await expect(admin_page.get_by_text("No holes: everything that is claimed is in.")).to_be_visible()
    line = admin_page.locator(".line-card")
    await expect(line.get_by_role("status")).to_contain_text("no holes")
    await expect(line.get_by_role("img", name=re.compile("Complete"))).to_have_count(1)
    await admin_page.goto(f"/console/orders/browse?platform={shop.number}")
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(50)
    await rows.first.get_by_text("Show").click()
    written = await rows.first.locator("pre").inner_text()
    assert f'"order":{_pressed(written)}}}' in _pressed(await shop.newest())


async def test_a_time_line_draws_what_is_claimed_complete_failed_and_swept(admin_page: Page, orders: Orders) -> None:
    """Thousands of slices in a few shapes; a hole is shown closely, and a press leads to the slices behind it."""
    shop = await make_shop(orders)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=14)
    await write_ledger(shop, begin, 2_000, {1_000, 1_001})
    await admin_page.goto(shop.page)
    line = admin_page.locator("svg.time-line")
    await expect(line.get_by_role("button")).to_have_count(1)
    await expect(line.locator("rect.swept")).not_to_have_count(0)
    await expect(line.locator("rect.hole")).to_have_count(1)
    await expect(line.locator("text.mark-name")).to_have_text(["Complete to", "Now"])
    assert await line.locator("rect").count() < 50

    hole = admin_page.locator(".holes li")
    await expect(hole).to_have_count(1)
    await hole.get_by_role("button", name="Show on the time line").click()
    await expect(admin_page).to_have_url(re.compile("from=.*to="))
    await expect(admin_page.locator(".line-card").get_by_role("status")).to_contain_text("1 hole")
    await line.get_by_role("button", name=re.compile("Failed")).focus()
    await admin_page.keyboard.press("Enter")
    await expect(admin_page.get_by_role("tab", name="Slices")).to_have_attribute("aria-selected", "true")
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows.filter(has_text="Failed")).to_have_count(2)
    await admin_page.get_by_role("button", name="All", exact=True).click()
    await expect(admin_page.get_by_role("button", name="All", exact=True)).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("deed", ["Redo", "Split"])
async def test_failed_slices_are_mended(admin_page: Page, orders: Orders, deed: str) -> None:
    """The failed set tells why; all of it is redone or split after saying what that does to how many."""
    shop = await make_shop(orders, DEAD)
    failed = await shop.fail()
    await admin_page.goto(f"{shop.page}?tab=slices&state=failed")
    rows = admin_page.get_by_role("table").locator("tbody tr")
    await expect(rows).to_have_count(failed)
    await expect(rows.first).to_contain_text("platform_credentials")
    shop.mend()
    await admin_page.get_by_label("Select all rows").check()
    await admin_page.locator(".list-actions").get_by_role("button", name=deed).click()
    title = {"Redo": f"Read {failed} slices again?", "Split": f"Split {failed} slices?"}[deed]
    await confirm(admin_page, title, f"{deed} {failed} slices")

    await expect(rows).to_have_count(0)

    async def whole() -> bool:
        await shop.fetch()
        return await orders.is_complete(shop.number)

    await eventually(whole)
    await expect(admin_page.locator(".line-card").get_by_role("status")).to_contain_text("no holes")


async def test_a_failed_slice_is_skipped_with_a_reason(admin_page: Page, orders: Orders) -> None:
    """Nothing happens without one; afterwards the mark moves on and the ledger tells it."""
    shop = await make_shop(orders, DEAD)
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
    assert status["failed"] == failed - 1


async def test_a_deed_that_comes_too_late_is_told_in_the_api_s_words(
    admin_page: Page, orders: Orders, troubles: Troubles
) -> None:
    """Somebody else skipped the slice while the question was open."""
    troubles.expect(r"409 POST /v1/platforms/.*/split")
    shop = await make_shop(orders, DEAD)
    await shop.fail()
    reply = await orders.ask("GET", f"/v1/platforms/{shop.number}/slices?state=failed&limit=1")
    name = reply.body["items"][0]["slice"]
    await admin_page.goto(f"{shop.page}/slices/{name}")
    await admin_page.get_by_role("button", name="Split").click()
    await orders.ask("POST", f"/v1/platforms/{shop.number}/slices/{name}/skip", json={"reason": "I was first"})
    await confirm(admin_page, "Split 1 slice?", "Split 1 slice")

    alert = admin_page.get_by_role("alert")
    await expect(alert).to_contain_text("only one in the failed set can be split or skipped")
    await expect(alert).to_contain_text("Request id")


async def test_configuration_stands_beside_what_it_overrides(
    admin_page: Page, orders: Orders, troubles: Troubles
) -> None:
    """Default, override, in force; what is wrong is told at its field, and what is right is in force at once."""
    troubles.expect(r"422 PUT /v1/platforms/.*/config")
    shop = await make_shop(orders)
    await admin_page.goto(f"{shop.page}?tab=config")
    threads = admin_page.get_by_label("threads")
    cells = admin_page.get_by_role("row").filter(has=threads).get_by_role("cell")
    await expect(cells.nth(1)).to_have_text("4 built in")
    await expect(cells.nth(3)).to_have_text("4 built in")
    await threads.fill("0")
    await admin_page.get_by_label("overlap").fill("9000")
    await admin_page.get_by_role("button", name="Save").click()
    await expect(threads).to_have_attribute("aria-invalid", "true")
    await expect(threads).to_be_focused()
    await expect(threads).to_have_accessible_description(re.compile("1"))

    await threads.fill("2")
    await admin_page.get_by_label("overlap").fill("900")
    await admin_page.get_by_role("button", name="Save").click()
    overlap = admin_page.get_by_label("overlap")
    await expect(overlap).to_have_accessible_description(re.compile("must be shorter than interval 600 s"))
    await overlap.fill("")
    await admin_page.get_by_role("button", name="Save").click()

    await expect(cells.nth(3)).to_have_text("2 override")
    await expect(cells.nth(1)).to_have_text("4 built in")
    config = (await orders.ask("GET", f"/v1/platforms/{shop.number}/config")).body
    assert (config["own"]["threads"], config["own"]["overlap"]) == (2, None)
    await expect(admin_page.get_by_role("button", name="Save")).to_be_disabled()


async def test_the_shared_configuration_is_changed_after_asking(admin_page: Page, orders: Orders) -> None:
    """It holds for every platform that sets nothing of its own."""
    shop = await make_shop(orders)
    await admin_page.goto("/console/orders")
    await admin_page.get_by_role("link", name="Shared configuration").click()
    await admin_page.get_by_label("retries").fill("7")
    await admin_page.get_by_role("button", name="Save").click()
    await confirm(admin_page, "Change what all platforms share?", "Save")
    row = admin_page.get_by_role("row").filter(has=admin_page.get_by_label("retries"))
    await expect(row.get_by_role("cell").nth(3)).to_have_text("7 shared")

    effective = (await orders.ask("GET", f"/v1/platforms/{shop.number}/config")).body["effective"]
    assert effective["retries"] == {"value": 7, "origin": "default"}
    await orders.ask("PUT", "/v1/platforms/default/config", json={})


async def test_a_platform_is_paused_resumed_and_told_to_claim(admin_page: Page, orders: Orders) -> None:
    """The question says what goes on and what not; the reason is shown while it is paused."""
    shop = await make_shop(orders)
    await admin_page.goto(shop.page)
    await admin_page.get_by_role("button", name="Resume").click()
    await expect(admin_page.locator(".badges").get_by_text("Claiming")).to_be_visible()
    await expect(facts(admin_page, "Claims next")).not_to_have_text("none")
    await admin_page.get_by_role("button", name="Claim now").click()
    await eventually(lambda: orders.is_complete(shop.number))
    await expect(admin_page.get_by_text("No holes: everything that is claimed is in.")).to_be_visible()

    await admin_page.get_by_role("button", name="Pause").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text("Nothing new is claimed until you resume.")
    await confirm(admin_page, f"Pause {shop.number}?", "Pause", reason="stocktaking")
    await expect(admin_page.locator(".badges")).to_contain_text("stocktaking")
    await expect(facts(admin_page, "Claims next")).to_have_text("none")
    assert (await orders.status(shop.number))["paused"]


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
    await expect(dialog).to_contain_text("by at most 12 hours")
    await dialog.get_by_label("From").fill(begin)
    await dialog.get_by_role("button", name="Read again").click()

    await expect(dialog).to_have_count(0)
    await eventually(lambda: len(platform.throttle.times) > asked)


async def test_a_day_is_compared_with_the_platform(admin_page: Page, orders: Orders) -> None:
    """The figures appear when it is made, with the workbook's address."""
    shop = await make_shop(orders)
    await shop.fetch()
    await admin_page.goto(f"{shop.page}?tab=reports")
    await expect(admin_page.get_by_text("No day has been compared yet.")).to_be_visible()
    await admin_page.get_by_label("Day (UTC)").fill("2026-01-01")
    await admin_page.get_by_role("button", name="Compare").click()

    row = admin_page.get_by_role("row").filter(has_text="2026-01-01")
    report = await eventually(lambda: _report(orders, shop))
    await expect(row.get_by_role("cell").nth(1)).to_have_text(str(report["told"]))
    await expect(row.get_by_role("link", name="Open the workbook")).to_have_attribute("href", re.compile("xlsx"))


def _pressed(text: str) -> str:
    return "".join(text.split())


async def _report(orders: Orders, shop: Shop) -> dict[str, int]:
    reply = await orders.ask("GET", f"/v1/platforms/{shop.number}/reports/2026-01-01")
    report: dict[str, int] = reply.body if reply.status == 200 else {}
    return report


async def test_rates_used_are_shown_against_what_is_allowed(admin_page: Page, orders: Orders) -> None:
    """Of the burst and of the day, over all workers."""
    shop = await make_shop(orders)
    platform = orders.platforms.by_number[shop.number]
    await orders.configure(
        shop.number,
        starttime=since(platform, seconds=SPAN_SECONDS),
        requests_per_second=1,
        burst=500,
        daily_quota=5_000,
    )
    await shop.fetch()
    used = (await orders.status(shop.number))["requests_today"]
    await admin_page.goto(shop.page)

    await expect(admin_page.locator(".rates")).to_contain_text(f"{used} of 5,000 requests within a day")
    await expect(admin_page.locator(".rates")).to_contain_text("of 500 requests within")
    assert used > 0


async def test_a_platform_is_set_up_in_the_form(
    admin_page: Page, orders: Orders, project: Project, troubles: Troubles
) -> None:
    """What the API finds wrong is shown; then its page opens."""
    troubles.expect(r"422 PUT /v1/platforms/.*")
    number = f"form-{token_hex(4)}"
    orders.play(Scenario(kind="taobao", orders=0), number)
    await admin_page.goto("/console/orders/new")
    await admin_page.get_by_label("Number").fill(number)
    await admin_page.locator("main").get_by_label("Project").select_option(project.project_id)
    await admin_page.get_by_label("Kind").fill("ebay")
    await admin_page.get_by_label("Shop").fill("my shop")
    await admin_page.get_by_label("Address").fill(orders.platforms.url(number))
    await admin_page.get_by_role("button", name="Save").click()
    await expect(admin_page.get_by_role("alert")).to_contain_text("There is no built-in kind")
    await admin_page.get_by_label("Kind").fill("taobao")
    await admin_page.get_by_role("button", name="Save").click()

    await expect(admin_page.get_by_role("heading", level=1)).to_have_text(number)
    assert (await orders.status(number))["shop"] == "my shop"
    await orders.ask("POST", f"/v1/platforms/{number}/pause", json={})


async def test_a_project_sees_its_own_orders_and_no_platform(
    page: Page, orders: Orders, console: Console, troubles: Troubles
) -> None:
    """Its key lists what is its own; a platform's page is not there for it, another project's orders neither."""
    troubles.expect("404 GET /v1/platforms/.*")
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
    await expect(page.get_by_role("alert")).to_contain_text("There is nothing here for this key.")
