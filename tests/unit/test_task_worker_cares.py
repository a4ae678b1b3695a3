"""The worker's care: outcomes that no queue can take, leases that ran out unseen, and options that do nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from haulage import RequestRefused
from haulage.tasks import (
    HeldTask,
    NextStage,
    RegisteredType,
    Status,
    TaskEntryOutcome,
    TaskRequestRefused,
    TaskResult,
    Worker,
)
from haulage.tasks.prefetch import PrefetchSizeEstimator
from haulage.tasks.reports import REQUESTS_MAX, ResultSender
from tests.support.task_queue import RecordingQueue, do_nothing, make_held_task, run_worker
from tests.support.waiting import eventually


class UnprintableError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (ValueError("a\0b"), "ValueError: a\ufffdb"),
        (ValueError("a\ud800b"), "ValueError: a?b"),
        (UnprintableError(), "UnprintableError"),
    ],
)
async def test_an_error_is_logged_as_the_api_takes_it(error: Exception, logged: str) -> None:
    """A NUL or half a surrogate pair had the result refused, and the task timed out instead."""
    queue = RecordingQueue([make_held_task(1)])

    async def fail(task: HeldTask) -> None:
        raise error

    async with run_worker(queue, {"": fail}):
        await eventually(lambda: queue.results)

    [result] = queue.results
    assert (result.status, result.crt_retry_num) == (Status.PENDING, 1)
    assert json.loads(result.schedule_log or "")[0]["error"] == logged


async def test_a_handler_that_returns_something_else_has_failed() -> None:
    """The text of a stage is no `NextStage`: no result was sent, and the task timed out."""
    queue = RecordingQueue([make_held_task(1)])

    async def name_a_stage(task: HeldTask) -> Any:
        return "publish"

    async with run_worker(queue, {"": name_a_stage}):
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("status", "crt_retry_num") == [(Status.PENDING, 1)]
    assert "returned 'publish'" in (queue.results[0].schedule_log or "")


async def test_a_result_that_the_api_cannot_take_is_a_failed_attempt() -> None:
    """With the reason in the log, at once, instead of a time-out without one."""
    queue = RecordingQueue(
        [make_held_task(1)], refusals=[TaskEntryOutcome(code=8020, msg="task_stage: it has 40 characters")]
    )

    async def go_on(task: HeldTask) -> NextStage:
        return NextStage("x" * 40)

    async with run_worker(queue, {"": go_on}):
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("status", "crt_retry_num", "task_stage") == [(Status.PENDING, 1, None)]
    assert "it has 40 characters" in (queue.results[0].schedule_log or "")


async def test_a_handler_that_raises_the_error_of_a_cancel_has_failed() -> None:
    """As where something that it waited for was cancelled. Given back as not begun, it was done again for ever."""
    queue = RecordingQueue([make_held_task(1)])

    async def wait_for_another(task: HeldTask) -> None:
        other = asyncio.create_task(asyncio.sleep(3_600))
        other.cancel()
        await other

    async with run_worker(queue, {"": wait_for_another}):
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("status", "crt_retry_num") == [(Status.PENDING, 1)]
    assert "CancelledError" in (queue.results[0].schedule_log or "")


async def test_a_handler_that_is_not_async_ends_the_worker() -> None:
    """Each task was done, counted as failed without a word why, and done again."""
    queue = RecordingQueue([make_held_task(1)])

    def compute(task: HeldTask) -> Any:
        return None

    with pytest.raises(TypeError, match=r"stage '' is not async: it returned None.*async def"):
        await asyncio.wait_for(Worker(queue, "video", {"": compute}).run(), 30)

    assert queue.list_result_fields("status", "crt_retry_num") == [(Status.PENDING, 1)]
    assert "is not async" in (queue.results[0].schedule_log or "")


async def test_a_handler_may_be_a_plain_function_that_returns_what_can_be_awaited() -> None:
    """As a wrapper that passes more arguments."""
    queue = RecordingQueue([make_held_task(1)])

    def hand_on(task: HeldTask) -> Awaitable[None]:
        return do_nothing(task)

    async with run_worker(queue, {"": hand_on}):
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("status") == [(Status.SUCCESS,)]


REVOKED = RequestRefused(401, "key_unknown", "This key is unknown or was revoked.", "r")
NOT_OURS = RequestRefused(404, "no_haulage_api", "GET http://x answered 404, not as Haulage does.", "")


@pytest.mark.parametrize("fault", [REVOKED, TaskRequestRefused(8045, "There is no type 'video' for this key.")])
async def test_a_refusal_that_stays_ends_the_worker(fault: Exception) -> None:
    """Running tasks end and are reported first; then the error is raised."""
    go_on = asyncio.Event()

    async def slow(task: HeldTask) -> None:
        await go_on.wait()

    queue = RecordingQueue([make_held_task(1)], interval=0)
    loop = asyncio.create_task(Worker(queue, "video", {"": slow}, concurrency=1, backlog=1).run())
    await eventually(lambda: queue.asked)
    queue.faults.append(fault)
    await eventually(lambda: not queue.faults)
    go_on.set()
    with pytest.raises(type(fault), match=r"This key is unknown|There is no type"):
        await asyncio.wait_for(loop, 30)

    assert queue.list_result_fields("status") == [(Status.SUCCESS,)]


async def test_an_address_without_an_api_ends_the_worker() -> None:
    """If it never answered; later a proxy may answer for it for a while."""

    class OtherServerQueue(RecordingQueue):
        async def types(self) -> list[RegisteredType]:
            """Answered by another server."""
            raise NOT_OURS

    with pytest.raises(RequestRefused, match="not as Haulage does"):
        await asyncio.wait_for(Worker(OtherServerQueue(), "video", {"": do_nothing}).run(), 30)
    queue = RecordingQueue([make_held_task(1)], faults=[NOT_OURS, RequestRefused(429, "busy", "Too many calls.", "r")])
    async with run_worker(queue, {"": do_nothing}):
        await eventually(lambda: queue.results)


async def test_a_long_log_of_somebody_else_is_cut() -> None:
    """The API takes 4,096 characters."""
    queue = RecordingQueue([make_held_task(1, schedule_log=json.dumps(["x" * 2_000, "y" * 2_000]))])

    async def fail(task: HeldTask) -> None:
        raise ValueError("z" * 500)

    async with run_worker(queue, {"": fail}):
        await eventually(lambda: queue.results)

    log = queue.results[0].schedule_log or ""
    assert len(log) <= 4_096
    assert json.loads(log)[0] == "y" * 2_000
    assert json.loads(log)[1]["error"].startswith("ValueError: zzz")


async def test_a_task_whose_lease_ran_out_while_it_waited_is_not_begun() -> None:
    """A process that was stopped for longer than a lease began what other workers had by then."""
    queue = RecordingQueue(
        [make_held_task(1), make_held_task(2), make_held_task(3)], lease_seconds=0.3, gone={make_held_task(2).task_id}
    )
    begun: list[str] = []

    async def block(task: HeldTask) -> None:
        begun.append(task.task_id)
        await asyncio.sleep(0)
        if len(begun) == 1:
            time.sleep(0.5)  # noqa: ASYNC251 - the whole process pauses, as if stopped by a signal

    async with run_worker(queue, {"": block}, concurrency=1, backlog=2):
        await eventually(lambda: len(queue.results) == 2)

    assert begun == [make_held_task(1).task_id, make_held_task(3).task_id]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": 1.5}, "concurrency is 1.5"),
        ({"backlog": -1}, "backlog is -1"),
        ({"stop_seconds": -1}, "stop_seconds is -1"),
        ({"handlers": {}}, "without handlers"),
    ],
)
async def test_options_with_which_nothing_is_done_are_refused(options: dict[str, Any], named: str) -> None:
    """A concurrency of 0 held nothing and said nothing."""

    async def do(task: HeldTask) -> None: ...

    with pytest.raises(ValueError, match=named):
        Worker(RecordingQueue(), "video", **{"handlers": {"": do}} | options)


class BusyQueue(RecordingQueue):
    """A queue whose first heartbeats go wrong in this way."""

    trouble: list[TaskEntryOutcome | Exception]

    async def heartbeat(self, held: Any) -> list[TaskEntryOutcome]:
        """Go wrong as long as there is trouble."""
        outcomes = await super().heartbeat(held)
        if not self.trouble:
            return outcomes
        if isinstance(trouble := self.trouble.pop(0), Exception):
            raise trouble
        return [trouble for _ in held]


@pytest.mark.parametrize(
    "trouble", [TaskEntryOutcome(code=8036, msg="PostgreSQL does not serve at present."), KeyError("results")]
)
async def test_a_heartbeat_that_fails_takes_no_task_from_its_handler(trouble: TaskEntryOutcome | Exception) -> None:
    """A component is away: the leases may be in force for hours. And the next heartbeats go on."""
    queue = BusyQueue([make_held_task(1)], lease_seconds=0.15)
    queue.trouble = [trouble]
    done = asyncio.Event()

    async def wait(task: HeldTask) -> None:
        await done.wait()

    async with run_worker(queue, {"": wait}):
        await eventually(lambda: len(queue.beats) > 2)
        done.set()
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("status") == [(Status.SUCCESS,)]


async def test_a_request_with_results_that_fails_in_any_way_keeps_no_worker_from_stopping() -> None:
    """Not only by the errors of this package: the results waited for an answer for ever."""
    queue = RecordingQueue([make_held_task(1)], faults_of_sets=[KeyError("results")])
    async with run_worker(queue, {"": do_nothing}) as worker:
        await eventually(lambda: queue.requests and not queue.faults_of_sets)
        worker.stop()


async def test_results_that_come_as_all_requests_end_are_sent() -> None:
    """A worker whose last results came at that moment waited for the next one, and never stopped."""
    queue = RecordingQueue()
    sender = ResultSender(queue)

    async def send_twice(number: int) -> None:
        for status in (Status.RUNNING, Status.SUCCESS):
            await sender.send(TaskResult(task_id=str(number), status=status))

    async with asyncio.timeout(30):
        await asyncio.gather(*map(send_twice, range(REQUESTS_MAX)))
    assert len(queue.results) == 2 * REQUESTS_MAX


@pytest.mark.parametrize("next_stage", [NextStage(5), NextStage("next", content=7)])  # type: ignore[arg-type]
async def test_a_next_stage_that_is_no_text_is_a_failed_attempt(next_stage: NextStage) -> None:
    """No result was sent, and the task timed out without a reason."""
    queue = RecordingQueue([make_held_task(1)])

    async def go_on(task: HeldTask) -> NextStage:
        return next_stage

    async with run_worker(queue, {"": go_on}):
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("status", "crt_retry_num") == [(Status.PENDING, 1)]


async def test_a_log_that_is_nested_too_deeply_is_replaced() -> None:
    """Another client wrote it; the result was lost."""
    queue = RecordingQueue([make_held_task(1, schedule_log="[" * 4_096)])

    async def fail(task: HeldTask) -> None:
        raise ValueError("no")

    async with run_worker(queue, {"": fail}):
        await eventually(lambda: queue.results)

    assert json.loads(queue.results[0].schedule_log or "")[0]["error"] == "ValueError: no"


async def test_a_worker_that_may_hold_less_than_before_does_not_ask_for_less_than_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks had become slow while the configuration was read: a limit below 0 is refused, which ended the worker."""
    monkeypatch.setattr("haulage.tasks.worker.CONFIG_SECONDS", -1.0)

    class SlowlyConfiguredQueue(RecordingQueue):
        async def types(self) -> list[RegisteredType]:
            """Meanwhile nothing is to be held ahead any more."""
            if self.asked:
                worker._prefetch = PrefetchSizeEstimator(1, 0)
            return await super().types()

    done = asyncio.Event()

    async def wait(task: HeldTask) -> None:
        await done.wait()

    queue = SlowlyConfiguredQueue([make_held_task(number) for number in range(2)])
    async with run_worker(queue, {"": wait}, concurrency=1, backlog=5) as worker:
        await eventually(lambda: len(queue.asked) == 1 and worker._prefetch.get_size() == 0)
        done.set()
        await eventually(lambda: len(queue.results) == 2 and len(queue.asked) > 1)

    assert min(limit or 0 for limit in queue.asked) > 0
