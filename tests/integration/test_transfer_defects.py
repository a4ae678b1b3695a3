"""What the original gets wrong, and must not go wrong here: windows, duplicates, failed steps, lying answers."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateRPCTimeoutOrCancelledError

from api.transfers.joins import JobJoiner
from domain.transfers import names
from domain.transfers.joining import JoinBatch, TargetsWithSameSpec, TransferJobInput
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from domain.transfers.names import TransferJobKey, compute_target_key
from infra.settings import Settings
from sims.gse.scenario import GseAction, GseCall, GseRule, Shape
from tests.support.pace import measure_pace
from tests.support.transfers import CONTENT, QUICK, Transfers, job_of, running_transfers, sha256
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows.transfers import handle
from workflows.transfers.handle import JobOver
from workflows.transfers.job import TransferJob

pytestmark = pytest.mark.stack

NO_USER, UPLOAD_BROKE, AGENT_DOWN, UNREADABLE = 122, 701, 117, 104
WINDOWS, CROSSING_SECONDS = 4, 240.0
"""How many windows are joined, one after another, and within how many seconds."""


async def run(transfers: Transfers, agents: list[str], **fields: Any) -> dict[str, dict[str, Any]]:
    """Ask for these targets, and wait for their ends."""
    task_ids = await transfers.join_many(agents, **fields)
    ends = await asyncio.gather(*(transfers.wait_for_end(task_id) for task_id in task_ids))
    return dict(zip(agents, ends, strict=True))


def states(ends: dict[str, dict[str, Any]]) -> list[str]:
    """Return the status of each task."""
    return [end["status"] for end in ends.values()]


async def test_joins_across_the_borders_of_windows_are_sent_once_each(settings: Settings) -> None:
    """Requests that never pause, through several ends of windows: none is lost, none is sent twice, none waits long.

    The original sends targets twice that join in the last second of a window, or never; it counts those and waits for
    them in vain; and a window that each join prolongs does not end while requests come.
    """
    async with running_transfers(settings) as transfers:
        enough = asyncio.Event()
        jobs: dict[str, str] = {}
        task_ids: dict[str, str] = {}

        async def host(number: int) -> None:
            for turn in itertools.count():
                if enough.is_set():
                    return
                agent_id = f"agent-{number}-{turn}"
                wanted = transfers.build_request() | {"target_agent_id": agent_id}
                reply = await transfers.ask("POST", "/v1/transfers", json=wanted)
                assert reply.status == 202, reply.body
                jobs[agent_id], task_ids[agent_id] = job_of(reply.body), reply.body["task_id"]

        async with asyncio.TaskGroup() as hosts:
            for number in range(8):
                hosts.create_task(host(number))
            await eventually(lambda: bool(task_ids))
            # It is over while others join: no join prolongs a window.
            first = await transfers.wait_for_end(next(iter(task_ids.values())))
            # On an overloaded machine one join may take longer than several windows.
            await eventually(lambda: len(set(jobs.values())) >= WINDOWS, CROSSING_SECONDS)
            enough.set()
        ends = {agent_id: await transfers.wait_for_end(task_id) for agent_id, task_id in task_ids.items()}

        assert first["status"] == "Success"
        assert set(states(ends)) == {"Success"}
        assert {agent_id: job_of(end) for agent_id, end in ends.items()} == jobs
        assert transfers.sends == {(agent_id, ""): 1 for agent_id in task_ids}


async def test_an_api_whose_clock_is_behind_joins_no_window_that_is_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job says that its window is over; what it refuses joins the next one."""
    async with running_transfers(settings) as transfers:
        compute = names.compute_window_number
        monkeypatch.setattr(names, "compute_window_number", lambda now, seconds: compute(now - 2 * seconds, seconds))
        ends = await run(transfers, ["agent-1"])

    assert states(ends) == ["Success"]
    assert transfers.sends == {("agent-1", ""): 1}


async def test_a_job_that_nobody_joined_asks_nobody(settings: Settings) -> None:
    """A start whose join came too late leaves no job that waits for a GSE task without an id."""
    async with running_transfers(settings) as transfers:
        services = transfers.worker.services
        past = datetime.now(UTC) - timedelta(seconds=60)
        order = TransferJobInput(
            job_id="AsyncDownloadJob:2:7:/f:1",
            file=FileByBizAppAndPath(biz_id=2, app_id=7, path="/f"),
            window_closes_at=past,
            deadline_at=past,
        )
        status = await services.engine.execute_workflow(TransferJob.run, order, id=order.job_id, task_queue=names.QUEUE)
        reply = await transfers.ask("GET", f"/v1/transfers/jobs/{order.job_id}")

        assert (status.targets, status.shards) == (0, 0)
        assert reply.status == 404
        assert transfers.world.calls == {}


