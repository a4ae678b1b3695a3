"""Tasks: types and their queues, lanes, the archive, one task and its way; paused, cancelled, put back."""

from __future__ import annotations

import re
import secrets

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.console.browsing import Troubles, signed_in
from tests.console.installation import Console, Project
from tests.console.operators import sign
from tests.support.tasks import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, Json, Tasks
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

TASKS = "/console/tasks"
EXACT = 9_007_199_254_740_993_123
"""More than a browser's own numbers can hold."""


@pytest.fixture
async def queue(console: Console, project: Project) -> Tasks:
    """A type of the project's own."""
    queue = console.tasks(project, f"video.{secrets.token_hex(4)}")
    await queue.register(max_processing_time=600)
    return queue


def rows(page: Page) -> Locator:
    """The rows of the list."""
    return page.locator("data-list tbody tr")


def of_type(queue: Tasks, part: str = "") -> str:
    """The page of the type."""
    return f"{TASKS}/types/{queue.type}{part}"


async def finish_task(queue: Tasks, task: Json, status: int, **fields: str) -> str:
    """A held task that has ended, and is in the archive."""
    await queue.set(task, status, **fields)

    async def is_archived() -> bool:
        return bool((await queue.task(task["task_id"]))["archived"])

    await eventually(is_archived)
    return str(task["task_id"])


async def confirm(page: Page, text: str, action: str) -> None:
    """Read what will be done to how many, and say yes."""
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(text)
    await dialog.get_by_role("button", name=action, exact=True).click()


async def test_types_show_what_is_in_their_queues(page: Page, queue: Tasks) -> None:
    """How much is due and since when, what workers hold, what failed; all of it live."""
    await page.goto(TASKS)
    row = rows(page).filter(has_text=queue.type)
    await expect(row).to_contain_text("Nothing waits and nothing is held.")
    await queue.create_many(5)
    held = await queue.hold(limit=2)
    await queue.finish(held[:1], FAILED)

    await expect(row).to_contain_text("Pending 3")
    await expect(row).to_contain_text("Held 1")
    await expect(row.locator("td[data-label=Failed]")).to_have_text("1")
    await expect(row.locator("td[data-label='Oldest due']")).to_have_text(re.compile("[0-9]"))
    await row.get_by_role("link", name=queue.type).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(queue.type)
    await expect(rows(page)).to_have_count(5)


@pytest.mark.long
async def test_a_type_is_paused_and_resumed(page: Page, queue: Tasks) -> None:
    """The question says what waits, and workers get nothing meanwhile."""
    await queue.create_many(3)
    await page.goto(of_type(queue))
    await expect(page.locator(".standing")).to_contain_text("Pending 3")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("dialog")).to_contain_text("3 pending tasks wait")
    await sign(page, "Pause")
    await expect(page.locator(".page-actions")).to_contain_text("Paused")
    assert await queue.hold() == []
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Workers get 3 pending tasks from now on")
    await sign(page, "Resume")

    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert len(await queue.hold()) == 3


async def test_a_task_is_found_by_its_id(page: Page, queue: Tasks) -> None:
    """What happened to it, what was put in, to the last digit, and what workers said of it."""
    task_id = await queue.create(user_id="shop-7", task_content=f'{{"id":{EXACT}}}', task_stage="cut")
    [held] = await queue.hold()
    await queue.set(held, PENDING, crt_retry_num=1, schedule_log="out of memory\nat frame 7")
    await page.goto(TASKS)
    await page.get_by_label("Find a task by its id").fill(task_id)
    await page.get_by_role("button", name="Open").click()

    await expect(page.locator(".lead")).to_contain_text("Waits for its retry")
    steps = page.locator(".history li")
    await expect(steps.nth(0)).to_contain_text("Created for shop-7")
    await expect(steps.nth(1)).to_contain_text("An attempt failed")
    await expect(steps.nth(1)).to_contain_text("held for")
    await expect(page.locator("pre").nth(0)).to_contain_text(str(EXACT))
    await expect(page.locator("pre").nth(1)).to_have_text("out of memory\nat frame 7")


