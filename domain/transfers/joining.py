"""Joining a job while its window is open: groups of requests, what a job takes, and the pace at which groups come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, TypeVar

from pydantic import BaseModel

from domain.transfers.models import Consignment, File, Reason, Target

TARGETS_MAX: Final = 100_000
GROUPS_MAX: Final = 1_500
"""Temporal takes 2,000 updates of one run."""
CONSIGNMENTS_MAX: Final = 300
"""Each is at least one GSE task and one running step."""
GROUP_TARGETS_MAX: Final = 1_000
"""At some 200 bytes a target a group stays well below 1 MB."""
SHARD_TARGETS: Final = 500

PAUSE_MIN_SECONDS: Final = 0.004
PAUSE_MAX_SECONDS: Final = 0.25
CROWD_PAUSE_SECONDS: Final = 0.0001
CROWD_PAUSE_MAX_SECONDS: Final = 0.04
"""A group costs 10 ms of processors, whatever its size: where many ask at once, fewer and larger ones are made."""


class Lot(BaseModel):
    """Targets that want the same."""

    consignment: Consignment
    file_name: str
    targets: list[Target]


class JoinGroup(BaseModel):
    """Requests that are handed over together."""

    lots: list[Lot]


class JoinReply(BaseModel):
    """Which lots of a group are in; and how full the job is."""

    is_open: bool = True
    """Whether the window is still open; if not, nothing of the group is in."""
    refused: list[int] = []
    """The places in the group of lots that the job has no room for; the others are in."""
    groups: int
    targets: int


class Retry(BaseModel):
    """The failed targets of an earlier job, to be sent again."""

    job_id: str
    """The earlier job."""
    project_id: str
    reason: Reason | None = None
    """Only targets that failed for this reason."""
    targets: int
    """How many there were when the retry was asked for."""


class JobOrder(BaseModel):
    """The workflow's argument: one file in one time window, or a retry of targets that failed."""

    job_id: str
    file: File
    closes_at: datetime
    """When the window ends; a retry has none and begins at once."""
    retry: Retry | None = None
    deadline_at: datetime
    """Targets that are not done then end as Timeout."""
    terminate_wait_seconds: float = 10.0
    """How long after that GSE may take to give them up."""
    host_wait_seconds: float = 15.0
    """How long a host may leave a step of its own lying before another host fetches the file anew."""
    shard_targets: int = SHARD_TARGETS
    targets_max: int = TARGETS_MAX
    groups_max: int = GROUPS_MAX


class Shard(BaseModel):
    """So many targets of one consignment as one GSE task is given."""

    number: int
    consignment: Consignment
    file_name: str
    targets: list[Target]
    joined_at: list[float] = []
    """When each of them joined, in seconds since 1970 by the engine's clock."""


class Roll:
    """Who has joined a job. A target that comes again is there already."""

    def __init__(self, order: JobOrder) -> None:
        self._order = order
        self._lots: dict[Consignment, dict[int, Target]] = {}
        self._file_names: dict[Consignment, str] = {}
        self._joined_at: dict[int, float] = {}
        self._closed_to: set[str] = set()
        self.groups = 0
        self.targets = 0

    def take(self, group: JoinGroup, now: datetime) -> JoinReply:
        """Let each lot in that there is room for; a lot is in as a whole or not at all."""
        refused = list(range(len(group.lots)))
        if self.groups < self._order.groups_max:
            refused = [place for place, lot in enumerate(group.lots) if not self._take_lot(lot, now)]
            self.groups += 1
        return JoinReply(refused=refused, groups=self.groups, targets=self.targets)

    def _take_lot(self, lot: Lot, now: datetime) -> bool:
        if not self._has_room_for(lot):
            return False
        known = self._lots.setdefault(lot.consignment, {})
        self._file_names.setdefault(lot.consignment, lot.file_name)
        before = len(known)
        for target in lot.targets:
            known.setdefault(target[0], target)
            self._joined_at.setdefault(target[0], now.timestamp())
        self.targets += len(known) - before
        return True

    def close_to(self, project_id: str) -> None:
        """Take no more targets of a project that has cancelled the job."""
        self._closed_to.add(project_id)

    @property
    def signatures(self) -> list[str]:
        """The contents that are wanted, in the order in which they were first asked for."""
        return list(dict.fromkeys(consignment.signature for consignment in self._lots))

    @property
    def projects(self) -> list[str]:
        """Whose targets these are."""
        return sorted({consignment.project_id for consignment in self._lots})

    def targets_of(self, project_id: str) -> int:
        """How many targets a project has."""
        return sum(len(known) for consignment, known in self._lots.items() if consignment.project_id == project_id)

    def shards(self) -> list[Shard]:
        """All targets, cut for GSE: never two consignments in one task, and never more than so many targets."""
        return [
            Shard(
                number=number,
                consignment=consignment,
                file_name=self._file_names[consignment],
                targets=targets,
                joined_at=[self._joined_at[key] for key, _, _ in targets],
            )
            for number, (consignment, targets) in enumerate(self._cut(), start=1)
        ]

    def _cut(self) -> Iterator[tuple[Consignment, list[Target]]]:
        size = self._order.shard_targets
        for consignment, known in self._lots.items():
            targets = list(known.values())
            for start in range(0, len(targets), size):
                yield consignment, targets[start : start + size]

    def _has_room_for(self, lot: Lot) -> bool:
        return (
            self.targets + len(lot.targets) <= self._order.targets_max
            and (lot.consignment in self._lots or len(self._lots) < CONSIGNMENTS_MAX)
            and lot.consignment.project_id not in self._closed_to
        )


Each = TypeVar("Each")


def batches(shards: Iterable[Each], targets_max: int, count_targets: Callable[[Each], int]) -> Iterator[list[Each]]:
    """The shards in groups of so many targets; a shard alone may be larger."""
    batch: list[Each] = []
    for shard in shards:
        if batch and sum(map(count_targets, batch)) + count_targets(shard) > targets_max:
            yield batch
            batch = []
        batch.append(shard)
    if batch:
        yield batch


def pause_seconds(groups_used: int, groups_max: int, seconds_left: float, crowd: int) -> float:
    """How long to gather requests for the next group, so that the groups a job takes last as long as its window.

    Every API process reckons so by itself: the more of them share a window, the slower each becomes.

    Args:
        crowd: How many requests were in the group before.
    """
    groups_left = max(1, groups_max - groups_used)
    crowded = min(CROWD_PAUSE_MAX_SECONDS, crowd * CROWD_PAUSE_SECONDS)
    return min(PAUSE_MAX_SECONDS, max(PAUSE_MIN_SECONDS, crowded, seconds_left / groups_left))
