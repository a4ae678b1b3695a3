"""Transfers over HTTP: ids as clients write them, access of other projects, pages, cancelling, and retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import text
from yarl import URL

from domain.transfers import names
from domain.transfers.activity_models import TransferJobStatus
from infra.settings import Settings
from sims.gse.scenario import GseAction, GseRule
from tests.support.housekeeping import keep_house
from tests.support.pace import measure_pace
from tests.support.transfers import QUICK, Transfers, job_of, running_transfers, window_begins
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

STUCK = QUICK.model_copy(update={"rules": (GseRule(action=GseAction.STUCK, agent="stuck.*"),)})
ODD_PATH = "/etc/配置 (1)/50%:a:115710720/app.conf"


@pytest.mark.parametrize("unencoded", ["/:()", "/", ""], ids=["raw", "slashes", "encoded"])
async def test_ids_are_taken_raw_and_encoded(settings: Settings, unencoded: str) -> None:
    """With slashes, colons, per cents and Chinese in the path."""
    async with running_transfers(settings) as transfers:
        task_id = await transfers.join("agent-1", file_path=ODD_PATH)
        job_id = job_of(await transfers.wait_for_end(task_id))
        written = [quote(name, safe=unencoded) for name in (task_id, job_id)]
        paths = [f"/v1/transfers/{written[0]}", f"/v1/transfers/jobs/{written[1]}"]
        headers = {"Authorization": f"Bearer {transfers.key}"}
        urls = [URL(transfers.api_client.address + path, encoded=True) for path in paths]
        task, job = [await (await transfers.api_client.session.get(url, headers=headers)).json() for url in urls]

    assert task_id.startswith(f"AsyncDownloadTask:2:7:{ODD_PATH}:")
    assert (task["task_id"], task["status"]) == (task_id, "Success")
    assert (job["job_id"], job["counts"]["Success"]) == (job_id, 1)


@pytest.mark.long
async def test_a_task_is_pending_running_and_then_over(settings: Settings) -> None:
    """Pending while the window is open, Running with progress while GSE carries it."""
    slow = QUICK.model_copy(update={"download_seconds": 4.0})
    async with running_transfers(settings, slow, window_seconds=8) as transfers:
        await window_begins(8)
        task_id = await transfers.join("agent-1")
        seen = [await transfers.status(task_id)]
        collecting = await transfers.job(job_of(seen[0]))

        async def over() -> bool:
            seen.append(await transfers.status(task_id))
            return bool(seen[-1]["status"] == "Success")

        await eventually(over)

    assert list(dict.fromkeys(each["status"] for each in seen)) == ["Pending", "Running", "Success"]
    assert collecting["counts"] == {"Pending": 1, "Running": 0, "Success": 0, "Failed": 0, "Timeout": 0}
    running = [each["progress"] for each in seen if each["status"] == "Running"]
    assert running == sorted(running)
    assert any(0 < progress < 100 for progress in running)


@pytest.mark.long
async def test_other_projects_see_nothing_and_change_nothing(settings: Settings) -> None:
    """A job may be shared: each project sees and cancels its own targets only, and another's ids lead nowhere."""
    async with running_transfers(settings, STUCK, window_seconds=3) as transfers:
        _, other_key = await transfers.api_client.make_project("other")
        ours = await transfers.join("stuck-1")
        body = transfers.build_request() | {"target_agent_id": "fine-1"}
        theirs = (await transfers.api_client.ask("POST", "/v1/transfers", key=other_key, json=body)).body["task_id"]
        answers = [
            await transfers.api_client.ask(method, f"/v1/transfers/{quote(task_id)}{deed}", key=key)
            for method, deed in (("GET", ""), ("POST", "/cancel"))
            for task_id, key in ((ours, other_key), (theirs, transfers.key))
        ]
        job_id = job_of(await transfers.status(ours))
        cancelled = await transfers.api_client.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/cancel", key=other_key)
        await eventually(lambda: len(transfers.world.tasks) >= 1)
        job = await transfers.job(job_id)

        assert {(answer.status, answer.code) for answer in answers} == {(404, "not_found")}
        assert cancelled.status in (202, 404)
        assert sum(job["counts"].values()) == 1
        assert job["counts"]["Failed"] == 0


