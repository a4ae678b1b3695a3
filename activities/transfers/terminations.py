"""Have GSE terminate what it sends to targets of a shard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from clients.gse import GseClient, GseFailure, GseForbidden, GseRefused
from domain.transfers.gse import GseAgentWithUser
from domain.transfers.shards import GseTask, ShardProgress, ShardTarget
from infra import log

TERMINATE_POLL_SECONDS = 0.5


class TargetTerminator:
    """Asks GSE to terminate targets of one shard; its results show later whether it did."""

    def __init__(self, gse: GseClient, progress: ShardProgress, user: str) -> None:
        self._gse = gse
        self._progress = progress
        self._user = user
        self._answered_keys: set[int] = set()
        """The keys of targets for which GSE has answered `request_termination_of_new_targets`."""

    async def request_termination_of_new_targets(self, targets: Sequence[ShardTarget], timeout_seconds: float) -> None:
        """Ask GSE to terminate those of these targets for which it has not answered that before."""
        new = [target for target in targets if target.key not in self._answered_keys]
        if new and await self.try_request_termination(new, timeout_seconds):
            self._answered_keys.update(target.key for target in new)

    async def try_request_termination(
        self, targets: Sequence[ShardTarget], timeout_seconds: float | None = None
    ) -> bool:
        """Ask GSE to terminate targets; return whether it answered. A refused target is one that GSE does not have."""
        try:
            async with asyncio.timeout(timeout_seconds):
                for task, group in _group_by_task_with_known_id(targets, self._progress.tasks):
                    agents = [GseAgentWithUser(each.agent_id, each.container_id, self._user) for each in group]
                    await self._terminate_task_on_agents(task, agents)
        except (GseFailure, TimeoutError):
            return False
        return True

    async def request_termination_until_answered(self, targets: Sequence[ShardTarget]) -> None:
        """Ask GSE to terminate targets, again and again until it answers."""
        while True:
            if await self.try_request_termination(targets):
                return
            await asyncio.sleep(TERMINATE_POLL_SECONDS)

    async def _terminate_task_on_agents(self, task: GseTask, agents: Sequence[GseAgentWithUser]) -> None:
        """Terminate agents of one task; split a refused call in halves, because one unknown agent fails it for all.

        Where GSE refuses the keys, or does not know the task, the cause is no agent, and each half would be refused.
        """
        try:
            await self._gse.request_termination(task.task_id or "", agents)
        except GseRefused as error:
            if len(agents) == 1 or isinstance(error, GseForbidden) or self._progress.did_gse_repeatedly_deny_task(task):
                log.get(__name__).warning("gse_terminate_refused", task_id=task.task_id, error=str(error))
                return
            middle = len(agents) // 2
            await self._terminate_task_on_agents(task, agents[:middle])
            await self._terminate_task_on_agents(task, agents[middle:])


def _group_by_task_with_known_id(
    targets: Sequence[ShardTarget], tasks: Mapping[int, GseTask]
) -> list[tuple[GseTask, list[ShardTarget]]]:
    """Return the GSE tasks with a known id that send to these targets, each with its targets."""
    groups: dict[int, list[ShardTarget]] = {}
    for target in targets:
        groups.setdefault(target.task_number, []).append(target)
    return [(tasks[number], group) for number, group in groups.items() if number in tasks and tasks[number].task_id]
