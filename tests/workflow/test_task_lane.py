"""The plan of a lane on a real engine: answers, time-outs, archive, continue-as-new, the end."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from temporalio.client import WorkflowExecutionStatus, WorkflowUpdateFailedError

from domain.tasks import names
from domain.tasks.messages import (
    BATCH_MAX_BYTES,
    HoldOperation,
    LaneBatch,
    OperationCode,
    SetOperation,
    Task,
    TaskStatus,
)
from infra.settings import Settings
from tests.support.lanes import AskedLane, new_key, new_tasks, running_lane_worker, running_lanes
from tests.support.waiting import eventually
from workflows.tasks.lane import TaskLane

pytestmark = pytest.mark.stack


async def test_a_task_is_created_held_set_and_archived(settings: Settings) -> None:
    """It is in the lane until the archive has it, and counted once."""
    async with running_lanes(settings) as lanes:
        lane = await lanes.start()
        [wanted] = new_tasks(1, '{"url": "x"}', priority=5)
        await lane.create([wanted])
        [held] = await lane.hold()
        assert await lane.finish([held]) == OperationCode.OK

        await eventually(lambda: _is_gone(lane, wanted.key))
        row = (await lanes.read_archived(wanted.key))[wanted.key]
        counts = await lanes.counts()

    assert (held.key, held.content, held.status) == (wanted.key, wanted.content, TaskStatus.RUNNING)
    assert held.order_time == held.create_time - 5_000
    assert (row["status"], row["content"], row["priority"]) == (TaskStatus.SUCCESS, wanted.content, 5)
    assert counts == {TaskStatus.SUCCESS: 1}


async def test_a_lane_takes_tasks_back_by_its_own_timer(settings: Settings) -> None:
    """Without any batch, it saves by itself which tasks are due and which have failed."""
    async with running_lanes(settings, max_processing_time=1, max_retry_interval=0, max_retry_num=1) as lanes:
        lane = await lanes.start()
        [wanted] = new_tasks(1)
        await lane.create([wanted])

        await lane.hold()
        again = await eventually(lambda: _stands(lane, wanted.key, TaskStatus.PENDING))
        told = await eventually(lambda: lanes.rows("SELECT * FROM task_heads WHERE due = 1 AND retries = 1"))
        await lane.hold()
        await eventually(lambda: lanes.read_archived(wanted.key))
        counts = await lanes.counts()

    assert (again.crt_retry_num, again.lease) == (1, 2)
    assert (told[0]["next_order_time"], told[0]["timeouts"]) == (again.order_time, 1)
    assert counts == {TaskStatus.FAILED: 1}


async def test_a_lane_that_is_carried_on_forgets_nothing(settings: Settings) -> None:
    """Batches that were applied before get the same reply; leases stay in force, and requests are served meanwhile."""
    async with running_lanes(settings, max_processing_time=600) as lanes:
        lane = await lanes.start()
        first_run = (await lane.handle.describe()).run_id
        new = new_tasks(20)
        await lane.create(new)
        group = LaneBatch(
            lane.sender, next(lane.numbers), creates=new[:1] + new_tasks(1), holds=[HoldOperation(3), HoldOperation(2)]
        )
        first = await lane.send(group)

        asked = asyncio.create_task(_ask_until_carried_on(AskedLane(lane.handle), first_run))
        await _make_long(AskedLane(lane.handle), first_run)
        again = await lane.send(group)
        answers = await asked
        done = await lane.finish([task for held in again.holds for task in held])
        head = (await lane.look_up()).head

    assert (first.creates, again.creates) == (
        OperationCode.SAME + OperationCode.OK,
        OperationCode.SAME + OperationCode.OK,
    )
    assert [[task.lease for task in held] for held in again.holds] == [[1, 2, 3], [4, 5]]
    assert done == OperationCode.OK * 5
    assert answers > 0
    assert (head.success, head.running, head.held) == (5, 0, 5)


async def test_a_group_that_comes_too_late_is_not_done(settings: Settings) -> None:
    """Its sender has given it up and sent another."""
    async with running_lanes(settings) as lanes:
        lane = await lanes.start()
        late = LaneBatch(lane.sender, next(lane.numbers), creates=new_tasks(1))
        await lane.create(new_tasks(1))

        reply = await lane.send(late)

    assert (reply.late, reply.creates, reply.head.pending) == (True, "", 1)


async def test_what_is_no_group_is_refused_and_harms_nothing(settings: Settings) -> None:
    """A handler that raised would come back for ever; and the `temporal` command asks in plain JSON."""
    async with running_lanes(settings) as lanes:
        lane = await lanes.start()
        for wrong in ([], ["x", 0], ["x", 1, [["no key", "user", ""]]], {"sender": "x"}, "x"):
            with pytest.raises(WorkflowUpdateFailedError):
                await lane.handle.execute_update(names.APPLY_BATCH, wrong)
        plain = await lane.handle.execute_update(names.APPLY_BATCH, ["by hand", 1, [[new_key(), "user", "{}"]]])
        status = await lane.handle.query(TaskLane.status)

    assert plain[3] == OperationCode.OK
    assert status.pending == 1


async def test_a_lane_whose_tasks_have_all_ended_ends(settings: Settings) -> None:
    """Its type goes on with the next position, which was never begun yet."""
    async with running_lanes(settings, lane_max_tasks=3) as lanes:
        lane = await lanes.start()
        reply = await lane.ask(creates=new_tasks(4))
        held = await lane.hold()
        await lane.finish(held[:2])
        await lane.finish(held[2:], TaskStatus.FAILED)
        end = await lane.handle.result()
        span, positions = await lanes.span(), await lanes.open_positions()
        counts = await lanes.counts()

    assert reply.creates == OperationCode.OK * 3 + OperationCode.FULL
    assert (end.success, end.failed) == (2, 1)
    assert (span, positions) == ((2, 2), [2])
    assert counts == {TaskStatus.SUCCESS: 2, TaskStatus.FAILED: 1}


async def test_a_lane_serves_on_while_the_archive_is_away(settings: Settings) -> None:
    """Tasks that have ended stay in it until they are written down, each once."""
    async with running_lanes(settings) as lanes:
        lane = await lanes.start()
        async with lanes.database.session() as session:
            await session.execute(text("ALTER TABLE tasks_archive RENAME TO tasks_away"))
        new = new_tasks(30)
        await lane.create(new)
        await lane.finish(await lane.hold(10))
        await lane.finish(await lane.hold(10), TaskStatus.FAILED)
        assert len(await lane.hold(5)) == 5
        assert [task.status for task in (await lane.look_up(new[0].key, new[10].key)).tasks if task] == [3, 4]

        async with lanes.database.session() as session:
            await session.execute(text("ALTER TABLE tasks_away RENAME TO tasks_archive"))
        await eventually(lambda: _is_gone(lane, new[0].key))
        await eventually(lambda: _is_gone(lane, new[10].key))
        head, counts = (await lane.look_up()).head, await lanes.counts()

    assert (head.pending, head.running, head.success, head.failed, head.archived) == (5, 5, 10, 10, 20)
    assert counts == {TaskStatus.SUCCESS: 10, TaskStatus.FAILED: 10}


async def test_another_worker_takes_a_lane_up(settings: Settings) -> None:
    """With all that was answered."""
    async with running_lanes(settings) as lanes:
        lane = await lanes.start()
        new = new_tasks(50)
        await lane.create(new)
        held = await lane.hold(20)
        await lanes.stop()
        async with running_lane_worker(lanes.services):
            seen = await lane.look_up(*[task.key for task in new])
            done = await lane.finish(held)

    assert [task and task.status for task in seen.tasks] == [TaskStatus.RUNNING] * 20 + [TaskStatus.PENDING] * 30
    assert done == OperationCode.OK * 20


async def test_a_lane_does_not_heed_a_cancellation(settings: Settings) -> None:
    """Its tasks are others': they are cancelled one by one."""
    async with running_lanes(settings, lane_max_tasks=2) as lanes:
        lane = await lanes.start()
        await lane.create(new_tasks(1))
        await lane.handle.cancel()
        await lane.create(new_tasks(1))
        await lane.finish(await lane.hold())
        end = await lane.handle.result()

    assert end.success == 2


