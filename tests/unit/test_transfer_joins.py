"""Joining the jobs of a file from an API process: which windows a batch tries, and what their answers mean."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from api.transfers import actions, joins
from api.transfers.joins import JobJoiner
from api.transfers.requests import BATCH_TARGETS_MAX
from domain.transfers import joining, names
from domain.transfers.joining import JoinBatch, JoinResult, TargetsWithSameSpec, TransferJobInput
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from infra.settings import Settings
from services.services import Services
from tests.support.waiting import eventually
from workflows.transfers import handle
from workflows.transfers.handle import JobFull, JobOver

WINDOW_SECONDS = 2
GROUP = TargetsWithSameSpec(
    spec=TransferSpec(project_id="p", signature="a", user="root", folder="/data"),
    file_name="f",
    targets=[(1, "agent-1", "")],
)


FILE = FileByBizAppAndPath(biz_id=2, app_id=7, path="/etc/app.conf")


def build_joiner(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> JobJoiner:
    """A joiner that goes by this clock."""
    monkeypatch.setattr(time, "time", lambda: clock.now)
    settings = SimpleNamespace(transfers=Settings().transfers.model_copy(update={"window_seconds": WINDOW_SECONDS}))
    return JobJoiner(cast("Services", SimpleNamespace(engine=None, settings=settings)))


def get_window_number(job_id: str) -> int:
    """The window of a job."""
    job = names.parse_job_id(job_id)
    assert job
    return job.window_number


async def test_a_batch_that_comes_late_goes_to_the_window_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that took ten windows, as while the engine is down, is not followed by nine windows that are over."""
    clock = SimpleNamespace(now=1_000.0, tried=[])

    async def start_and_join_job(_engine: Any, job: TransferJobInput, _batch: JoinBatch, *_: Any) -> JoinResult:
        clock.tried.append(get_window_number(job.job_id))
        if len(clock.tried) == 1:
            clock.now += 10 * WINDOW_SECONDS
        return JoinResult(is_open=clock.now < job.window_closes_at.timestamp(), batches=1, targets=1)

    monkeypatch.setattr(handle, "start_and_join_job", start_and_join_job)
    assert await build_joiner(monkeypatch, clock).join_job(FILE, GROUP) == 510
    assert clock.tried == [500, 510]


async def test_what_a_full_job_refuses_joins_the_next_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no error of the caller's, and later batches do not try the full window again."""
    tried: list[int] = []

    async def start_and_join_job(_engine: Any, job: TransferJobInput, _batch: JoinBatch, *_: Any) -> JoinResult:
        tried.append(get_window_number(job.job_id))
        if tried[-1] == 500:
            raise JobFull
        return JoinResult(batches=1, targets=1)

    monkeypatch.setattr(handle, "start_and_join_job", start_and_join_job)
    joiner = build_joiner(monkeypatch, SimpleNamespace(now=1_000.0))
    first = await joiner.join_job(FILE, GROUP)

    assert (first, tried) == (501, [500, 501])


