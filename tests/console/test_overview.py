"""The overview: components and systems, live, and concerns first."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, Page, expect

from domain.quotas import STREAMS_QUOTA, QuotaLimits
from infra.database import Database
from stores import projects
from systems import SYSTEMS
from tests.console.browsing import Troubles
from tests.console.installation import Console, Project
from tests.console.operators import SIGNED

pytestmark = pytest.mark.stack


def card(page: Page, name: str) -> Locator:
    """The card of a system."""
    return page.get_by_role("article", name=name)


def figure(page: Page, system: str, kind: str) -> Locator:
    """One of its three numbers."""
    return card(page, system).locator(f".{kind} dd")


async def test_components_and_systems_are_shown(page: Page) -> None:
    """A project sees that all components answer, and its own systems, but not the engine's queues."""
    await page.goto("/console")
    for part in ("Database", "Engine", "Object store"):
        await expect(page.get_by_role("listitem").filter(has_text=part)).to_contain_text("answers in")
    for system in ("Downloads", "Transfers", "Orders", "Tasks"):
        await expect(card(page, system)).to_be_visible()
    await expect(card(page, "Addresses")).to_have_count(0)
    await expect(page.get_by_role("region", name="Task queues")).to_have_count(0)


async def test_figures_move_while_one_looks(page: Page, console: Console, project: Project) -> None:
    """What is created after the page was opened is counted on it, without loading it again."""
    tasks = console.tasks(project, task_type="overview")
    await tasks.register()
    await page.goto("/console")
    await expect(figure(page, "Tasks", "waiting")).to_have_text("0")

    await tasks.create_many(3)

    await expect(figure(page, "Tasks", "waiting")).to_have_text("3")
    await expect(card(page, "Tasks").get_by_role("img")).to_have_accessible_name(re.compile("Waiting 3"))


async def test_a_project_s_figures_are_its_own(page: Page, console: Console) -> None:
    """What another project has to do is not counted."""
    tasks = console.tasks(await console.make_project(), task_type="stranger")
    await tasks.register()
    await tasks.create()
    await page.goto("/console")
    await expect(figure(page, "Tasks", "waiting")).to_have_text("0")


async def test_what_needs_a_look_comes_first(page: Page, console: Console, project: Project) -> None:
    """A paused type is shown in a sentence with a link to it."""
    tasks = console.tasks(project, task_type="halted")
    await tasks.register()
    await tasks.post("pause_task_type", task_type="halted", **SIGNED)
    await page.goto("/console")

    concerns = page.locator(".attention")
    await expect(concerns).to_contain_text("1 type of tasks is paused: halted")
    await concerns.get_by_role("link", name="Tasks").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Tasks")
    await page.goto("/console")
    await concerns.get_by_role("link", name="halted").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("halted")


async def test_long_names_in_concerns_break_on_a_phone(page: Page, console: Console, project: Project) -> None:
    """The names of types, hosts and queues are those of others: none makes the page wider than its screen."""
    name = "halted" * 16
    tasks = console.tasks(project, task_type=name)
    await tasks.register()
    await tasks.post("pause_task_type", task_type=name, **SIGNED)
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.goto("/console")

    await expect(page.locator(".attention")).to_contain_text(name)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


async def test_what_is_down_is_said_in_a_sentence(
    page: Page, troubles: Troubles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With since when; the cards say from when their figures are, or that they have none, until they are read again.

    Where not even the session can be read, the page says that instead, and shows the overview once it can.
    """
    troubles.expect("503 GET (/v1/session|/readyz)")

    async def refuse(*_arguments: object) -> None:
        raise ConnectionError

    await page.goto("/console")
    await expect(figure(page, "Tasks", "waiting")).to_have_text("0")
    with monkeypatch.context() as patch:
        patch.setattr(Database, "check_health", refuse)
        concerns = page.locator(".attention")
        sentence = re.compile("Database does not serve, first seen .*: it does not answer.*Figures cannot be read")
        await expect(concerns).to_contain_text(sentence)
        await expect(card(page, "Tasks")).to_contain_text("these figures are from")
        await page.reload()
        await expect(concerns).to_contain_text(sentence)
        await expect(card(page, "Tasks")).to_contain_text("Cannot be read at present.")
        patch.setattr(projects, "find_key_credential", refuse)
        await page.reload()
        await expect(page.get_by_role("alert")).to_contain_text("database it does not answer. Since ")
    await expect(figure(page, "Tasks", "waiting")).to_have_text("0")
    await expect(concerns).not_to_contain_text("Database")


@pytest.mark.long
async def test_a_failure_leads_to_its_items_by_its_cause(page: Page, console: Console, project: Project) -> None:
    """The line says how many failed and why in words, with the code as a tooltip; the link of a cause shows those."""
    await console.exports(project).run(console.source.url(rows=5, faults="404"))
    await page.goto("/console")
    concerns = page.locator(".attention")
    await expect(concerns).to_contain_text("1 download failed: the source answered with an error status")
    await expect(concerns.get_by_title("source_status")).to_be_visible()
    await concerns.get_by_role("link", name="error status").click()
    await expect(page).to_have_url("/console/downloads?state=failed&cause=source_status")
    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_a_project_sees_its_quotas(page: Page, console: Console, project: Project) -> None:
    """Of every system, with what is used and the limit."""
    tasks = console.tasks(project, task_type="counted")
    await tasks.register()
    await page.goto("/console")
    quotas = page.get_by_role("region", name="Quotas")
    types = quotas.get_by_role("row").filter(has_text="Types of tasks")
    await expect(types).to_contain_text("Tasks")
    await expect(types).to_contain_text("200")
    await expect(quotas.get_by_role("row").filter(has_text="Requests a minute")).to_contain_text("60,000")
    await expect(quotas.get_by_role("row")).to_have_count(1 + len([*QuotaLimits.model_fields, STREAMS_QUOTA]))


async def test_the_admin_sees_queues_and_the_way_to_temporal(admin_page: Page, console: Console) -> None:
    """Each system links to what it runs, and every task queue has a worker."""
    await admin_page.goto("/console")
    queues = admin_page.get_by_role("region", name="Task queues")
    await expect(queues.get_by_role("row").filter(has_text="downloads").first).to_be_visible()
    links = admin_page.get_by_role("link", name="In Temporal")
    await expect(links).to_have_count(len(SYSTEMS))
    ui = console.api_client.settings.engine.ui_url
    assert str(await links.first.get_attribute("href")).startswith(f"{ui}/namespaces/")


@pytest.mark.long
async def test_the_admin_looks_at_one_project(admin_page: Page, console: Console, project: Project) -> None:
    """The chooser narrows every figure to one project, until it is set to all again."""
    tasks = console.tasks(project, task_type="narrowed")
    await tasks.register()
    await tasks.create_many(2)
    await admin_page.goto("/console")
    chooser = admin_page.get_by_label("Project")
    await chooser.select_option(project.name)
    await expect(figure(admin_page, "Tasks", "waiting")).to_have_text("2")
    await admin_page.reload()
    await expect(figure(admin_page, "Tasks", "waiting")).to_have_text("2")
    await expect(chooser).to_have_value(project.project_id)
