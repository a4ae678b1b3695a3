"""What the SDK's worker wrote down, judged against what the server says of the same tasks."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

STAGES = ("cut", "mix", "send")
PAUSE_SECONDS = 1.0
CLOCK_SECONDS = 0.05
"""Both clocks are this machine's; the record is in milliseconds."""
SUCCESS, FAILED, PENDING = 3, 4, 1


class Entry(NamedTuple):
    """An attempt that began, or whose result was answered."""

    what: str
    task_id: str
    stage: str
    retries: int
    status: int
    priority: int
    refused: bool
    sleep_ms: int
    """How long it takes before anything is said of it."""
    at: float


def read(path: Path) -> list[Entry]:
    """The record; a line that a kill cut off is left out."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Entry(**json.loads(line)) for line in lines if line.endswith("}")]


def find_differences(
    entries: Sequence[Entry], tasks: Mapping[str, Mapping[str, Any]], doomed: frozenset[str], first: int
) -> Iterator[str]:
    """Return a sentence about each violation.

    Args:
        tasks: What the server says of each task at the end.
        doomed: Tasks that ask for more failures than there are retries.
        first: How many tasks the first hold got; more than those have the highest priority.
    """
    begun = [entry for entry in entries if entry.what == "begun"]
    yield from (
        f"{attempt} began {count} times"
        for attempt, count in Counter((each.task_id, each.stage, each.retries) for each in begun).items()
        if count > 1
    )
    highest = max(each.priority for each in begun)
    if any(each.priority < highest for each in begun[:first]):
        yield f"the first {first} tasks that were held are not those of the highest priority"
    by_task: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_task[entry.task_id].append(entry)
    yield from (f"{task_id} was held and is not there" for task_id in by_task.keys() - tasks.keys())
    for task_id, task in tasks.items():
        for difference in _judge_task(by_task[task_id], task, is_doomed=task_id in doomed):
            yield f"{task_id}: {difference}"


def _judge_task(entries: Sequence[Entry], task: Mapping[str, Any], *, is_doomed: bool) -> Iterator[str]:
    expected = FAILED if is_doomed else SUCCESS
    if task["status"] != expected:
        yield f"it has status {task['status']} and not {expected}"
    begun = [entry for entry in entries if entry.what == "begun"]
    stages = [STAGES.index(each.stage) for each in begun]
    if stages != sorted(stages) or (not is_doomed and set(stages) != set(range(len(STAGES)))):
        yield f"it went through the stages {[each.stage for each in begun]}"
    taken = [each for each in entries if each.what == "told" and not each.refused]
    if sum(each.status == expected for each in taken) > 1:
        yield "its end was taken twice"
    # A task whose worker died before it began is recorded by the server alone.
    tried = len(task["attempts"]) + task["attempts_left_out"] + 1
    if tried < len(begun):
        yield f"the worker began it {len(begun)} times and the server gave it out {tried} times"
    failed = {each.retries + 1: each.at for each in taken if each.status == PENDING and _has_failed(each, begun)}
    for each in begun:
        if each.retries in failed and each.at < failed[each.retries] + PAUSE_SECONDS - CLOCK_SECONDS:
            yield f"its retry {each.retries} began {each.at - failed[each.retries]:.3f} s after the failure"


def _has_failed(told: Entry, begun: Sequence[Entry]) -> bool:
    """Whether the same stage was begun once more with a retry counted."""
    return any(each.stage == told.stage and each.retries == told.retries + 1 for each in begun)
