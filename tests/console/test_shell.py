"""The shell: signing in and out, deep links, navigation, language and theme."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, Route, expect

from systems import SYSTEMS
from tests.console.browsing import Troubles, visiting
from tests.console.installation import Console, Project

pytestmark = pytest.mark.stack


async def test_a_key_signs_in_and_out(browser: Browser, console: Console, project: Project, troubles: Troubles) -> None:
    """Who opens a page is asked for a key first, sees that page then, and is asked again after signing out."""
    async with visiting(browser, console.address, troubles) as page:
        await page.goto("/console/downloads?state=failed")
        await page.get_by_label("API key").fill(project.key)
        await page.get_by_role("button", name="Sign in").click()

        await expect(page.get_by_role("heading", level=1)).to_have_text("Downloads")
        await expect(page.get_by_role("heading", level=1)).to_be_focused()
        await expect(page.get_by_role("banner")).to_contain_text(project.name)
        assert page.url.endswith("/console/downloads?state=failed")
        [cookie] = await page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("haulage_session", True, "Strict")

        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("API key")).to_be_focused()


async def test_a_wrong_key_is_told_in_the_api_s_words(browser: Browser, console: Console, troubles: Troubles) -> None:
    """The sentence and the request id stand at the form."""
    troubles.expect("401 POST /v1/session")
    async with visiting(browser, console.address, troubles) as page:
        await page.goto("/console")
        await page.get_by_label("API key").fill("not-a-key")
        await page.get_by_role("button", name="Sign in").click()

        await expect(page.get_by_role("alert")).to_contain_text("This is neither the admin key nor a project's key")
        await expect(page.get_by_role("alert")).to_contain_text("Request id")


async def test_code_in_sentences_of_the_api_is_shown_as_code(
    browser: Browser, console: Console, troubles: Troubles
) -> None:
    """In a problem and at a field; markup that a sentence quotes stays text, and so does a back-tick that is alone."""
    troubles.expect("401 POST /v1/session")
    hostile = "<img src=x onerror='window.ran = true'>"
    problem = {
        "title": "Unauthorized",
        "detail": f"As `haulage up` keeps `{hostile}` there is {hostile}, and a ` alone.",
        "errors": [{"path": "key", "message": f"It is not `{hostile}`."}, {"path": "", "message": "Send `key`."}],
    }

    async def refuse(route: Route) -> None:
        if route.request.method == "POST":
            await route.fulfill(status=401, content_type="application/problem+json", json=problem)
        else:
            await route.continue_()

    async with visiting(browser, console.address, troubles) as page:
        await page.route("**/v1/session", refuse)
        await page.goto("/console")
        await page.get_by_label("API key").fill("not-a-key")
        await page.get_by_role("button", name="Sign in").click()

        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text(f"As haulage up keeps {hostile} there is {hostile}, and a ` alone.")
        await expect(alert.locator("code")).to_have_text(["haulage up", hostile, "key"])
        await expect(page.locator(".field .fault")).to_have_text(f"It is not {hostile}.")
        await expect(page.locator(".field .fault code")).to_have_text(hostile)
        await expect(page.locator("img[src=x]")).to_have_count(0)
        assert await page.evaluate("window.ran") is None


async def test_pages_are_walked_by_links_and_back(page: Page) -> None:
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


@pytest.mark.long
async def test_a_project_is_not_shown_what_only_the_admin_opens(page: Page, admin_page: Page) -> None:
    """Addresses are the admin's."""
    names = []
    for each in (page, admin_page):
        await each.goto("/console")
        await expect(each.get_by_role("heading", level=1)).to_have_text("Overview")
        names.append(await each.get_by_role("navigation").get_by_role("link").all_inner_texts())
    ours, all_of_them = names
    assert set(all_of_them) - set(ours) == {"Addresses"}


async def test_every_system_has_a_section(admin_page: Page) -> None:
    """The navigation leads there, marks where the reader is, and the page is drawn without a problem."""
    await admin_page.goto("/console")
    for system in SYSTEMS:
        link = admin_page.get_by_role("navigation").get_by_role("link", name=system.capitalize())
        await link.click()
        await expect(admin_page.get_by_role("heading", level=1)).to_have_text(system.capitalize())
        await expect(link).to_have_attribute("aria-current", "page")
        await expect(admin_page.get_by_role("alert")).to_have_count(0)


