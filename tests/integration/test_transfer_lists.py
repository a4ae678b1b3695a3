"""Jobs in lists: pages, whose they are, which have ended, and why targets did not get the file."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest

from api.transfers.context import UnsavedJob, UnsavedJobListerAndTargetCounter
from domain.transfers import names
from domain.workload import ConcernKind
from infra.settings import Settings
from sims.gse.scenario import GseAction, GseCall, GseRule
from stores.transfers.workloads import TransferTargetCounter
from tests.support.transfers import QUICK, Transfers, job_of, running_transfers, window_begins
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

MIXED = QUICK.model_copy(
    update={
        "rules": (
            GseRule(action=GseAction.FAIL, agent="nouser-.*", code=122, message="no user root"),
            GseRule(action=GseAction.FAIL, agent="large-.*", code=119),
            GseRule(action=GseAction.STUCK, agent="stuck-.*"),
        )
    }
)


async def list_all_jobs(transfers: Transfers, **query: Any) -> list[dict[str, Any]]:
    """All jobs, page by page."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        reply = await transfers.ask("GET", "/v1/transfers/jobs", params={**query, **cursor})
        assert reply.status == 200, reply.body
        found += reply.body["items"]
        if reply.body["next_cursor"] is None:
            return found
        cursor = {"cursor": reply.body["next_cursor"]}


@pytest.mark.long
async def test_jobs_come_in_pages_newest_first(settings: Settings) -> None:
    """Each once, whatever the size of a page; searched by any part of their ids."""
    async with running_transfers(settings) as transfers:
        job_ids = []
        for number in range(5):
            task = await transfers.wait_for_end(await transfers.join("agent-1", file_path=f"/etc/App-{number}.conf"))
            job_ids.append(job_of(task))
            await transfers.wait_for_job_end(job_ids[-1])
        every, by_two = await list_all_jobs(transfers), await list_all_jobs(transfers, limit=2)
        searched = await list_all_jobs(transfers, search="/etc/app-3")

    assert [job["job_id"] for job in every] == job_ids[::-1]
    assert by_two == every
    assert [(job["file_path"], job["biz_id"], job["counts"]["Success"]) for job in searched] == [
        ("/etc/App-3.conf", 2, 1)
    ]


