"""Addresses: the log searched, a message understood, retried and skipped; deletes, comparisons, the quarantine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from sims.oss.scenario import OssAction, OssRule
from tests.console.browsing import Troubles, signed_in
from tests.console.house import Console
from tests.console.operators import LARGEST, SIGNED, Operators

pytestmark = pytest.mark.stack

ROOM = "/console/addresses"


@pytest.fixture
async def operators(console: Console) -> AsyncIterator[Operators]:
    """The page of addresses; cycles run again when the test is over."""
    operators = Operators(console)
    yield operators
    await operators.ask("POST", "cycle/resume", json=SIGNED)


def rows(page: Page) -> Locator:
    """The rows of the list."""
    return page.locator("data-list tbody tr")


async def sign(page: Page, action: str, reason: str = "the module is well again") -> None:
    """Say who one is, and why, and press the button."""
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Your name").fill("ann")
    await dialog.get_by_label("Reason").fill(reason)
    await dialog.get_by_role("button", name=action, exact=True).click()


async def test_the_log_is_searched_and_a_message_opened(admin_page: Page, operators: Operators) -> None:
    """Filters are in the address, so that a link shows the same rows; a row opens its message."""
    [id_, _] = await operators.given_up(1, 2)
    await admin_page.goto(ROOM)
    await admin_page.get_by_label("UPRN").fill(str(operators.uprn(1)))
    await expect(rows(admin_page)).to_have_count(1)
    await admin_page.get_by_label("State").select_option("given_up")
    await admin_page.get_by_label("Failed in").select_option("wfm")
    await admin_page.wait_for_url(re.compile(f"uprn={operators.uprn(1)}&state=given_up&module=wfm"))
    await admin_page.reload()

    await expect(rows(admin_page)).to_have_count(1)
    await expect(rows(admin_page)).to_contain_text("WFM failed, or gave no answer.")
    await admin_page.get_by_label("Failed in").select_option("ed")
    await expect(admin_page.get_by_text("Nothing matches the filters.")).to_be_visible()
    await admin_page.go_back()
    await admin_page.goto(f"{ROOM}?uprn={operators.uprn(1)}")
    await rows(admin_page).get_by_role("link", name=str(id_), exact=True).click()
    await expect(admin_page.get_by_role("heading", level=1)).to_have_text(f"Message {id_}")


async def test_a_message_tells_what_each_module_said_and_why_it_waits(admin_page: Page, operators: Operators) -> None:
    """Four acknowledgements, the trace, what may have been applied, and the text that was published."""
    [id_] = await operators.given_up(1)
    await admin_page.goto(f"{ROOM}/messages/{id_}")

    modules = admin_page.locator(".module")
    await expect(modules).to_have_count(4)
    texts = await modules.all_inner_texts()
    assert ["has it" in text for text in texts] == [True, True, False, True]
    lead = admin_page.locator(".lead")
    await expect(lead).to_contain_text("Given up")
    await expect(lead).to_contain_text("WFM failed, or gave no answer.")
    await expect(lead).to_contain_text("It is unknown whether these have applied it: WFM.")
    await expect(modules.nth(2)).to_contain_text(str((await operators.message(id_))["acks"]["wfm"]["trace"])[:40])
    published = await admin_page.locator("pre.json").last.inner_text()
    assert json.loads(published)["uprn"] == operators.uprn(1)


async def test_a_swap_names_the_side_that_is_missing(admin_page: Page, operators: Operators) -> None:
    """And leads to what is known of it."""
    await operators.run_cycles(await operators.upsert(1))
    swap = await operators.publish(Topic.SWAP, uprn_1=operators.uprn(2), uprn_2=operators.uprn(1))
    await operators.run_cycles(swap)
    await admin_page.goto(f"{ROOM}/messages/{swap}")

    await expect(admin_page.locator(".lead")).to_contain_text(f"No address has the UPRN {operators.uprn(2)} in ED")
    await admin_page.locator(".lead p").nth(1).get_by_role("link").click()
    await expect(rows(admin_page)).to_have_count(1)


async def test_what_was_superseded_leads_to_what_came_later(admin_page: Page, operators: Operators) -> None:
    """And back."""
    await operators.ask("POST", "cycle/pause", json=SIGNED)
    first, last = await operators.upsert(1, n=1), await operators.upsert(1, n=2)
    await operators.run_cycles(first, last)
    await admin_page.goto(f"{ROOM}/history?uprn={operators.uprn(1)}")
    await expect(rows(admin_page)).to_have_count(2)
    await rows(admin_page).get_by_role("link", name=str(first), exact=True).click()

    await expect(admin_page.locator(".lead")).to_contain_text("Superseded")
    await admin_page.locator(".lead").get_by_role("link", name=str(last), exact=True).click()
    await expect(admin_page.get_by_role("heading", level=1)).to_have_text(f"Message {last}")
    await expect(admin_page.locator(".lead")).to_contain_text("All four modules have it.")
    await expect(admin_page.locator(".facts").get_by_role("link", name=str(first), exact=True)).to_be_visible()


async def test_what_goes_wrong_is_told_in_the_api_s_words(
    admin_page: Page, operators: Operators, troubles: Troubles
) -> None:
    """With the request id, also when another operator was faster."""
    troubles.expect("404 GET /v1/addresses/messages/4711000")
    await admin_page.goto(f"{ROOM}/messages/4711000")
    await expect(admin_page.get_by_role("alert")).to_contain_text("There is no message 4711000")
    [id_] = await operators.given_up(1)
    troubles.expect(f"409 POST /v1/addresses/messages/{id_}/retry")
    await admin_page.goto(f"{ROOM}/messages/{id_}")
    await admin_page.get_by_role("button", name="Retry").click()
    await operators.ask("POST", f"messages/{id_}/skip", json={**SIGNED, "though_touched": True})
    await sign(admin_page, "Retry")

    alert = admin_page.get_by_role("alert")
    await expect(alert).to_contain_text(f"Message {id_} is done.")
    await expect(alert).to_contain_text("Request id")


async def test_a_message_is_retried_and_watched_to_its_end(admin_page: Page, operators: Operators) -> None:
    """The page follows it by itself, and shows the operator and the reason."""
    [id_] = await operators.given_up(1)
    await admin_page.goto(f"{ROOM}/messages/{id_}")
    await admin_page.get_by_role("button", name="Retry").click()
    await sign(admin_page, "Retry")

    await expect(admin_page.get_by_role("status").filter(has_text=f"Message {id_} is being retried.")).to_be_visible()
    await expect(admin_page.locator(".lead")).to_contain_text("All four modules have it.")
    await expect(admin_page.locator(".audit")).to_contain_text("Retried by ann")
    await expect(admin_page.locator(".audit")).to_contain_text("the module is well again")
    await expect(admin_page.get_by_role("button", name="Retry")).to_have_count(0)


async def test_a_message_that_modules_have_is_skipped_only_knowingly(
    admin_page: Page, operators: Operators, troubles: Troubles
) -> None:
    """The API's sentence says which modules have it, before a second question."""
    [id_] = await operators.given_up(1)
    troubles.expect(f"409 POST /v1/addresses/messages/{id_}/skip")
    await admin_page.goto(f"{ROOM}/messages/{id_}")
    await admin_page.get_by_role("button", name="Skip").click()
    await sign(admin_page, "Skip", "it was a test")
    dialog = admin_page.get_by_role("dialog")
    await expect(dialog).to_contain_text("has been applied by ed, im, od and may have been applied by wfm")
    await dialog.get_by_role("button", name="Skip it all the same").click()
    assert (await operators.message(id_))["state"] == "given_up"
    await dialog.get_by_label("I know what this does").check()
    await dialog.get_by_role("button", name="Skip it all the same").click()

    await expect(admin_page.locator(".lead")).to_contain_text("Skipped by ann: it was a test")
    assert (await operators.message(id_))["state"] == "done"


