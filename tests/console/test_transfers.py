"""Transfers in the browser: jobs as they go, why targets failed, cancelling, and a transfer of one's own."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from sims.gse.scenario import GseAction, GseRule
from tests.console.browsing import Troubles
from tests.console.installation import Console, Project
from tests.support.transfers import CONTENT, QUICK, Transfers, job_of, sha256

pytestmark = pytest.mark.stack

FAILING = QUICK.model_copy(
    update={
        "rules": (
            GseRule(action=GseAction.FAIL, agent="nouser-.*", code=122, message="no user root"),
            GseRule(action=GseAction.FAIL, agent="large-.*", code=119),
            GseRule(action=GseAction.STUCK, agent="stuck-.*"),
        )
    }
)
PATH = "/etc/app (1)/upstream:50%.conf"


@pytest.fixture
async def transfers(console: Console, project: Project) -> Transfers:
    """Transfers of the test's project, whose file lies ready, over a GSE where some hosts fail and some never end."""
    console.world.set(FAILING)
    transfers = console.transfers(project)
    await transfers.store()
    return transfers


async def run_job(transfers: Transfers, agents: list[str]) -> str:
    """A job of these hosts that has ended; its id."""
    job_id = job_of(await transfers.wait_for_end((await transfers.join_many(agents, file_path=PATH))[0]))
    await transfers.wait_for_job_end(job_id)
    return job_id


def build_job_url(job_id: str) -> str:
    """The address of a job's page."""
    return "/console/transfers/jobs/" + quote(job_id, safe="()")


async def test_a_job_is_followed_from_the_list_to_its_end(page: Page, transfers: Transfers) -> None:
    """It appears by itself, its bar moves, and its page shows the end without a reload."""
    await page.goto("/console/transfers")
    await expect(page.get_by_text("No transfers in the last windows")).to_be_visible()
    await page.get_by_text("The same by API").click()
    await expect(page.get_by_text("curl http")).to_be_visible()
    await expect(page.get_by_text("haulage ask /v1/transfers/jobs")).to_be_visible()

    [task_id, *_] = await transfers.join_many(["fine-1", "fine-2", "stuck-1"], file_path=PATH)
    job_id = job_of(await transfers.status(task_id))
    row = page.get_by_role("row").filter(has_text="upstream")
    await expect(row.get_by_role("img", name="Arrived 2, On the way 1")).to_be_visible()
    await row.get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(PATH)
    await expect(page.get_by_text("2 of 3 targets have ended.")).to_be_visible()
    assert page.url.endswith(build_job_url(job_id))

    await page.get_by_role("button", name="Cancel the job").click()
    dialog = page.get_by_role("dialog", name="Cancel 1 target?")
    await expect(dialog).to_contain_text("1 target that has not ended will fail")
    await expect(dialog).to_contain_text("Those 2 that have ended stay as they are")
    await dialog.get_by_role("button", name="Cancel 1 target").click()

    await expect(page.get_by_text("1 target did not get the file.")).to_be_visible()
    await expect(page.get_by_role("button", name="Cancel the job")).to_have_count(0)
    counts = (await transfers.job(job_id))["counts"]
    assert (counts["Success"], counts["Failed"]) == (2, 1)


async def test_whoever_thinks_better_of_it_cancels_nothing(page: Page, transfers: Transfers) -> None:
    """The dialog's way out leaves the job as it is."""
    task_id = await transfers.join("stuck-1", file_path=PATH)
    await page.goto(build_job_url(job_of(await transfers.status(task_id))))
    await page.get_by_role("button", name="Cancel the job").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()

    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert (await transfers.status(task_id))["status"] in ("Pending", "Running")
    await transfers.ask("POST", f"/v1/transfers/{quote(task_id)}/cancel")


@pytest.mark.long
async def test_failures_are_counted_in_plain_words_and_lead_to_their_targets(page: Page, transfers: Transfers) -> None:
    """Each of GSE's codes with what it means; the address of the filtered list shows the same when opened again."""
    job_id = await run_job(transfers, ["fine-1", "nouser-1", "nouser-2", "large-1"])
    await page.goto(build_job_url(job_id))
    why = page.locator(".troubles li")
    await expect(why).to_have_count(2)
    await expect(why.first).to_contain_text("There is no such user on the host.")
    await expect(why.first).to_contain_text("code 122")
    await why.first.get_by_role("button", name="Show 2 targets").click()

    targets = page.get_by_role("table").get_by_role("row")
    await expect(targets.filter(has_text="nouser-")).to_have_count(2)
    await expect(targets).to_have_count(3)
    assert "code=122" in page.url
    await page.reload()
    await expect(targets).to_have_count(3)
    await targets.nth(1).get_by_text("GSE's message").click()
    await expect(targets.nth(1)).to_contain_text("no user root")

    await page.get_by_role("button", name="Reset").click()
    await expect(targets).to_have_count(5)
    await page.get_by_label("Status").select_option("Success")
    await expect(targets).to_have_count(2)
    await page.get_by_label("Status").select_option("")
    await page.get_by_label("Host").fill("large-1")
    await expect(targets.filter(has_text="The file is larger than GSE allows.")).to_have_count(1)


