"""Sending failed targets again: at once, each by one job only, linked with the job that failed."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from infra.settings import Settings
from sims.gse.scenario import GseAction, GseRule
from stores.transfers.workloads import TransferTargetCounter
from tests.support.pace import measure_pace
from tests.support.transfers import QUICK, Transfers, job_of, running_transfers
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

NO_USER, TRANSFER_BROKE = 122, 701
RULES = (
    GseRule(action=GseAction.FAIL, agent="nouser-.*", code=NO_USER),
    GseRule(action=GseAction.STUCK, agent="stuck-.*"),
)


async def ended_job(transfers: Transfers, agents: list[str]) -> str:
    """A job of these targets that is over; its id."""
    task_ids = await transfers.join_many(agents)
    job_id = job_of(await transfers.wait_for_end(task_ids[0]))
    await transfers.wait_for_job_end(job_id)
    return job_id


async def retry(transfers: Transfers, job_id: str, status: int = 202, **body: str) -> dict[str, object]:
    """Ask for a retry; what is answered."""
    reply = await transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/retry", json=body)
    assert reply.status == status, reply.body
    answer: dict[str, object] = reply.body
    return answer


async def test_failed_targets_are_sent_again_at_once(settings: Settings) -> None:
    """Once the operator has mended the hosts; what had arrived is left alone, and the overview counts no failure."""
    scenario = QUICK.model_copy(update={"rules": RULES})
    async with running_transfers(settings, scenario, window_seconds=2, timeout_seconds=4 * measure_pace()) as transfers:
        job_id = await ended_job(transfers, ["fine-1", "nouser-1", "stuck-1", "nouser-2"])
        counter = TransferTargetCounter(transfers.worker.services.database)
        failed = await counter.count_workloads()
        transfers.world.set(QUICK)
        answer = await retry(transfers, job_id)
        again = await transfers.wait_for_job_end(str(answer["job_id"]))
        before = await transfers.job(job_id)
        counted = await counter.count_workloads()

        assert failed[transfers.project_id].failed.count == 3
        assert transfers.project_id not in counted
        assert answer == {"job_id": f"{job_id}.1", "retry_of": job_id, "targets": 3}
        assert (again["status"], again["retry_of"], again["counts"]["Success"]) == ("Success", job_id, 3)
        assert (before["status"], before["retries"]) == ("Failed", [again["job_id"]])
        assert {target["target_agent_id"] for target in again["targets"]} == {"nouser-1", "stuck-1", "nouser-2"}
        # Of a retry the one moment that counts is when it was asked for.
        assert {target["joined_at"] for target in again["targets"]} == {again["window_closes_at"]}
        assert all(target["joined_at"] < before["window_closes_at"] for target in before["targets"])
        assert transfers.sends[("fine-1", "")] == 1
        for agent_id in ("nouser-1", "stuck-1", "nouser-2"):
            assert transfers.has_file(agent_id)


async def test_a_retry_may_be_of_one_reason_and_is_made_once(settings: Settings) -> None:
    """Two that ask at the same time send no target twice; what fails again is retried where it failed."""
    scenario = QUICK.model_copy(update={"rules": RULES})
    async with running_transfers(settings, scenario, window_seconds=2, timeout_seconds=4 * measure_pace()) as transfers:
        job_id = await ended_job(transfers, ["nouser-1", "stuck-1"])
        first, second = await asyncio.gather(
            transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/retry", json={"reason": "gse_code"}),
            transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/retry", json={"reason": "gse_code"}),
        )
        assert {first.status, second.status} <= {202, 409}
        ids = [reply.body["job_id"] for reply in (first, second) if reply.status == 202]
        await eventually(lambda: transfers.sends[("nouser-1", "")] == 2)
        await eventually(lambda: _is_over(transfers, ids))
        refused = await retry(transfers, job_id, 409, reason="gse_code")
        jobs = (await transfers.job(job_id))["retries"]
        ended = [await transfers.job(each) for each in jobs]
        [failed] = [each["job_id"] for each in ended if each["counts"]["Failed"] == 1]
        next_ = await retry(transfers, failed)

    assert refused["code"] == "nothing_failed"
    assert next_["retry_of"] == failed
    assert transfers.sends[("nouser-1", "")] in {2, 3}


async def test_a_retry_needs_no_body(settings: Settings) -> None:
    """All of its fields are optional."""
    scenario = QUICK.model_copy(update={"rules": RULES})
    async with running_transfers(settings, scenario, window_seconds=2) as transfers:
        job_id = await ended_job(transfers, ["nouser-1"])
        reply = await transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/retry")

    assert (reply.status, reply.body["targets"]) == (202, 1)


async def test_of_those_who_retry_at_once_each_is_told_of_a_job_that_is_there(settings: Settings) -> None:
    """One job sends the targets again; the other requests get a conflict."""
    scenario = QUICK.model_copy(update={"rules": RULES})
    async with running_transfers(settings, scenario, window_seconds=2, timeout_seconds=4 * measure_pace()) as transfers:
        job_id = await ended_job(transfers, ["nouser-1"])
        path = f"/v1/transfers/jobs/{quote(job_id)}/retry"
        replies = await asyncio.gather(*(transfers.ask("POST", path, json={}) for _ in range(4)))

        assert sorted(reply.status for reply in replies) == [202, 409, 409, 409]
        [accepted] = [reply.body["job_id"] for reply in replies if reply.status == 202]
        assert (await transfers.wait_for_job_end(accepted))["counts"]["Failed"] == 1
        assert {reply.code for reply in replies if reply.status == 409} == {"nothing_failed"}
        assert transfers.sends[("nouser-1", "")] == 2


async def test_nothing_has_failed_while_the_window_is_open(settings: Settings) -> None:
    """It is there, and has not begun."""
    # Of an hour, so that it does not end between two requests.
    async with running_transfers(settings, window_seconds=3_600) as transfers:
        task = await transfers.ask("GET", f"/v1/transfers/{quote(await transfers.join('agent-1'))}")
        refused = await retry(transfers, task.body["job_id"], 409)

    assert "has not begun to send" in str(refused["detail"])


async def _is_over(transfers: Transfers, ids: list[str]) -> bool:
    engine = transfers.worker.services.engine
    descriptions = [await engine.get_workflow_handle(each).describe() for each in ids]
    return all(each.close_time is not None for each in descriptions)


async def test_what_cannot_be_retried_is_refused(settings: Settings) -> None:
    """A job where nothing failed, one of another project, and one that never was."""
    async with running_transfers(settings) as transfers:
        job_id = await ended_job(transfers, ["fine-1"])
        _, other = await transfers.api_client.make_project("other")
        path = f"/v1/transfers/jobs/{quote(job_id)}/retry"
        theirs = await transfers.api_client.ask("POST", path, key=other, json={})

        assert (await retry(transfers, job_id, 409))["code"] == "nothing_failed"
        assert theirs.status == 404
        assert (await retry(transfers, "AsyncDownloadJob:2:7:/f:1", 404))["code"] == "not_found"