async def test_ticked_messages_are_retried(admin_page: Page, operators: Operators) -> None:
    """Only those, and the question says how many they are."""
    ids = await operators.given_up(1, 2, 3)
    await admin_page.goto(f"{ROOM}?state=given_up&module=wfm")
    for id_ in ids[:2]:
        await admin_page.get_by_label(f"Select {id_}", exact=True).check()
    await admin_page.get_by_role("button", name="Retry selected").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text("Retry 2 messages?")
    await sign(admin_page, "Retry")

    await expect(admin_page.get_by_role("status").filter(has_text="2 messages are being retried.")).to_be_visible()
    assert [await operators.ends(id_) for id_ in ids] == ["done", "done", "given_up"]


async def test_all_that_match_are_retried_however_large_their_numbers(admin_page: Page, operators: Operators) -> None:
    """The question says how many match, and no digit of a UPRN is lost on the way there and back."""
    rule = OssRule(action=OssAction.FAIL, modules=frozenset({"od"}), uprns=frozenset({LARGEST}))
    async with operators.going_wrong(rule):
        id_ = await operators.publish(Topic.CREATE_UPDATE, uprn=LARGEST, address_id=LARGEST - 1, record={})
        await operators.run_cycles(id_)
    await admin_page.goto(f"{ROOM}?uprn={LARGEST}")
    await expect(rows(admin_page)).to_have_count(1)
    await expect(rows(admin_page)).to_contain_text(str(LARGEST))
    await admin_page.get_by_role("button", name="Retry all that match…").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text("Retry 1 message?")
    await sign(admin_page, "Retry")

    await expect(admin_page.get_by_role("status").filter(has_text="1 message is being retried.")).to_be_visible()
    assert await operators.ends(id_) == "done"
    await admin_page.goto(f"{ROOM}/messages/{id_}")
    await expect(admin_page.locator(".facts")).to_contain_text(str(LARGEST - 1))


