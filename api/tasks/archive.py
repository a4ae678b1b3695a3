"""The archive, read: tasks that have ended and that their lanes have forgotten."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from api.together import Gathered
from domain.tasks.messages import Task
from infra.database import Database
from stores.tasks import archive
from stores.tasks.archive import Place

TASKS_AT_A_TIME = 500


class Archive:
    """Reads what has ended; single tasks of many requests at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tasks = Gathered(self._find, TASKS_AT_A_TIME)

    async def task(self, task_id: str) -> Task | None:
        """A task that has ended, if it is there."""
        return await self._tasks.ask(task_id)

    async def type_of(self, task_id: str) -> str | None:
        """The type of a task that has ended, if it is there."""
        return await archive.find_type(self._database, task_id)

    async def search(
        self, type_: str, statuses: Collection[int], stage: str | None, limit: int
    ) -> list[tuple[str, Task]]:
        """The newest tasks of a type that fit, with their ids."""
        return await archive.list_newest(self._database, type_, statuses, stage, limit)

    async def page(
        self, type_: str, statuses: Collection[int], stage: str | None, before: Place, limit: int
    ) -> list[tuple[str, Task]]:
        """The newest tasks of a type that fit and that come after a place in the list, with their ids."""
        return await archive.list_behind(self._database, type_, statuses, stage, before, limit)

    async def counts(self, type_: str, without: Collection[int]) -> dict[int, int]:
        """How many tasks of a type have ended, by status; those of some lanes are not counted."""
        return await archive.count(self._database, type_, without)

    async def _find(self, task_ids: Sequence[str]) -> Mapping[str, Task]:
        return await archive.find(self._database, task_ids)
