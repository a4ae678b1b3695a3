"""How targets end: the cause is kept, silence is shown as silence, and a cancelled target ends when GSE reports how."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from api.transfers import joins
from api.transfers.joins import FULL_WINDOWS_MAX
from domain.transfers import joining
from infra.settings import Settings
from sims.gse.scenario import GseAction, GseCall, GseRule, GseScenario
from tests.support.pace import measure_pace
from tests.support.transfers import QUICK, Transfers, job_of, running_transfers, window_begins
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

TRANSFER_BROKE, TERMINATED, NO_TASK = 701, 126, 1000003
WISHES_MAX = 10
"""Different wishes that a window takes here: with 300 of them a test would take minutes."""


def playing(*rules: GseRule, **fields: Any) -> GseScenario:
    """A quick GSE with these faults."""
    return QUICK.model_copy(update={"rules": rules, **fields})


async def is_carried(transfers: Transfers, task_id: str) -> bool:
    """Whether GSE has the target in a task."""
    return bool((await transfers.status(task_id))["gse_task_id"])


async def test_the_last_failure_is_told_when_the_time_is_over(settings: Settings) -> None:
    """Not only that the time was over: the code and the sentence of the try before are what an operator needs."""
    fails_once = GseRule(action=GseAction.FAIL, agent="broken", code=TRANSFER_BROKE, message="peer went away", times=1)
    stuck = GseRule(action=GseAction.STUCK, agent="broken")
    async with running_transfers(settings, playing(fails_once, stuck), timeout_seconds=5 * measure_pace()) as transfers:
        end = await transfers.wait_for_end(await transfers.join("broken"))

    assert (end["status"], end["reason"], end["code"]) == ("Timeout", "deadline", TRANSFER_BROKE)
    assert "time was over" in end["message"]
    assert "peer went away" in end["message"]


@pytest.mark.long
async def test_a_task_that_gse_lost_is_told_with_its_code(settings: Settings) -> None:
    """The advice of a refusal, not to ask again, is for the call: the target may well be sent again."""
    forgets = GseRule(action=GseAction.FORGET, calls=frozenset({GseCall.RESULTS}))
    async with running_transfers(settings, playing(forgets), silence_seconds=1, retries=0) as transfers:
        end = await transfers.wait_for_end(await transfers.join("agent-1"))

    assert (end["status"], end["reason"], end["code"]) == ("Failed", "gse_refused", NO_TASK)
    assert "did not know its own task any more" in end["message"]
    assert "there is no task" in end["message"]
    assert "Asking again" not in end["message"]


async def test_a_target_that_gse_tells_nothing_of_has_failed_for_that(settings: Settings) -> None:
    """Long before the deadline, with the reason: the file may have arrived."""
    missing = GseRule(action=GseAction.MISSING, agent="silent")
    async with running_transfers(settings, playing(missing), silence_seconds=2, timeout_seconds=60) as transfers:
        silent, told = await transfers.join_many(["silent", "told"])
        end = await transfers.wait_for_end(silent)
        assert (await transfers.wait_for_end(told))["status"] == "Success"
        await eventually(lambda: transfers.has_file("silent"))

    assert (end["status"], end["reason"], end["code"]) == ("Failed", "never_reported", None)
    assert "Look on the host" in end["message"]


async def test_an_agent_that_is_not_there_fails_at_once(settings: Settings) -> None:
    """GSE is asked before anything is sent; what may pass, or is not known, is sent to."""
    scenario = playing(agent_states={"gone-.*": 7, "strange": -2, "0:10.0.0.9": -2, "busy": 4, "unknown": -1})
    agents = ["gone-1", "gone-2", "strange", "0:10.0.0.9", "busy", "unknown", "fine"]
    async with running_transfers(settings, scenario) as transfers:
        task_ids = await transfers.join_many(agents)
        ends = dict(zip(agents, [await transfers.wait_for_end(task_id) for task_id in task_ids], strict=True))

    absent = {agent for agent, end in ends.items() if end["reason"] == "agent_offline"}
    assert absent == {"gone-1", "gone-2", "strange"}
    assert all(ends[agent]["status"] == "Success" for agent in agents if agent not in absent)
    assert {agent for agent, _ in transfers.sends} == {*agents} - absent
    assert "uninstalled" in ends["gone-1"]["message"]


@pytest.mark.long
async def test_what_is_terminated_at_the_deadline_ran_out_of_time(settings: Settings) -> None:
    """Also where GSE has given it up before it can be asked for the first time after that."""
    stuck = GseRule(action=GseAction.STUCK)
    async with running_transfers(
        settings, playing(stuck), timeout_seconds=4.0, terminate_wait_seconds=5.0
    ) as transfers:
        task_id = await transfers.join("agent-1")
        await eventually(lambda: len(transfers.world.tasks) == 1)
        job = await transfers.job(job_of(await transfers.status(task_id)))
        left = (datetime.fromisoformat(job["deadline_at"]) - datetime.now(UTC)).total_seconds()
        silent = GseRule(action=GseAction.RESET, calls=frozenset({GseCall.RESULTS}), to_second=left + 0.5)
        transfers.world.set(playing(stuck, silent))
        end = await transfers.wait_for_end(task_id)
        [task] = transfers.world.tasks.values()

    assert left > 0
    assert task.targets["agent-1", ""].code == 126
    assert (end["status"], end["reason"]) == ("Timeout", "deadline")


async def test_the_agents_of_a_job_are_asked_once(settings: Settings) -> None:
    """Not for each shard, nor again before what failed is sent again; a job of its own asks anew."""
    fails = GseRule(action=GseAction.FAIL, agent="agent-1.*", code=703, times=1)
    agents = [f"agent-{number}" for number in range(12)]
    async with running_transfers(settings, playing(fails), shard_targets=5) as transfers:
        ends = [await transfers.wait_for_end(task_id) for task_id in await transfers.join_many(agents)]
        asked = transfers.world.calls[GseCall.STATES]
        await transfers.wait_for_end(await transfers.join("agent-1"))
        asked_again = transfers.world.calls[GseCall.STATES]

    assert {end["status"] for end in ends} == {"Success"}
    assert transfers.sends["agent-10", ""] == 2
    assert len({end["gse_task_id"] for end in ends}) > 3
    assert (asked, asked_again) == (1, 2)


@pytest.mark.parametrize("action", [GseAction.HTML, GseAction.SLOW, GseAction.REFUSE])
async def test_where_states_of_agents_are_not_to_be_had_all_are_sent_to(settings: Settings, action: GseAction) -> None:
    """No request waits for long, and no living host is refused."""
    wrong = GseRule(action=action, calls=frozenset({GseCall.STATES}), seconds=60.0)
    async with running_transfers(settings, playing(wrong, agent_states={".*": 7})) as transfers:
        end = await transfers.wait_for_end(await transfers.join("agent-1"))

    assert end["status"] == "Success"


@pytest.mark.long
async def test_results_that_are_not_there_yet_are_no_failure(settings: Settings) -> None:
    """GSE says so with a code of its own, for as long as it has none."""
    not_yet = GseRule(
        action=GseAction.REFUSE,
        calls=frozenset({GseCall.RESULTS}),
        code=1000115,
        message="redis reply is not string",
        times=7,
    )
    async with running_transfers(settings, playing(not_yet)) as transfers:
        end = await transfers.wait_for_end(await transfers.join("patient"))

    assert (end["status"], end["code"]) == ("Success", 0)
    assert transfers.sends == {("patient", ""): 1}


async def test_what_is_cancelled_is_under_way_until_gse_says_how_it_ended(settings: Settings) -> None:
    """A terminate that GSE accepts and does not execute: the file arrives, and that is shown."""
    ignored = GseRule(action=GseAction.IGNORE, calls=frozenset({GseCall.TERMINATE}))
    slow = playing(ignored, download_seconds=4.0 * measure_pace())
    async with running_transfers(settings, slow) as transfers:
        task_id = await transfers.join("arrives")
        await eventually(lambda: is_carried(transfers, task_id))
        answer = await transfers.ask("POST", f"/v1/transfers/{quote(task_id)}/cancel")
        await eventually(lambda: transfers.world.calls[GseCall.TERMINATE] > 0)
        meanwhile = await transfers.status(task_id)
        end = await transfers.wait_for_end(task_id)

    assert (answer.body["status"], answer.body["cancelling"]) == ("Running", True)
    assert (meanwhile["status"], meanwhile["cancelling"]) == ("Running", True)
    assert (end["status"], end["cancelling"]) == ("Success", False)


async def test_what_gse_gives_up_is_cancelled(settings: Settings) -> None:
    """As soon as GSE says so; a target that GSE does not know does not keep the others from being given up."""
    stuck = playing(GseRule(action=GseAction.STUCK, agent="stuck-.*"))
    async with running_transfers(settings, stuck) as transfers:
        task_ids = await transfers.join_many([f"stuck-{number}" for number in range(5)])
        await eventually(lambda: is_carried(transfers, task_ids[0]))
        job_id = job_of(await transfers.status(task_ids[0]))
        await transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/cancel")
        ends = await asyncio.gather(*map(transfers.wait_for_end, task_ids))

    assert [(end["status"], end["reason"], end["code"]) for end in ends] == [("Failed", "cancelled", TERMINATED)] * 5


async def test_what_is_cancelled_and_never_given_up_ends_as_cancelled(settings: Settings) -> None:
    """GSE cannot be reached: the target ends at the deadline, as cancelled."""
    down = GseRule(action=GseAction.STATUS, calls=frozenset({GseCall.TERMINATE}), status=503)
    stuck = GseRule(action=GseAction.STUCK, agent="stuck")
    async with running_transfers(settings, playing(down, stuck), timeout_seconds=6 * measure_pace()) as transfers:
        task_id = await transfers.join("stuck")
        await eventually(lambda: is_carried(transfers, task_id))
        await transfers.ask("POST", f"/v1/transfers/{quote(task_id)}/cancel")
        await eventually(lambda: transfers.world.calls[GseCall.TERMINATE] > 0)
        end = await transfers.wait_for_end(task_id)

    assert (end["status"], end["reason"]) == ("Failed", "cancelled")
    assert "may still arrive" in end["message"]


async def test_what_arrives_while_gse_hangs_over_giving_up_is_told(settings: Settings) -> None:
    """The last question does not wait for the answer to another one."""
    hangs = GseRule(action=GseAction.SLOW, calls=frozenset({GseCall.TERMINATE}), seconds=60.0)
    pace = measure_pace()
    late = playing(hangs, download_seconds=5.0 * pace, jitter_seconds=0.0)
    async with running_transfers(
        settings, late, timeout_seconds=3 * pace, terminate_wait_seconds=8 * pace
    ) as transfers:
        transfers.world.terminate = lambda *_: None  # type: ignore[method-assign]
        end = await transfers.wait_for_end(await transfers.join("late"))

    assert transfers.world.calls[GseCall.TERMINATE] > 0
    assert end["status"] == "Success"


async def test_a_task_tells_what_it_is_about(settings: Settings) -> None:
    """Who sends, to whom, what, in which task of GSE, and when."""
    async with running_transfers(settings) as transfers:
        task_id = await transfers.join("agent-1", "4f1a")
        end = await transfers.wait_for_end(task_id)
        job = await transfers.wait_for_job_end(job_of(end))
        result = await transfers.worker.services.engine.get_workflow_handle(job_of(end)).result()

    wanted = transfers.build_request()
    assert (end["target_agent_id"], end["target_container_id"]) == ("agent-1", "4f1a")
    assert (end["signature"], end["file_name"]) == (wanted["signature"], wanted["file_name"])
    assert end["gse_task_id"] in transfers.world.tasks
    moments = [datetime.fromisoformat(end[name]) for name in ("window_closes_at", "sent_at", "ended_at")]
    assert moments == sorted(moments)
    assert (
        result["ended"]["counts"]
        == job["counts"]
        == {"Pending": 0, "Running": 0, "Success": 1, "Failed": 0, "Timeout": 0}
    )
    assert (result["ended"]["state"], result["targets"]) == (job["status"], 1)


async def test_a_file_is_one_however_its_path_is_written(settings: Settings) -> None:
    """Its whole path, or its folder, with or without slashes; the signature in upper case."""
    async with running_transfers(settings, window_seconds=6) as transfers:
        signature = transfers.build_request()["signature"]
        spellings: list[dict[str, Any]] = [
            {"file_path": "/etc/app.conf"},
            {"file_path": "etc//app.conf"},
            {"file_path": "/etc", "file_name": "app.conf"},
            {"file_path": "/etc/", "file_name": "app.conf", "signature": signature.upper()},
        ]
        bodies = [transfers.build_request() | spelling for spelling in spellings]

        async def join(number: int, body: dict[str, Any]) -> str:
            reply = await transfers.ask("POST", "/v1/transfers", json=body | {"target_agent_id": f"agent-{number}"})
            assert reply.status == 202, reply.body
            return job_of(reply.body)

        async def in_one_window() -> bool:
            jobs = [await join(number, body) for number, body in enumerate(bodies)]
            return len(set(jobs)) == 1 and jobs[0].startswith("AsyncDownloadJob:2:7:/etc/app.conf:")

        # Two windows only where the border between them comes in the middle.
        assert await in_one_window() or await in_one_window()


@pytest.mark.long
async def test_more_different_wishes_than_a_job_takes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go to the next windows, and only those beyond are refused; a request with a known spec joins."""
    for module in (joining, joins):
        monkeypatch.setattr(module, "SPECS_MAX", WISHES_MAX)
    async with running_transfers(settings, window_seconds=10) as transfers:
        await window_begins(10)
        await transfers.join("ordinary")

        async def ask(number: int) -> tuple[int, str]:
            body = transfers.build_request(target_file_dir=f"/data/{number}") | {"target_agent_id": f"agent-{number}"}
            reply = await transfers.ask("POST", "/v1/transfers", json=body)
            return reply.status, reply.body.get("code", "")

        flood = [asyncio.create_task(ask(number)) for number in range(FULL_WINDOWS_MAX * WISHES_MAX + 30)]
        beside = await transfers.join("beside")
        answers = await asyncio.gather(*flood)
        assert (await transfers.wait_for_end(beside))["status"] == "Success"

    refused = [code for status, code in answers if status != 202]
    assert set(refused) == {"window_full"}
    # The first window also holds the earlier request; if a window ended meanwhile, more could join.
    assert FULL_WINDOWS_MAX * WISHES_MAX - 1 <= len(answers) - len(refused) < len(answers)
