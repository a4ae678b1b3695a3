"""The workflow of a job, where a host that has the file starts no shard."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, TimeoutError, TimeoutType  # noqa: A004

from domain.transfers.activity_models import FetchedFileHostResult, SaveShardsInput, ShardNumberAndTargetCount
from domain.transfers.joining import JoinBatch, TargetsWithSameSpec, TransferJobInput
from domain.transfers.models import (
    FailureReason,
    FileByBizAppAndPath,
    TargetEndAndReason,
    TransferSpec,
    TransferState,
)
from workflows.transfers.job import TransferJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHARD = ShardNumberAndTargetCount(number=1, signature="a", project_id="p", targets=1)
JOB = TransferJobInput(
    job_id="j",
    file=FileByBizAppAndPath(biz_id=1, app_id=1, path="/f"),
    window_closes_at=NOW,
    deadline_at=NOW + timedelta(minutes=10),
)


class BusyHosts:
    """The hosts that fetch the file, in their order, and start no shard until the last of them."""

    def __init__(self, queues: list[str]) -> None:
        self.queues = queues
        self.waits: list[tuple[str, float]] = []
        self.fairness_keys: set[str | None] = set()

    def get_or_start_fetch(self, *_: str) -> asyncio.Task[FetchedFileHostResult]:
        """Act as the hosts of a job."""

        async def fetch() -> FetchedFileHostResult:
            return FetchedFileHostResult(queue=self.queues[len(self.waits)])

        return asyncio.create_task(fetch())

    def forget_host_unless_replaced(self, *_: Any) -> None:
        """Act as the hosts of a job."""

    async def execute_activity(self, *_: Any, **options: Any) -> None:
        """Act as the engine."""
        self.waits.append((options["task_queue"], options["schedule_to_start_timeout"].total_seconds()))
        self.fairness_keys.add(options["priority"].fairness_key)
        if len(self.waits) == len(self.queues):
            return
        error = ActivityError(
            "",
            scheduled_event_id=1,
            started_event_id=0,
            identity="",
            activity_type="",
            activity_id="",
            retry_state=None,
        )
        raise error from TimeoutError("", type=TimeoutType.SCHEDULE_TO_START, last_heartbeat_details=[])


@pytest.mark.parametrize(
    ("queues", "waits"),
    [(["a", "b"], [15, 15]), (["a", "a", "a", "a"], [15, 30, 60, 60]), (["a", "b", "a", "b"], [15, 15, 30, 30])],
    ids=["lost", "busy", "both busy"],
)
async def test_a_host_that_fetches_the_file_again_is_busy_and_gets_more_time(
    monkeypatch: pytest.MonkeyPatch, queues: list[str], waits: list[float]
) -> None:
    """Five hundred shards that try a busy host every few seconds would outgrow the history of their job."""
    hosts, job = BusyHosts(queues), TransferJob(JOB)
    monkeypatch.setattr(job, "_hosts", hosts)
    monkeypatch.setattr(job, "_find_first_project", lambda _signature: "p")
    monkeypatch.setattr(workflow, "execute_activity_method", hosts.execute_activity)
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    await job._send_shard(SHARD, asyncio.create_task(asyncio.sleep(0)))

    assert hosts.waits == list(zip(queues, waits, strict=True))
    assert hosts.fairness_keys == {"p"}


async def test_what_a_busy_host_has_not_started_in_time_is_no_fault_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file was fetched; no worker sent it."""
    hosts, job, ends = BusyHosts(["a", "b"]), TransferJob(JOB), list[TargetEndAndReason]()

    async def end_targets(_numbers: list[int], outcome: TargetEndAndReason) -> None:
        ends.append(outcome)

    monkeypatch.setattr(job, "_hosts", hosts)
    monkeypatch.setattr(job, "_find_first_project", lambda _signature: "p")
    monkeypatch.setattr(job, "_end_unfinished_targets", end_targets)
    monkeypatch.setattr(workflow, "execute_activity_method", hosts.execute_activity)
    monkeypatch.setattr(workflow, "now", lambda: JOB.deadline_at)
    await job._send_shard(SHARD, asyncio.create_task(asyncio.sleep(0)))

    assert [(end.state, end.reason) for end in ends] == [(TransferState.TIMEOUT, FailureReason.DEADLINE)]


async def test_shards_of_long_specs_are_saved_by_payloads_that_temporal_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends a workflow that passes on more than 2 MiB at once."""
    job = TransferJob(JOB.model_copy(update={"shard_targets": 4}))
    sizes: list[int] = []

    async def note_size(_method: Any, argument: SaveShardsInput) -> None:
        sizes.append(len(argument.model_dump_json().encode()))

    for number in range(300):
        folder = f"/{number}" + "\N{GRINNING FACE}" * 1_000
        spec = TransferSpec(project_id="p", signature="a" * 64, user="root", folder=folder)
        targets = [(2**59 + 100 * number + key, "a" * 64, "c" * 128) for key in range(8)]
        group = TargetsWithSameSpec(spec=spec, file_name="f", targets=targets)
        job._registry.register_groups_within_limits(JoinBatch(groups=[group]), NOW)
    monkeypatch.setattr(job, "_run_activity", note_size)
    monkeypatch.setattr(job, "_publish_phase", lambda *_: None)
    saved = [shard async for group in job._save_shards_and_yield_batches() for shard in group]

    assert len(saved) == 600
    assert max(sizes) < 1024 * 1024
