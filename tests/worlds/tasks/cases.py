"""Cases of requests of tasks: for each field two values that make a difference, and where they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.http.models import Request
from api.tasks import requests
from api.tasks.requests import CREATE_IGNORES, SET_IGNORES
from tests.support.tasks import FAILED, PENDING, SUCCESS

TOMORROW = "tomorrow"
NEXT = "next_cursor of the page before"
OTHER = "other"
"""Placeholder of a second type, or a second task, beside the one that a request is about."""


@dataclass(frozen=True)
class TaskOptionCase:
    """Two values of a field, and a request in which they make a difference."""

    one: Any
    other: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the request."""


NEW: dict[str, TaskOptionCase] = {
    "task_type": TaskOptionCase(None, OTHER),
    "task_id": TaskOptionCase("", "a name"),
    "user_id": TaskOptionCase("", "somebody"),
    "task_content": TaskOptionCase("", "cats.mp4"),
    "task_priority": TaskOptionCase(0, 60),
    "task_stage": TaskOptionCase("", "cut"),
    "start_time": TaskOptionCase(None, TOMORROW),
}
CONFIG: dict[str, TaskOptionCase] = {
    "task_type": TaskOptionCase(None, OTHER),
    "schedule_limit": TaskOptionCase(1, 2),
    "schedule_interval": TaskOptionCase(1, 2),
    "max_retry_num": TaskOptionCase(0, 1),
    "max_retry_interval": TaskOptionCase(-60, -120),
    "max_processing_time": TaskOptionCase(60, 120),
    "retry_interval": TaskOptionCase(60, 120, {"max_retry_interval": 600}),
    "lease_required": TaskOptionCase(False, True),
}
HOLD: dict[str, TaskOptionCase] = {
    "task_type": TaskOptionCase(None, OTHER),
    "limit": TaskOptionCase(1, 2),
    "wait": TaskOptionCase(0, 20),
}
HOLD_QUERY: dict[str, TaskOptionCase] = {"task_type": TaskOptionCase(None, OTHER), "limit": TaskOptionCase(1, 2)}
RESULT: dict[str, TaskOptionCase] = {
    "task_id": TaskOptionCase(None, OTHER),
    "task_type": TaskOptionCase("", "wrong"),
    "lease": TaskOptionCase(None, 1_000),
    "status": TaskOptionCase(SUCCESS, FAILED),
    "schedule_log": TaskOptionCase(None, "it rained"),
    "crt_retry_num": TaskOptionCase(None, 1, {"status": PENDING}),
    "task_stage": TaskOptionCase(None, "publish", {"status": PENDING}),
    "task_content": TaskOptionCase(None, "dogs.mp4"),
}
HELD: dict[str, TaskOptionCase] = {"task_id": TaskOptionCase(None, OTHER), "lease": TaskOptionCase(None, 1_000)}
BACK: dict[str, TaskOptionCase] = {"task_id": TaskOptionCase(None, OTHER), "lease": TaskOptionCase(None, 1_000)}
LISTED: dict[str, TaskOptionCase] = {
    "task_type": TaskOptionCase(None, OTHER),
    "status": TaskOptionCase(PENDING, SUCCESS),
    "stage": TaskOptionCase("", "cut"),
    "user_id": TaskOptionCase("ann", "bob"),
    "limit": TaskOptionCase(1, 2),
}
BROWSED: dict[str, TaskOptionCase] = {
    **LISTED,
    "archived": TaskOptionCase("false", "true"),
    "cursor": TaskOptionCase(None, NEXT, {"limit": 1}),
}
BROWSED_TYPES: dict[str, TaskOptionCase] = {
    "prefix": TaskOptionCase("listed", "nothing"),
    "limit": TaskOptionCase(1, 2),
    "cursor": TaskOptionCase(None, NEXT, {"limit": 1}),
}
BROWSED_LANES: dict[str, TaskOptionCase] = {
    "task_type": TaskOptionCase(None, OTHER),
    "limit": TaskOptionCase(1, 2),
    "cursor": TaskOptionCase(None, NEXT, {"limit": 1}),
}
STEERED: dict[str, TaskOptionCase] = {
    "task_type": TaskOptionCase(None, OTHER),
    "who": TaskOptionCase("ben", "ann"),
    "reason": TaskOptionCase("stocktaking", "a defect"),
}
CASES: list[tuple[type[Request], Mapping[str, TaskOptionCase], tuple[str, ...]]] = [
    (requests.NewTask, NEW, CREATE_IGNORES),
    (requests.TaskTypeConfiguration, CONFIG, ()),
    (requests.HoldTasksRequest, HOLD, ()),
    (requests.HoldTasksQuery, HOLD_QUERY, ()),
    (requests.TaskResult, RESULT, SET_IGNORES),
    (requests.TaskLease, HELD, ()),
    (requests.TaskToPutBack, BACK, ()),
    (requests.ListTasksQuery, LISTED, ()),
    (requests.BrowseTasksQuery, BROWSED, ()),
    (requests.TaskTypesPageQuery, BROWSED_TYPES, ()),
    (requests.TaskLanesQuery, BROWSED_LANES, ()),
    (requests.TaskTypeActionRequest, STEERED, ()),
]
"""Requests, their cases, and the fields that the documents say are taken and ignored."""
WRAPPERS: Mapping[type[Request], set[str]] = {
    requests.CreateTaskRequest: {"task_data"},
    requests.CreateTasksRequest: {"task_list"},
    requests.RegisterTaskTypeRequest: {"task_type_data"},
    requests.SetTaskResultRequest: {"task_data"},
    requests.SetTaskResultsRequest: {"task_list"},
    requests.HeartbeatTasksRequest: {"task_list"},
    requests.PutBackHeldOrCopyEndedTasksRequest: {"task_list"},
}
"""Requests that hold others, which have cases of their own."""
NAMES: Mapping[type[Request], set[str]] = {
    requests.CancelTaskRequest: {"task_id"},
    requests.CancelTasksRequest: {"task_ids"},
    requests.TaskTypeQuery: {"task_type"},
    requests.GetTaskQuery: {"task_id"},
    requests.FindTasksQuery: {"name"},
}
"""Requests that only name what they are about."""
