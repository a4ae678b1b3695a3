"""Actions through the API: cancel what runs, retry what failed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlmodel import col, select
from yarl import URL

from domain.downloads import names
from infra.limits.limiter import SlotLeaseRow
from infra.settings import Settings
from tests.support import watchers
from tests.support.api import Reply
from tests.support.downloads import Downloads, expected_rows, parse_csv, running_downloads
from tests.support.pace import measure_pace
from tests.support.waiting import eventually

SEED = 8


@pytest.fixture
async def exports(settings: Settings) -> AsyncIterator[Downloads]:
    """API, worker and source."""
    async with running_downloads(settings) as running:
        yield running


async def steer(exports: Downloads, method: str, path: str) -> Reply:
    """One request under /v1/downloads/."""
    return await exports.api_client.ask(method, f"/v1/downloads/{path}", key=exports.key)


async def start_fetching(exports: Downloads) -> str:
    """A download of many slow pages, some of them fetched."""
    task_id = await exports.start(exports.source.url(rows=100_000, seed=SEED, delay_ms=20), page_size=100)

    async def has_rows() -> bool:
        return bool((await exports.status(task_id))["rows"])

    await eventually(has_rows)
    return task_id


async def test_cancel_stops_and_leaves_nothing(exports: Downloads) -> None:
    """No file, no chunk, no upload, no slot; watchers receive it, and a second cancel changes nothing."""
    task_id = await start_fetching(exports)
    async with watchers.socket(exports.api_client, exports.key, f"/v1/downloads/{task_id}/ws") as socket:
        reply = await steer(exports, "POST", f"{task_id}/cancel")
        messages = await watchers.read_messages(socket)

    assert reply.status == 202
    assert (messages[-1]["state"], messages[-1]["state_label"]) == ("cancelled", "已取消")
    assert await exports.is_empty()
    asked = sum(exports.source.requests(page_size=100).values())
    assert (await steer(exports, "POST", f"{task_id}/cancel")).body == messages[-1]
    assert sum(exports.source.requests(page_size=100).values()) == asked
    async with exports.services.database.session() as session:
        assert (await session.exec(select(SlotLeaseRow).where(col(SlotLeaseRow.holder) == task_id))).all() == []


async def test_cancel_right_after_the_start(settings: Settings) -> None:
    """Also before any worker has seen it."""
    async with running_downloads(settings) as exports:
        task_id = await exports.start(exports.source.url(rows=100_000, delay_ms=20), page_size=100)
        assert (await steer(exports, "POST", f"{task_id}/cancel")).status == 202
        assert (await exports.wait_for_end(task_id))["state"] == "cancelled"
        assert await exports.is_empty()


async def test_a_file_can_be_removed_before_its_time(exports: Downloads) -> None:
    """With its object and its links; what runs is cancelled first."""
    status = await exports.run(exports.source.url(rows=10, seed=SEED))
    link = (await steer(exports, "POST", f"{status['task_id']}/link")).body["url"]
    removed = await steer(exports, "DELETE", status["task_id"])
    followed = await exports.api_client.ask("GET", URL(link).path)
    again = await steer(exports, "DELETE", status["task_id"])
    running = await start_fetching(exports)
    refused = await steer(exports, "DELETE", running)
    await steer(exports, "POST", f"{running}/cancel")
    await exports.wait_for_end(running)

    assert (removed.status, removed.body["state"], again.body) == (200, "expired", removed.body)
    assert (followed.status, followed.code) == (410, "download_expired")
    assert (refused.status, refused.code) == (409, "download_not_ended")
    await eventually(exports.is_empty)


async def test_what_waits_for_a_retry_can_be_removed(settings: Settings) -> None:
    """It stays failed, and nothing of it lies in the store."""
    async with running_downloads(settings, resume_window_seconds=600) as exports:
        status = await exports.run(exports.source.url(rows=1_000, faults="404", rate=1, only_page=3), page_size=100)
        assert (status["state"], await exports.is_empty()) == ("failed", False)
        removed = await steer(exports, "DELETE", status["task_id"])
        assert removed.body["state"] == "failed"
        await eventually(exports.is_empty)


async def test_a_retry_goes_on_from_what_is_staged_whatever_was_wrong(settings: Settings) -> None:
    """A fault that does not pass by itself is mended by its owner, and pages that came before it are not asked for."""
    async with running_downloads(settings, resume_window_seconds=600) as exports:
        url = exports.source.url(rows=1_000, seed=SEED, faults="404", rate=1, only_page=7, fail_first=2)
        failed = await exports.run(url, page_size=100)
        await steer(exports, "POST", f"{failed['task_id']}/retry")
        status = await exports.wait_for_end(failed["task_id"])

        assert (failed["fault"]["code"], failed["rows"], failed["times_processed"]) == ("source_status", 700, 1)
        assert (status["state"], status["rows"], status["times_processed"]) == ("succeeded", 1_000, 2)
        asked = exports.source.requests(page_size=100)
        assert [asked[page] for page in range(1, 11)] == [1, 1, 1, 1, 1, 1, 3, 1, 1, 1]


async def test_what_is_tried_again_is_told_while_it_is(exports: Downloads) -> None:
    """The sentence, how often, and when next; no fetcher keeps its place meanwhile."""
    pause = round(4 * measure_pace())
    url = exports.source.url(rows=1_000, seed=SEED, faults="429", rate=1, only_page=3, fail_first=1, retry_after=pause)
    task_id = await exports.start(url, page_size=100)

    async def trouble() -> dict[str, Any] | None:
        told: dict[str, Any] | None = (await exports.status(task_id))["trouble"]
        return told

    told = await eventually(trouble)
    assert told is not None
    running = await exports.services.engine.get_workflow_handle(
        names.build_download_workflow_id(exports.project_id, task_id)
    ).describe()
    assert (told["code"], told["attempts"]) == ("source_status", 1)
    assert "answered 429 for page 3" in told["message"]
    assert datetime.fromisoformat(told["next_attempt_at"]) > datetime.now(UTC)
    assert list(running.raw_description.pending_activities) == []
    status = await exports.wait_for_end(task_id)
    assert (status["state"], status["trouble"]) == ("succeeded", None)


async def test_what_is_over_stays_as_it_is(exports: Downloads) -> None:
    """Cancelling a finished download neither fails nor takes its file."""
    status = await exports.run(exports.source.url(rows=10, seed=SEED))
    reply = await steer(exports, "POST", f"{status['task_id']}/cancel")
    assert (reply.status, reply.body) == (202, status)
    assert parse_csv(await exports.file(status["task_id"])) == expected_rows(SEED, range(10))


async def test_retry_within_the_window_goes_on(settings: Settings) -> None:
    """A failed download that can still be gone on from is taken up under its id, and counted."""
    short = settings.downloads.model_copy(update={"page_retries": 0, "max_task_retries": 0, "small_file_max_bytes": 0})
    async with running_downloads(settings.model_copy(update={"downloads": short}), resume_window_seconds=60) as exports:
        url = exports.source.url(rows=10_000, seed=SEED, faults="5xx", rate=0.02)
        status = await exports.run(url, page_size=100)
        assert status["state"] == "failed", status
        rounds = 1
        while status["state"] == "failed":
            reply = await steer(exports, "POST", f"{status['task_id']}/retry")
            assert reply.status == 202, reply.body
            assert reply.body["state"] != "failed" or reply.body["times_processed"] > rounds
            rounds += 1
            status = await exports.wait_for_end(status["task_id"])
        assert (status["state"], status["times_processed"]) == ("succeeded", rounds)
        assert parse_csv(await exports.file(status["task_id"])) == expected_rows(SEED, range(10_000))


async def test_retry_of_a_run_that_has_ended(exports: Downloads) -> None:
    """A fault that will not pass ends the run; a retry starts a new one, under the same id and from the same order."""
    url = f"{exports.source.base}/rows?rows=100&seed={SEED}&faults=404&rate=1"
    failed = await exports.run(url, page_size=100, file_name="again", operator_id="7")
    assert failed["state"] == "failed"
    handle = exports.services.engine.get_workflow_handle(
        names.build_download_workflow_id(exports.project_id, failed["task_id"])
    )
    await eventually(lambda: has_closed(handle))

    reply = await steer(exports, "POST", f"{failed['task_id']}/retry")
    assert reply.status == 202, reply.body
    again = await exports.wait_for_end(failed["task_id"])
    assert again["fault"] == failed["fault"]
    assert (again["file_name"], again["operator_id"]) == ("again.csv", "7")
    assert again["created_at"] == failed["created_at"]
    assert datetime.fromisoformat(again["finished_at"]) > datetime.fromisoformat(failed["finished_at"])


async def has_closed(handle: object) -> bool:
    """Whether a run has ended."""
    return (await handle.describe()).close_time is not None  # type: ignore[attr-defined]


@pytest.mark.long
async def test_only_what_failed_can_be_retried(exports: Downloads) -> None:
    """For a download that runs or succeeded the problem names its state."""
    done = await exports.run(exports.source.url(rows=10))
    runs = await start_fetching(exports)
    for task_id, state in ((done["task_id"], "succeeded"), (runs, "running")):
        reply = await steer(exports, "POST", f"{task_id}/retry")
        assert (reply.status, reply.code) == (409, "download_not_failed")
        assert f"This download is {state};" in reply.body["detail"]


async def test_nobody_steers_what_is_not_there(exports: Downloads) -> None:
    """An unknown id is missing to every method."""
    for method, path in (("POST", "/cancel"), ("DELETE", ""), ("POST", "/retry"), ("POST", "/link"), ("GET", "/ws")):
        reply = await steer(exports, method, f"dl_{'0' * 24}{path}")
        assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.long
async def test_a_run_that_was_terminated_is_told_as_failed(exports: Downloads) -> None:
    """Who ends a run in the engine's own console leaves no download that seems to run for ever."""
    task_id = await start_fetching(exports)
    handle = exports.services.engine.get_workflow_handle(names.build_download_workflow_id(exports.project_id, task_id))
    async with watchers.socket(exports.api_client, exports.key, f"/v1/downloads/{task_id}/ws") as socket:
        await handle.terminate("by hand")
        messages = await watchers.read_messages(socket)
    assert (messages[-1]["state"], messages[-1]["fault"]["code"]) == ("failed", "run_ended")
    assert (await steer(exports, "POST", f"{task_id}/retry")).body["state"] in ("pending", "running")
    assert (await steer(exports, "POST", f"{task_id}/cancel")).status == 202
    assert (await exports.wait_for_end(task_id))["state"] == "cancelled"