async def test_a_live_task_links_to_its_lane(admin_page: Page, queue: Tasks) -> None:
    """The id of the lane's workflow contains the project, which an admin has not chosen."""
    task_id = await queue.create()
    await admin_page.goto(f"{TASKS}/tasks/{task_id}")

    await expect(admin_page.get_by_role("definition").get_by_role("link")).to_have_attribute(
        "href", re.compile(re.escape(f"tasks%2F{queue.project_id}%2F{queue.type}%2F1"))
    )


@pytest.mark.long
async def test_a_task_shows_what_was_tried(page: Page, queue: Tasks) -> None:
    """Its last ten attempts, and how many there were before."""
    task_id = await queue.create(task_stage="cut")
    for number in range(12):
        [held] = await queue.hold()
        await queue.set(held, PENDING, task_stage="mail" if number == 10 else "cut")
    await page.goto(f"{TASKS}/tasks/{task_id}")
    steps = page.locator(".history li")

    await expect(steps.nth(1)).to_contain_text("2 earlier attempts")
    await expect(steps.nth(2)).to_contain_text("Put back into the queue")
    await expect(steps.nth(10)).to_contain_text("Went on to its next stage")
    await expect(steps).to_have_count(13)


async def test_a_task_is_found_by_the_name_that_it_was_given(page: Page, queue: Tasks) -> None:
    """A misspelt name shows an error."""
    name = f"invoice {secrets.token_hex(4)}"
    task_id = await queue.create(task_id=name)
    await page.goto(TASKS)
    await page.get_by_label("Find a task by its id").fill(name)
    await page.keyboard.press("Enter")
    await expect(page.locator(".facts")).to_contain_text(task_id)
    assert page.url.endswith(f"/tasks/{task_id}")
    await page.goto(f"{TASKS}/named/nothing%20like%20this")
    await expect(page.locator(".empty")).to_contain_text("No task is named “nothing like this”.")


async def test_a_task_that_nobody_has_is_told_in_the_api_s_words(page: Page, queue: Tasks) -> None:
    """With the request id to quote, though flowSvr's routes answer 200."""
    await page.goto(f"{TASKS}/tasks/{'0' * 32}_{queue.type}_1")
    await expect(page.get_by_role("alert")).to_contain_text("Check the id that create_task answered.")
    await expect(page.get_by_role("alert")).to_contain_text("Request id")


async def test_the_page_of_a_task_follows_it(page: Page, queue: Tasks) -> None:
    """From its creation to the archive."""
    task_id = await queue.create(task_content="input")
    await page.goto(f"{TASKS}/tasks/{task_id}")
    await expect(page.locator(".lead")).to_contain_text("Pending")
    [held] = await queue.hold()
    await expect(page.locator(".history")).to_contain_text("Held by a worker")
    await queue.set(held, SUCCESS, task_content="output")

    await expect(page.locator(".lead")).to_contain_text("Succeeded")
    await expect(page.locator(".history")).to_contain_text("Archived")
    await expect(page.locator("pre").first).to_have_text("output")


async def test_a_task_is_cancelled(page: Page, queue: Tasks) -> None:
    """It says what becomes of a worker that has it."""
    task_id = await queue.create()
    await queue.hold()
    await page.goto(f"{TASKS}/tasks/{task_id}")
    await page.get_by_role("button", name="Cancel").click()
    await confirm(page, "1 is held by a worker, which learns of it at the next heartbeat.", "Cancel 1 task")

    await expect(page.locator(".lead")).to_contain_text("Cancelled")
    assert (await queue.task(task_id))["status"] == CANCELLED


async def test_a_held_task_is_put_back(page: Page, queue: Tasks) -> None:
    """It has no holder then, and has not failed."""
    task_id = await queue.create()
    [held] = await queue.hold()
    await page.goto(f"{TASKS}/tasks/{task_id}")
    await page.get_by_role("button", name="Put back").click()
    await confirm(page, "without counting as failed", "Put back")

    await expect(page.locator(".lead")).to_contain_text("Pending")
    assert (await queue.try_set(held, SUCCESS))["code"] == 8041
    assert (await queue.task(task_id))["crt_retry_num"] == 0