async def test_a_job_that_is_written_down_meanwhile_is_listed_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is asked first, then the database: a job whose window ends between the two is in both answers."""
    async with running_transfers(settings) as transfers:
        job_id = job_of(await transfers.wait_for_end(await transfers.join("agent-1")))
        await transfers.wait_for_job_end(job_id)
        job = names.parse_job_id(job_id)
        assert job is not None

        async def list_collecting(*_: object) -> list[UnsavedJob]:
            return [UnsavedJob(job, 1)]

        monkeypatch.setattr(UnsavedJobListerAndTargetCounter, "list_jobs_not_saved_yet", list_collecting)
        found = await list_all_jobs(transfers)

    assert [(each["job_id"], each["status"]) for each in found] == [(job_id, "Success")]


@pytest.mark.long
async def test_a_job_is_listed_from_its_first_target_on(settings: Settings) -> None:
    """First with the targets that have joined, later with their states; for its project and the admin only."""
    async with running_transfers(settings, MIXED, window_seconds=8) as transfers:
        _, other_key = await transfers.api_client.make_project("other")
        await window_begins(8)
        task_ids = await transfers.join_many(["fine-1", "fine-2", "stuck-1"])
        [collecting] = await eventually(lambda: list_all_jobs(transfers))
        strangers = await transfers.api_client.ask("GET", "/v1/transfers/jobs", key=other_key)
        everybodys = await transfers.api_client.as_admin("GET", "/v1/transfers/jobs")
        opened = await transfers.api_client.as_admin("GET", f"/v1/transfers/jobs/{quote(collecting['job_id'])}")
        await transfers.wait_for_end(task_ids[0])
        [running] = await list_all_jobs(transfers, ended="false")
        over = await list_all_jobs(transfers, ended="true")
        await transfers.ask("POST", f"/v1/transfers/jobs/{quote(running['job_id'])}/cancel")
        await transfers.wait_for_job_end(running["job_id"])
        [ended] = await list_all_jobs(transfers, ended="true")
        shown = await transfers.api_client.as_admin("GET", f"/v1/transfers/jobs/{quote(ended['job_id'])}")

    assert (collecting["status"], collecting["counts"]["Pending"]) == ("Pending", 3)
    assert strangers.body["items"] == over == []
    assert everybodys.body["items"] == [collecting]
    assert (opened.body["counts"], len(shown.body["targets"])) == (collecting["counts"], 3)
    assert (running["status"], running["finished_at"], sum(running["counts"].values())) == ("Running", None, 3)
    assert (ended["status"], ended["partial"], ended["counts"]["Failed"]) == ("Failed", True, 1)
    assert {each["job_id"] for each in (collecting, running)} == {ended["job_id"]}


async def test_a_job_says_why_targets_did_not_get_the_file(settings: Settings) -> None:
    """By reason and code, the most frequent first, and its targets are found by each of them and by host."""
    async with running_transfers(settings, MIXED, window_seconds=2) as transfers:
        agents = ["fine-1", *(f"nouser-{n}" for n in range(3)), "large-1"]
        job_id = job_of(await transfers.wait_for_end((await transfers.join_many(agents))[0]))
        job = await transfers.wait_for_job_end(job_id)
        missing_user = await transfers.job(job_id, code=122)
        by_code = await transfers.job(job_id, reason="gse_code", status="Failed")
        one = await transfers.job(job_id, target_agent_id="large-1")
        nobody = await transfers.job(job_id, reason="cancelled")

    assert [(each["code"], each["reason"], each["count"]) for each in job["failures_by_reason"]] == [
        (122, "gse_code", 3),
        (119, "gse_code", 1),
    ]
    assert job["failures_by_reason"][0]["meaning"].startswith("There is no such user")
    assert (job["file_path"], job["app_id"]) == (transfers.path, transfers.app_id)
    assert {each["target_agent_id"] for each in missing_user["targets"]} == {f"nouser-{n}" for n in range(3)}
    assert len(by_code["targets"]) == 4
    assert [each["target_agent_id"] for each in one["targets"]] == ["large-1"]
    assert nobody["targets"] == []


@pytest.mark.long
async def test_what_gse_answers_is_said_at_once(settings: Settings) -> None:
    """By the job, its targets and the overview, with what comes next; nothing of it is left once GSE does its part."""
    away = GseRule(action=GseAction.STATUS, status=500, calls=frozenset({GseCall.TRANSFER}))
    scenario = QUICK.model_copy(update={"rules": (away,)})
    async with running_transfers(settings, scenario, window_seconds=2) as transfers:
        task_ids = await transfers.join_many(["agent-1", "agent-2"])
        counter = TransferTargetCounter(transfers.worker.services.database)

        async def find_trouble() -> dict[str, Any]:
            job = await transfers.job(job_of(await transfers.status(task_ids[0])))
            return job if any(each["attempts"] >= 2 for each in job["failures_by_reason"]) else {}

        job = await eventually(find_trouble)
        [trouble] = job["failures_by_reason"]
        task = await transfers.status(task_ids[0])
        concerns = (await counter.count_workloads())[transfers.project_id].details
        transfers.world.set(QUICK)
        ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]
        after = await transfers.wait_for_job_end(job["job_id"])
        calm = (await counter.count_workloads()).get(transfers.project_id)

    assert (trouble["count"], trouble["status"], trouble["reason"]) == (2, "Running", None)
    assert "answered 500, code 101" in trouble["meaning"]
    assert f"is asked again by {datetime.fromisoformat(trouble['next_attempt_at']):%H:%M:%S} UTC" in trouble["meaning"]
    assert all("answered 500" in each["message"] and each["next_attempt_at"] for each in [task, *job["targets"]])
    [(concern, count)] = concerns.items()
    assert (concern.kind, count) == (ConcernKind.GSE_FAILS, 2)
    assert "answered 500, code 101" in concern.cause
    assert [(end["status"], end["next_attempt_at"]) for end in ends] == [("Success", None)] * 2
    assert after["failures_by_reason"] == []
    assert calm is None or not calm.details
