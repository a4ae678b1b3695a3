"""Downloads in the console: made by the form, watched, mended, fetched."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import aiohttp
import pytest
from playwright.async_api import Locator, Page, expect
from yarl import URL

from tests.console.browsing import PATIENCE_MS, Troubles
from tests.console.installation import Console, Project
from tests.support.downloads import expected_rows, parse_csv
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SEED = 9


def find_heading(page: Page) -> Locator:
    """What the page is called."""
    return page.get_by_role("heading", level=1)


def find_state(page: Page) -> Locator:
    """The state of the download that a page is about."""
    return page.locator(".page-actions .badge")


def find_result(page: Page, task_id: str) -> Locator:
    """The rows that the list shows for a download."""
    return page.locator(f"[data-live={task_id}]")


async def fetch_file(page: Page, url: str | None) -> bytes:
    """The file that the browser gets at an address, with its cookie and nothing else."""
    assert url is not None
    answer = await page.context.request.get(url)
    assert answer.status == 200, await answer.text()
    return await answer.body()


async def test_the_form_makes_a_file(page: Page, console: Console) -> None:
    """An address and a name are enough; the page of the download shows its end, and its file has the source's rows."""
    await page.goto("/console/downloads")
    await page.get_by_role("link", name="New export").click()
    await page.get_by_label("File name").fill("orders of today")
    await page.get_by_label("Address of the source").fill(console.source.url(rows=1_200, seed=SEED))
    await page.get_by_role("button", name="Start the export").click()

    await expect(find_heading(page)).to_have_text("orders of today.csv")
    await expect(find_state(page)).to_have_text("Ready")
    await expect(page.get_by_role("region", name="File")).to_contain_text("1,200 rows")
    file = await fetch_file(
        page, await page.get_by_role("link", name="Download", exact=True).last.get_attribute("href")
    )
    assert parse_csv(file) == expected_rows(SEED, range(1_200))


async def test_the_browser_saves_the_file(page: Page, console: Console, project: Project) -> None:
    """The button saves the file under its own name."""
    exports = console.exports(project)
    done = await exports.run(console.source.url(rows=5), file_name="销售日报 تقرير")
    await page.goto(f"/console/downloads/{done['task_id']}")
    async with page.expect_download() as saving:
        await page.locator(".file-actions a").click()

    saved = await saving.value
    assert saved.suggested_filename == "销售日报 تقرير.csv"
    assert (await saved.path()).read_bytes() == await exports.file(done["task_id"])


async def test_progress_moves_by_itself(page: Page, console: Console, project: Project) -> None:
    """Phase, rows and remaining time are shown while it runs, in the list and on its own page, and then the end."""
    task_id = await console.exports(project).start(console.source.url(rows=9_000, delay_ms=200), page_size=100)
    await page.goto("/console/downloads")
    await expect(find_result(page, task_id)).to_contain_text(" of 9,000 rows")
    await expect(page.get_by_role("row", name="Running")).to_have_count(1)

    await page.get_by_role("row", name="Running").get_by_role("link").click()
    live = page.get_by_role("region", name="Progress")
    await expect(live.locator("[aria-current=step]")).to_have_text("fetches rows")
    await expect(live).to_contain_text(" of 9,000 rows")
    await expect(live).to_contain_text(" left")
    before = await live.locator("progress").get_attribute("value")

    async def has_moved() -> bool:
        bar = live.locator("progress")
        return await bar.count() == 0 or await bar.get_attribute("value") != before

    await eventually(has_moved)
    await expect(find_state(page)).to_have_text("Ready", timeout=3 * PATIENCE_MS)
    await expect(live).to_be_hidden()
    await page.go_back()
    await expect(find_result(page, task_id)).to_contain_text("9,000 rows ·")


async def test_a_failure_is_told_in_a_sentence_and_mended(page: Page, console: Console, project: Project) -> None:
    """The fault is shown first, the attempts behind a fold; and the button for a retry makes the file."""
    source = console.source.url(rows=900, seed=SEED, faults="404", only_page=3, fail_first=2, tag=project.name)
    failed = await console.exports(project).run(source, page_size=100)
    await page.goto(f"/console/downloads/{failed['task_id']}")

    why = page.get_by_role("region", name="Why it failed")
    await expect(why).to_contain_text(failed["fault"]["message"])
    await expect(why).to_contain_text(failed["fault"]["hint"])
    await page.get_by_text("What was tried, step by step").click()
    step = page.get_by_role("row").filter(has_text=failed["fault"]["message"])
    await expect(step).to_contain_text("fetch rows")
    await expect(step).to_contain_text("Failed")

    await page.get_by_role("button", name="Try again").click()
    await expect(find_state(page)).to_have_text("Ready")
    await expect(why).to_have_count(0)
    assert parse_csv(await console.exports(project).file(failed["task_id"])) == expected_rows(SEED, range(900))