async def test_a_lane_that_comes_back_from_the_past_takes_no_more(settings: Settings) -> None:
    """A process that slept for long may begin one anew: what it put there is served, and the rest goes elsewhere."""
    async with running_lanes(settings) as lanes:
        await lanes.rows("UPDATE task_types SET begin_pos = 7, end_pos = 8 RETURNING type")
        lane = await lanes.start(pos=3)
        await lane.ask(creates=new_tasks(1))
        await eventually(lambda: _is_full(lane))
        refused = await lane.ask(creates=new_tasks(1))
        await lane.finish(await lane.hold())
        await lane.handle.result()
        span, counts = await lanes.span(), await lanes.counts()

    assert refused.creates == OperationCode.FULL
    assert span == (7, 8)
    assert counts == {TaskStatus.SUCCESS: 1}


async def test_many_large_groups_at_once_are_answered(settings: Settings) -> None:
    """All that a lane answers at one go leaves it in one message, which the engine refuses above four megabytes."""
    async with running_lanes(settings, schedule_limit=2_000) as lanes:
        lane = await lanes.start()
        new = new_tasks(1_200, "x" * 500)
        codes = [(await lane.ask(creates=new[start : start + 400])).creates for start in range(0, 1_200, 400)]
        keys = [task.key for task, code in zip(new, "".join(codes), strict=True) if code == OperationCode.OK]
        sets = [SetOperation(new_key(), 3, log="x" * 500) for _ in range(400)]

        async def ask() -> tuple[int, int]:
            asked = AskedLane(lane.handle)
            replies = [await asked.ask(sets=sets, holds=[HoldOperation(2_000)] * 2, reads=keys[:500]) for _ in range(3)]
            assert {reply.sets for reply in replies} == {OperationCode.MISSING * 400}
            return sum(len(held) for reply in replies for held in reply.holds), sum(len(r.reads) for r in replies)

        answers = await asyncio.gather(*(ask() for _ in range(8)))
        head = (await lane.look_up()).head

    assert sum(held for held, _ in answers) == head.running == len(keys)
    assert sum(read for _, read in answers) < 8 * 3 * 500


