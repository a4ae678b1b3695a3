"""The worker: capacity, stages, retries, leases, and a stop that loses nothing."""

from __future__ import annotations

import asyncio
import json

import pytest

from haulage import ApiUnreachable
from haulage.tasks import (
    HeldTask,
    NextStage,
    Status,
    TaskEntryOutcome,
    TaskFailed,
    TaskRequestRefused,
    Worker,
)
from tests.support.task_queue import RecordingQueue, do_nothing, make_held_task, run_worker
from tests.support.waiting import eventually


async def test_each_task_is_done_and_told_under_its_lease() -> None:
    """Results carry the lease, so that a task whose lease was lost is not overwritten."""
    queue = RecordingQueue([make_held_task(1), make_held_task(2)])
    async with run_worker(queue, {"": do_nothing}):
        await eventually(lambda: len(queue.results) == 2)

    assert sorted(queue.list_result_fields("task_id", "lease", "status")) == [
        (make_held_task(1).task_id, 2, Status.SUCCESS),
        (make_held_task(2).task_id, 3, Status.SUCCESS),
    ]


async def test_a_stage_leads_to_the_next() -> None:
    """Each stage has its handler; its result returns to the queue with another stage and content."""

    async def cut(task: HeldTask) -> NextStage:
        return NextStage("publish", content=f"{task.task_content}, cut")

    queue = RecordingQueue([make_held_task(1, stage="cut"), make_held_task(2, stage="publish")])
    async with run_worker(queue, {"cut": cut, "publish": do_nothing}):
        await eventually(lambda: len(queue.results) == 2)

    assert sorted(queue.list_result_fields("status", "task_stage", "task_content"), key=str) == [
        (Status.PENDING, "publish", "content 1, cut"),
        (Status.SUCCESS, None, None),
    ]


async def test_an_error_is_a_failed_attempt_with_its_log() -> None:
    """The retry is counted, and the log keeps the last three attempts."""

    async def fail(task: HeldTask) -> None:
        raise ConnectionError("the encoder is gone " + "x" * 500)

    log = json.dumps([{"attempt": 1}, {"attempt": 2}, {"attempt": 3}])
    queue = RecordingQueue([make_held_task(1, crt_retry_num=3, schedule_log=log)])
    async with run_worker(queue, {"": fail}):
        await eventually(lambda: queue.results)

    [result] = queue.results
    entries = json.loads(result.schedule_log or "")
    assert (result.status, result.crt_retry_num) == (Status.PENDING, 4)
    assert [entry["attempt"] for entry in entries] == [2, 3, 4]
    assert entries[-1]["error"].startswith("ConnectionError: the encoder is gone x")
    assert len(entries[-1]["error"]) == 256


async def test_a_failure_for_good_ends_the_task() -> None:
    """No retry can help."""

    async def refuse(task: HeldTask) -> None:
        raise TaskFailed("there is no such file")

    queue = RecordingQueue([make_held_task(1)])
    async with run_worker(queue, {"": refuse}):
        await eventually(lambda: queue.results)

    [result] = queue.results
    assert (result.status, result.crt_retry_num) == (Status.FAILED, None)
    assert "there is no such file" in (result.schedule_log or "")


async def test_a_stage_without_a_handler_is_a_failed_attempt() -> None:
    """Another worker may know it; the log says which stages this one has."""
    queue = RecordingQueue([make_held_task(1, stage="sing")])
    async with run_worker(queue, {"cut": do_nothing, "publish": do_nothing}):
        await eventually(lambda: queue.results)

    [result] = queue.results
    assert (result.status, result.crt_retry_num) == (Status.PENDING, 1)
    assert "no handler for the stage 'sing'; this worker has 'cut', 'publish'" in (result.schedule_log or "")


async def test_no_more_is_held_than_there_is_room_for() -> None:
    """Two run, one waits, and the next hold follows when one has ended, for as many as there is capacity for."""
    go_on = asyncio.Semaphore(0)
    running_now: list[str] = []

    async def slow(task: HeldTask) -> None:
        running_now.append(task.task_id)
        await go_on.acquire()

    queue = RecordingQueue([make_held_task(number) for number in range(6)])
    async with run_worker(queue, {"": slow}, concurrency=2, backlog=1):
        await eventually(lambda: len(running_now) == 2)
        assert (queue.asked, len(queue.waiting)) == ([3], 3)
        go_on.release()
        await eventually(lambda: len(queue.asked) == 2)
        assert (queue.asked, len(running_now)) == ([3, 1], 3)
        for _ in range(6):
            go_on.release()
        await eventually(lambda: len(queue.results) == 6)


