"""Joining a job while its window is open: batches of requests, the limits of a job, and the pauses between batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from domain.transfers.models import FailureReason, FileByBizAppAndPath, Target, TransferSpec

TARGETS_MAX: Final = 100_000
BATCHES_MAX: Final = 1_500
"""Temporal accepts 2,000 updates of one run."""
SPECS_MAX: Final = 300
"""Each is at least one GSE task and one running activity."""
PROJECT_SPECS_MAX: Final = 100
"""Those of one project in a window: whatever it sends, the specs of others find room."""
BATCH_TARGETS_MAX: Final = 1_000
"""With about 200 bytes a target, a batch stays well below 1 MB."""
JOIN_BYTES_MAX: Final = 16_000_000
"""Of all batches of a window. Targets are in the job's history twice, as they join and as they are saved, and Temporal
terminates a workflow whose history has 50 MB."""
SHARD_TARGETS: Final = 1_000
SHARDS_MAX: Final = 1_500
"""Of full shards; with one more for each spec, all are activities at the same time, of which Temporal takes 2,000."""

PAUSE_MIN_SECONDS: Final = 0.004
PAUSE_MAX_SECONDS: Final = 0.25
RETURN_SECONDS: Final = 0.0004
RETURN_MAX_SECONDS: Final = 0.1
"""A batch costs 10 ms of processors whatever its size. Therefore the next one waits for the callers of the last: so
long for each of them, and no longer than this for all."""


class TargetsWithSameSpec(BaseModel):
    """Targets with the same spec."""

    spec: TransferSpec
    file_name: str
    targets: list[Target]


class JoinBatch(BaseModel):
    """Requests that join a job together."""

    groups: list[TargetsWithSameSpec]

    def count_bytes(self) -> int:
        """Return how much it adds to the history of a job."""
        return len(to_json(self))


class JoinResult(BaseModel):
    """Which groups of a batch have joined, and how full the job is."""

    is_open: bool = True
    """Whether the window is open; if not, nothing of the batch has joined."""
    refused: list[int] = []
    """The indexes in the batch of groups that are beyond the limits of the job; the others have joined."""
    batches: int
    targets: int


class FailedTargetsRetry(BaseModel):
    """Selects the failed targets of an earlier job that are sent again."""

    job_id: str
    """The earlier job."""
    project_id: str
    reason: FailureReason | None = None
    """Only targets that failed for this reason."""
    targets: int
    """How many there were when the retry was requested."""


class TransferJobInput(BaseModel):
    """The input of the workflow: one file in one time window, or a retry of failed targets."""

    job_id: str
    file: FileByBizAppAndPath
    window_closes_at: datetime
    """When the window ends; a retry begins at once."""
    retry: FailedTargetsRetry | None = None
    deadline_at: datetime
    """When unfinished targets end as Timeout."""
    terminate_wait_seconds: float = 10.0
    """How long after the deadline GSE may take to terminate them."""
    host_wait_seconds: float = 15.0
    """How long an activity may wait for a worker of its host before another host fetches the file."""
    shard_targets: int = SHARD_TARGETS
    targets_max: int = TARGETS_MAX
    batches_max: int = BATCHES_MAX
    project_specs_max: int = SPECS_MAX
    """Set where a job is started: one that was started without it must replay as it ran."""


class ShardOfTargets(BaseModel):
    """Targets of one spec, as many as one GSE task takes."""

    number: int
    spec: TransferSpec
    file_name: str
    targets: list[Target]
    joined_at: list[float] = []
    """When each target joined, in seconds since 1970 by the engine's clock."""


