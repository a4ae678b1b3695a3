"""Names of the system: its task queue, workflows and their ids."""

from __future__ import annotations

LANE_WORKFLOW = "TaskLane"

QUEUE = "tasks"
QUEUES = (QUEUE,)
PURGE = "task_purge"
HOUSEKEEPING = (PURGE,)
SYSTEM = "tasks"
ACT, LOOK, SEARCH = "act", "look", "search"


def lane_id(type_: str, pos: int) -> str:
    """The id of the workflow that is a lane: `tasks/{project}/{name}/{position}`."""
    return f"tasks/{type_}/{pos}"
