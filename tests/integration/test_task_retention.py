"""What is kept of tasks, on a real PostgreSQL: what has to go goes, all else stays, and counts are what they were."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from sqlalchemy import text
from temporalio.client import WorkflowQueryFailedError
from temporalio.testing import ActivityEnvironment

from activities.tasks import activities
from activities.tasks.activities import TaskHousekeeping, TextReferenceFinder, TextReferences
from api.tasks.storage import LongTextStore, derive_text_reference
from domain.tasks.messages import Task, TaskFlags, TaskStatus
from domain.tasks.names import TaskId
from infra.database import Database
from infra.settings import Settings
from stores.tasks import archive, contents, lanes
from tests.support.lanes import NAME, TYPE, add_type, new_key
from tests.support.tasks import FAILED, SUCCESS, Tasks, good, running_tasks
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

DAYS = 30
BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "x" * 5_000


@pytest.fixture
async def queue(settings: Settings) -> AsyncIterator[Tasks]:
    """An API, a worker, and a type of tasks."""
    async with running_tasks(settings) as queue:
        await queue.register(max_processing_time=600)
        yield queue


def days_ago(days: float) -> int:
    """A moment, as lanes reckon it."""
    return round((datetime.now(UTC) - timedelta(days=days)).timestamp() * 1_000)


def make_ended_task(
    age_days: float, *, lived_days: float = 0, status: TaskStatus = TaskStatus.SUCCESS, **fields: Any
) -> Task:
    """A task that ended this many days ago."""
    created, end = days_ago(age_days + lived_days), days_ago(age_days)
    task = Task(new_key(), "user", 0, status, "", 0, "c", "l", int(TaskFlags.CONTENT), created, created, end)
    for name, value in fields.items():
        setattr(task, name, value)
    return task


async def rows(database: Database, statement: str, **values: Any) -> list[tuple[Any, ...]]:
    """What the database answers."""
    async with database.session() as session:
        found = await session.execute(text(statement), values)
        return sorted(map(tuple, found)) if found.returns_rows else []  # type: ignore[attr-defined]


async def write_archived_tasks(database: Database, *tasks: Task) -> list[str]:
    """Tasks in the archive, each with a text and a key; their ids."""
    task_ids = [str(TaskId(task.key, NAME, 1)) for task in tasks]
    async with database.session() as session:
        await archive.archive_ended_tasks_and_delete_unused_texts(session, TYPE, 1, tasks)
        for task_id in task_ids:
            await session.execute(text("INSERT INTO task_contents VALUES (:id, 'c', 'long')"), {"id": task_id})
            key = "INSERT INTO task_keys (type, key, task_id, digest) VALUES (:type, 'my ' || :id, :id, '')"
            await session.execute(text(key), {"type": TYPE, "id": task_id})
    return task_ids


@dataclass
class FixedLocator:
    """Lanes that still have these tasks."""

    tasks: Collection[str] = ()

    async def list_live_text_references(self, task_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """Of these, those that are there."""
        return {task_id: frozenset() for task_id in task_ids if task_id in self.tasks}


_NO_LANES = FixedLocator()


async def forget(database: Database, lanes: Any = _NO_LANES, beat: Callable[[], object] = lambda: None) -> int:
    """Remove what is past the retention."""
    return await activities.remove_expired_tasks(database, lanes, timedelta(days=DAYS), beat)


async def list_stored_ids(database: Database) -> list[set[str]]:
    """The ids in each of the tables."""
    tables = ("tasks_archive", "task_contents", "task_keys")
    return [{task_id for (task_id,) in await rows(database, f"SELECT task_id FROM {table}")} for table in tables]  # noqa: S608


async def test_tasks_go_when_their_time_is_over(database: Database) -> None:
    """With their texts and their keys, counted from their end; the counts of tasks do not change."""
    await add_type(database)
    old = [
        make_ended_task(DAYS + 1),
        make_ended_task(DAYS + 0.01, lived_days=90),
        make_ended_task(DAYS + 1, status=TaskStatus.FAILED),
    ]
    young = [
        make_ended_task(DAYS - 0.01),
        make_ended_task(1, lived_days=90),
        make_ended_task(0, status=TaskStatus.FAILED),
    ]
    task_ids = await write_archived_tasks(database, *old, *young)
    before = await rows(database, "SELECT status, tasks FROM task_counts")

    assert await forget(database) == len(old)
    assert await list_stored_ids(database) == [set(task_ids[len(old) :])] * 3
    assert await rows(database, "SELECT status, tasks FROM task_counts") == before == [(3, 4), (4, 2)]
    assert await forget(database) == 0


async def test_batches_take_all_that_is_over(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many have the same time, and whatever must be kept is between them."""
    monkeypatch.setattr(activities, "BATCH", 3)
    await add_type(database)
    old = [make_ended_task(DAYS + 5, create_time=days_ago(DAYS + 6)) for _ in range(8)]
    late = [make_ended_task(1, create_time=days_ago(DAYS + 6 + number % 2)) for number in range(7)]
    task_ids = await write_archived_tasks(database, *old, *late)
    beats: list[None] = []

    assert await forget(database, beat=lambda: beats.append(None)) == len(old)
    assert (await list_stored_ids(database))[0] == set(task_ids[len(old) :])
    assert len(beats) >= 3


