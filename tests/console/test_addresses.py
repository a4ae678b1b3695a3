"""Addresses: the log searched, a message understood, retried and skipped; deletes, comparisons, the quarantine."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from domain.addresses.messages import Topic
from sims.oss.scenario import OssAction, OssRule
from tests.console.browsing import Troubles, signed_in
from tests.console.installation import Console
from tests.console.operators import BASE_PATH, LARGEST, SIGNED, Operators, find_rows, sign
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def operators(console: Console) -> AsyncIterator[Operators]:
    """The page of addresses; cycles run again when the test is over."""
    operators = Operators(console)
    yield operators
    await operators.ask("POST", "cycle/resume", json=SIGNED)


async def test_the_log_is_searched_and_a_message_opened(admin_page: Page, operators: Operators) -> None:
    """Filters are in the address, so that a link shows the same rows; a row opens its message."""
    [id_, _] = await operators.create_given_up(1, 2)
    await admin_page.goto(BASE_PATH)
    await admin_page.get_by_label("UPRN").fill(str(operators.uprn(1)))
    await expect(find_rows(admin_page)).to_have_count(1)
    await admin_page.get_by_label("State").select_option("given_up")
    await admin_page.get_by_label("Failed in").select_option("wfm")
    await admin_page.wait_for_url(re.compile(f"uprn={operators.uprn(1)}&state=given_up&module=wfm"))
    await admin_page.reload()

    await expect(find_rows(admin_page)).to_have_count(1)
    await expect(find_rows(admin_page)).to_contain_text("WFM failed, or gave no answer.")
    await admin_page.get_by_label("Failed in").select_option("ed")
    await expect(admin_page.get_by_text("Nothing matches the filters.")).to_be_visible()
    await admin_page.go_back()
    await admin_page.goto(f"{BASE_PATH}?uprn={operators.uprn(1)}")
    await find_rows(admin_page).get_by_role("link", name=str(id_), exact=True).click()
    await expect(admin_page.get_by_role("heading", level=1)).to_have_text(f"Message {id_}")


async def test_a_message_shows_the_answer_of_each_module_and_why_it_waits(
    admin_page: Page, operators: Operators
) -> None:
    """Four acknowledgements, the trace, what may have been applied, and the text that was published."""
    [id_] = await operators.create_given_up(1)
    await admin_page.goto(f"{BASE_PATH}/messages/{id_}")

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


async def test_a_message_says_who_paused_the_module_that_it_waits_for(admin_page: Page, operators: Operators) -> None:
    """So do the answer of that module and the panel above the log; once the module is resumed, the message ends."""
    await operators.ask("PATCH", "config", json={**SIGNED, "options": {"modules": {"im": {"paused": True}}}})
    try:
        id_ = await operators.upsert(1)
        await operators.run_cycles()
        await eventually(lambda: _has_waits(operators, id_))
        await admin_page.goto(f"{BASE_PATH}/messages/{id_}")

        await expect(admin_page.locator(".lead")).to_contain_text("IM is paused by setup: a test begins")
        await expect(admin_page.locator(".module.paused")).to_contain_text("paused")
        await admin_page.goto(BASE_PATH)
        await expect(admin_page.locator(".figures")).to_contain_text("IM is paused by setup: a test begins")
    finally:
        await operators.ask("PATCH", "config", json={**SIGNED, "options": {"modules": {"im": {"paused": False}}}})
    assert await operators.wait_for_end(id_) == "done"


async def _has_waits(operators: Operators, id_: int) -> bool:
    return (await operators.message(id_))["waits"] is not None


async def test_a_swap_names_the_side_that_is_missing(admin_page: Page, operators: Operators) -> None:
    """And leads to what is known of it."""
    await operators.run_cycles(await operators.upsert(1))
    swap = await operators.publish(Topic.SWAP, uprn_1=operators.uprn(2), uprn_2=operators.uprn(1))
    await operators.run_cycles(swap)
    await admin_page.goto(f"{BASE_PATH}/messages/{swap}")

    await expect(admin_page.locator(".lead")).to_contain_text(f"No address has the UPRN {operators.uprn(2)} in ED")
    await admin_page.locator(".lead p").nth(1).get_by_role("link").click()
    await expect(find_rows(admin_page)).to_have_count(1)


async def test_what_was_superseded_leads_to_what_came_later(admin_page: Page, operators: Operators) -> None:
    """And back."""
    await operators.ask("POST", "cycle/pause", json=SIGNED)
    first, last = await operators.upsert(1, n=1), await operators.upsert(1, n=2)
    await operators.run_cycles(first, last)
    await admin_page.goto(f"{BASE_PATH}/history?uprn={operators.uprn(1)}")
    await expect(find_rows(admin_page)).to_have_count(2)
    await find_rows(admin_page).get_by_role("link", name=str(first), exact=True).click()

    await expect(admin_page.locator(".lead")).to_contain_text("Superseded")
    await admin_page.locator(".lead").get_by_role("link", name=str(last), exact=True).click()
    await expect(admin_page.get_by_role("heading", level=1)).to_have_text(f"Message {last}")
    await expect(admin_page.locator(".lead")).to_contain_text("All four modules have it.")
    await expect(admin_page.locator(".facts").get_by_role("link", name=str(first), exact=True)).to_be_visible()


async def test_a_problem_is_shown_in_the_words_of_the_api(
    admin_page: Page, operators: Operators, troubles: Troubles
) -> None:
    """With the request id, also when another operator was faster."""
    troubles.expect("404 GET /v1/addresses/messages/4711000")
    await admin_page.goto(f"{BASE_PATH}/messages/4711000")
    await expect(admin_page.get_by_role("alert")).to_contain_text("There is no message 4711000")
    [id_] = await operators.create_given_up(1)
    troubles.expect(f"409 POST /v1/addresses/messages/{id_}/retry")
    await admin_page.goto(f"{BASE_PATH}/messages/{id_}")
    await admin_page.get_by_role("button", name="Retry").click()
    await operators.ask("POST", f"messages/{id_}/skip", json={**SIGNED, "though_touched": True})
    await sign(admin_page, "Retry")

    alert = admin_page.get_by_role("alert")
    await expect(alert).to_contain_text(f"Message {id_} is done.")
    await expect(alert).to_contain_text("Request id")


async def test_a_message_is_retried_and_watched_to_its_end(admin_page: Page, operators: Operators) -> None:
    """The page follows it by itself, and shows the operator and the reason."""
    [id_] = await operators.create_given_up(1)
    await admin_page.goto(f"{BASE_PATH}/messages/{id_}")
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
    [id_] = await operators.create_given_up(1)
    troubles.expect(f"409 POST /v1/addresses/messages/{id_}/skip")
    await admin_page.goto(f"{BASE_PATH}/messages/{id_}")
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
    ids = await operators.create_given_up(1, 2, 3)
    await admin_page.goto(f"{BASE_PATH}?state=given_up&module=wfm")
    for id_ in ids[:2]:
        await admin_page.get_by_label(f"Select {id_}", exact=True).check()
    await admin_page.get_by_role("button", name="Retry selected").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text("Retry 2 messages?")
    await sign(admin_page, "Retry")

    await expect(admin_page.get_by_role("status").filter(has_text="2 messages are being retried.")).to_be_visible()
    assert [await operators.wait_for_end(id_) for id_ in ids] == ["done", "done", "given_up"]


async def test_all_that_match_are_retried_however_large_their_numbers(admin_page: Page, operators: Operators) -> None:
    """The question says how many match, and no digit of a UPRN is lost on the way there and back."""
    rule = OssRule(action=OssAction.FAIL, modules=frozenset({"od"}), uprns=frozenset({LARGEST}))
    async with operators.apply_rule(rule):
        id_ = await operators.publish(Topic.CREATE_UPDATE, uprn=LARGEST, address_id=LARGEST - 1, record={})
        await operators.run_cycles(id_)
    await admin_page.goto(f"{BASE_PATH}?uprn={LARGEST}")
    await expect(find_rows(admin_page)).to_have_count(1)
    await expect(find_rows(admin_page)).to_contain_text(str(LARGEST))
    await admin_page.get_by_role("button", name="Retry all that match…").click()
    await expect(admin_page.get_by_role("dialog")).to_contain_text("Retry 1 message?")
    await sign(admin_page, "Retry")

    await expect(admin_page.get_by_role("status").filter(has_text="1 message is being retried.")).to_be_visible()
    assert await operators.wait_for_end(id_) == "done"
    await admin_page.goto(f"{BASE_PATH}/messages/{id_}")
    await expect(admin_page.locator(".facts")).to_contain_text(str(LARGEST - 1))


async def test_many_are_skipped_but_for_those_that_modules_have(admin_page: Page, operators: Operators) -> None:
    """The question names both numbers, and asks twice."""
    first = await operators.publish(Topic.SWAP, uprn_1=operators.uprn(1), uprn_2=operators.uprn(2))
    await operators.run_cycles(first)
    [touched] = await operators.create_given_up(1)
    await admin_page.goto(f"{BASE_PATH}?uprn={operators.uprn(1)}")
    await expect(find_rows(admin_page)).to_have_count(2)
    await admin_page.get_by_role("button", name="Skip all that match…").click()
    dialog = admin_page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Skip 1 message for good?")
    await expect(dialog).to_contain_text("1 more is left alone: a module has it, or may have.")
    await dialog.get_by_label("I know what this does").check()
    await sign(admin_page, "Skip", "never ours")

    await expect(admin_page.get_by_role("status").filter(has_text="1 message is skipped.")).to_be_visible()
    assert [await operators.wait_for_end(id_) for id_ in (first, touched)] == ["done", "given_up"]


async def test_a_project_key_is_asked_to_sign_in_as_admin(page: Page) -> None:
    """Whatever page of it they know."""
    for path in ("", "/messages/1", "/logical-deletes", "/comparisons", "/quarantine"):
        await page.goto(BASE_PATH + path)
        await expect(page.locator("main")).to_contain_text("Sign in with the admin key to see them.")


async def test_every_page_fits_a_narrow_screen_in_chinese(
    browser: Browser, console: Console, operators: Operators, troubles: Troubles
) -> None:
    """Nothing but lists scrolls sideways, and no word is missing."""
    [id_] = await operators.create_given_up(1)
    await operators.store(Topic.SWAP, b"no json")
    narrow = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    async with signed_in(browser, console.address, console.admin_key, troubles, **narrow) as page:
        await page.add_init_script("localStorage.setItem('haulage.language', 'zh')")
        for path in ("", "/history", f"/messages/{id_}", "/logical-deletes", "/comparisons", "/quarantine"):
            await page.goto(BASE_PATH + path)
            await expect(page.get_by_role("heading", level=1)).not_to_be_empty()
            await page.wait_for_load_state("networkidle")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