async def test_a_task_tells_its_history(page: Page, transfers: Transfers) -> None:
    """What was done, what GSE said, and how it ended, in order."""
    task_id = await transfers.join("nouser-1", file_path=PATH)
    await transfers.wait_for_end(task_id)
    await page.goto(f"/console/transfers/tasks/{quote(task_id, safe='')}")
    steps = page.locator(".history li")
    await expect(steps.first).to_contain_text("Accepted")
    await expect(steps.filter(has_text="GSE took it, the last time")).to_have_count(1)
    await expect(steps.last).to_contain_text("Failed")
    await expect(page.locator(".job-card")).to_contain_text("There is no such user on the host.")


@pytest.mark.long
async def test_targets_come_in_pages_however_many(page: Page, transfers: Transfers) -> None:
    """No more than one page of them is ever in the document; the second one has an address of its own."""
    job_id = await run_job(transfers, [f"fine-{n}" for n in range(120)])
    await page.goto(build_job_url(job_id))
    hosts = page.get_by_role("table").locator("tbody tr > :first-child")
    await expect(hosts).to_have_count(50)
    first = await hosts.all_text_contents()
    await page.get_by_role("button", name="Next page").click()
    await expect(hosts.first).not_to_have_text(first[0])
    second = await hosts.all_text_contents()
    await page.reload()
    await expect(hosts).to_have_count(50)

    assert not set(first) & set(second)
    assert await hosts.all_text_contents() == second


@pytest.mark.long
async def test_a_project_sends_a_file_of_its_own(page: Page, transfers: Transfers) -> None:
    """The form asks to how many; a target that is named twice gets it once; the files arrive."""
    await page.goto("/console/transfers")
    await page.get_by_role("link", name="New transfer").click()
    name = PATH.rpartition("/")[2]
    values = {"Business id": "2", "App id": "7", "File path": PATH, "File name": name, "SHA-256": sha256(CONTENT)}
    for label, value in (values | {"Folder on the target": "/data/config"}).items():
        await page.get_by_label(label).fill(value)
    await page.get_by_label("Targets").fill("mine-1\nmine-2 4f1a\n\nmine-1\n")
    await page.get_by_role("button", name="Send").click()
    await page.get_by_role("dialog", name="Send to 2 targets?").get_by_role("button", name="Send").click()

    await expect(page.get_by_role("heading", level=1)).to_have_text(PATH)
    await expect(page.get_by_text("Every target has the file.")).to_be_visible()
    assert transfers.has_file("mine-1")
    assert transfers.has_file("mine-2", "4f1a")
    assert transfers.sends["mine-1", ""] == 1


async def test_failed_targets_are_sent_again(console: Console, page: Page, transfers: Transfers) -> None:
    """By a job of their own, which the page goes to; each of the two leads to the other."""
    job_id = await run_job(transfers, ["fine-again", "nouser-again-1", "nouser-again-2"])
    console.world.set(QUICK)
    await page.goto(build_job_url(job_id))
    await page.get_by_role("button", name="Send again").click()
    await page.get_by_role("dialog").get_by_role("button", name="Send to 2 targets").click()

    await expect(page.get_by_text("Every target has the file.")).to_be_visible()
    await expect(page.get_by_role("button", name="Send again")).to_have_count(0)
    await page.get_by_role("link", name=job_id).click()
    await expect(page.get_by_text("2 targets did not get the file.")).to_be_visible()
    again = (await transfers.job(job_id))["retries"]
    await page.get_by_role("link", name=again[0]).click()
    await expect(page.get_by_text("Every target has the file.")).to_be_visible()
    assert transfers.sends["fine-again", ""] == 1
    assert transfers.sends["nouser-again-1", ""] == transfers.sends["nouser-again-2", ""] == 2


@pytest.mark.long
async def test_what_another_job_sends_again_is_not_sent_twice(
    page: Page, transfers: Transfers, troubles: Troubles
) -> None:
    """The page says so in the API's words."""
    troubles.expect("409 POST /v1/transfers/jobs/.*")
    job_id = await run_job(transfers, ["nouser-1"])
    await page.goto(build_job_url(job_id))
    await transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/retry", json={})
    await page.get_by_role("button", name="Send again").click()
    await page.get_by_role("dialog").get_by_role("button", name="Send to 1 target").click()

    await expect(page.get_by_role("alert")).to_contain_text("another job sends them again already")


