"""Figures of tasks: what this process was asked, and how the queues stand as the hints have it."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import Counter, Gauge, Histogram

from domain.tasks.ids import split_type

GROUPS = Histogram(
    "haulage_task_group_requests",
    "Requests that went to a lane as one message.",
    ["project", "type"],
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000),
)
TASKS = Counter(
    "haulage_tasks", "Tasks created, held, done, failed, thrown back and cancelled here.", ["project", "type", "event"]
)
DEPTH = Gauge(
    "haulage_task_depth",
    "Live tasks by how they stand: due, pending (due ones too), running.",
    ["project", "type", "is"],
)
OLDEST = Gauge(
    "haulage_task_oldest_due_seconds", "For how long the first task in the queue has been due.", ["project", "type"]
)
LANES = Gauge("haulage_task_lanes", "Lanes that are open.", ["project", "type"])
OPEN = Gauge(
    "haulage_task_open_lane_events",
    "Leases, retries and time-outs of the tasks in open lanes.",
    ["project", "type", "event"],
)


@lru_cache(maxsize=4_096)
def tasks(type_: str, event: str) -> Counter:
    """How many tasks of a type came to that here. It takes longer to find it than to count."""
    return TASKS.labels(*split_type(type_), event)
