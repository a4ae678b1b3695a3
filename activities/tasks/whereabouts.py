"""Whereabouts of tasks: in a lane that is open, in the archive, or nowhere; and which texts they refer to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from domain.tasks import ids, names
from domain.tasks.ids import TaskId, split_type
from domain.tasks.messages import Look, Seen, Task
from infra.database import Database
from stores.tasks import retention

KEYS_AT_A_TIME: Final = 500
_ANSWER_SECONDS: Final = timedelta(seconds=10)

_Lane: TypeAlias = tuple[str, int]


class Whereabouts:
    """Asks lanes, and then the archive: what a lane lets go of meanwhile is found there.

    Args:
        beat: Is called after each answer of a lane.
    """

    def __init__(self, engine: Client, database: Database, beat: Callable[[], object]) -> None:
        self._engine = engine
        self._database = database
        self._beat = beat

    async def refs(self, task_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """Which texts tasks refer to, by id; one that is nowhere is left out."""
        found = await self.live(task_ids)
        left = [each for each in task_ids if each not in found]
        return found | await retention.read_references(self._database, left)

    async def live(self, task_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """The same of those that are in a lane."""
        found: dict[str, frozenset[str]] = {}
        for lane, named in (await self._in_open_lanes(task_ids)).items():
            for at in range(0, len(named), KEYS_AT_A_TIME):
                async for task in self._look(lane, [each.key for each in named[at : at + KEYS_AT_A_TIME]]):
                    task_id = str(TaskId(task.key, split_type(lane[0])[1], lane[1]))
                    found[task_id] = retention.references(task.content, task.log, task.refs)
        return found

    async def _in_open_lanes(self, task_ids: Collection[str]) -> dict[_Lane, list[TaskId]]:
        """Those that may be in a lane, of whichever project; whose lane is done have ended, or never were."""
        named: dict[tuple[str, int], list[TaskId]] = defaultdict(list)
        for each in filter(None, map(ids.read, task_ids)):
            named[each.name, each.pos].append(each)
        lanes = await retention.list_open_lanes(self._database, {name for name, _ in named})
        return {(each.type, each.pos): named[each.name, each.pos] for each in lanes if (each.name, each.pos) in named}

    async def _look(self, lane: _Lane, keys: Sequence[str]) -> AsyncIterator[Task]:
        handle = self._engine.get_workflow_handle(names.lane_id(*lane))
        while keys:
            try:
                seen = await handle.query("look", Look(list(keys)), result_type=Seen, rpc_timeout=_ANSWER_SECONDS)
            except RPCError as error:
                # It is over by now, or still to be begun.
                if error.status is RPCStatusCode.NOT_FOUND:
                    return
                raise
            self._beat()
            for task in filter(None, seen.tasks):
                yield task
            keys = keys[len(seen.tasks) :]