async def test_what_a_job_answered_is_found_after_its_end(settings: Settings) -> None:
    """So that a batch whose answer was lost does not join a second window as well."""
    timeout, batch = timedelta(seconds=10), JoinBatch(groups=[])
    async with running_transfers(settings) as transfers:
        engine, soon = transfers.worker.services.engine, datetime.now(UTC) + timedelta(seconds=2 * measure_pace())
        file = FileByBizAppAndPath(biz_id=2, app_id=7, path="/f")
        order = TransferJobInput(job_id="AsyncDownloadJob:2:7:/f:1", file=file, window_closes_at=soon, deadline_at=soon)
        answered = await handle.start_and_join_job(engine, order, batch, "joined", timeout)
        await engine.get_workflow_handle(order.job_id).result()
        for id_ in ("joined", "late"):
            with suppress(JobOver):
                assert await handle.start_and_join_job(engine, order, batch, id_, timeout) == answered
        found = [await handle.find_join_result(engine, order.job_id, id_, timeout) for id_ in ("joined", "late")]

    assert answered.batches == 1
    assert found == [answered, None]


async def test_the_same_target_asked_for_thrice_is_one_target(settings: Settings) -> None:
    """It gets the file once, all three tasks show it, and the job counts it once."""
    async with running_transfers(settings, window_seconds=3) as transfers:
        task_ids = await transfers.join_many(["agent-1", "agent-1"])
        task_ids.append(await transfers.join("agent-1"))
        ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]
        jobs = {job_of(end) for end in ends}
        counted = [await transfers.wait_for_job_end(job_id) for job_id in jobs]

        assert len(set(task_ids)) == 3
        assert {end["status"] for end in ends} == {"Success"}
        assert sum(job["counts"]["Success"] for job in counted) == len(jobs) == transfers.sends["agent-1", ""]


async def test_another_content_user_or_folder_is_another_gse_task(settings: Settings) -> None:
    """In one window, for one path: everybody gets what they asked for, where they asked for it."""
    other = b"the next version\n"
    async with running_transfers(settings, window_seconds=3) as transfers:
        await transfers.store(other)
        task_ids = [
            await transfers.join("agent-1"),
            await transfers.join("agent-2", content=other),
            await transfers.join("agent-3", target_file_dir="/opt"),
            await transfers.join("agent-4", target_user="app"),
        ]
        ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]

        assert {end["status"] for end in ends} == {"Success"}
        assert len(transfers.world.tasks) == 4
        assert transfers.has_file("agent-1")
        assert transfers.has_file("agent-2", content=other)
        assert not transfers.has_file("agent-2")
        assert transfers.has_file("agent-3", folder="/opt")
        assert not transfers.has_file("agent-3")


async def test_a_success_stays_when_the_upload_fails_after_it(settings: Settings) -> None:
    """In whatever order the records come; the others are sent again, in a GSE task of their own."""
    broken = GseRule(action=GseAction.UPLOAD_FAIL, code=UPLOAD_BROKE, seconds=0.4, times=1)
    late = GseRule(action=GseAction.STUCK, agent="slow-.*", times=1)
    scenario = QUICK.model_copy(update={"rules": (broken, late), "shape": Shape(shuffled=True, duplicates=True)})
    async with running_transfers(settings, scenario) as transfers:
        ends = await run(transfers, ["quick-1", "slow-1", "quick-2", "slow-2"])

        assert states(ends) == ["Success"] * 4
        assert transfers.sends == {("quick-1", ""): 1, ("quick-2", ""): 1, ("slow-1", ""): 2, ("slow-2", ""): 2}


async def test_targets_without_records_end_and_are_given_up(settings: Settings) -> None:
    """No target stays Pending; GSE is asked to terminate the rest; successes stay, and the job counts both."""
    scenario = QUICK.model_copy(
        update={
            "rules": (GseRule(action=GseAction.MISSING, agent="lost"), GseRule(action=GseAction.STUCK, agent="stuck"))
        }
    )
    # Long enough for what is fine to arrive on a busy machine, and for three answers, two seconds apart.
    async with running_transfers(settings, scenario, timeout_seconds=10.0 * measure_pace()) as transfers:
        ends = await run(transfers, ["fine", "lost", "stuck"])
        job = await transfers.wait_for_job_end(job_of(ends["fine"]))
        (task,) = transfers.world.tasks.values()

        assert states(ends) == ["Success", "Failed", "Timeout"]
        assert (job["status"], job["partial"]) == ("Failed", True)
        assert (ends["lost"]["reason"], ends["stuck"]["reason"]) == ("never_reported", "deadline")
        assert task.targets["stuck", ""].code == 126


