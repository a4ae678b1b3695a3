"""The shell: signing in and out, deep links, navigation, language and theme."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.console.browsing import Troubles, visiting
from tests.console.house import Console, Project

pytestmark = pytest.mark.stack


async def test_a_key_signs_in_and_out(browser: Browser, console: Console, project: Project, troubles: Troubles) -> None:
    """Whoever opens a page is asked for a key first, sees that page then, and is asked again after signing out."""
    async with visiting(browser, console.address, troubles) as page:
        await page.goto("/console/downloads?state=failed")
        await page.get_by_label("API key").fill(project.key)
        await page.get_by_role("button", name="Sign in").click()

        await expect(page.get_by_role("heading", level=1)).to_have_text("Downloads")
        await expect(page.get_by_role("banner")).to_contain_text(project.name)
        assert page.url.endswith("/console/downloads?state=failed")
        [cookie] = await page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("haulage_session", True, "Strict")

        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("API key")).to_be_visible()


async def test_a_wrong_key_is_told_in_the_api_s_words(browser: Browser, console: Console, troubles: Troubles) -> None:
    """The sentence and the request id stand at the form."""
    troubles.expect("401 POST /v1/session")
    async with visiting(browser, console.address, troubles) as page:
        await page.goto("/console")
        await page.get_by_label("API key").fill("not-a-key")
        await page.get_by_role("button", name="Sign in").click()

        await expect(page.get_by_role("alert")).to_contain_text("This is not a Haulage key")
        await expect(page.get_by_role("alert")).to_contain_text("Request id")


async def test_rooms_are_walked_by_links_and_back(page: Page) -> None:
    """A link draws another page without loading, the focus goes to its heading, and Back comes back."""
    await page.goto("/console")
    await page.evaluate("window.sameDocument = true")
    await page.get_by_role("navigation").get_by_role("link", name="Tasks").click()

    heading = page.get_by_role("heading", level=1)
    await expect(heading).to_have_text("Tasks")
    await expect(heading).to_be_focused()
    await expect(page).to_have_title("Tasks · Haulage")
    await page.go_back()
    await expect(heading).to_have_text("Overview")
    assert await page.evaluate("window.sameDocument")


async def test_a_project_is_not_shown_what_only_the_admin_opens(page: Page, admin_page: Page) -> None:
    """Addresses are the admin's."""
    names = []
    for each in (page, admin_page):
        await each.goto("/console")
        await expect(each.get_by_role("heading", level=1)).to_have_text("Overview")
        names.append(await each.get_by_role("navigation").get_by_role("link").all_inner_texts())
    ours, all_of_them = names
    assert set(all_of_them) - set(ours) == {"Addresses"}


async def test_language_and_theme_are_chosen_and_kept(page: Page) -> None:
    """They change at once, and the next page begins with them."""
    await page.goto("/console")
    await page.get_by_label("Language").select_option("zh")
    await expect(page.get_by_role("heading", level=1)).to_have_text("总览")
    await page.get_by_label("主题").select_option("dark")
    await page.reload()

    await expect(page.get_by_role("heading", level=1)).to_have_text("总览")
    root = page.locator("html")
    await expect(root).to_have_attribute("lang", "zh")
    await expect(root).to_have_attribute("data-theme", "dark")
