"""Housekeeping: expired files go, what is in use stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from sqlmodel import col, select
from temporalio.client import ScheduleHandle

from activities.downloads import activities
from domain.downloads import names as downloads_names
from infra.housekeeping import build_schedule_id
from infra.settings import Settings
from stores.tables.downloads import Download
from tests.support.downloads import Downloads, running_downloads
from tests.support.housekeeping import keep_house
from tests.support.waiting import eventually
from workflows import systems


@pytest.fixture
async def exports(settings: Settings) -> AsyncIterator[Downloads]:
    """API, worker and source."""
    async with running_downloads(settings) as running:
        yield running


async def test_an_expired_file_goes_and_is_said_to_be_gone(exports: Downloads) -> None:
    """The bytes are removed, the state is expired, and the file answers 410."""
    old, young = [await exports.run(exports.source.url(rows=10)) for _ in range(2)]
    async with exports.services.database.session() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await session.exec(update(Download).where(col(Download.task_id) == old["task_id"]).values(expires_at=past))

    await keep_house(exports.services.engine, downloads_names)

    assert (await exports.status(old["task_id"]))["state"] == "expired"
    assert (await exports.status(young["task_id"]))["state"] == "succeeded"
    reply = await exports.api_client.ask("GET", f"/v1/downloads/{old['task_id']}/file", key=exports.key)
    assert (reply.status, reply.code) == (410, "download_expired")
    assert {key.split("/")[2] for key in await exports.leftovers()} == {young["task_id"]}


async def test_more_files_than_a_batch_expire(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch follows batch until nothing is due."""
    monkeypatch.setattr(activities, "EXPIRED_BATCH", 2)
    for _ in range(5):
        await exports.run(exports.source.url(rows=1))
    async with exports.services.database.session() as session:
        await session.exec(update(Download).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))

    await keep_house(exports.services.engine, downloads_names)

    assert await exports.leftovers() == []


async def test_a_file_that_cannot_be_removed_holds_up_no_other(exports: Downloads) -> None:
    """It is left and logged; those behind it go."""
    broken, _ = [await exports.run(exports.source.url(rows=10)) for _ in range(2)]
    async with exports.services.database.session() as session:
        await session.exec(update(Download).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
        unreadable = {"request": {}, "expires_at": datetime.now(UTC) - timedelta(seconds=2)}
        await session.exec(update(Download).where(col(Download.task_id) == broken["task_id"]).values(unreadable))

    removed = await keep_house(exports.services.engine, downloads_names)

    assert removed.removed[downloads_names.EXPIRE] == 1
    assert {key.split("/")[2] for key in await exports.leftovers()} == {broken["task_id"]}


async def test_what_nobody_comes_back_to_is_swept(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging and uploads of downloads that are over go after a day; those of a running one stay."""
    monkeypatch.setattr(activities, "ABANDONED_AFTER", timedelta(seconds=-1))
    objects = exports.services.objects
    await objects.put("staging/prj_gone/dl_gone/tail-0-1", b"x")
    await objects.put("inline/prj_gone/dl_gone.json", b"{}")
    await objects.begin_upload("files/prj_gone/dl_gone/data.csv")
    task_id = await exports.start(exports.source.url(rows=500_000, delay_ms=100), page_size=100)
    await eventually(lambda: objects.list_open_uploads(f"files/{exports.project_id}/{task_id}/"))
    staged = f"staging/{exports.project_id}/{task_id}/of-this-test"
    sent = f"inline/{exports.project_id}/{task_id}-1.json"
    foreign = "staging/of-another-program"
    for key in (staged, sent, foreign):
        await objects.put(key, b"x")

    await keep_house(exports.services.engine, downloads_names)

    left = await exports.leftovers()
    assert [key for key in left if "gone" in key] == []
    assert {staged, sent, foreign} <= set(left)
    assert await objects.list_open_uploads(f"files/{exports.project_id}/{task_id}/")
    await exports.services.engine.get_workflow_handle(
        downloads_names.build_download_workflow_id(exports.project_id, task_id)
    ).cancel()
    assert (await exports.wait_for_end(task_id))["state"] == "cancelled"


async def test_a_download_whose_run_was_terminated_fails(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine forgets the run, and then nothing would say any more that it has ended; one that runs goes on."""
    url = exports.source.url(rows=500_000, delay_ms=100)
    ended, runs = [await exports.start(url, page_size=100) for _ in range(2)]
    handles = [
        exports.services.engine.get_workflow_handle(
            downloads_names.build_download_workflow_id(exports.project_id, task_id)
        )
        for task_id in (ended, runs)
    ]
    await handles[0].terminate()
    monkeypatch.setattr(activities, "ABANDONED_AFTER", timedelta(seconds=-1))

    await keep_house(exports.services.engine, downloads_names)

    async with exports.services.database.session() as session:
        rows = {row.task_id: row for row in await session.exec(select(Download))}
    assert (rows[ended].state, (rows[ended].fault or {}).get("code")) == ("failed", "run_ended")
    assert rows[runs].state in ("pending", "running")
    await handles[1].cancel()
    assert (await exports.wait_for_end(runs))["state"] == "cancelled"


async def test_the_schedule_is_made_once_and_mended(exports: Downloads) -> None:
    """Preparing an installation again changes nothing but what differs; a paused schedule stays paused."""
    engine = exports.services.engine
    await systems.create_or_update_schedules(engine, exports.services.database, exports.services.settings)
    handle: ScheduleHandle = engine.get_schedule_handle(build_schedule_id(downloads_names.SYSTEM))
    await handle.pause()

    await systems.create_or_update_schedules(engine, exports.services.database, exports.services.settings)
    found = (await handle.describe()).schedule

    assert found.state.paused
    assert [spec.every for spec in found.spec.intervals] == [timedelta(minutes=10)]
