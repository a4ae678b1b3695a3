"""What many callers share: claims of chosen ids, outcomes of many tasks, and the types that a process has read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from api.tasks import responses
from api.tasks.storage import TypeCache
from domain.faults import Missing
from infra.database import Database
from stores.tasks import contents, types
from stores.tasks.contents import ChosenKeyClaim
from stores.tasks.types import TaskTypeRow

TASK_TYPE = TaskTypeRow(
    "prj_1/video", "prj_1", "video", 10, 10, 3, 30, 30, 1, False, False, version=5, begin_pos=1, end_pos=1
)


class ForgetfulDatabase:
    """Chosen keys, one of which housekeeping removes as soon as it is there for the first time."""

    def __init__(self, stored: dict[tuple[str, str], tuple[str, bytes]], removed: tuple[str, str]) -> None:
        self.stored = stored
        self._removed: tuple[str, str] | None = removed

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """The only one."""
        yield self

    async def execute(self, _statement: str, *columns: Any) -> None:
        """Claim the keys that are free."""
        for type_, key, task_id, digest in zip(*columns, strict=True):
            self.stored.setdefault((type_, key), (task_id, digest))
        if self._removed:
            del self.stored[self._removed]
            self._removed = None

    async def fetch(self, _statement: str, *columns: Any) -> list[Any]:
        """Read what is stored."""
        return [
            Row(type_, key, *self.stored[type_, key])
            for type_, key in zip(*columns, strict=True)
            if (type_, key) in self.stored
        ]


class Row(tuple[Any, ...]):
    """A row, by place and by name."""

    __slots__ = ()

    def __new__(cls, *values: Any) -> Row:
        """Take its values one by one."""
        return super().__new__(cls, values)

    def __getitem__(self, place: Any) -> Any:
        names = ("type", "key", "task_id", "digest")
        return super().__getitem__(names.index(place) if isinstance(place, str) else place)


async def test_a_key_that_is_removed_as_it_is_claimed_is_claimed_again() -> None:
    """Its task had been kept long enough. The creates of all others in the batch failed with an internal error."""
    database = ForgetfulDatabase({("t", "old"): ("expired", b"d")}, ("t", "old"))
    claims = [ChosenKeyClaim("t", key, f"task {key}", b"d") for key in ("new", "old", "new")]

    stored = await contents.claim_chosen_keys(cast("Database", database), claims)

    assert {key: claim.task_id for (_, key), claim in stored.items()} == {"new": "task new", "old": "task old"}


async def test_one_task_of_many_that_fails_unexpectedly_has_an_outcome_as_well() -> None:
    """The others were created, and their ids were lost with the response."""

    async def create(number: int) -> str:
        if number == 1:
            raise LookupError("secret")
        return f"task {number}"

    answer = await responses.process_concurrently_and_collect_outcomes(range(3), create)

    assert [(each.code, each.task_id) for each in answer.results] == [(0, "task 0"), (8036, ""), (0, "task 2")]
    assert "secret" not in answer.msg


async def test_a_change_is_not_overwritten_by_a_read_that_began_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that had been resumed was paused again for holds, until the next read."""
    stored, may_answer, has_read = TASK_TYPE, asyncio.Event(), asyncio.Event()

    async def read_slowly(_database: Database, _types: Sequence[str]) -> list[TaskTypeRow]:
        read = stored
        has_read.set()
        await may_answer.wait()
        return [read]

    async def set_paused(_database: Database, _type: str, *, paused: bool) -> TaskTypeRow:
        nonlocal stored
        stored = replace(stored, paused=paused, version=stored.version + 2)
        return stored

    monkeypatch.setattr(types, "find_types_by_id", read_slowly)
    monkeypatch.setattr(types, "set_paused", set_paused)
    cache = TypeCache(cast("Database", None), lane_max_tasks=100)
    may_answer.set()
    await cache.set_paused("prj_1", "video", paused=True)
    may_answer.clear()
    has_read.clear()
    refresh = asyncio.create_task(cache.reload_type(TASK_TYPE.type))
    await has_read.wait()
    resumed = await cache.set_paused("prj_1", "video", paused=False)
    may_answer.set()

    assert await refresh == resumed
    cached = cache.get_cached_unless_stale("video", "prj_1")
    assert cached is not None
    assert not cached.paused


async def test_of_two_changes_whose_answers_cross_the_later_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to the earlier one came last, and its row was used until the next read."""
    answers = {paused: asyncio.get_running_loop().create_future() for paused in (True, False)}

    async def set_paused(_database: Database, _type: str, *, paused: bool) -> TaskTypeRow:
        row: TaskTypeRow = await answers[paused]
        return row

    async def find(*_: object) -> list[TaskTypeRow]:
        return [TASK_TYPE]

    monkeypatch.setattr(types, "find_types_by_id", find)
    monkeypatch.setattr(types, "set_paused", set_paused)
    cache = TypeCache(cast("Database", None), lane_max_tasks=100)
    pausing = asyncio.create_task(cache.set_paused("prj_1", "video", paused=True))
    resuming = asyncio.create_task(cache.set_paused("prj_1", "video", paused=False))
    answers[False].set_result(replace(TASK_TYPE, version=9))
    resumed = await resuming
    answers[True].set_result(replace(TASK_TYPE, version=7, paused=True))
    await pausing

    assert cache.get_cached_unless_stale("video", "prj_1") == resumed


async def test_a_read_that_began_before_a_removal_does_not_put_the_type_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks were created of it until the next read. When it is registered again it is known again."""
    may_answer, has_read = asyncio.Event(), asyncio.Event()
    stored = TASK_TYPE

    async def read_slowly(*_: object) -> list[TaskTypeRow]:
        read = stored
        has_read.set()
        await may_answer.wait()
        return [read]

    async def remove(*_: object) -> bool:
        return True

    monkeypatch.setattr(types, "find_types_by_id", read_slowly)
    monkeypatch.setattr(types, "remove_type_unless_changed", remove)
    cache = TypeCache(cast("Database", None), lane_max_tasks=100)
    may_answer.set()
    known = await cache.require_type("video", "prj_1")
    may_answer.clear()
    has_read.clear()
    refresh = asyncio.create_task(cache.reload_type(TASK_TYPE.type))
    await has_read.wait()
    await cache.remove_type_unless_changed(known)
    may_answer.set()
    await refresh

    assert cache.get_cached_unless_stale("video", "prj_1") is None
    stored = replace(TASK_TYPE, version=TASK_TYPE.version + 4)
    assert await cache.reload_type(TASK_TYPE.type) == cache.get_cached_unless_stale("video", "prj_1")


async def test_a_pause_of_a_type_that_is_removed_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was answered as if it had been done."""

    async def find(*_: object) -> list[TaskTypeRow]:
        return [TASK_TYPE]

    async def set_paused(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(types, "find_types_by_id", find)
    monkeypatch.setattr(types, "set_paused", set_paused)
    cache = TypeCache(cast("Database", None), lane_max_tasks=100)

    with pytest.raises(Missing):
        await cache.set_paused("prj_1", "video", paused=True)