@pytest.mark.parametrize(
    "rule",
    [
        GseRule(action=GseAction.STATUS, calls=frozenset({GseCall.TRANSFER}), status=500, code=1650000, times=1),
        GseRule(action=GseAction.STATUS, calls=frozenset({GseCall.TRANSFER}), status=503, code=1650300, times=2),
        GseRule(action=GseAction.HTML, calls=frozenset({GseCall.TRANSFER}), status=502, times=1),
        GseRule(action=GseAction.NO_CODE, calls=frozenset({GseCall.TRANSFER}), times=1),
        GseRule(action=GseAction.NO_TASK_ID, calls=frozenset({GseCall.TRANSFER}), times=1),
        GseRule(action=GseAction.RESET, calls=frozenset({GseCall.TRANSFER}), times=1),
        GseRule(action=GseAction.STATUS, calls=frozenset({GseCall.RESULTS}), status=500, code=1650000, times=12),
        GseRule(action=GseAction.NO_CODE, calls=frozenset({GseCall.RESULTS}), times=3),
    ],
    ids=lambda rule: f"{rule.action}-{'-'.join(rule.calls)}",
)
@pytest.mark.long
async def test_one_bad_answer_of_gse_costs_a_moment(settings: Settings, rule: GseRule) -> None:
    """No job is without a GSE task for good, no success is believed that names none, no outage ends what runs."""
    scenario = QUICK.model_copy(update={"rules": (rule,)})
    async with running_transfers(settings, scenario) as transfers:
        ends = await run(transfers, ["agent-1", "agent-2"])

        assert states(ends) == ["Success", "Success"]
        assert transfers.has_file("agent-1")
        assert transfers.sends == {("agent-1", ""): 1, ("agent-2", ""): 1}


async def test_a_refusal_of_gse_is_told_at_once(settings: Settings) -> None:
    """With GSE's own words, not as a time-out minutes later."""
    refuses = GseRule(action=GseAction.REFUSE, calls=frozenset({GseCall.TRANSFER}), code=1000777, message="disk quota")
    async with running_transfers(settings, QUICK.model_copy(update={"rules": (refuses,)})) as transfers:
        ends = await run(transfers, ["agent-1"])

    assert (ends["agent-1"]["status"], ends["agent-1"]["reason"]) == ("Failed", "gse_refused")
    assert "disk quota" in ends["agent-1"]["message"]
    assert ends["agent-1"]["code"] == 1000777


async def test_failures_are_retried_by_their_class(settings: Settings) -> None:
    """An agent that was down for a moment gets the file in another GSE task; a user who is missing stays missing."""
    rules = (
        GseRule(action=GseAction.FAIL, agent="down", code=AGENT_DOWN, times=2),
        GseRule(action=GseAction.FAIL, agent="dead", code=AGENT_DOWN),
        GseRule(action=GseAction.FAIL, agent="strange", code=NO_USER),
        GseRule(action=GseAction.FLAP, agent="flaps", code=UPLOAD_BROKE),
    )
    async with running_transfers(settings, QUICK.model_copy(update={"rules": rules}), retries=2) as transfers:
        ends = await run(transfers, ["fine", "down", "dead", "strange", "flaps"])
        job = await transfers.wait_for_job_end(job_of(ends["fine"]))

        assert states(ends) == ["Success", "Success", "Failed", "Failed", "Success"]
        assert [transfers.sends[agent_id, ""] for agent_id in ("fine", "down", "dead", "strange")] == [1, 3, 3, 1]
        assert (ends["dead"]["code"], ends["strange"]["code"]) == (AGENT_DOWN, NO_USER)
        assert (job["status"], job["partial"]) == ("Failed", True)


async def test_two_workers_ask_no_more_than_one(settings: Settings) -> None:
    """A shard is one worker's: more workers ask GSE no more often, and lose no update of each other."""
    async with (
        running_transfers(settings, window_seconds=2) as transfers,
        running_worker(transfers.worker.services.settings),
    ):
        ends = await run(transfers, [f"agent-{n}" for n in range(50)])
        shards = len({job_of(end) for end in ends.values()})

        assert set(states(ends)) == {"Success"}
        assert set(transfers.sends.values()) == {1}
        assert transfers.world.calls[GseCall.TRANSFER] == shards
        assert transfers.world.calls[GseCall.RESULTS] <= 3 * shards