@pytest.mark.long
async def test_an_archived_task_is_run_again_as_a_new_one(page: Page, queue: Tasks) -> None:
    """The page leads to the new one; the old one stays as it is."""
    await queue.create(task_content="a b")
    [held] = await queue.hold()
    old = await finish_task(queue, held, FAILED, schedule_log="no such file")
    await page.goto(of_type(queue, "/archive"))
    await expect(rows(page)).to_have_count(1)
    await rows(page).get_by_role("link").click()
    await expect(page.locator("pre").nth(1)).to_have_text("no such file")
    await page.get_by_role("button", name="Run again").click()
    await confirm(page, "a new task with its last content and stage is created", "Put back")

    await expect(page.locator(".lead")).to_contain_text("Pending")
    assert not page.url.endswith(old)
    assert (await queue.task(old))["status"] == FAILED
    [again] = await queue.hold()
    assert again["task_content"] == "a b"


@pytest.mark.long
async def test_many_are_cancelled_and_put_back(page: Page, queue: Tasks) -> None:
    """Ticked on a page; what ended or waits already is counted and left alone."""
    await queue.create_many(6)
    held = await queue.hold(limit=4)
    await queue.finish(held[:1])
    await page.goto(of_type(queue))
    await expect(rows(page)).to_have_count(6)
    await page.get_by_label("Select all rows of this page").check()
    await page.get_by_role("button", name="Put selected back").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Put 4 tasks back into the queue?")
    await expect(dialog).to_contain_text("3 are taken from their workers")
    await expect(dialog).to_contain_text("1 has ended and does not change")
    await confirm(page, "2 wait there already.", "Put back")
    await expect(page.get_by_role("status").filter(has_text="4 tasks wait in the queue again.")).to_be_visible()
    await expect(rows(page)).to_have_count(7)
    await page.get_by_label("Select all rows of this page").check()
    await page.get_by_role("button", name="Cancel selected").click()
    await confirm(page, "1 has ended already and does not change.", "Cancel 6 tasks")

    await expect(page.get_by_role("status").filter(has_text="6 tasks are cancelled.")).to_be_visible()
    counts = await queue.counts()
    assert (counts["pending"], counts["running"], counts["cancelled"], counts["success"]) == (0, 0, 6, 1)


async def test_one_that_changed_hands_takes_no_other_with_it(page: Page, queue: Tasks) -> None:
    """The page shows an older holder; the present one keeps the task, and the page says so."""
    await queue.create()
    [first] = await queue.hold()
    await page.goto(f"{TASKS}/tasks/{first['task_id']}")
    await page.get_by_role("button", name="Put back").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await queue.set(first, PENDING)
    [second] = await queue.hold()
    await confirm(page, "1 is taken from its worker", "Put back")

    toast = page.get_by_role("status").filter(has_text="1 not: The task")
    await expect(toast).to_contain_text("is not held under this lease")
    task = await queue.task(second["task_id"])
    assert (task["status"], task["lease"]) == (RUNNING, second["lease"])


async def test_filters_and_pages_are_in_the_address(page: Page, queue: Tasks) -> None:
    """Two hundred tasks, fifty at a time, and never more in the document."""
    await queue.create_many(120, task_stage="cut")
    await queue.create_many(3, task_stage="mail")
    await page.goto(of_type(queue))
    await expect(rows(page)).to_have_count(50)
    await page.get_by_role("button", name="Next page").click()
    await page.wait_for_url(re.compile("cursor="))
    await page.get_by_role("button", name="Next page").click()
    await expect(rows(page)).to_have_count(23)
    await expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    await page.get_by_label("Stage").fill("mail")
    await expect(rows(page)).to_have_count(3)
    await page.reload()
    await expect(rows(page)).to_have_count(3)
    await page.get_by_label("State").select_option("3")
    await expect(page.get_by_text("Nothing matches the filters.")).to_be_visible()


