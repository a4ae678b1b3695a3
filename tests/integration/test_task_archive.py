"""Checkpoints of lanes on a real PostgreSQL: written once, in order, also by concurrent writers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from domain.tasks.activity_models import CheckpointInput, CloseLaneInput
from domain.tasks.messages import LaneHead, Task, TaskFlags, TaskStatus
from domain.tasks.names import TaskId
from infra.database import Database
from stores.tasks import archive, lanes
from tests.support.lanes import NAME, TYPE, add_type, new_key

pytestmark = pytest.mark.stack


_BY_THE_VERSION_BEFORE = text(
    "INSERT INTO tasks_archive (task_id, type, pos, user_id, priority, status, stage, crt_retry_num, content, "
    "schedule_log, refs, order_time, create_time, modify_time) VALUES ('t', 'video', 1, '', 0, 3, '', 0, '', '', 0, "
    "1, 1, 1)"
)


def make_ended_task(status: TaskStatus = TaskStatus.SUCCESS, **fields: Any) -> Task:
    """A task that has ended."""
    task = Task(new_key(), "user", 5, status, "last", 2, "{}", "log", 0, 1, 2, 3, lease=4)
    for name, value in fields.items():
        setattr(task, name, value)
    return task


async def rows(database: Database, statement: str) -> list[tuple[Any, ...]]:
    """What the database answers."""
    async with database.session() as session:
        return [tuple(row) for row in await session.execute(text(statement))]


async def test_a_batch_that_is_written_again_counts_once(database: Database) -> None:
    """A step whose answer got lost is repeated, perhaps with more, perhaps by two at the same time."""
    tasks = [make_ended_task(), make_ended_task(), make_ended_task(TaskStatus.FAILED)]

    async def write(batch: list[Task]) -> None:
        async with database.session() as session:
            await archive.archive_ended_tasks_and_delete_unused_texts(session, TYPE, 1, batch)

    await write(tasks[:2])
    await asyncio.gather(*(write(tasks) for _ in range(5)))

    assert sorted(await rows(database, "SELECT status, tasks FROM task_counts")) == [(3, 2), (4, 1)]
    assert await rows(database, "SELECT count(*) FROM tasks_archive") == [(3,)]


async def test_everything_of_a_task_is_kept(database: Database) -> None:
    """All that its lane knew of it and that matters when it has ended."""
    task = make_ended_task(content="内容", log="", flags=int(TaskFlags.CONTENT), attempts=(0, 1, 2, 3))
    async with database.session() as session:
        await archive.archive_ended_tasks_and_delete_unused_texts(session, TYPE, 7, [task])

    first = "SELECT task_id, type, pos, user_id, priority, status, stage, crt_retry_num FROM tasks_archive"
    others = (
        "SELECT content, schedule_log, refs, order_time, create_time, modify_time, attempts, lease FROM tasks_archive"
    )
    assert await rows(database, first) == [(str(TaskId(task.key, NAME, 7)), TYPE, 7, "user", 5, 3, "last", 2)]
    assert await rows(database, others) == [("内容", "", 1, 1, 2, 3, "[0,1,2,3]", 4)]


async def test_a_task_that_was_done_at_once_has_no_attempts_in_the_archive(database: Database) -> None:
    """Whether or not its holder said something before it was done; a version before writes rows without any."""
    async with database.session() as session:
        await archive.archive_ended_tasks_and_delete_unused_texts(
            session, TYPE, 1, [make_ended_task(), make_ended_task(attempts=(0, 7))]
        )
        await session.execute(_BY_THE_VERSION_BEFORE)

    assert await rows(database, "SELECT attempts FROM tasks_archive") == [("",)] * 3


async def test_a_nul_does_not_stop_the_archive(database: Database) -> None:
    """PostgreSQL has no such character; a lane that came with one would never end."""
    async with database.session() as session:
        await archive.archive_ended_tasks_and_delete_unused_texts(session, TYPE, 1, [make_ended_task(content="a\0b")])

    assert await rows(database, "SELECT content FROM tasks_archive") == [("a\N{REPLACEMENT CHARACTER}b",)]


async def test_of_long_texts_only_the_last_stay(database: Database) -> None:
    """What a stage has replaced is of no use when the task has ended; other tasks' texts are theirs."""
    task, other = (
        make_ended_task(content="c2", log="l1", flags=int(TaskFlags.CONTENT | TaskFlags.LOG)),
        make_ended_task(content="c1"),
    )
    names = [(task, "c1"), (task, "c2"), (task, "l1"), (other, "c1")]
    live = make_ended_task()
    async with database.session() as session:
        for owner, ref in [*names, (live, "c1")]:
            values = {"task_id": str(TaskId(owner.key, NAME, 1)), "ref": ref}
            await session.execute(text("INSERT INTO task_contents VALUES (:task_id, :ref, 'long')"), values)
        await archive.archive_ended_tasks_and_delete_unused_texts(session, TYPE, 1, [task, other])

    left = await rows(database, "SELECT task_id, ref FROM task_contents")
    assert sorted(left) == sorted(
        [(str(TaskId(owner.key, NAME, 1)), ref) for owner, ref in [(task, "c2"), (task, "l1"), (live, "c1")]]
    )