async def test_past_its_deadline_nobody_else_learns_that_a_job_was(settings: Settings) -> None:
    """Other projects get the same answer for an existing job and for an unknown one."""
    async with running_transfers(settings, timeout_seconds=3.0) as transfers:
        _, other_key = await transfers.api_client.make_project("other")
        job_id = job_of(await transfers.wait_for_end(await transfers.join("agent-1")))
        job = await transfers.wait_for_job_end(job_id)
        await eventually(lambda: datetime.fromisoformat(job["deadline_at"]) < datetime.now(UTC))
        answers = [
            await transfers.api_client.ask(method, f"/v1/transfers/jobs/{quote(name)}{deed}", key=other_key)
            for method, deed in (("GET", ""), ("POST", "/cancel"))
            for name in (job_id, job_id.replace("/etc/", "/opt/"))
        ]
        kept = await transfers.job(job_id)

    assert {(answer.status, answer.code, answer.body["detail"]) for answer in answers} == {
        (404, "not_found", answers[0].body["detail"])
    }
    assert kept["counts"] == job["counts"]


async def test_targets_come_in_pages(settings: Settings) -> None:
    """Each once, whatever the size of a page, also those in one state only."""
    rule = GseRule(action=GseAction.FAIL, agent="bad-.*", code=122)
    scenario = QUICK.model_copy(update={"rules": (rule,)})
    async with running_transfers(settings, scenario, window_seconds=2) as transfers:
        agents = [f"agent-{n}" for n in range(25)] + [f"bad-{n}" for n in range(5)]
        job_id = job_of(await transfers.wait_for_end((await transfers.join_many(agents))[0]))
        await transfers.wait_for_job_end(job_id)
        everybody = await _pages(transfers, job_id, limit=7)
        bad = await _pages(transfers, job_id, limit=2, status="Failed")
        refused = await transfers.ask("GET", f"/v1/transfers/jobs/{quote(job_id)}", params={"cursor": "x"})

    assert sorted(target["target_agent_id"] for target in everybody) == sorted(agents)
    assert sorted(target["target_agent_id"] for target in bad) == [f"bad-{n}" for n in range(5)]
    assert {(target["target_user"], target["target_file_dir"]) for target in everybody} == {("root", "/data/config")}
    assert refused.status == 422