async def test_lanes_show_how_each_stands(admin_page: Page, queue: Tasks) -> None:
    """With the way to its workflow's page."""
    await queue.create_many(4)
    await queue.hold(limit=1)
    await admin_page.goto(of_type(queue, "/lanes"))

    await expect(rows(admin_page)).to_contain_text("Pending 3")
    await expect(rows(admin_page)).to_contain_text("Held 1")
    await expect(rows(admin_page).get_by_role("link")).to_have_attribute(
        "href", re.compile(re.escape(f"tasks%2F{queue.project_id}%2F{queue.type}%2F1"))
    )


async def test_a_type_that_is_not_there_is_told_in_the_api_s_words(page: Page) -> None:
    """Also one that another project has."""
    await page.goto(f"{TASKS}/types/nothing")
    await expect(page.get_by_role("alert")).to_contain_text("Register it with POST /v1/register_task_type.")


async def test_a_project_without_types_is_told_how_to_begin(page: Page) -> None:
    """With the call that lists them."""
    await page.goto(TASKS)
    await expect(page.locator(".empty")).to_contain_text("There are no types of tasks yet.")
    await page.get_by_text("The same by API").click()
    await expect(page.locator(".empty code").first).to_contain_text("/v1/get_task_figures")
    await expect(page.locator(".empty code").last).to_have_text("haulage ask /v1/get_task_figures")


async def test_the_admin_sees_every_project_s_types_and_steers_them(admin_page: Page, queue: Tasks) -> None:
    """Without choosing a project first."""
    task_id = await queue.create()
    await admin_page.goto(f"{TASKS}?prefix={queue.type}")
    await rows(admin_page).get_by_role("link", name=queue.type).click()
    await expect(rows(admin_page)).to_have_count(1)
    await admin_page.get_by_label(f"Select {task_id}").check()
    await admin_page.get_by_role("button", name="Cancel selected").click()
    await confirm(admin_page, "It ends as cancelled at once.", "Cancel 1 task")

    await expect(rows(admin_page)).to_contain_text("Cancelled")


@pytest.mark.long
async def test_the_admin_tells_types_of_one_name_apart(admin_page: Page, console: Console, queue: Tasks) -> None:
    """Each leads to its own queue, lanes and archive."""
    neighbour = console.tasks(await console.make_project(), queue.type)
    await neighbour.register()
    await queue.create(user_id="ours")
    await neighbour.create(user_id="theirs")
    await admin_page.goto(f"{TASKS}?prefix={queue.type}")
    await expect(rows(admin_page)).to_have_count(2)
    for each, user in ((queue, "ours"), (neighbour, "theirs")):
        await admin_page.goto(f"{of_type(queue)}?project={each.project_id}")
        await expect(rows(admin_page)).to_have_count(1)
        await expect(rows(admin_page)).to_contain_text(user)
    await admin_page.get_by_role("link", name="Lanes").click()
    await expect(rows(admin_page).get_by_role("link")).to_have_attribute(
        "href", re.compile(re.escape(f"tasks%2F{neighbour.project_id}%2F"))
    )


@pytest.mark.long
async def test_every_page_fits_a_narrow_screen_in_chinese(
    browser: Browser, console: Console, project: Project, queue: Tasks, troubles: Troubles
) -> None:
    """Nothing but lists scrolls sideways, and no word is missing."""
    ids = await queue.create_many(3, user_id="u" * 100, task_content="x" * 300)
    [held, _] = await queue.hold(limit=2)
    done = await finish_task(queue, held, FAILED)
    narrow = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    async with signed_in(browser, console.address, project.key, troubles, **narrow) as page:
        await page.add_init_script("localStorage.setItem('haulage.language', 'zh')")
        tasks = [f"{TASKS}/tasks/{each}" for each in {*ids, done}]
        for path in (TASKS, of_type(queue), of_type(queue, "/lanes"), of_type(queue, "/archive"), *tasks):
            await page.goto(path)
            await expect(page.get_by_role("heading", level=1)).not_to_be_empty()
            await page.wait_for_load_state("networkidle")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