async def test_an_older_head_does_not_replace_a_newer_one(database: Database) -> None:
    """A step of a run that is over may come late."""
    await add_type(database)
    async with database.session() as session:
        for head in (LaneHead(number=9, due=3, next_order_time=5), LaneHead(number=8, due=1)):
            await lanes._save_head_if_newer(session, TYPE, 1, head, is_first=False)

    assert await rows(database, "SELECT number, due, next_order_time FROM task_heads") == [(9, 3, 5)]


async def test_a_lane_that_is_closed_is_not_added_again(database: Database) -> None:
    """By an attempt at a checkpoint that was overtaken: its running tasks would have counted for ever."""
    await add_type(database)
    late = CheckpointInput(type=TYPE, pos=1, head=LaneHead(number=3, running=2), ended=[])
    await lanes.remove_lane_and_advance_type(database, CloseLaneInput(type=TYPE, pos=1))
    await lanes.save_checkpoint(database, late)
    assert await rows(database, "SELECT pos FROM task_heads") == [(2,)]

    for pos in (2, 3):
        await lanes.save_checkpoint(database, CheckpointInput(TYPE, pos, LaneHead(number=3, running=pos), ended=[]))
    assert await rows(database, "SELECT pos, running FROM task_heads ORDER BY pos") == [(2, 2), (3, 3)]


async def test_a_task_that_fails_is_counted_for_a_day_whenever_it_was_created(database: Database) -> None:
    """One that had waited for longer than a day was neither shown nor alerted."""
    await add_type(database)
    now = round(datetime.now(UTC).timestamp() * 1_000)
    day = 86_400_000
    ended = [
        make_ended_task(status, create_time=now - 9 * day, modify_time=now - age)
        for status, age in ((TaskStatus.FAILED, 1_000), (TaskStatus.FAILED, 2 * day), (TaskStatus.SUCCESS, 1_000))
    ]
    async with database.session() as session:
        await archive.archive_ended_tasks_and_delete_unused_texts(session, TYPE, 1, ended)

    workload = (await lanes.count_workloads(database))["p"]
    assert workload.failed.count == 1


async def test_positions_neither_get_lost_nor_go_back(database: Database) -> None:
    """Bugs g and h: the original saves the row as a whole, from two loops, and may leave a lane behind its begin."""
    await add_type(database)

    async def begin(pos: int) -> bool:
        async with database.session() as session:
            return await lanes.add_lanes_and_check_if_type_is_past(session, TYPE, pos)

    async def end(pos: int) -> None:
        await lanes.remove_lane_and_advance_type(database, CloseLaneInput(type=TYPE, pos=pos))

    await asyncio.gather(*(begin(pos) for pos in (4, 2, 1, 3)))
    assert await rows(database, "SELECT begin_pos, end_pos FROM task_types") == [(1, 4)]
    await asyncio.gather(end(2), end(3))
    assert await rows(database, "SELECT begin_pos, end_pos FROM task_types") == [(1, 4)]
    await asyncio.gather(end(1), begin(6))
    assert await rows(database, "SELECT begin_pos, end_pos FROM task_types") == [(4, 6)]
    assert await rows(database, "SELECT pos FROM task_heads ORDER BY pos") == [(4,), (5,), (6,)]
    await asyncio.gather(end(6), end(5), end(4))

    assert await rows(database, "SELECT begin_pos, end_pos FROM task_types") == [(7, 7)]
    assert await rows(database, "SELECT pos, pending FROM task_heads") == [(7, 0)]
    assert await begin(6)
    assert await rows(database, "SELECT begin_pos, end_pos FROM task_types") == [(7, 7)]