async def test_a_hold_asks_for_no_more_than_the_type_allows() -> None:
    """`schedule_limit` bounds it, whatever the capacity."""
    queue = RecordingQueue(limit=4)
    async with run_worker(queue, {"": do_nothing}, concurrency=50):
        await eventually(lambda: queue.asked)

    assert queue.asked[0] == 4


async def test_a_full_queue_is_held_from_at_once() -> None:
    """The interval of the type is for workers that ask for it."""
    queue = RecordingQueue([make_held_task(number) for number in range(200)], interval=3_600)
    async with run_worker(queue, {"": do_nothing}, concurrency=2):
        await eventually(lambda: len(queue.results) == 200)

    assert all(wait > 0 for wait in queue.waits)


async def test_more_wait_where_they_are_done_fast() -> None:
    """A hold brings hundreds of tasks that take nothing, and no more than fit where they take long."""
    queue = RecordingQueue([make_held_task(number) for number in range(100_000)], limit=2_000, interval=3_600)
    async with run_worker(queue, {"": do_nothing}, concurrency=2):
        await eventually(lambda: max((limit or 0 for limit in queue.asked), default=0) >= 200)

    release = asyncio.Event()

    async def slow(task: HeldTask) -> None:
        await release.wait()

    queue = RecordingQueue([make_held_task(number) for number in range(100)], limit=2_000)
    async with run_worker(queue, {"": slow}, concurrency=2):
        await eventually(lambda: queue.asked)
        release.set()

    assert queue.asked[0] == 4


async def test_results_go_together() -> None:
    """Those that come while requests are under way go in one."""
    queue = RecordingQueue([make_held_task(number) for number in range(60)], limit=60)
    queue.taking.clear()
    async with run_worker(queue, {"": do_nothing}, concurrency=60):
        await eventually(lambda: queue.requests)
        queue.taking.set()
        await eventually(lambda: len(queue.results) == 60)

    assert len(queue.requests) < 10
    assert sum(queue.requests) == 60


async def test_holds_keep_the_interval_of_the_type_if_they_are_told_to() -> None:
    """Give or take the jitter, and whether or not there was something to do."""
    queue = RecordingQueue([make_held_task(1)], interval=0.1)
    async with run_worker(queue, {"": do_nothing}, jitter_seconds=0.02, keep_interval=True):
        await eventually(lambda: len(queue.asked_at) == 4)

    pauses = [after - before for before, after in zip(queue.asked_at, queue.asked_at[1:], strict=False)]
    assert min(pauses) >= 0.07
    assert set(queue.waits) == {0.0}


async def test_leases_are_renewed_while_tasks_wait_and_run() -> None:
    """Both would be taken back otherwise."""
    release = asyncio.Event()

    async def slow(task: HeldTask) -> None:
        await release.wait()

    queue = RecordingQueue([make_held_task(1), make_held_task(2)], lease_seconds=0.03)
    async with run_worker(queue, {"": slow}, concurrency=1, backlog=1):
        await eventually(lambda: len(queue.beats) >= 3)
        release.set()
        await eventually(lambda: len(queue.results) == 2)

    assert queue.beats[1] == [make_held_task(1).task_id, make_held_task(2).task_id]


async def test_a_lost_task_is_given_up() -> None:
    """Its handler is cancelled and no result is sent: another worker holds it by now."""
    cancelled: list[str] = []

    async def slow(task: HeldTask) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(task.task_id)
            raise

    queue = RecordingQueue([make_held_task(1)], lease_seconds=0.03)
    async with run_worker(queue, {"": slow}):
        await eventually(lambda: queue.beats)
        queue.gone.add(make_held_task(1).task_id)
        await eventually(lambda: cancelled)

    assert (cancelled, queue.results) == ([make_held_task(1).task_id], [])