@pytest.mark.long
async def test_a_failure_leads_to_others_of_its_cause(page: Page, console: Console, project: Project) -> None:
    """The link opens the list with the filter; a failure for another cause is not there."""
    exports = console.exports(project)
    url = console.source.url(rows=900, seed=SEED, faults="404", only_page=3, tag=f"{project.name} cause")
    failed = [await exports.run(url, page_size=100, file_name=name) for name in ("first", "second")]
    other = await exports.run(console.source.url(rows=900, faults="not_json"), file_name="third")
    assert [status["fault"]["code"] for status in (*failed, other)] == ["source_status"] * 2 + ["source_not_json"]

    await page.goto(f"/console/downloads/{failed[0]['task_id']}")
    await page.get_by_role("link", name="All downloads that failed for this cause").click()

    await expect(find_result(page, failed[1]["task_id"])).to_be_visible()
    await expect(find_result(page, failed[0]["task_id"])).to_be_visible()
    await expect(find_result(page, other["task_id"])).to_have_count(0)


async def test_cancelling_asks_first(page: Page, console: Console, project: Project) -> None:
    """The question names the file and what is lost; who thinks better of it loses nothing."""
    exports = console.exports(project)
    task_id = await exports.start(console.source.url(rows=60_000, delay_ms=100), page_size=100, file_name="long one")
    await page.goto(f"/console/downloads/{task_id}")
    question = page.get_by_role("dialog")
    await page.locator(".page-actions").get_by_role("button", name="Cancel").click()
    await expect(question).to_contain_text("“long one.csv” stops")
    await question.get_by_role("button", name="Cancel").first.click()
    await expect(question).to_have_count(0)
    assert (await exports.status(task_id))["state"] == "running"

    await page.locator(".page-actions").get_by_role("button", name="Cancel").click()
    await question.locator("button.danger").click()
    await expect(find_state(page)).to_have_text("Cancelled")
    await expect(page.get_by_text("It was cancelled, so there is no file.")).to_be_visible()
    assert (await exports.wait_for_end(task_id))["state"] == "cancelled"


@pytest.mark.long
async def test_a_callback_is_shown_and_sent_again(page: Page, console: Console, project: Project) -> None:
    """Each attempt is shown with its answer; sent again, the receiver gets the same message once more."""
    callback = console.receiver.url(tag=project.name, answers="200")
    done = await console.exports(project).run(console.source.url(rows=5), callback=callback)
    await page.goto(f"/console/downloads/{done['task_id']}")
    delivery = page.get_by_role("article")
    await expect(delivery).to_contain_text("Arrived")
    await expect(delivery).to_contain_text("Download is ready")
    await delivery.get_by_text("1 attempt", exact=True).first.click()
    await expect(delivery.get_by_role("row").nth(1)).to_contain_text("200")

    await delivery.get_by_role("button", name="Send again").click()
    await page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    await expect(delivery.get_by_text("2 attempts", exact=True).first).to_be_visible()
    first, second = console.receiver.list_received(project.name)
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])


async def test_a_link_needs_no_key(page: Page, console: Console, project: Project) -> None:
    """Anyone who has the link gets the file."""
    exports = console.exports(project)
    done = await exports.run(console.source.url(rows=5))
    await page.goto(f"/console/downloads/{done['task_id']}")
    await page.get_by_label("For how long").select_option(label="for an hour")
    await page.get_by_role("button", name="Make a link").click()
    url = await page.locator(".file-link code").inner_text()

    assert urlsplit(url).path.startswith("/d/")
    async with aiohttp.ClientSession() as nobody, nobody.get(URL(url, encoded=True)) as answer:
        assert await answer.read() == await exports.file(done["task_id"])


