"""The audit log in the browser: who did what, by actor, action and time, in both languages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.console.browsing import Troubles, signed_in
from tests.console.installation import Console, Project

pytestmark = pytest.mark.stack

ROTATE = "POST /v1/projects/{project_id}/webhook-secrets"
CREATE_KEY = "POST /v1/projects/{project_id}/keys"


def rows(page: Page) -> Locator:
    """The rows of the list."""
    return page.locator("data-list tbody tr")


async def act(console: Console, project: Project) -> None:
    """The project and the admin change something, and the project is refused once."""
    base = f"/v1/projects/{project.project_id}"
    assert (await console.api_client.ask("POST", f"{base}/webhook-secrets", key=project.key, json={})).status == 201
    assert (await console.api_client.as_admin("POST", f"{base}/keys")).status == 201
    past = {"expires_at": "2020-01-01T00:00:00Z"}
    assert (await console.api_client.ask("POST", f"{base}/keys", key=project.key, json=past)).status == 422


async def test_a_project_sees_its_own_actions(page: Page, console: Console, project: Project) -> None:
    """Newest first, with the answer; a click on an actor or an action narrows the list, and so does its address."""
    await act(console, project)
    await act(console, await console.make_project())
    await page.goto("/console")
    await page.get_by_role("link", name="Audit").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Audit log")
    await expect(rows(page)).to_have_count(3)
    await expect(rows(page).nth(0)).to_contain_text("422expiry_in_past")
    await expect(rows(page).nth(0)).to_contain_text('expires_at: "2020-01-01T00:00:00Z"')
    await expect(rows(page).nth(0)).to_contain_text(CREATE_KEY)
    await expect(rows(page).nth(2)).to_contain_text("201")

    await rows(page).filter(has_text="admin").get_by_role("link", name="admin", exact=True).click()
    await expect(rows(page)).to_have_count(1)
    assert page.url.endswith("/console/audit?actor=admin")
    await page.get_by_role("button", name="Reset").click()
    await expect(rows(page)).to_have_count(3)
    await page.get_by_label("Action").fill(ROTATE)
    await expect(rows(page)).to_have_count(1)
    await page.reload()
    await expect(rows(page)).to_have_count(1)
    await expect(page.get_by_label("Action")).to_have_value(ROTATE)
    await page.get_by_text("The same by API and by command").click()
    await expect(page.locator("data-list details")).to_contain_text("/v1/audit?action=POST")


async def test_actions_are_found_by_their_time(page: Page, console: Console, project: Project) -> None:
    """By days where the reader is; the last day is included."""
    await act(console, project)
    today = datetime.now(UTC).date()
    await page.goto("/console/audit")
    await page.get_by_label("From").fill(str(today))
    await page.get_by_label("Until").fill(str(today))
    await expect(page).to_have_url(re.compile("happened_before="))
    await expect(rows(page)).to_have_count(3)
    await page.get_by_label("From").fill(str(today - timedelta(days=3)))
    await page.get_by_label("Until").fill(str(today - timedelta(days=1)))
    await expect(page.get_by_text("Nothing matches the filters.")).to_be_visible()


async def test_the_admin_sees_all_projects_in_chinese(
    browser: Browser, console: Console, project: Project, troubles: Troubles
) -> None:
    """With the name of each project."""
    await act(console, project)
    async with signed_in(browser, console.address, console.admin_key, troubles, locale="zh-CN") as page:
        await page.goto("/console/audit")
        await expect(page.get_by_role("heading", level=1)).to_have_text("审计日志")
        await expect(page.get_by_role("columnheader", name="操作方")).to_be_visible()
        await expect(rows(page).filter(has_text=project.name).first).to_be_visible()


async def test_a_key_that_may_not_operate_is_not_offered_it(
    browser: Browser, console: Console, project: Project, troubles: Troubles
) -> None:
    """The section is missing, and its address says why it shows nothing."""
    reply = await console.api_client.ask(
        "POST", f"/v1/projects/{project.project_id}/keys", key=project.key, json={"right": "write"}
    )
    troubles.expect("403 GET /v1/audit.*")
    async with signed_in(browser, console.address, reply.body["api_key"], troubles) as page:
        await page.goto("/console")
        await expect(page.get_by_role("link", name="Tasks").first).to_be_visible()
        await expect(page.get_by_role("link", name="Audit")).to_have_count(0)
        await page.goto("/console/audit")
        await expect(page.get_by_text("this needs the right to operate")).to_be_visible()
