"""Addresses: cycles paused and resumed, logical deletes, comparisons of modules, the quarantine, a long history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, Route, expect

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from sims.oss.scenario import OssAction, OssRule
from tests.console.browsing import Troubles
from tests.console.installation import Console
from tests.console.operators import BASE_PATH, SIGNED, Operators, find_rows, sign

pytestmark = pytest.mark.stack


@pytest.fixture
async def operators(console: Console) -> AsyncIterator[Operators]:
    """The page of addresses; cycles run again when the test is over."""
    operators = Operators(console)
    yield operators
    await operators.ask("POST", "cycle/resume", json=SIGNED)


@pytest.mark.long
async def test_cycles_are_paused_and_resumed(admin_page: Page, operators: Operators) -> None:
    """While they are paused what comes in waits, and the page says who paused them and why."""
    await admin_page.goto(BASE_PATH)
    await admin_page.get_by_role("button", name="Pause cycles").click()
    await sign(admin_page, "Pause cycles", "IM is being upgraded")
    cycle = admin_page.locator(".cycle")
    await expect(cycle).to_contain_text("Paused by ann: IM is being upgraded")
    id_ = await operators.upsert(1)
    await admin_page.get_by_label("UPRN").fill(str(operators.uprn(1)))
    await expect(find_rows(admin_page)).to_have_count(1)
    await expect(find_rows(admin_page)).to_contain_text("Waiting")
    await cycle.get_by_role("button", name="Resume cycles").click()
    await sign(admin_page, "Resume cycles", "IM is back")

    await expect(cycle).to_contain_text("Resumed by ann: IM is back")
    assert await operators.wait_for_end(id_) == "done"
    await expect(admin_page.get_by_text("Nothing matches the filters.")).to_be_visible()


@pytest.mark.long
async def test_a_late_answer_shows_nothing_that_is_over(admin_page: Page, operators: Operators) -> None:
    """A look that began before the pause and ends after it draws no idle cycle."""
    await admin_page.goto(BASE_PATH)
    cycle = admin_page.locator(".cycle")
    await expect(cycle).to_contain_text("Idle")
    asked, paused = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch()
        asked.set()
        await paused.wait()
        await route.fulfill(response=answer)

    async with admin_page.expect_request("**/v1/addresses/cycle") as look:
        await admin_page.route("**/v1/addresses/cycle", hold, times=1)
    await asked.wait()
    await cycle.get_by_role("button", name="Pause cycles").click()
    await sign(admin_page, "Pause cycles", "IM is being upgraded")
    await expect(cycle).to_contain_text("Paused by ann")
    paused.set()
    late = await (await look.value).response()
    assert late is not None
    await late.finished()
    await admin_page.evaluate("new Promise(requestAnimationFrame)")

    assert "Paused by ann" in await cycle.inner_text()


@pytest.mark.long
async def test_the_cycle_under_way_is_shown(admin_page: Page, operators: Operators) -> None:
    """What it is doing, what it has taken, and its page in Temporal."""
    await admin_page.goto(BASE_PATH)
    cycle = admin_page.locator(".cycle")
    await expect(cycle).to_contain_text("Idle")
    # It ends with the block, before a call would be given up.
    async with operators.apply_rule(OssRule(action=OssAction.SLOW, seconds=25)):
        id_ = await operators.upsert(1)
        await operators.ask("POST", "cycle/resume", json=SIGNED)
        await expect(cycle).to_contain_text("It applies creates and updates.")
        await expect(cycle).to_contain_text("loaded so far")
        await expect(cycle.get_by_role("link", name="In Temporal")).to_have_attribute(
            "href", re.compile("OSS_IM_INFI_SYNC_EVENT")
        )
    assert await operators.wait_for_end(id_) == "done"


@pytest.mark.long
async def test_logical_deletes_are_checked_and_purged(admin_page: Page, operators: Operators) -> None:
    """Held by a module until a check finds that it needs the address no more; a purge is asked twice."""
    address = operators.uprn(1)
    await operators.run_cycles(await operators.upsert(1))
    orders = operators.console.oss.modules[Module.OD]
    orders.begin_orders([address])
    await operators.run_cycles(await operators.publish(Topic.DELETE, uprn=address))
    await admin_page.goto(f"{BASE_PATH}/logical-deletes?uprn={address}")
    await expect(find_rows(admin_page)).to_contain_text("OD")
    orders.end_orders([address])
    await admin_page.get_by_role("button", name="Check now").click()
    await expect(find_rows(admin_page)).to_contain_text("no module")
    await admin_page.get_by_label(f"Select {address}").check()
    await admin_page.get_by_role("button", name="Purge selected").click()
    dialog = admin_page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Purge 1 address from all modules?")
    await sign(admin_page, "Purge for good", "monthly")
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("I know what this does").check()
    await dialog.get_by_role("button", name="Purge for good").click()

    await expect(admin_page.get_by_role("heading", level=1)).to_have_text("Purge")
    await expect(admin_page.locator(".card")).to_contain_text("Done")
    await admin_page.get_by_text("Which ones").click()
    await expect(admin_page.locator(".card")).to_contain_text(str(address))
    await admin_page.goto(f"{BASE_PATH}/logical-deletes?which=purged&uprn={address}")
    await expect(find_rows(admin_page)).to_contain_text("purged")


async def test_modules_are_compared(admin_page: Page, operators: Operators) -> None:
    """The verdict comes by itself, with the workbook to download, and stays in the list."""
    [id_] = await operators.create_given_up(1)
    await admin_page.goto(f"{BASE_PATH}/comparisons")
    await admin_page.get_by_role("button", name="Compare now").click()

    await expect(admin_page.locator(".verdict")).to_contain_text(re.compile("differs? between modules"))
    async with admin_page.expect_download() as downloading:
        await admin_page.get_by_role("link", name="Download the workbook").click()
    assert (await downloading.value).suggested_filename.endswith(".xlsx")
    await admin_page.get_by_role("link", name="← Comparisons").click()
    await expect(find_rows(admin_page).first).to_contain_text("Done")
    assert (await operators.message(id_))["state"] == "given_up"


async def test_the_quarantine_says_why_something_could_not_be_read(admin_page: Page, operators: Operators) -> None:
    """With its text, as it came."""
    number = f"bad{operators.base}"
    await operators.store(Topic.SWAP, b'{"uprn_1": 7, "uprn_2": 7}', number)
    await admin_page.goto(f"{BASE_PATH}/quarantine?topic={Topic.SWAP}")
    await admin_page.get_by_role("link", name=number).click()

    await expect(admin_page.locator(".lead")).to_contain_text("uprn_2")
    await expect(admin_page.locator("pre").first).to_have_text('{"uprn_1": 7, "uprn_2": 7}')


async def test_a_message_in_quarantine_is_mended(admin_page: Page, operators: Operators, troubles: Troubles) -> None:
    """Text that still cannot be read is refused; readable text becomes a message, whose page names its origin."""
    troubles.expect(r"422 POST /v1/addresses/quarantine/\d+/mend")
    number = f"mend{operators.base}"
    await operators.store(Topic.SWAP, b'{"uprn_1": 7, "uprn_2": 7}', number)
    await admin_page.goto(f"{BASE_PATH}/quarantine?topic={Topic.SWAP}")
    await admin_page.get_by_role("link", name=number).click()
    text = admin_page.get_by_label("Corrected text")
    await expect(text).to_have_value('{"uprn_1": 7, "uprn_2": 7}')
    await admin_page.get_by_role("button", name="Mend and receive").click()
    await sign(admin_page, "Receive", "a typo")
    await expect(admin_page.locator(".addresses > .problem")).to_contain_text("uprn_2")

    await text.fill(f'{{"uprn_1": {operators.base}, "uprn_2": {operators.base + 1}}}')
    await admin_page.get_by_role("button", name="Mend and receive").click()
    await sign(admin_page, "Receive", "a typo")
    await expect(admin_page.locator("main")).to_contain_text(f"message {number}")
    await admin_page.goto(f"{BASE_PATH}/quarantine?topic={Topic.SWAP}")
    await expect(find_rows(admin_page).filter(has_text=number)).to_have_count(0)


@pytest.mark.long
async def test_what_was_published_again_leaves_the_quarantine(admin_page: Page, operators: Operators) -> None:
    """It is asked first, under a name and with a reason; the others stay."""
    gone, stays = f"gone{operators.base}", f"stays{operators.base}"
    for number in (gone, stays):
        await operators.store(Topic.DELETE, b"{}", number)
    await admin_page.goto(f"{BASE_PATH}/quarantine?topic={Topic.DELETE}")
    await find_rows(admin_page).filter(has_text=gone).get_by_role("checkbox").check()
    await admin_page.get_by_role("button", name="Discard selected").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text("Discard 1 unreadable message?")
    await sign(admin_page, "Discard", "published again")

    await expect(find_rows(admin_page).filter(has_text=stays)).to_have_count(1)
    await expect(find_rows(admin_page).filter(has_text=gone)).to_have_count(0)


@pytest.mark.long
async def test_a_long_history_is_turned_page_by_page(admin_page: Page, operators: Operators) -> None:
    """Never more than a page is in the document; Back comes back to the page before, and an address shows its page."""
    async with operators.database.connection() as connection:
        await connection.execute(
            "INSERT INTO im_infi_addr_sync_log_his (id, topic, uprn_1, msg_no, proc_flag, createdat) "
            "SELECT $1::bigint + n, 'deleteInfinityAddress', $1::bigint, n::text, 'Y', now() - n * interval '1 second' "
            "FROM generate_series(1, 100000) AS n",
            operators.base,
        )
    await admin_page.goto(f"{BASE_PATH}/history?uprn={operators.base}")
    await expect(find_rows(admin_page)).to_have_count(50)
    await admin_page.get_by_role("button", name="Next page").click()
    await expect(find_rows(admin_page).first).to_contain_text(str(operators.base + 51))
    await expect(find_rows(admin_page)).to_have_count(50)
    await admin_page.reload()
    await expect(find_rows(admin_page).first).to_contain_text(str(operators.base + 51))
    await admin_page.go_back()
    await expect(find_rows(admin_page).first).to_contain_text(str(operators.base + 1))