def record_batches(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Have the engine accept every batch; return the sizes of those that may start a job, and of the others."""
    starting: list[int] = []
    following: list[int] = []

    async def start_and_join_job(_engine: Any, _job: TransferJobInput, batch: JoinBatch, *_: Any) -> JoinResult:
        starting.append(sum(len(group.targets) for group in batch.groups))
        return JoinResult(batches=1, targets=1)

    async def join_job(_engine: Any, _job_id: str, batch: JoinBatch, *_: Any) -> JoinResult:
        following.append(sum(len(group.targets) for group in batch.groups))
        return JoinResult(batches=2, targets=1)

    monkeypatch.setattr(handle, "start_and_join_job", start_and_join_job)
    monkeypatch.setattr(handle, "join_job", join_job)
    return starting, following


async def test_callers_that_come_back_join_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch costs as much for one request as for hundreds, so the next one waits until all have sent the next."""
    starting, following = record_batches(monkeypatch)
    monkeypatch.setattr(joining, "RETURN_SECONDS", 60.0)
    monkeypatch.setattr(joining, "RETURN_MAX_SECONDS", 60.0)
    joiner = build_joiner(monkeypatch, SimpleNamespace(now=1_000.0))

    async def call_again_and_again(number: int) -> None:
        for _ in range(3):
            await joiner.join_job(FILE, GROUP)
            await asyncio.sleep(2 * joining.PAUSE_MIN_SECONDS * (number % 2))

    await asyncio.gather(*map(call_again_and_again, range(40)))

    assert (starting, following) == ([40], [40, 40])


async def test_callers_that_do_not_come_back_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that they have is counted from their answer."""
    _, following = record_batches(monkeypatch)
    joiner = build_joiner(monkeypatch, SimpleNamespace(now=1_000.0))
    await asyncio.gather(*(joiner.join_job(FILE, GROUP) for _ in range(40)))

    await joiner.join_job(FILE, GROUP)

    assert following == [1]


def test_requests_that_name_one_file_and_spec_share_them() -> None:
    """Batches of hundreds look both up many times; what is the same object is not compared."""
    path, folder = "/etc/app.conf", "/data"
    assert actions._build_file_with_short_job_id(2, 7, path) is actions._build_file_with_short_job_id(2, 7, path)
    assert actions._build_spec("p", "a", "root", folder) is actions._build_spec("p", "a", "root", folder)


async def test_the_window_of_a_file_is_forgotten_some_time_after_its_last_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then, the next request joins the job that runs without an attempt to start it."""
    starting, following = record_batches(monkeypatch)
    monkeypatch.setattr(joins, "IDLE_SECONDS", 0.5)
    joiner = build_joiner(monkeypatch, SimpleNamespace(now=1_000.0))
    await joiner.join_job(FILE, GROUP)
    batcher = joiner._batchers[FILE]

    await eventually(lambda: not joiner._batchers)
    await joiner.join_job(FILE, GROUP)

    assert (starting, following) == ([1, 1], [])
    assert joiner._batchers[FILE] is not batcher


@pytest.mark.parametrize(("has_joined", "window"), [(True, 500), (False, 501)])
async def test_a_job_that_ended_before_it_was_asked_again_is_asked_what_it_answered(
    monkeypatch: pytest.MonkeyPatch, has_joined: bool, window: int
) -> None:
    """A batch whose answer was lost joins a second window only if the first did not take it."""
    asked: list[int] = []

    async def start_and_join_job(_engine: Any, job: TransferJobInput, _batch: JoinBatch, *_: Any) -> JoinResult:
        asked.append(get_window_number(job.job_id))
        if asked == [500]:
            raise WorkflowUpdateRPCTimeoutOrCancelledError
        if asked[-1] == 500:
            raise JobOver
        return JoinResult(batches=1, targets=1)

    async def find_join_result(_engine: Any, job_id: str, *_: Any) -> JoinResult | None:
        assert get_window_number(job_id) == 500
        return JoinResult(batches=1, targets=1) if has_joined else None

    async def has_workers(*_: Any) -> bool:
        return True

    monkeypatch.setattr(handle, "start_and_join_job", start_and_join_job)
    monkeypatch.setattr(handle, "find_join_result", find_join_result)
    monkeypatch.setattr(JobJoiner, "_has_polling_workers_or_unknown", has_workers)
    joiner = build_joiner(monkeypatch, SimpleNamespace(now=1_000.0))

    assert await joiner.join_job(FILE, GROUP) == window
    assert asked[:2] == [500, 500]


@pytest.mark.parametrize(("shard_targets", "targets_max"), [(4, 6_000), (50, 75_000), (500, 100_000)])
def test_a_window_takes_no_more_shards_than_run_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, shard_targets: int, targets_max: int
) -> None:
    """Each is an activity, of which a workflow has 2,000 at most; a whole request always fits."""
    joiner = build_joiner(monkeypatch, SimpleNamespace(now=1_000.0))
    joiner._settings.shard_targets = shard_targets
    assert joiner._build_job_input(names.TransferJobKey(FILE, 500)).targets_max == targets_max >= BATCH_TARGETS_MAX


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (WorkflowUpdateFailedError(ApplicationError("", type=names.JOB_FULL)), JobFull),
        (RPCError("The limit on the total number of updates", RPCStatusCode.FAILED_PRECONDITION, b""), JobFull),
        (WorkflowUpdateFailedError(ApplicationError("")), JobOver),
        (WorkflowAlreadyStartedError("job", "TransferJob"), JobOver),
        (RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b""), JobOver),
        (RPCError("", RPCStatusCode.UNAVAILABLE, b""), RPCError),
    ],
)
async def test_what_an_answer_of_the_engine_means_for_a_batch(raised: Exception, expected: type[Exception]) -> None:
    """A run that has had all its updates is full; an outage says nothing."""

    class Job:
        async def execute_update(self, *_: Any, **_options: Any) -> JoinResult:
            raise raised

    engine = SimpleNamespace(get_workflow_handle=lambda _job_id: Job())
    with pytest.raises(expected) as caught:
        await handle.join_job(cast("Any", engine), "job", JoinBatch(groups=[]), "batch", joins.ANSWER_TIMEOUT)
    assert type(caught.value) is expected