async def _pages(transfers: Transfers, job_id: str, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    page = await transfers.job(job_id, **query)
    while True:
        assert len(page["targets"]) <= query["limit"]
        found += page["targets"]
        if page["next_cursor"] is None:
            return found
        page = await transfers.job(job_id, cursor=page["next_cursor"], **query)


@pytest.mark.long
async def test_a_cancelled_task_is_given_up(settings: Settings) -> None:
    """It fails with that reason; GSE is asked to terminate it; others of its job continue; ended targets stay."""
    async with running_transfers(settings, STUCK, window_seconds=2) as transfers:
        task_ids = await transfers.join_many(["fine", "stuck-1", "stuck-2"])
        ended = await transfers.wait_for_end(task_ids[0])
        cancels = [
            await transfers.ask("POST", f"/v1/transfers/{quote(task_ids[1])}/cancel"),
            await transfers.ask("POST", f"/v1/transfers/{quote(task_ids[0])}/cancel"),
        ]
        cancelled = await transfers.wait_for_end(task_ids[1])
        (task,) = transfers.world.tasks.values()
        other = await transfers.status(task_ids[2])

        assert [reply.status for reply in cancels] == [202, 202]
        assert (cancelled["status"], cancelled["reason"]) == ("Failed", "cancelled")
        assert other["status"] == "Running"
        await eventually(lambda: task.targets["stuck-1", ""].code == 126)
        assert (await transfers.status(task_ids[0]))["status"] == ended["status"] == "Success"


@pytest.mark.long
async def test_what_is_cancelled_while_the_window_is_open_is_never_sent(settings: Settings) -> None:
    """A task, or the whole job; who asks after that is in the next job."""
    async with running_transfers(settings, window_seconds=8) as transfers:
        await window_begins(8)
        one, other = await transfers.join_many(["one", "other"])
        await transfers.ask("POST", f"/v1/transfers/{quote(one)}/cancel")
        first = await transfers.wait_for_end(one)
        assert (first["status"], first["reason"]) == ("Failed", "cancelled")
        assert (await transfers.wait_for_end(other))["status"] == "Success"

        await window_begins(8)
        third = await transfers.join("third")
        job_id = job_of(await transfers.status(third))
        reply = await transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/cancel")
        fourth = await transfers.join("third")
        ends = [await transfers.wait_for_end(task_id) for task_id in (third, fourth)]

        assert reply.status == 202
        assert [end["status"] for end in ends] == ["Failed", "Success"]
        assert [job_of(end) == job_id for end in ends] == [True, False]
        assert transfers.sends == {("other", ""): 1, ("third", ""): 1}


async def test_a_job_cancelled_in_the_engine_ends_in_order(settings: Settings) -> None:
    """`temporal workflow cancel` alone is enough to stop a job, as the API's cancel is."""
    async with running_transfers(settings, STUCK) as transfers:
        task_id = await transfers.join("stuck-1")
        job_id = job_of(await transfers.status(task_id))
        handle = transfers.worker.services.engine.get_workflow_handle(job_id, result_type=TransferJobStatus)
        await eventually(lambda: len(transfers.world.tasks) == 1)
        await handle.cancel()
        end = await transfers.wait_for_end(task_id)
        status = await handle.result()

        assert (end["status"], end["reason"]) == ("Failed", "cancelled")
        assert status.sent == 1


async def test_a_cancel_says_that_it_is_under_way(settings: Settings) -> None:
    """Of the job and of each of its targets, in the answer to the cancel itself; until all have ended."""
    slow = STUCK.model_copy(update={"terminate_seconds": 3.0})
    async with running_transfers(settings, slow) as transfers:
        task_ids = await transfers.join_many(["stuck-1", "stuck-2"])
        await eventually(lambda: len(transfers.world.tasks) == 1)
        job_id = job_of(await transfers.status(task_ids[0]))
        before = await transfers.job(job_id)
        reply = await transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/cancel")
        after = await transfers.wait_for_job_end(job_id)

    assert (before["cancelling"], [each["cancelling"] for each in before["targets"]]) == (False, [False, False])
    assert reply.status == 202
    assert reply.body["status"] == "Running"
    assert (reply.body["cancelling"], [each["cancelling"] for each in reply.body["targets"]]) == (True, [True, True])
    assert (after["cancelling"], [each["cancelling"] for each in after["targets"]]) == (False, [False, False])
    assert after["counts"]["Failed"] == 2


async def test_a_cancel_within_the_window_says_so_too(settings: Settings) -> None:
    """No target is saved yet; another project's cancel has no effect here."""
    # Of an hour, so that it does not end between two requests.
    async with running_transfers(settings, window_seconds=3_600) as transfers:
        _, other_key = await transfers.api_client.make_project("other")
        task_id = await transfers.join("agent-1")
        body = transfers.build_request() | {"target_agent_id": "agent-2"}
        theirs = (await transfers.api_client.ask("POST", "/v1/transfers", key=other_key, json=body)).body
        path = f"/v1/transfers/jobs/{quote(job_of(await transfers.status(task_id)))}"
        reply = await transfers.ask("POST", f"{path}/cancel")
        other = await transfers.api_client.ask("GET", path, key=other_key)

    assert theirs["job_id"] == reply.body["job_id"]
    assert (reply.body["status"], reply.body["cancelling"]) == ("Pending", True)
    assert (other.body["status"], other.body["cancelling"]) == ("Pending", False)


async def test_each_step_of_a_task_has_its_time(settings: Settings) -> None:
    """In their order; what has not happened yet has none."""
    slow = QUICK.model_copy(update={"upload_seconds": 0.5, "download_seconds": 3.0})
    window_seconds = round(4 * measure_pace())
    async with running_transfers(settings, slow, window_seconds=window_seconds) as transfers:
        await window_begins(window_seconds)
        task_id = await transfers.join("agent-1")
        waiting = await transfers.status(task_id)
        end = await transfers.wait_for_end(task_id)
        job = await transfers.job(job_of(end))

    steps = ("joined_at", "fetched_at", "sent_at", "uploaded_at", "ended_at")
    assert [waiting[step] for step in steps] == [None] * 5
    assert (waiting["deadline_at"], end["failures"], end["last_failure"]) == (None, 0, "")
    assert datetime.fromisoformat(end["deadline_at"]) > datetime.fromisoformat(end["window_closes_at"])
    moments = [datetime.fromisoformat(end[step]) for step in steps]
    assert moments == sorted(moments)
    # The file is fetched while others still join.
    assert moments[1] < datetime.fromisoformat(end["window_closes_at"]) < moments[2]
    assert [[each[step] for step in steps] for each in job["targets"]] == [[end[step] for step in steps]]


async def test_a_job_is_known_for_seven_days_and_then_forgotten(settings: Settings) -> None:
    """200 while its state is kept, 410 from then on for a week, 404 after that."""
    async with running_transfers(settings, kept_seconds=2.0 * measure_pace()) as transfers:
        # Its end is not waited for: by the next look its time may be over.
        job_id = job_of(await transfers.status(await transfers.join("fine")))
        path = f"/v1/transfers/jobs/{quote(job_id)}"
        answers = []

        async def is_over() -> bool:
            return (await transfers.ask("GET", path)).status == 410

        await eventually(is_over)
        services = transfers.worker.services
        for number, age in enumerate((timedelta(), timedelta(days=7, minutes=-1), timedelta(days=7, minutes=1))):
            if number:  # the first time its targets are purged
                purged_at = {"purged_at": datetime.now(UTC) - age}
                async with services.database.session() as session:
                    await session.execute(text("UPDATE transfer_jobs SET purged_at = :purged_at"), purged_at)
                    await session.commit()
            await keep_house(services.engine, names)
            answers.append(await transfers.ask("GET", path))

    assert [answer.status for answer in answers] == [410, 410, 404]
    assert [answer.code for answer in answers] == ["transfer_expired", "transfer_expired", "not_found"]


@pytest.mark.long
async def test_what_ended_long_ago_is_gone(settings: Settings) -> None:
    """410 from the moment on that its time is over, before and after the rows are purged; what runs is kept."""
    async with running_transfers(settings, STUCK, kept_seconds=0.5) as transfers:
        task_id = await transfers.join("fine")
        path = f"/v1/transfers/{quote(task_id)}"

        async def is_gone() -> bool:
            return (await transfers.ask("GET", path)).status == 410

        await eventually(is_gone)
        stays = await transfers.join("stuck")

        async def runs() -> bool:
            return bool((await transfers.status(stays))["status"] == "Running")

        await eventually(lambda: len(transfers.world.tasks) == 2)
        services = transfers.worker.services
        await keep_house(services.engine, names)
        async with services.database.session() as session:
            left = (await session.execute(text("SELECT agent_id FROM transfer_targets"))).scalars().all()

        assert left == ["stuck"]
        assert await is_gone()
        assert (await transfers.ask("POST", f"{path}/cancel")).code == "transfer_expired"
        assert await eventually(runs)