async def test_a_task_that_is_done_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat may cross the result on its way, or come after it: what counts is the answer to the result."""
    queue = RecordingQueue([make_held_task(1)], lease_seconds=0.03, gone={make_held_task(1).task_id})
    queue.taking.clear()
    async with run_worker(queue, {"": do_nothing}):
        await eventually(lambda: len(queue.beats) >= 3)
        queue.taking.set()
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("task_id", "status") == [(make_held_task(1).task_id, Status.SUCCESS)]
    assert caplog.text == ""


async def test_a_stop_lets_tasks_end_and_gives_back_what_has_not_begun() -> None:
    """A task that only waited here has not failed: it goes back as it was."""
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(task: HeldTask) -> None:
        begun.set()
        await release.wait()

    queue = RecordingQueue([make_held_task(1), make_held_task(2)])
    async with run_worker(queue, {"": slow}, concurrency=1, backlog=1) as worker:
        await begun.wait()
        worker.stop()
        await eventually(lambda: queue.results)
        assert queue.list_result_fields("task_id", "status", "crt_retry_num") == [
            (make_held_task(2).task_id, Status.PENDING, None)
        ]
        release.set()

    assert queue.list_result_fields("task_id", "status")[1:] == [(make_held_task(1).task_id, Status.SUCCESS)]


async def test_a_stop_does_not_wait_for_ever() -> None:
    """What takes too long is given back, not failed."""
    begun = asyncio.Event()

    async def endless(task: HeldTask) -> None:
        begun.set()
        await asyncio.Event().wait()

    queue = RecordingQueue([make_held_task(1)])
    async with run_worker(queue, {"": endless}, stop_seconds=0.02):
        await begun.wait()

    assert queue.list_result_fields("status", "crt_retry_num") == [(Status.PENDING, None)]


@pytest.mark.parametrize(
    "fault", [ApiUnreachable("nobody answers"), TaskRequestRefused(8036, "FAIL_REASON::a part is gone")]
)
async def test_a_hold_that_fails_is_tried_again(fault: Exception) -> None:
    """An outage of the API ends no worker."""
    queue = RecordingQueue([make_held_task(1)], faults=[fault])
    async with run_worker(queue, {"": do_nothing}):
        await eventually(lambda: queue.results)

    assert len(queue.asked) >= 2


async def test_a_result_that_is_refused_ends_no_worker() -> None:
    """The task is not ours any more; the next one is done."""
    queue = RecordingQueue(
        [make_held_task(1), make_held_task(2)],
        refusals=[TaskEntryOutcome(code=8041, msg="FAIL_REASON::it is not held")],
    )
    async with run_worker(queue, {"": do_nothing}, concurrency=1):
        await eventually(lambda: queue.results)

    assert queue.list_result_fields("task_id") == [(make_held_task(2).task_id,)]


async def test_a_request_with_results_that_fails_ends_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the tasks; they come back when their leases are over."""
    queue = RecordingQueue([make_held_task(1)], faults_of_sets=[ApiUnreachable("nobody answers")])
    async with run_worker(queue, {"": do_nothing}):
        await eventually(lambda: caplog.text)
        queue.waiting.append(make_held_task(2))
        await eventually(lambda: queue.results)

    assert f"task_result_failed: task {make_held_task(1).task_id}: status SUCCESS: nobody answers" in caplog.text


async def test_a_stop_does_not_wait_for_a_hold() -> None:
    """A hold that waits at the queue is broken off."""
    queue = EmptyQueue()
    worker = Worker(queue, "video", {"": do_nothing})
    loop = asyncio.create_task(worker.run())
    await queue.has_come.wait()
    worker.stop()
    await asyncio.wait_for(loop, 30)
    assert queue.broken_off


class EmptyQueue(RecordingQueue):
    """A queue in which nothing is due."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = asyncio.Event()
        self.broken_off = False

    async def hold(self, task_type: str, *, limit: int | None = None, wait_seconds: float = 0.0) -> list[HeldTask]:
        """Wait for ever."""
        self.has_come.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.broken_off = True
            raise
        return []


async def test_a_type_that_is_not_registered_ends_the_worker() -> None:
    """It used to write the error to its log forever, unnoticed."""
    with pytest.raises(TaskRequestRefused, match=r"There is no type .audio. in this project\. Register it"):
        await asyncio.wait_for(Worker(RecordingQueue(), "audio", {"": do_nothing}).run(), 30)
