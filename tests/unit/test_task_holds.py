"""Holds whose tasks reach no caller: they return to their queues at once, instead of failing when the lease ends."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from api.tasks import holds
from api.tasks.lanes import LaneTimeout
from domain.tasks.messages import OperationCode, SetOperation, Task, TaskStatus, TaskTypeRules
from tests.support.waiting import eventually

KIND: Any = SimpleNamespace(type="prj_1/video", name="video", rules=TaskTypeRules())


class FixedLanes:
    """Lanes that answer holds with these futures, and record what returns to them."""

    def __init__(self, count: int) -> None:
        self.answers: list[asyncio.Future[list[Task]]] = [asyncio.Future() for _ in range(count)]
        self.asked = 0
        self.returned: list[tuple[int, SetOperation]] = []
        self._background: set[asyncio.Task[None]] = set()
        heads = SimpleNamespace(
            refresh_if_stale=self._refresh,
            find_lane_with_unreserved_due_task=lambda _, asked: len(asked) if len(asked) < count else None,
            reserve_tasks=lambda *_: nullcontext(),
        )
        lanes = SimpleNamespace(begin_hold=self._begin_hold, change_task=self._change_task)
        self.context: Any = SimpleNamespace(heads=heads, lanes=lanes, run_in_background=self._run)

    def hold(self) -> asyncio.Task[Any]:
        """Begin a hold of all tasks."""
        return asyncio.create_task(holds._hold_from_lanes_in_order_of_due_tasks(self.context, KIND, 10))

    def _begin_hold(self, lane: tuple[str, int], *_: object) -> asyncio.Future[list[Task]]:
        self.asked += 1
        return self.answers[lane[1]]

    async def _change_task(self, lane: tuple[str, int], _rules: TaskTypeRules, operation: SetOperation) -> str:
        self.returned.append((lane[1], operation))
        return OperationCode.OK

    async def _refresh(self, _type: str) -> None: ...

    def _run(self, work: Any) -> None:
        self._background.add(asyncio.create_task(work))


def make_task(number: int) -> Task:
    """A task that is held under a lease of this number."""
    return Task(f"{number:032x}", "", 0, int(TaskStatus.RUNNING), "", 0, "", "", 0, 0, 0, 0, lease=number)


async def test_tasks_granted_to_a_cancelled_request_return() -> None:
    """Its time limit ended it as the second lane was answering."""
    lanes = FixedLanes(2)
    lanes.answers[0].set_result([make_task(1)])
    holding = lanes.hold()
    await eventually(lambda: lanes.asked == 2)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    lanes.answers[1].set_result([make_task(2)])

    await eventually(lambda: len(lanes.returned) == 2)
    assert sorted((pos, each.lease, each.status) for pos, each in lanes.returned) == [
        (0, 1, TaskStatus.PENDING),
        (1, 2, TaskStatus.PENDING),
    ]


@pytest.mark.parametrize("error", [LaneTimeout("a lane did not answer"), None])
async def test_what_one_lane_has_granted_is_not_lost_by_an_error_of_another(error: Exception | None) -> None:
    """The caller gets it after a time-out; after anything else, it returns."""
    lanes = FixedLanes(2)
    lanes.answers[0].set_result([make_task(1)])
    lanes.answers[1].set_exception(error or ValueError("this is no reply"))
    if error:
        assert [task.lease for _, task in await lanes.hold()] == [1]
        return
    with pytest.raises(ValueError, match="no reply"):
        await lanes.hold()
    await eventually(lambda: lanes.returned)
    assert [(pos, each.lease) for pos, each in lanes.returned] == [(0, 1)]