async def test_many_are_skipped_but_for_those_that_modules_have(admin_page: Page, operators: Operators) -> None:
    """The question names both numbers, and asks twice."""
    first = await operators.publish(Topic.SWAP, uprn_1=operators.uprn(1), uprn_2=operators.uprn(2))
    await operators.run_cycles(first)
    [touched] = await operators.given_up(1)
    await admin_page.goto(f"{ROOM}?uprn={operators.uprn(1)}")
    await expect(rows(admin_page)).to_have_count(2)
    await admin_page.get_by_role("button", name="Skip all that match…").click()
    dialog = admin_page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Skip 1 message for good?")
    await expect(dialog).to_contain_text("1 more is left alone: a module has it, or may have.")
    await dialog.get_by_label("I know what this does").check()
    await sign(admin_page, "Skip", "never ours")

    await expect(admin_page.get_by_role("status").filter(has_text="1 message is skipped.")).to_be_visible()
    assert [await operators.ends(id_) for id_ in (first, touched)] == ["done", "given_up"]


async def test_cycles_are_paused_and_resumed(admin_page: Page, operators: Operators) -> None:
    """While they are paused what comes in waits, and the page says who paused them and why."""
    await admin_page.goto(ROOM)
    await admin_page.get_by_role("button", name="Pause cycles").click()
    await sign(admin_page, "Pause cycles", "IM is being upgraded")
    cycle = admin_page.locator(".cycle")
    await expect(cycle).to_contain_text("Paused by ann: IM is being upgraded")
    id_ = await operators.upsert(1)
    await admin_page.get_by_label("UPRN").fill(str(operators.uprn(1)))
    await expect(rows(admin_page)).to_have_count(1)
    await expect(rows(admin_page)).to_contain_text("Waiting")
    await cycle.get_by_role("button", name="Resume cycles").click()
    await sign(admin_page, "Resume cycles", "IM is back")

    await expect(cycle).to_contain_text("Resumed by ann: IM is back")
    assert await operators.ends(id_) == "done"
    await expect(admin_page.get_by_text("Nothing matches the filters.")).to_be_visible()


async def test_a_late_answer_shows_nothing_that_is_over(admin_page: Page, operators: Operators) -> None:
    """A look that began before the pause and ends after it draws no idle cycle."""
    await admin_page.goto(ROOM)
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


async def test_the_cycle_under_way_is_shown(admin_page: Page, operators: Operators) -> None:
    """What it is doing, what it has taken, and its page in Temporal."""
    await admin_page.goto(ROOM)
    cycle = admin_page.locator(".cycle")
    await expect(cycle).to_contain_text("Idle")
    async with operators.going_wrong(OssRule(action=OssAction.SLOW, seconds=6)):
        id_ = await operators.upsert(1)
        await operators.ask("POST", "cycle/resume", json=SIGNED)
        await expect(cycle).to_contain_text("It applies creates and updates.")
        await expect(cycle).to_contain_text("loaded so far")
        await expect(cycle.get_by_role("link", name="In Temporal")).to_have_attribute(
            "href", re.compile("OSS_IM_INFI_SYNC_EVENT")
        )
    assert await operators.ends(id_) == "done"


async def test_logical_deletes_are_checked_and_purged(admin_page: Page, operators: Operators) -> None:
    """Held by a module until a check finds that it needs the address no more; a purge is asked twice."""
    address = operators.uprn(1)
    await operators.run_cycles(await operators.upsert(1))
    orders = operators.console.oss.modules[Module.OD]
    orders.begin_orders([address])
    await operators.run_cycles(await operators.publish(Topic.DELETE, uprn=address))
    await admin_page.goto(f"{ROOM}/logical-deletes?uprn={address}")
    await expect(rows(admin_page)).to_contain_text("OD")
    orders.end_orders([address])
    await admin_page.get_by_role("button", name="Check now").click()
    await expect(rows(admin_page)).to_contain_text("no module")
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
    await admin_page.goto(f"{ROOM}/logical-deletes?which=purged&uprn={address}")
    await expect(rows(admin_page)).to_contain_text("purged")


async def test_modules_are_compared(admin_page: Page, operators: Operators) -> None:
    """The verdict comes by itself, with the workbook to download, and stays in the list."""
    [id_] = await operators.given_up(1)
    await admin_page.goto(f"{ROOM}/drift")
    await admin_page.get_by_role("button", name="Compare now").click()

    await expect(admin_page.locator(".verdict")).to_contain_text(re.compile("differs? between modules"))
    async with admin_page.expect_download() as downloading:
        await admin_page.get_by_role("link", name="Download the workbook").click()
    assert (await downloading.value).suggested_filename.endswith(".xlsx")
    await admin_page.get_by_role("link", name="← Comparisons").click()
    await expect(rows(admin_page).first).to_contain_text("Done")
    assert (await operators.message(id_))["state"] == "given_up"