@pytest.mark.long
async def test_filters_are_in_the_address(page: Page, console: Console, project: Project) -> None:
    """What is chosen is asked of the API, and a link to it shows the same rows."""
    exports = console.exports(project)
    await exports.run(console.source.url(rows=5), file_name="alpha", operator_id="ann")
    await exports.run(console.source.url(rows=5), file_name="beta", operator_id="bob")
    await page.goto("/console/downloads")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_label("Operator").fill("bob")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_label("State").select_option("succeeded")
    await expect(page).to_have_url("/console/downloads?operator_id=bob&state=succeeded")

    await page.reload()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody tr")).to_contain_text("beta.csv")
    await page.get_by_label("State").select_option("failed")
    await expect(page.get_by_text("Nothing matches the filters.")).to_be_visible()


@pytest.mark.long
async def test_an_empty_list_says_how_to_begin(page: Page, console: Console) -> None:
    """A new project is shown the request and the command that make a download."""
    await page.goto("/console/downloads")
    await expect(page.get_by_text("No download yet.")).to_be_visible()
    await page.get_by_text("The same by API and by command").click()
    await expect(page.get_by_text(f"curl -X POST {console.address}/v1/downloads")).to_be_visible()
    await expect(page.get_by_text("haulage export https://example.com/orders --type csv")).to_be_visible()


async def test_quotas_tell_what_is_used(page: Page, console: Console, project: Project) -> None:
    """What was started and made counts; with an operator, so does what is theirs."""
    await console.exports(project).run(console.source.url(rows=1_000), operator_id="ann")
    await page.goto("/console/downloads")
    quotas = page.get_by_role("region", name="Quotas")
    await expect(quotas.get_by_role("listitem")).to_have_count(4)
    await expect(quotas.get_by_role("listitem").nth(0)).to_contain_text("Started this minute1 of ")
    await expect(quotas.get_by_role("listitem").nth(1)).to_contain_text("Not finished0 of ")
    await expect(quotas.get_by_role("listitem").nth(2)).to_contain_text(" kB of 20 GB")
    await expect(quotas.get_by_role("listitem").nth(3)).to_contain_text("1,000 of 500,000,000")

    await page.goto("/console/downloads/new")
    await page.get_by_text("Operator, retention and callback").click()
    await page.get_by_label("Operator", exact=True).fill("ann")
    await expect(page.get_by_role("region", name="Quotas").get_by_role("listitem")).to_have_count(8)


@pytest.mark.long
async def test_a_used_up_quota_is_told(page: Page, console: Console, project: Project, troubles: Troubles) -> None:
    """The form says the API's own sentence, keeps what was typed, and shows the quota full."""
    troubles.expect("429 POST /v1/downloads")
    exports = console.exports(project)
    limit = console.api_client.settings.quotas.downloads_active
    slow = console.source.url(rows=100_000, delay_ms=200)
    running = [await exports.start(slow, page_size=100) for _ in range(limit)]
    await page.goto("/console/downloads/new")
    await page.get_by_label("Address of the source").fill(console.source.url(rows=1))
    await page.get_by_role("button", name="Start the export").click()

    await expect(page.get_by_role("alert")).to_contain_text(f"This project has {limit} downloads that are not finished")
    await expect(page.get_by_label("Address of the source")).to_have_value(console.source.url(rows=1))
    await expect(page.get_by_role("listitem").filter(has_text="Not finished")).to_contain_text(f"{limit} of {limit}")
    for task_id in running:
        await console.api_client.ask("POST", f"/v1/downloads/{task_id}/cancel", key=project.key)


@pytest.mark.long
async def test_faults_stand_at_their_fields(page: Page, console: Console, troubles: Troubles) -> None:
    """Faults that the API finds are shown at their fields, folds are opened, and the first field is focused."""
    troubles.expect("422 POST /v1/downloads")
    await page.goto("/console/downloads/new")
    await page.get_by_label("Address of the source").fill(console.source.url(rows=1))
    await page.get_by_text("More about the source").click()
    await page.get_by_label("Rows per request").fill("7")
    await page.get_by_label("Request headers").fill("Host: elsewhere")
    await page.get_by_text("More about the source").click()
    await page.get_by_role("button", name="Start the export").click()

    size, headers = page.get_by_label("Rows per request"), page.get_by_label("Request headers")
    await expect(size).to_have_attribute("aria-invalid", "true")
    await expect(size).to_be_focused()
    await expect(page.locator(".of-page_size .fault")).to_contain_text("100–1000")
    await expect(headers).to_have_attribute("aria-invalid", "true")
    await expect(page.locator(".of-headers .fault")).to_contain_text("Host cannot be set")