@pytest.mark.long
async def test_language_and_theme_are_chosen_and_kept(page: Page) -> None:
    """They change at once, and the next page begins with them."""
    await page.goto("/console")
    await page.get_by_label("Language").select_option("zh")
    await expect(page.get_by_role("heading", level=1)).to_have_text("总览")
    await expect(page.get_by_label("语言")).to_be_focused()
    await page.get_by_label("主题").select_option("dark")
    await page.reload()

    await expect(page.get_by_role("heading", level=1)).to_have_text("总览")
    root = page.locator("html")
    await expect(root).to_have_attribute("lang", "zh")
    await expect(root).to_have_attribute("data-theme", "dark")


async def test_a_revoked_key_ends_the_session_of_an_open_page(
    page: Page, console: Console, project: Project, troubles: Troubles
) -> None:
    """Nobody has to press anything: the page asks for another key as soon as its stream is refused."""
    troubles.expect("401 GET /v1/overview/events")
    await page.goto("/console")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    listed = await console.api_client.as_admin("GET", f"/v1/projects/{project.project_id}/keys")
    key_id = listed.body["items"][0]["key_id"]
    await console.api_client.as_admin("DELETE", f"/v1/projects/{project.project_id}/keys/{key_id}")

    await expect(page.get_by_label("API key")).to_be_focused()


async def test_the_menu_opens_on_a_phone(page: Page) -> None:
    """Language, theme and signing out are behind a button, and Escape closes it again."""
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto("/console")
    sign_out = page.get_by_role("button", name="Sign out")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(sign_out).to_be_hidden()
    await page.get_by_role("button", name="Menu").click()
    await expect(sign_out).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(sign_out).to_be_hidden()


async def test_a_page_that_does_not_exist_says_so(page: Page) -> None:
    """The shell answers every address, and knows which pages there are."""
    for path in ("/console/nothing", "/console/tasks/nothing/here/at/all"):
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_have_text("No such page")
    await page.get_by_role("link", name="Go to the overview").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


async def test_a_script_that_is_not_ours_does_not_run(page: Page, troubles: Troubles) -> None:
    """The policy stops it, and the test's page has heard of that: no other test passes over such a report."""
    await page.goto("/console")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    await page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        document.body.setAttribute("style", "color: red");
    }""")

    assert await page.evaluate("window.ran") is None
    reports = [each for each in troubles.found if "CSP: " in each]
    assert {report.split("CSP: ")[1].split()[0] for report in reports} == {"script-src-elem", "style-src-attr"}
    troubles.expect("error in the console: .*")


@pytest.mark.long
async def test_the_admin_sees_projects_by_their_names(admin_page: Page, console: Console, project: Project) -> None:
    """Each with its id beneath; the list is read once, and one that came later is asked for by itself."""
    asked: list[str] = []
    admin_page.on("request", lambda request: asked.append(urlsplit(request.url).path + urlsplit(request.url).query))
    queue = console.tasks(project, f"named.{secrets.token_hex(4)}")
    await queue.register()
    await admin_page.goto("/console/tasks?prefix=named.")
    row = admin_page.locator("data-list tbody tr").filter(has_text=queue.type)
    cell = row.locator("td[data-label=Project] .two-lines")
    await expect(cell).to_have_text(f"{project.name}{project.project_id}")
    await expect(cell).to_have_attribute("title", project.project_id)

    await admin_page.get_by_role("navigation").get_by_role("link", name="Downloads").click()
    later = await console.make_project()
    done = await console.exports(later).run(console.source.url(rows=3), file_name=f"of {later.name}")
    await admin_page.get_by_label("File", exact=True).fill(later.name)
    rows = admin_page.locator("data-list tbody tr")
    await expect(rows.filter(has_text=later.name + later.project_id)).to_have_count(1)
    await expect(rows).to_have_count(1)
    await rows.get_by_role("link").click()
    await expect(admin_page.get_by_role("heading", level=1)).to_have_text(done["file_name"])
    await expect(admin_page.locator("dl.facts")).to_contain_text(f"Project{later.name}{later.project_id}")
    assert sum(path.startswith("/v1/projects") and "cursor" not in path for path in asked) == 2