async def test_a_task_that_its_lane_still_has_stays(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane does not know that it is archived, and archives it again: it must not be counted twice."""
    monkeypatch.setattr(activities, "BATCH", 2)
    await add_type(database)
    task_ids = await write_archived_tasks(
        database, *(make_ended_task(DAYS + 1, create_time=days_ago(DAYS + 1)) for _ in range(5))
    )
    lanes = FixedLocator(task_ids)

    assert await forget(database, lanes) == 0
    lanes.tasks = task_ids[:1]
    await forget(database, lanes)
    assert task_ids[0] in (await list_stored_ids(database))[0]
    lanes.tasks = ()
    await forget(database, lanes)
    assert await list_stored_ids(database) == [set()] * 3


async def test_a_lane_that_does_not_answer_keeps_the_tasks_of_its_type_only(database: Database) -> None:
    """Nothing was removed of any project, run after run, as long as one lane did not answer."""
    await add_type(database)
    other = TYPE.replace(NAME, "a-first")
    await rows(
        database,
        "INSERT INTO task_types (type, project_id, name, schedule_limit, schedule_interval, max_retry_num, "
        "max_retry_interval, max_processing_time, paused, version, begin_pos, end_pos) "
        "VALUES (:type, 'p', 'a-first', 1, 1, 1, 1, 1, false, 1, 1, 1)",
        type=other,
    )
    silent = make_ended_task(DAYS + 1)
    async with database.session() as session:
        await archive.archive_ended_tasks_and_delete_unused_texts(session, other, 1, [silent])
    await write_archived_tasks(database, make_ended_task(DAYS + 1))

    class SilentLane(FixedLocator):
        async def list_live_text_references(self, task_ids: Collection[str]) -> dict[str, frozenset[str]]:
            """Those of one type cannot be asked."""
            if any("_a-first_" in task_id for task_id in task_ids):
                raise WorkflowQueryFailedError("it does not go on")
            return {}

    assert await forget(database, SilentLane()) == 1
    assert (await list_stored_ids(database))[0] == {str(TaskId(silent.key, "a-first", 1))}


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (archive._EXPIRED, (TYPE, 3, 0, 10**12, 9), "ix_tasks_archive_type_status"),
        (contents._UNCHECKED, (BEFORE, BEFORE + timedelta(days=9), 9), "ix_task_contents_written_at"),
        ("DELETE FROM task_contents WHERE task_id = ANY($1)", (["a", "b"],), "pk_task_contents"),
        ("DELETE FROM task_keys WHERE task_id = ANY($1)", (["a", "b"],), "ix_task_keys_task_id"),
        ("DELETE FROM tasks_archive WHERE task_id = ANY($1)", (["a", "b"],), "pk_tasks_archive"),
    ],
)
async def test_what_goes_is_found_by_an_index(
    database: Database, statement: str, values: tuple[object, ...], index: str
) -> None:
    """Among millions that stay."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *values))

    assert index in plan, plan
    assert "Seq Scan" not in plan


async def purge(queue: Tasks, days: int) -> None:
    """As the schedule has it done."""
    services = queue.worker.services
    tasks = services.settings.tasks.model_copy(update={"archive_kept_days": days})
    changed = replace(services, settings=services.settings.model_copy(update={"tasks": tasks}))
    await ActivityEnvironment().run(TaskHousekeeping(changed).purge_expired_tasks_texts_and_runs)


async def is_archived(queue: Tasks, task_id: str) -> bool:
    """Whether its lane has let go of it."""
    return bool((await queue.task(task_id))["archived"])


async def age_rows(queue: Tasks, days: float) -> None:
    """Make everything in the database older by this many days."""
    database = queue.worker.services.database
    moments = "create_time = create_time - :by, modify_time = modify_time - :by"
    await rows(database, f"UPDATE tasks_archive SET {moments}", by=round(days * 86_400_000))  # noqa: S608
    written = "UPDATE task_contents SET written_at = written_at - CAST(:by AS interval)"
    await rows(database, written, by=timedelta(days=days))


async def test_a_task_whose_time_is_over_never_was(queue: Tasks) -> None:
    """It is not found, its name is free again, and the counts still include it; by default it is kept forever."""
    task_id = await queue.create(task_id="invoice 7", task_content=LONG)
    await queue.finish(await queue.hold(), FAILED)
    await eventually(lambda: is_archived(queue, task_id))
    await age_rows(queue, 10_000)
    await purge(queue, days=0)
    assert (await queue.task(task_id))["task_content"] == LONG
    before = await queue.counts()

    await purge(queue, days=9_999)
    assert (await queue.get("get_task", task_id=task_id))["code"] == 8035
    assert good(await queue.get("get_task_list"))["task_list"] == []
    assert good(await queue.get("find_tasks", name="invoice 7"))["task_ids"] == []
    assert await queue.counts() == before
    assert before["failed"] == 1
    assert await queue.create(task_id="invoice 7", task_content="other") != task_id


async def texts(queue: Tasks) -> set[tuple[str, str]]:
    """What lies there, by task and reference."""
    return set(await rows(queue.worker.services.database, "SELECT task_id, ref FROM task_contents"))


async def test_texts_that_are_no_task_s_go(queue: Tasks) -> None:
    """Never used, replaced by later ones, or written after the end; those in use stay."""
    waiting = await queue.create(task_content=f"waiting {LONG}")
    await queue.create(task_content=f"first {LONG}")
    [held, other] = sorted(await queue.hold(), key=lambda task: task["task_id"] == waiting)
    await queue.set(held, 2, task_content=f"second {LONG}", schedule_log=LONG[:4_000])
    await queue.finish([other])
    await eventually(lambda: is_archived(queue, waiting))
    late = await queue.try_set(other, SUCCESS, task_content=f"late {LONG}")
    store = LongTextStore(queue.worker.services.database)
    strangers = [str(TaskId(new_key(), queue.type, pos)) for pos in (1, 77)]
    for stranger in strangers:
        await store.write_and_get_reference(stranger, LONG)
    kept = {
        (waiting, derive_text_reference(f"waiting {LONG}")),
        (held["task_id"], derive_text_reference(f"second {LONG}")),
        (held["task_id"], derive_text_reference(LONG[:4_000])),
    }
    assert late["code"] == 8041
    assert len(await texts(queue)) == len(kept) + 4

    await purge(queue, days=0)
    assert len(await texts(queue)) == len(kept) + 4
    await age_rows(queue, 1.1)
    await store.write_and_get_reference(strangers[0], LONG)
    await purge(queue, days=0)
    assert await texts(queue) == {*kept, (strangers[0], derive_text_reference(LONG))}
    assert (await queue.task(waiting))["task_content"] == f"waiting {LONG}"
    assert (await queue.task(held["task_id"]))["task_content"] == f"second {LONG}"


async def test_a_text_is_looked_at_once(queue: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million that stay for years are not read again every ten minutes."""
    monkeypatch.setattr(activities, "BATCH", 2)
    await queue.create_many(5, task_content=LONG)
    await age_rows(queue, 2)
    asked: list[int] = []

    class FixedReferences:
        async def list_text_references(self, task_ids: set[str]) -> TextReferences:
            asked.append(len(task_ids))
            return TextReferences({task_id: frozenset({derive_text_reference(LONG)}) for task_id in task_ids}, set())

    database = queue.worker.services.database
    for _ in range(3):
        assert await ActivityEnvironment().run(activities.remove_unused_texts, database, FixedReferences()) == 0  # type: ignore[arg-type]
    assert sum(asked) == 5
    assert len(await texts(queue)) == 5


async def test_a_lane_that_does_not_answer_keeps_its_own_texts_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unused texts of all others stayed behind it; its own are checked a day later, and none in use is removed."""
    monkeypatch.setattr(activities, "BATCH", 1)
    await add_type(database)
    silent, gone = (str(TaskId(new_key(), NAME, pos)) for pos in (1, 77))
    for task_id in (silent, gone):
        await LongTextStore(database).write_and_get_reference(task_id, LONG)
        await rows(database, "UPDATE task_contents SET written_at = written_at - interval '2 days'")
    lane = MagicMock()
    lane.get_workflow_handle.return_value.query = AsyncMock(side_effect=WorkflowQueryFailedError("it does not go on"))
    finder = TextReferenceFinder(lane, database, lambda: None)

    assert await ActivityEnvironment().run(activities.remove_unused_texts, database, finder) == 1
    assert await rows(database, "SELECT task_id FROM task_contents") == [(silent,)]

    await rows(database, "UPDATE task_contents SET written_at = written_at - interval '2 days'")
    lane.get_workflow_handle.return_value.query = AsyncMock(return_value=MagicMock(tasks=[None]))
    assert await ActivityEnvironment().run(activities.remove_unused_texts, database, finder) == 1


async def test_lanes_that_do_not_answer_take_a_minute_in_all(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs ten seconds: an attempt that asked hundreds would be over before any text was removed."""
    monkeypatch.setattr(activities, "ASKING_BESIDE_SILENT_LANES_SECONDS", 0.0)
    await add_type(database)
    async with database.session() as session:
        await lanes.add_lanes_and_check_if_type_is_past(session, TYPE, 3)
    ids = {str(TaskId(new_key(), NAME, pos)) for pos in (1, 2, 3)}
    lane = MagicMock()
    lane.get_workflow_handle.return_value.query = AsyncMock(side_effect=WorkflowQueryFailedError("it does not go on"))

    found = await TextReferenceFinder(lane, database, lambda: None).list_text_references(ids)
    assert (found.by_task, found.unanswered) == ({}, ids)
    assert lane.get_workflow_handle.return_value.query.await_count == 1
