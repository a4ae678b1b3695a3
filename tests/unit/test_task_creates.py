"""Creates of tasks: those that meet a removal of their type, and copies of ended tasks, which count once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from api.daily_quotas import DAILY_QUOTAS
from api.tasks import actions
from api.tasks.context import CONTEXT, TaskContext
from api.tasks.storage import CachedTaskType, TypeCache
from domain.faults import Conflict, Missing
from domain.quotas import QuotaLimits
from domain.tasks.messages import CreateOperation, OperationCode, Task, TaskStatus, TaskTypeRules
from stores.tasks import types
from stores.tasks.types import TaskTypeRow

if TYPE_CHECKING:
    from api.http.routes import Call
    from infra.database import Database
    from stores.tasks.contents import ChosenKeyClaim

ROW = TaskTypeRow(
    "prj_1/video", "prj_1", "video", 10, 10, 3, 30, 30, 1, False, False, version=5, begin_pos=1, end_pos=1
)


class World:
    """A type as PostgreSQL has it, and its lane as a removal of version 5 left it."""

    def __init__(self) -> None:
        self.row: TaskTypeRow | None = ROW
        self.lane_rules = TaskTypeRules(version=6, removed=True)
        self.sent: list[int] = []
        self.changes_before_increment = False

    async def find_types_by_id(self, _database: Database, _types: Sequence[str]) -> list[TaskTypeRow]:
        """Read the type."""
        return [self.row] if self.row else []

    async def increment_version_unless_changed(self, _database: Database, read: TaskTypeRow) -> TaskTypeRow | None:
        """Replace the rules of the removal."""
        if self.row and self.changes_before_increment:
            self.row = replace(self.row, version=self.row.version + 2)
        if self.row is None or self.row.version != read.version:
            return None
        self.row = replace(self.row, version=read.version + 2)
        return self.row

    async def create_task(self, _lane: object, rules: TaskTypeRules, _new: CreateOperation) -> str:
        """Apply later rules, then create."""
        self.sent.append(rules.version)
        if rules.version > self.lane_rules.version:
            self.lane_rules = rules
        return OperationCode.REMOVED if self.lane_rules.removed else OperationCode.OK


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Instead of PostgreSQL and of the lane."""
    made = World()
    monkeypatch.setattr(types, "find_types_by_id", made.find_types_by_id)
    monkeypatch.setattr(types, "increment_version_unless_changed", made.increment_version_unless_changed)
    return made


async def create(world: World) -> str:
    """Create a task with the type of version 5."""
    type_cache = TypeCache(cast("Database", None), lane_max_tasks=100)
    context = cast("TaskContext", SimpleNamespace(lanes=world, types=type_cache))
    read = world.row
    world.row = ROW
    sent = await type_cache.reload_type(ROW.type)
    world.row = read
    assert sent
    new = CreateOperation("key", "", "", 0, "", 0, 0)
    return await TaskContext.create_task_unless_type_removed(context, (ROW.type, 1), sent, new)


async def test_a_removal_that_was_interrupted_refuses_no_tasks(world: World) -> None:
    """Its process ended before it removed the type or undid its rules: every create was refused from then on."""
    assert await create(world) == OperationCode.OK
    assert world.sent == [5, 7]


@pytest.mark.parametrize("changes_before_increment", [False, True])
async def test_a_type_that_is_changed_while_it_is_removed_takes_tasks(
    world: World, changes_before_increment: bool
) -> None:
    """Those that came before lanes had the rules of the change were refused for good."""
    world.changes_before_increment = changes_before_increment
    world.row = ROW if changes_before_increment else replace(ROW, version=7)
    assert await create(world) == OperationCode.OK
    assert world.sent == [5, 7]


async def test_a_type_whose_removal_of_a_later_version_was_interrupted_takes_tasks(world: World) -> None:
    """This process had read the type before that version."""
    world.row, world.lane_rules = replace(ROW, version=7), TaskTypeRules(version=8, removed=True)
    assert await create(world) == OperationCode.OK
    assert world.sent == [5, 7, 9]


async def test_a_removed_type_takes_no_tasks(world: World) -> None:
    """Also of a process that read it before."""
    world.row = None
    with pytest.raises(Missing, match="was removed"):
        await create(world)
    assert world.sent == [5]


class CountingQuotas:
    """Tasks that a project has created and has open."""

    def __init__(self) -> None:
        self.counts = Counter[str]()

    async def count_within_quotas(self, _project_id: str, amounts: dict[str, int], _limits: QuotaLimits) -> None:
        """Count tasks of a day."""
        self.counts.update(amounts)

    async def count_new_tasks_within_quota(self, _project_id: str, tasks: int, _limit: int) -> None:
        """Count open tasks."""
        self.counts["open"] += tasks

    def release(self, _project_id: str, amounts: dict[str, int] | int) -> None:
        """Count no more."""
        self.counts.subtract(amounts if isinstance(amounts, dict) else {"open": amounts})


async def test_a_copy_of_an_ended_task_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A put-back counted again each time that it was repeated, and where it was refused."""
    quotas, claims = CountingQuotas(), dict[str, "ChosenKeyClaim"]()
    ended = cast("Task", SimpleNamespace(user_id="u", priority=0, stage="", status=TaskStatus.SUCCESS))
    is_refusing = True

    async def read_texts(*_: object) -> tuple[str, str]:
        return "content", ""

    async def claim_chosen_key(claim: ChosenKeyClaim) -> ChosenKeyClaim:
        if is_refusing:
            raise Conflict("refused", "No.", "Stop.")
        return claims.setdefault(claim.chosen_key, claim)

    async def create_in_lane(*_: object) -> str:
        return OperationCode.OK

    monkeypatch.setattr(actions, "_create_in_lane_reopening_it_if_closed", create_in_lane)
    context = SimpleNamespace(
        open_tasks=quotas,
        texts=SimpleNamespace(read_texts=read_texts),
        keys=SimpleNamespace(claim_chosen_key_or_get_existing_claim=claim_chosen_key),
        add_to_task_metric=lambda *_: None,
    )
    request = SimpleNamespace(app={DAILY_QUOTAS: quotas, CONTEXT: context})
    fields = {"project_id": "prj_1", "project_filter": "prj_1", "quotas": QuotaLimits(), "request": request}
    call = cast("Call", SimpleNamespace(**fields))
    task_type = cast("CachedTaskType", ROW)

    with pytest.raises(Conflict):
        await actions._create_copy_of_ended(call, task_type, "k_video_1", ended)
    assert quotas.counts == {"tasks_per_day": 0, "open": 0}
    is_refusing = False
    copies = {await actions._create_copy_of_ended(call, task_type, "k_video_1", ended) for _ in range(3)}
    assert len(copies) == 1
    assert quotas.counts == {"tasks_per_day": 1, "open": 1}