async def test_what_is_wrong_with_a_request_stands_at_its_field(
    page: Page, transfers: Transfers, troubles: Troubles
) -> None:
    """In the API's own words, and read out with the field; nothing is sent."""
    troubles.expect("422 POST /v1/transfers:batch")
    await page.goto("/console/transfers/new?biz_id=2&app_id=7&file_name=app.conf&target_file_dir=/data&signature=abc")
    await page.get_by_label("File path").fill("/etc/app.conf")
    await page.get_by_label("Targets").fill("refused-1")
    await page.get_by_role("button", name="Send").click()
    await page.get_by_role("dialog").get_by_role("button", name="Send").click()

    signature = page.get_by_label("SHA-256")
    await expect(signature).to_have_attribute("aria-invalid", "true")
    await expect(signature).to_be_focused()
    await expect(signature).to_have_accessible_description(re.compile("64"))
    assert transfers.sends["refused-1", ""] == 0


@pytest.mark.long
async def test_a_task_is_found_by_its_id_and_cancelled(page: Page, transfers: Transfers) -> None:
    """The field above the list takes ids of tasks and of jobs."""
    task_id = await transfers.join("stuck-9", file_path=PATH)
    await page.goto("/console/transfers")
    await page.get_by_label("Open a job or task").fill(task_id)
    await page.get_by_role("button", name="Open", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Task")
    await page.get_by_role("button", name="Cancel the task").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel 1 target").click()

    await expect(page.get_by_text("It was cancelled before it had arrived.")).to_be_visible()
    await expect(page.get_by_role("button", name="Cancel the task")).to_have_count(0)
    await page.get_by_label("Sections").get_by_role("link", name="Transfers").click()
    await page.get_by_label("Open a job or task").fill(job_of(await transfers.status(task_id)))
    await page.get_by_role("button", name="Open", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(PATH)


async def test_another_project_s_job_is_not_there(console: Console, page: Page, troubles: Troubles) -> None:
    """Neither listed nor opened by its id; the page says so in the API's words."""
    troubles.expect("404 GET /v1/transfers/jobs/.*")
    theirs = console.transfers(await console.make_project())
    await theirs.store()
    job_id = await run_job(theirs, ["theirs-1"])
    await page.goto("/console/transfers")
    await expect(page.get_by_text("No transfers in the last windows")).to_be_visible()
    await page.goto(build_job_url(job_id))

    await expect(page.get_by_role("alert")).to_contain_text("There is no such job for this key.")
    await expect(page.get_by_text("theirs-1")).to_have_count(0)


async def test_the_admin_sees_every_project_s_jobs_and_acts_for_one(
    admin_page: Page, project: Project, transfers: Transfers
) -> None:
    """Without a project nothing can be cancelled; with one its job can."""
    task_id = await transfers.join("stuck-5", file_path=f"/etc/{project.name}.conf")
    job_id = job_of(await transfers.status(task_id))
    await admin_page.goto(f"/console/transfers?search={project.name}")
    await admin_page.get_by_role("row").filter(has_text=project.name).get_by_role("link").click()
    await expect(admin_page.get_by_text("Choose a project first")).to_be_visible()
    await admin_page.get_by_label("Project", exact=True).select_option(project.project_id)
    await admin_page.get_by_role("button", name="Cancel the job").click()
    await admin_page.get_by_role("dialog").get_by_role("button", name="Cancel 1 target").click()

    await expect(admin_page.get_by_text("1 target did not get the file.")).to_be_visible()
    assert (await transfers.job(job_id))["failures_by_reason"][0]["reason"] == "cancelled"
    await admin_page.goto("/console/transfers/new")
    await expect(admin_page.get_by_role("button", name="Send")).to_be_visible()


@pytest.mark.long
async def test_the_page_speaks_chinese(page: Page, transfers: Transfers) -> None:
    """States and the meanings of codes, too."""
    job_id = await run_job(transfers, ["fine-1", "nouser-1"])
    await page.goto("/console/transfers")
    await page.get_by_label("Language").select_option("zh")
    await expect(page.get_by_role("heading", level=1)).to_have_text("传输")
    await page.goto(build_job_url(job_id))

    await expect(page.locator(".troubles")).to_contain_text("主机上没有该用户")
    await expect(page.get_by_role("img", name="已送达 1, 失败 1")).to_be_visible()
