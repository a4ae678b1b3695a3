"""Names of the tasks system: queue, workflow and activity names, and the ids of types, lanes and tasks.

Each project chooses the names of its types, so a type is identified by project and name, `prj_…/video`. Lanes, heads,
keys and the archive use that identifier. A task id contains the name alone, as flowSvr's ids do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

SYSTEM = "tasks"
QUEUE = "tasks"
QUEUES = (QUEUE,)
PURGE = "task_purge"
HOUSEKEEPING = (PURGE,)
LANE_WORKFLOW = "TaskLane"
APPLY_BATCH, LOOK_UP, SEARCH = "apply_batch", "look_up", "search"

TYPE_MAX_CHARACTERS: Final = 100
POS_MAX: Final = 999_999_999
FIRST_POS: Final = 1

LaneName: TypeAlias = tuple[str, int]
"""Type and position of a lane."""

_TASK_ID: Final = re.compile(rf"([0-9a-f]{{32}})_([A-Za-z0-9_.-]{{1,{TYPE_MAX_CHARACTERS}}})_([1-9][0-9]{{0,8}})")

TaskIdText: TypeAlias = str


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task's key within its lane, the name of its type, and the position of its lane."""

    key: str
    name: str
    """May contain underscores; neither key nor position does."""
    pos: int

    def __str__(self) -> str:
        return f"{self.key}_{self.name}_{self.pos}"


def parse_task_id(text: str) -> TaskId | None:
    """Parse a task id; None if the text does not have its form."""
    match = _TASK_ID.fullmatch(text)
    return TaskId(match[1], match[2], int(match[3])) if match else None


def build_type_id(project_id: str, name: str) -> str:
    """Build the identifier of a project's type."""
    return f"{project_id}/{name}"


def split_type_id(type_: str) -> tuple[str, str]:
    """Split the identifier of a type into project id and name."""
    project_id, _, name = type_.rpartition("/")
    return project_id, name


def build_lane_workflow_id(lane: LaneName) -> str:
    """Build the workflow id of a lane: `tasks/{project}/{name}/{position}`."""
    type_, pos = lane
    return f"tasks/{type_}/{pos}"