async def test_a_lane_that_rests_costs_nothing(settings: Settings) -> None:
    """Neither timers nor steps go on where nothing changes."""
    async with running_lanes(settings) as lanes:
        lane = await lanes.start()
        await lane.create(new_tasks(3))
        await eventually(lambda: lanes.rows("SELECT * FROM task_heads WHERE pending = 3"))
        description = await eventually(lambda: _at_rest(lane))

    assert description == WorkflowExecutionStatus.RUNNING


async def _is_gone(lane: AskedLane, key: str) -> bool:
    return (await lane.look_up(key)).tasks == [None]


async def _is_full(lane: AskedLane) -> bool:
    return (await lane.look_up()).head.full


async def _stands(lane: AskedLane, key: str, status: TaskStatus) -> Task:
    [task] = (await lane.look_up(key)).tasks
    assert task is not None
    assert task.status == status
    return task


async def _at_rest(lane: AskedLane) -> WorkflowExecutionStatus | None:
    """Its status, once nothing happens in it and nothing is awaited."""
    history = await lane.handle.fetch_history()
    begun = {event.event_id for event in history.events if event.HasField("timer_started_event_attributes")}
    begun |= {event.event_id for event in history.events if event.HasField("activity_task_scheduled_event_attributes")}
    for event in history.events:
        begun.discard(event.timer_fired_event_attributes.started_event_id)
        begun.discard(event.timer_canceled_event_attributes.started_event_id)
        begun.discard(event.activity_task_completed_event_attributes.scheduled_event_id)
    return (await lane.handle.describe()).status if not begun else None


async def _run(lane: AskedLane) -> str | None:
    return (await lane.handle.describe()).run_id


async def _make_long(lane: AskedLane, run_id: str | None) -> None:
    """Ask until the lane is carried on: the history of a run is full at four megabytes."""
    sets = [SetOperation(new_key(), 3, log="x" * 500) for _ in range(BATCH_MAX_BYTES // 600)]
    while await _run(lane) == run_id:
        await lane.ask(sets=sets)


async def _ask_until_carried_on(lane: AskedLane, run_id: str | None) -> int:
    answers = 0
    while await _run(lane) == run_id:
        answers += len((await lane.ask(cancels=[new_key()])).cancels)
    return answers