async def test_a_file_that_is_not_there_fails_its_targets_with_the_cause(settings: Settings) -> None:
    """At once, with what to do; other contents in the same window are not touched."""
    async with running_transfers(settings, window_seconds=2) as transfers:
        there, not_there = await asyncio.gather(
            run(transfers, ["agent-1"]), run(transfers, ["agent-2"], content=b"never uploaded")
        )

    assert states(there) == ["Success"]
    assert (not_there["agent-2"]["status"], not_there["agent-2"]["reason"]) == ("Failed", "file_unavailable")
    assert "holds nothing under" in not_there["agent-2"]["message"]


async def test_a_file_that_is_not_what_was_signed_is_never_sent(settings: Settings) -> None:
    """The cause is shown; no target gets the wrong bytes."""
    async with running_transfers(settings) as transfers:
        signature = sha256(b"what was signed")
        await transfers.worker.services.objects.put(f"transfers/2/{signature}", b"what lies there")
        ends = await run(transfers, ["agent-1"], signature=signature)

        assert ends["agent-1"]["reason"] == "file_unavailable"
        assert "SHA-256" in ends["agent-1"]["message"]
        assert transfers.world.tasks == {}


@pytest.mark.parametrize("left", [b"", CONTENT[:100], b"?" * len(CONTENT)], ids=["empty", "cut", "wrong"])
async def test_a_damaged_file_in_the_cache_is_fetched_again(settings: Settings, left: bytes) -> None:
    """Whatever a crash or a disk left under the file's name, targets get what was signed."""
    async with running_transfers(settings) as transfers:
        path = transfers.worker.services.settings.gse.cache_folder / "2" / sha256(CONTENT)
        path.parent.mkdir(parents=True)
        path.write_bytes(left)
        ends = await run(transfers, ["agent-1"])

        assert states(ends) == ["Success"]
        assert transfers.has_file("agent-1")


async def test_a_file_that_gse_cannot_read_is_verified_and_sent_again(settings: Settings) -> None:
    """Damage after the first check is found when the upload fails."""
    broken = GseRule(action=GseAction.UPLOAD_FAIL, code=UNREADABLE, seconds=0.0, times=1)
    async with running_transfers(settings, QUICK.model_copy(update={"rules": (broken,)})) as transfers:
        ends = await run(transfers, ["agent-1"])

        assert states(ends) == ["Success"]
        assert transfers.has_file("agent-1")


class _LosingEngine:
    """A client of the engine that loses the answer to the first join, and raises when the job is over."""

    def __init__(self, engine: Client) -> None:
        self._engine = engine
        self.joins = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def execute_update_with_start_workflow(self, *arguments: Any, **options: Any) -> Any:
        """Do it; the first time, wait for the job's end and raise as a time-out does."""
        self.joins += 1
        reply = await self._engine.execute_update_with_start_workflow(*arguments, **options)
        if self.joins == 1:
            job_id = (await options["start_workflow_operation"].workflow_handle()).id
            await self._engine.get_workflow_handle(job_id).result()
            raise WorkflowUpdateRPCTimeoutOrCancelledError
        return reply


async def test_a_join_whose_answer_was_lost_is_not_made_twice(settings: Settings) -> None:
    """It is in the job that has it, also if that job ended before the request was repeated."""
    async with running_transfers(settings) as transfers:
        services = transfers.worker.services
        engine = _LosingEngine(services.engine)
        joins = JobJoiner(replace(services, engine=engine))  # type: ignore[arg-type]
        file = FileByBizAppAndPath(biz_id=2, app_id=transfers.app_id, path=transfers.path)
        wanted = TransferSpec(project_id=transfers.project_id, signature=sha256(CONTENT), user="root", folder="/data")
        target = (compute_target_key(wanted, "agent-1", ""), "agent-1", "")
        window_number = await joins.join_job(
            file, TargetsWithSameSpec(spec=wanted, file_name="app.conf", targets=[target])
        )
        job = await transfers.wait_for_job_end(str(TransferJobKey(file, window_number)))

    assert engine.joins >= 2  # more where the window closed meanwhile
    assert job["counts"]["Success"] == 1
    assert transfers.sends == {("agent-1", ""): 1}
