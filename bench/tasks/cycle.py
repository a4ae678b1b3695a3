"""`python -m bench.tasks.cycle`: clients that create tasks, hold what is due, and set what they hold, at the same time.

Each creates some, holds as many, and sets each; what one created another may do. It ends when all are done, or when a
queue gives nothing more out for long: then its own counts show what it lost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel

from bench import load
from bench.load import Report, Script

POLLING = 4
"""Clients that go on asking when there is nothing to hold at present."""
SPARE_SECONDS = 60.0

_decode = msgspec.json.Decoder().decode


class CyclePlan(BaseModel):
    """What to do; read from standard input."""

    base: str
    headers: dict[str, str]
    create: str
    """The body of each create, as JSON."""
    hold: str
    type: str
    limit: int
    connections: int
    seconds: float
    """No task is created later than that."""


class CycleOutcome(BaseModel):
    """What became of it; written to standard output."""

    report: Report
    created: int
    tasks: int
    """Those that were created and are done: fewer, if the queue has lost some."""
    faults: list[str]
    """Answers that were none of those that a good queue gives."""


@dataclass
class _Cycle:
    plan: CyclePlan
    clients: int
    created: int = 0
    done: int = 0


def run(plan: CyclePlan) -> CycleOutcome:
    """Until all that was created is done."""
    cycle = _Cycle(plan, clients=plan.connections)
    faults: list[str] = []
    report = load.drive(plan.base, plan.connections, lambda begun: _client(cycle, begun + plan.seconds, faults))
    return CycleOutcome(report=report, created=cycle.created, tasks=cycle.done, faults=faults[:20])


def _client(cycle: _Cycle, until: float, faults: list[str]) -> Script:
    plan = cycle.plan
    create = _request(plan.headers, "create_task", plan.create.encode())
    hold = _request(plan.headers, "hold_tasks", plan.hold.encode())

    def good(answer: tuple[int, bytes]) -> dict[str, Any]:
        told: dict[str, Any] = _decode(answer[1])
        if (answer[0], told["code"]) != (200, 0):
            faults.append(answer[1].decode())
        return told

    while True:
        for _ in range(plan.limit):
            if time.perf_counter() < until:
                good((yield create, 0.0))
                cycle.created += 1
        held = good((yield hold, 0.0)).get("task_list", [])
        for task in held:
            data = {"task_id": task["task_id"], "task_type": plan.type, "lease": task["lease"], "status": 3}
            good((yield _request(plan.headers, "set_task", msgspec.json.encode({"task_data": data})), 0.0))
            cycle.done += 1
        if time.perf_counter() < until:
            continue
        is_over = cycle.done >= cycle.created
        is_spare = not held and cycle.clients > POLLING
        if is_over or is_spare or time.perf_counter() > until + SPARE_SECONDS:
            cycle.clients -= 1
            return


def _request(headers: Mapping[str, str], route: str, body: bytes) -> bytes:
    return load.request(headers, "POST", f"/v1/{route}", body)


def main() -> None:
    """Plan in, outcome out."""
    print(run(CyclePlan.model_validate_json(sys.stdin.read())).model_dump_json())


if __name__ == "__main__":
    main()