async def test_the_quarantine_says_why_something_could_not_be_read(admin_page: Page, operators: Operators) -> None:
    """With its text, as it came."""
    number = f"bad{operators.base}"
    await operators.store(Topic.SWAP, b'{"uprn_1": 7, "uprn_2": 7}', number)
    await admin_page.goto(f"{ROOM}/quarantine?topic={Topic.SWAP}")
    await admin_page.get_by_role("link", name=number).click()

    await expect(admin_page.locator(".lead")).to_contain_text("uprn_2")
    await expect(admin_page.locator("pre").first).to_have_text('{"uprn_1": 7, "uprn_2": 7}')


async def test_a_message_in_quarantine_is_mended(admin_page: Page, operators: Operators, troubles: Troubles) -> None:
    """Text that still cannot be read is refused; readable text becomes a message, whose page names its origin."""
    troubles.expect(r"422 POST /v1/addresses/quarantine/\d+/mend")
    number = f"mend{operators.base}"
    await operators.store(Topic.SWAP, b'{"uprn_1": 7, "uprn_2": 7}', number)
    await admin_page.goto(f"{ROOM}/quarantine?topic={Topic.SWAP}")
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
    await admin_page.goto(f"{ROOM}/quarantine?topic={Topic.SWAP}")
    await expect(rows(admin_page).filter(has_text=number)).to_have_count(0)


async def test_what_was_published_again_leaves_the_quarantine(admin_page: Page, operators: Operators) -> None:
    """It is asked first, under a name and with a reason; the others stay."""
    gone, stays = f"gone{operators.base}", f"stays{operators.base}"
    for number in (gone, stays):
        await operators.store(Topic.DELETE, b"{}", number)
    await admin_page.goto(f"{ROOM}/quarantine?topic={Topic.DELETE}")
    await rows(admin_page).filter(has_text=gone).get_by_role("checkbox").check()
    await admin_page.get_by_role("button", name="Discard selected").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text("Discard 1 unreadable message?")
    await sign(admin_page, "Discard", "published again")

    await expect(rows(admin_page).filter(has_text=stays)).to_have_count(1)
    await expect(rows(admin_page).filter(has_text=gone)).to_have_count(0)


async def test_a_long_history_is_turned_page_by_page(admin_page: Page, operators: Operators) -> None:
    """Never more than a page is in the document; Back comes back to the page before, and an address shows its page."""
    async with operators.database.connection() as connection:
        await connection.execute(
            "INSERT INTO im_infi_addr_sync_log_his (id, topic, uprn_1, msg_no, proc_flag, createdat) "
            "SELECT $1::bigint + n, 'deleteInfinityAddress', $1::bigint, n::text, 'Y', now() - n * interval '1 second' "
            "FROM generate_series(1, 100000) AS n",
            operators.base,
        )
    await admin_page.goto(f"{ROOM}/history?uprn={operators.base}")
    await expect(rows(admin_page)).to_have_count(50)
    await admin_page.get_by_role("button", name="Next page").click()
    await expect(rows(admin_page).first).to_contain_text(str(operators.base + 51))
    await expect(rows(admin_page)).to_have_count(50)
    await admin_page.reload()
    await expect(rows(admin_page).first).to_contain_text(str(operators.base + 51))
    await admin_page.go_back()
    await expect(rows(admin_page).first).to_contain_text(str(operators.base + 1))


async def test_a_project_is_told_that_this_is_the_operators_room(page: Page) -> None:
    """Whatever page of it they know."""
    for path in ("", "/messages/1", "/logical-deletes", "/drift", "/quarantine"):
        await page.goto(ROOM + path)
        await expect(page.locator("main")).to_contain_text("Sign in with the admin key to see them.")


async def test_every_page_fits_a_narrow_screen_in_chinese(
    browser: Browser, console: Console, operators: Operators, troubles: Troubles
) -> None:
    """Nothing but lists scrolls sideways, and no word is missing."""
    [id_] = await operators.given_up(1)
    await operators.store(Topic.SWAP, b"no json")
    narrow = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    async with signed_in(browser, console.address, console.admin_key, troubles, **narrow) as page:
        await page.add_init_script("localStorage.setItem('haulage.language', 'zh')")
        for path in ("", "/history", f"/messages/{id_}", "/logical-deletes", "/drift", "/quarantine"):
            await page.goto(ROOM + path)
            await expect(page.get_by_role("heading", level=1)).not_to_be_empty()
            await page.wait_for_load_state("networkidle")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
