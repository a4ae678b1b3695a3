"""Steering downloads through the door: cancel what runs, retry what failed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import pytest
from sqlmodel import col, select

from infra.settings import Settings
from infra.tables.limits import Lease
from tests import watchers
from tests.door import Reply
from tests.exports import Exports, expected, exporting, parsed
from tests.stack import eventually
from workflows import downloads

SEED = 8


@pytest.fixture
async def exports(settings: Settings) -> AsyncIterator[Exports]:
    """API, worker and source."""
    async with exporting(settings) as running:
        yield running


async def steer(exports: Exports, method: str, path: str) -> Reply:
    """One request under /v1/downloads/."""
    return await exports.door.ask(method, f"/v1/downloads/{path}", key=exports.key)


async def fetching(exports: Exports) -> str:
    """A download of many slow pages, some of them fetched."""
    task_id = await exports.start(exports.source.url(rows=100_000, seed=SEED, delay_ms=20), page_size=100)

    async def has_rows() -> bool:
        return bool((await exports.status(task_id))["rows"])

    await eventually(has_rows)
    return task_id


@pytest.mark.parametrize(("method", "suffix"), [("POST", "/cancel"), ("DELETE", "")])
async def test_cancel_stops_and_leaves_nothing(exports: Exports, method: str, suffix: str) -> None:
    """No file, no chunk, no upload, no slot; watchers hear it, and asking again changes nothing."""
    task_id = await fetching(exports)
    async with watchers.socket(exports.door, exports.key, f"/v1/downloads/{task_id}/ws") as socket:
        reply = await steer(exports, method, task_id + suffix)
        messages = await watchers.heard(socket)

    assert reply.status == 202
    assert (messages[-1]["state"], messages[-1]["label"]) == ("cancelled", "已取消")
    assert await exports.is_empty()
    asked = sum(exports.source.requests(page_size=100).values())
    assert (await steer(exports, method, task_id + suffix)).body == messages[-1]
    assert sum(exports.source.requests(page_size=100).values()) == asked
    async with exports.services.database.session() as session:
        assert (await session.exec(select(Lease).where(col(Lease.holder) == task_id))).all() == []


async def test_cancel_right_after_the_start(settings: Settings) -> None:
    """Also before any worker has seen it."""
    async with exporting(settings) as exports:
        task_id = await exports.start(exports.source.url(rows=100_000, delay_ms=20), page_size=100)
        assert (await steer(exports, "POST", f"{task_id}/cancel")).status == 202
        assert (await exports.ended(task_id))["state"] == "cancelled"
        assert await exports.is_empty()


async def test_what_is_over_stays_as_it_is(exports: Exports) -> None:
    """Cancelling a finished download neither fails nor takes its file."""
    status = await exports.run(exports.source.url(rows=10, seed=SEED))
    reply = await steer(exports, "POST", f"{status['task_id']}/cancel")
    assert (reply.status, reply.body) == (202, status)
    assert parsed(await exports.file(status["task_id"])) == expected(SEED, range(10))


async def test_retry_within_the_window_goes_on(settings: Settings) -> None:
    """A failed download that can still be gone on from is taken up under its id, and counted."""
    short = settings.downloads.model_copy(update={"page_retries": 0, "max_task_retries": 0})
    async with exporting(settings.model_copy(update={"downloads": short}), resume_window_seconds=60) as exports:
        url = exports.source.url(rows=10_000, seed=SEED, faults="5xx", rate=0.02)
        status = await exports.run(url, page_size=100)
        assert status["state"] == "failed", status
        rounds = 1
        while status["state"] == "failed":
            reply = await steer(exports, "POST", f"{status['task_id']}/retry")
            assert reply.status == 202, reply.body
            assert reply.body["state"] != "failed" or reply.body["processings"] > rounds
            rounds += 1
            status = await exports.ended(status["task_id"])
        assert (status["state"], status["processings"]) == ("succeeded", rounds)
        assert parsed(await exports.file(status["task_id"])) == expected(SEED, range(10_000))


async def test_retry_of_a_run_that_has_ended(exports: Exports) -> None:
    """A fault that will not pass ends the run; a retry starts a new one, under the same id and from the same order."""
    url = f"{exports.source.base}/rows?rows=100&seed={SEED}&faults=404&rate=1"
    failed = await exports.run(url, page_size=100, file_name="again", operator_id="7")
    assert failed["state"] == "failed"
    handle = exports.services.engine.get_workflow_handle(downloads.workflow_id(exports.project_id, failed["task_id"]))
    await eventually(lambda: has_closed(handle))

    reply = await steer(exports, "POST", f"{failed['task_id']}/retry")
    assert reply.status == 202, reply.body
    again = await exports.ended(failed["task_id"])
    assert again["fault"] == failed["fault"]
    assert (again["file_name"], again["operator_id"]) == ("again.csv", "7")
    assert again["created_at"] == failed["created_at"]
    assert datetime.fromisoformat(again["finished_at"]) > datetime.fromisoformat(failed["finished_at"])


async def has_closed(handle: object) -> bool:
    """Whether a run has ended."""
    return (await handle.describe()).close_time is not None  # type: ignore[attr-defined]


async def test_only_what_failed_can_be_retried(exports: Exports) -> None:
    """What runs or succeeded is told its state."""
    done = await exports.run(exports.source.url(rows=10))
    runs = await fetching(exports)
    for task_id, state in ((done["task_id"], "succeeded"), (runs, "running")):
        reply = await steer(exports, "POST", f"{task_id}/retry")
        assert (reply.status, reply.code) == (409, "download_not_failed")
        assert f"This download is {state};" in reply.body["detail"]


async def test_nobody_steers_what_is_not_there(exports: Exports) -> None:
    """An id that nobody was given is missing to every verb."""
    for method, path in (("POST", "/cancel"), ("DELETE", ""), ("POST", "/retry"), ("POST", "/link"), ("GET", "/ws")):
        reply = await steer(exports, method, f"dl_{'0' * 24}{path}")
        assert (reply.status, reply.code) == (404, "not_found")


async def test_a_run_that_was_terminated_is_told_as_failed(exports: Exports) -> None:
    """Who ends a run in the engine's own console leaves no download that seems to run for ever."""
    task_id = await fetching(exports)
    handle = exports.services.engine.get_workflow_handle(downloads.workflow_id(exports.project_id, task_id))
    async with watchers.socket(exports.door, exports.key, f"/v1/downloads/{task_id}/ws") as socket:
        await handle.terminate("by hand")
        messages = await watchers.heard(socket)
    assert (messages[-1]["state"], messages[-1]["fault"]["code"]) == ("failed", "run_ended")
    assert (await steer(exports, "POST", f"{task_id}/retry")).body["state"] in ("pending", "running")
    assert (await steer(exports, "POST", f"{task_id}/cancel")).status == 202
    assert (await exports.ended(task_id))["state"] == "cancelled"