@pytest.mark.long
async def test_rows_that_are_typed_in_keep_their_digits(page: Page, console: Console, project: Project) -> None:
    """A number longer than a double holds arrives as it was typed."""
    await page.goto("/console/downloads/new")
    await page.get_by_label("from here").check()
    await page.get_by_label("Rows as JSON").fill('[{"id": 12345678901234567890, "n": 1.10},')
    await page.get_by_role("button", name="Start the export").click()
    await expect(page.locator(".of-data .fault")).to_contain_text("This is no JSON")
    await page.get_by_label("Rows as JSON").fill('[{"id": 12345678901234567890, "n": 1.10}]')
    await page.get_by_role("button", name="Start the export").click()

    await expect(find_state(page)).to_have_text("Ready")
    task_id = urlsplit(page.url).path.rpartition("/")[2]
    file = await console.exports(project).file(task_id)
    assert parse_csv(file) == [["id", "n"], ["12345678901234567890", "1.10"]]


@pytest.mark.long
async def test_the_same_by_curl_is_the_request_that_is_sent(page: Page, console: Console) -> None:
    """The request of the form is shown below it, as curl and as a command of Haulage."""
    await page.goto("/console/downloads/new")
    await page.get_by_label("File name").fill("it's")
    await page.get_by_label("Address of the source").fill(console.source.url(rows=1))
    await page.get_by_text("The same by API and by command").click()
    [told, _] = await page.locator("form > .fold code").all_inner_texts()

    async with page.expect_request("**/v1/downloads") as sending:
        await page.get_by_role("button", name="Start the export").click()
    sent = (await sending.value).post_data or ""
    assert told.endswith("-d '" + sent.replace("'", "'\\''") + "'")
    assert json.loads(sent)["file_name"] == "it's"


async def test_the_admin_sees_every_project_s(admin_page: Page, console: Console, project: Project) -> None:
    """Without a project all downloads are listed, a click leads to one with all it can do, a new one asks for whom."""
    done = await console.exports(project).run(console.source.url(rows=7, seed=SEED), file_name=f"of {project.name}")
    await admin_page.goto(f"/console/downloads?file_name={project.name}")
    row = admin_page.locator("tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text(project.project_id)
    await row.get_by_role("link").click()
    await expect(find_heading(admin_page)).to_have_text(done["file_name"])
    link = await admin_page.locator(".file-actions a").get_attribute("href")
    assert parse_csv(await fetch_file(admin_page, link)) == expected_rows(SEED, range(7))
    await expect(admin_page.get_by_role("link", name="In Temporal")).to_have_attribute(
        "href", f"http://temporal.example.com/namespaces/{console.services.engine.namespace}/workflows/"
        f"download%3A{project.project_id}%3A{done['task_id']}",
    )  # fmt: skip

    await admin_page.goto("/console/downloads/new")
    await admin_page.get_by_role("link", name=project.name, exact=True).click()
    await admin_page.get_by_label("Address of the source").fill(console.source.url(rows=3))
    await admin_page.get_by_role("button", name="Start the export").click()
    await expect(find_state(admin_page)).to_have_text("Ready")


async def test_another_project_s_download_is_not_there(page: Page, console: Console, troubles: Troubles) -> None:
    """A key of another project gets 404."""
    troubles.expect("404 GET /v1/downloads/.*")
    other = await console.make_project()
    done = await console.exports(other).run(console.source.url(rows=3))
    await page.goto(f"/console/downloads/{done['task_id']}?project={other.project_id}")
    await expect(page.get_by_role("alert")).to_contain_text(f"There is no download {done['task_id']}.")
    await page.goto("/console/downloads/nonsense")
    await expect(page.get_by_role("alert")).to_contain_text("Request id")


@pytest.mark.parametrize("name", ["x" * 190, "تقرير المبيعات (نهائي) 2026", "<b>&amp;</b> '\"", "报表" * 40])
@pytest.mark.long
async def test_any_file_name_fits(page: Page, console: Console, project: Project, name: str) -> None:
    """Long names, names from right to left and names like markup are shown as they are, and widen no page."""
    await page.set_viewport_size({"width": 380, "height": 800})
    done = await console.exports(project).run(console.source.url(rows=0), file_name=name)
    for path in ("/console/downloads", f"/console/downloads/{done['task_id']}"):
        await page.goto(path)
        await expect(page.locator("bdi").filter(has_text=done["file_name"]).first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await expect(page.get_by_role("region", name="File")).to_contain_text("0 rows")