class JobTargetRegistry:
    """The targets that have joined a job; a repeated target is registered once."""

    def __init__(self, job: TransferJobInput) -> None:
        self._job = job
        self._targets: dict[TransferSpec, dict[int, Target]] = {}
        self._file_names: dict[TransferSpec, str] = {}
        self._joined_at: dict[int, float] = {}
        self._excluded_projects: set[str] = set()
        self.batches = 0
        self.bytes = 0
        self.targets = 0

    def has_history_room_for_batch(self, batch: JoinBatch) -> bool:
        """Return whether the job's history takes a further batch, whatever of it is within the other limits."""
        return self.batches < self._job.batches_max and self.bytes + batch.count_bytes() <= JOIN_BYTES_MAX

    def register_groups_within_limits(self, batch: JoinBatch, now: datetime) -> JoinResult:
        """Register each group that is within the limits of the job, as a whole."""
        refused = list(range(len(batch.groups)))
        if self.batches < self._job.batches_max:
            refused = [place for place, group in enumerate(batch.groups) if not self._add_group_if_it_fits(group, now)]
            self.batches += 1
            self.bytes += batch.count_bytes()
        return JoinResult(refused=refused, batches=self.batches, targets=self.targets)

    def _add_group_if_it_fits(self, group: TargetsWithSameSpec, now: datetime) -> bool:
        if not self._is_within_limits(group):
            return False
        registered = self._targets.setdefault(group.spec, {})
        self._file_names.setdefault(group.spec, group.file_name)
        before, joined_at = len(registered), now.timestamp()
        for target in group.targets:
            registered.setdefault(target[0], target)
            self._joined_at.setdefault(target[0], joined_at)
        self.targets += len(registered) - before
        return True

    def refuse_further_targets(self, project_id: str) -> None:
        """Refuse further targets of a project, because it has cancelled the job."""
        self._excluded_projects.add(project_id)

    @property
    def signatures(self) -> list[str]:
        """The signatures of all specs, in the order in which they first joined."""
        return list(dict.fromkeys(spec.signature for spec in self._targets))

    def find_first_project(self, signature: str) -> str:
        """Return the project that was the first to ask for the file with this signature."""
        return next(spec.project_id for spec in self._targets if spec.signature == signature)

    @property
    def projects(self) -> list[str]:
        """The projects that have targets here."""
        return sorted({spec.project_id for spec in self._targets})

    def count_project_targets(self, project_id: str) -> int:
        """Count the targets of a project."""
        return sum(len(targets) for spec, targets in self._targets.items() if spec.project_id == project_id)

    def build_shards(self) -> list[ShardOfTargets]:
        """Return all targets in shards of one spec each, with a limited number of targets."""
        return [
            ShardOfTargets(
                number=number,
                spec=spec,
                file_name=self._file_names[spec],
                targets=targets,
                joined_at=[self._joined_at[key] for key, _, _ in targets],
            )
            for number, (spec, targets) in enumerate(self._split_targets(), start=1)
        ]

    def _split_targets(self) -> Iterator[tuple[TransferSpec, list[Target]]]:
        size = self._job.shard_targets
        for spec, registered in self._targets.items():
            targets = list(registered.values())
            for start in range(0, len(targets), size):
                yield spec, targets[start : start + size]

    def _is_within_limits(self, group: TargetsWithSameSpec) -> bool:
        return (
            self.targets + len(group.targets) <= self._job.targets_max
            and (group.spec in self._targets or self._has_room_for_spec(group.spec.project_id))
            and group.spec.project_id not in self._excluded_projects
        )

    def _has_room_for_spec(self, project_id: str) -> bool:
        if len(self._targets) >= SPECS_MAX:
            return False
        return sum(spec.project_id == project_id for spec in self._targets) < self._job.project_specs_max


SomeShard = TypeVar("SomeShard")


def group_shards_by_targets(
    shards: Iterable[SomeShard], targets_max: int, count_targets: Callable[[SomeShard], int]
) -> Iterator[list[SomeShard]]:
    """Yield the shards in groups of at most targets_max targets; a larger shard is a group by itself."""
    group: list[SomeShard] = []
    for shard in shards:
        if group and sum(map(count_targets, group)) + count_targets(shard) > targets_max:
            yield group
            group = []
        group.append(shard)
    if group:
        yield group


def compute_pause_by_batches_and_time_left(batches_used: int, batches_max: int, seconds_left: float) -> float:
    """Return how long to gather requests for the next batch, so that the batches of a job last as long as its window.

    Each API process computes this on its own: the more of them share a window, the longer the pauses of each.
    """
    batches_left = max(1, batches_max - batches_used)
    return min(PAUSE_MAX_SECONDS, max(PAUSE_MIN_SECONDS, seconds_left / batches_left))


def compute_time_for_callers_to_return(requests_in_last_batch: int) -> float:
    """Return how long after the answer to a batch its callers may take to send their next requests."""
    return min(RETURN_MAX_SECONDS, requests_in_last_batch * RETURN_SECONDS)
