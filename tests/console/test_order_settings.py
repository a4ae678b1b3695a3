"""Settings of platforms in the browser: values beside what they override, rates, and new platforms."""

from __future__ import annotations

import re
from secrets import token_hex

import pytest
from playwright.async_api import Page, expect

from sims.platforms.scenario import PlatformScenario
from tests.console.browsing import Troubles
from tests.console.installation import Project
from tests.console.shops import SPAN_SECONDS, confirm, make_shop
from tests.support.orders import SIGNED, Orders, since

pytestmark = pytest.mark.stack


async def test_configuration_stands_beside_what_it_overrides(
    admin_page: Page, orders: Orders, troubles: Troubles
) -> None:
    """Default, override, in force; an error appears at its field, and what is right is in force at once."""
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
    orders.play(PlatformScenario(kind="taobao", orders=0), number)
    await admin_page.goto("/console/orders/new")
    await admin_page.get_by_label("Name").fill(number)
    await admin_page.locator("main").get_by_label("Project").select_option(project.project_id)
    await admin_page.get_by_label("Kind").fill("ebay")
    await admin_page.get_by_label("Shop").fill("my shop")
    await admin_page.get_by_label("Address", exact=True).fill(orders.platforms.url(number))
    await admin_page.get_by_role("button", name="Save").click()
    await expect(admin_page.get_by_role("alert")).to_contain_text("There is no built-in kind")
    record = admin_page.get_by_label("Capability (JSON)")
    await record.fill('{"kind": "ebay", "rate": {"per_second": 0}}')
    await admin_page.get_by_role("button", name="Save").click()
    await expect(record).to_have_accessible_description(
        re.compile(r"query: this field is missing.*per_second: 0 is out")
    )
    await record.fill("")
    await admin_page.get_by_label("Kind").fill("taobao")
    await admin_page.get_by_role("button", name="Save").click()

    await expect(admin_page.get_by_role("heading", level=1)).to_have_text(number)
    assert (await orders.status(number))["shop"] == "my shop"
    await orders.ask("POST", f"/v1/platforms/{number}/pause", json=SIGNED)
