"""Lanes to be recorded: one of each way that they can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import text

from domain.tasks import names as tasks_names
from domain.tasks.activity_models import LaneInput
from domain.tasks.messages import CreateOperation, HoldOperation, LaneBatch, SetOperation, TaskTypeRules
from domain.tasks.names import build_type_id
from infra.database import Database
from tests.replay.recorder import Recorder
from tests.support.lanes import AskedLane, new_key, new_tasks
from tests.support.waiting import eventually
from workflows.tasks import handle as tasks_handle
from workflows.tasks.lane import TaskLane

VARIABLES: Mapping[str, str] = {}
WORKFLOW = TaskLane.__name__
EVENTS_MAX = 60
"""Runs of a few groups go on in another, so that the histories of those that do stay short."""
_TYPE = text(
    "INSERT INTO task_types (type, project_id, name, schedule_limit, schedule_interval, max_retry_num, "
    "max_retry_interval, max_processing_time, paused, version, begin_pos, end_pos) "
    "VALUES (:type, :project_id, :name, 100, 10, 3, 30, 30, false, 1, 1, 1)"
)


async def record(recorder: Recorder) -> None:
    """Ask in every way and keep the histories."""
    await _add_types(recorder, "ended", "timed-out", "past")
    await _record_ended(recorder)
    await _record_timed_out(recorder)
    await _record_past(recorder)


async def _record_ended(recorder: Recorder) -> None:
    """With every kind of operation, some of them twice; and cancelled from outside, which it does not heed."""
    lane = await _start(recorder, "ended", TaskTypeRules(lane_max_tasks=20))
    group = LaneBatch(
        lane.sender, next(lane.numbers), creates=new_tasks(20), holds=[HoldOperation(5), HoldOperation(5)]
    )
    reply = await lane.send(group)
    await lane.send(group)
    [held, others] = reply.holds
    await lane.ask(
        rules=TaskTypeRules(version=2, max_processing_time=60), sets=[SetOperation(held[0].key, 1, held[0].lease)]
    )
    await lane.handle.cancel()
    await lane.finish(held[1:])
    await lane.finish(others, status=4)
    await lane.finish(await lane.hold())
    await lane.handle.result()
    await recorder.keep(_lane_id(recorder, "ended"), WORKFLOW, "ended")


async def _record_timed_out(recorder: Recorder) -> None:
    """By its timer, until the task has failed and the lane has ended."""
    rules = TaskTypeRules(lane_max_tasks=1, max_processing_time=1, max_retry_num=1, max_retry_interval=0)
    lane = await _start(recorder, "timed-out", rules)
    [task] = new_tasks(1)
    await lane.create([task])
    await lane.hold()
    await eventually(lambda: _is_pending(lane, task))
    await lane.hold()
    await lane.handle.result()
    await recorder.keep(_lane_id(recorder, "timed-out"), WORKFLOW, "timed-out")


async def record_continued(recorder: Recorder) -> None:
    """The runs before and after a lane was carried on; the second begins with what the first knew."""
    await _add_types(recorder, "carried-on")
    lane = await _start(recorder, "carried-on", TaskTypeRules(lane_max_tasks=10))
    first = (await lane.handle.describe()).run_id
    await lane.create(new_tasks(10))
    held = await lane.hold()
    while (await lane.handle.describe()).run_id == first:
        await lane.ask(cancels=[new_key()])
    await lane.finish(held)
    await lane.handle.result()
    await recorder.keep(_lane_id(recorder, "carried-on"), WORKFLOW, "carried-on", run_id=first)
    await recorder.keep(_lane_id(recorder, "carried-on"), WORKFLOW, "began-with-what-was-carried")
    await _record_tried(recorder)


async def _record_tried(recorder: Recorder) -> None:
    """A lane that carries on what it remembers of attempts: failed, timed out, gone on to a stage, put back."""
    await _add_types(recorder, "tried")
    rules = TaskTypeRules(lane_max_tasks=2, max_processing_time=1, max_retry_interval=0)
    lane = await _start(recorder, "tried", rules)
    first = (await lane.handle.describe()).run_id
    tasks = new_tasks(2)
    await lane.create(tasks)
    for said in ({"failed": True}, {"stage": "next"}, {}):
        held = await lane.hold(lease_seconds=600)
        await lane.ask(sets=[SetOperation(task.key, 2, task.lease, log="at it") for task in held])
        await lane.ask(sets=[SetOperation(task.key, 1, task.lease, **said) for task in held])
    await lane.hold()
    await eventually(lambda: _are_pending(lane, tasks))
    while (await lane.handle.describe()).run_id == first:
        await lane.ask(cancels=[new_key()])
    await lane.finish(await lane.hold(lease_seconds=600))
    await lane.handle.result()
    await recorder.keep(_lane_id(recorder, "tried"), WORKFLOW, "remembered-attempts")


async def _record_past(recorder: Recorder) -> None:
    """It takes no more tasks as soon as it learns."""
    lane = await _start(recorder, "past", TaskTypeRules())
    await lane.handle.result()
    await recorder.keep(_lane_id(recorder, "past"), WORKFLOW, "past")


async def _add_types(recorder: Recorder, *names: str) -> None:
    database = Database(recorder.running.settings.database)
    async with database.session() as session:
        for name in names:
            type_ = build_type_id(recorder.project_id, name)
            await session.execute(_TYPE, {"type": type_, "project_id": recorder.project_id, "name": name})
        await session.execute(text("UPDATE task_types SET begin_pos = 9, end_pos = 9 WHERE name = 'past'"))
    await database.close()


def _lane_id(recorder: Recorder, name: str) -> str:
    return tasks_names.build_lane_workflow_id((build_type_id(recorder.project_id, name), 1))


async def _start(recorder: Recorder, name: str, rules: TaskTypeRules) -> AskedLane:
    handle = await recorder.engine.start_workflow(
        TaskLane.run,
        LaneInput(type=build_type_id(recorder.project_id, name), pos=1, rules=rules),
        id=_lane_id(recorder, name),
        task_queue=tasks_names.QUEUE,
        search_attributes=tasks_handle.build_search_attributes(build_type_id(recorder.project_id, name)),
    )
    return AskedLane(recorder.engine.get_workflow_handle_for(TaskLane.run, handle.id))


async def _are_pending(lane: AskedLane, tasks: Sequence[CreateOperation]) -> bool:
    return (await lane.look_up(*(task.key for task in tasks))).head.due == len(tasks)


async def _is_pending(lane: AskedLane, task: CreateOperation) -> bool:
    return (await lane.look_up(task.key)).head.due == 1
