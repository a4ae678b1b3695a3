"""One round of one contender: every route by itself, then at half its load, then the full cycle; counted at the end."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, TypeVar

import msgspec
from pydantic import BaseModel

from bench import load
from bench.load import Report
from bench.tasks import cycle, library
from bench.tasks.contenders import TYPE, TaskContender
from bench.tasks.single import SingleClient

CONNECTIONS: Final = 512
HOLD_CONNECTIONS: Final = 128
"""Keeps every contender busy: a queue that makes requests wait for each other is idle with fewer."""
HOLD_LIMIT: Final = 5
"""Tasks of one hold: ten thousand tasks in two thousand requests a second, as the issue wants them."""
CYCLE_LIMIT: Final = 10
CYCLES: Final = 3
"""Runs in a row, of which the median counts."""
CONTENT: Final = json.dumps({"video": "v" * 64, "profile": "1080p"})
MOST_PER_SECOND: Final = 20_000
"""Requests that are prepared for each second; no contender takes more."""
LIBRARY_TASKS_PER_SECOND: Final = 2_000
COUNTING_SECONDS: Final = 20.0
DRAIN_SECONDS: Final = 60.0
ROOT: Final = Path(__file__).parent.parent.parent

_decode = msgspec.json.Decoder().decode
Outcome = TypeVar("Outcome", bound=BaseModel)


class TaskRoundFailed(Exception):
    """A contender did not do what it was there for."""


@dataclass(frozen=True)
class Phase:
    """What some seconds of one kind of request took."""

    requests: int
    tasks: int
    seconds: float
    latencies_ms: Sequence[float]
    cpu_seconds: Mapping[str, float]
    """By process, of the contender and of what serves it."""
    load_cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def task_rate(self) -> float:
        """Tasks a second."""
        return self.tasks / self.seconds

    def percentile(self, per_cent: int) -> float:
        """Of the answers' times, in milliseconds."""
        return quantiles(self.latencies_ms, n=100)[per_cent - 1] if len(self.latencies_ms) > 1 else float("nan")

    def cpu_us(self, part: str = "") -> float:
        """For a task, of one process or of all."""
        seconds = self.cpu_seconds[part] if part else sum(self.cpu_seconds.values())
        return seconds / max(1, self.tasks) * 1e6


@dataclass(frozen=True)
class TaskRound:
    """All phases, by route, and what was there at the end beside what should be."""

    full: Mapping[str, Phase]
    half: Mapping[str, Phase]
    half_rates: Mapping[str, float]
    """What the rates at half load were meant to be."""
    cycle: Phase
    wrong_answers: int
    lost: int
    """By how many tasks the queue's counts at the end differ from what was answered before."""
    grown: Phase | None = None
    """The cycle once more, among a million tasks that have ended."""
    library: library.LibraryOutcome | None = None
    """What the library's worker did at the same queue."""
    single: SingleClient | None = None
    """What one client had to wait for."""
    largest_process_mb: float = 0.0
    """Ours only."""


@dataclass
class _RequestLog:
    """What has come of the requests so far."""

    contender: TaskContender
    folder: Path
    created: list[str]
    held: list[dict[str, Any]]
    done: int = 0
    taken: int = 0
    wrong: int = 0

    @property
    def pending(self) -> int:
        return len(self.created) - self.taken


async def run(
    contender: TaskContender, folder: Path, seconds: float, grown: int = 0, half_of: TaskRound | None = None
) -> TaskRound:
    """Run all phases, each route for a number of seconds; with `grown` ended tasks the cycle comes again.

    Half load is half of what the contender has shown, or half of what another showed before.
    """
    scene = _RequestLog(contender, folder, [], [])
    full = {
        "create": await _create(scene, seconds),
        "get": await _get(scene, seconds),
        "hold": await _hold(scene, seconds),
        "set": await _set(scene),
    }
    rates = {route: phase.rate / 2 for route, phase in (half_of.full if half_of else full).items()}
    half = {
        "create": await _create(scene, seconds, rates["create"]),
        "get": await _get(scene, seconds, rates["get"]),
        "hold": await _hold(scene, seconds, rates["hold"]),
        "set": await _set(scene, rates["set"]),
    }
    while scene.pending:
        await _hold(scene, DRAIN_SECONDS)
        await _set(scene)
    cycled = await _cycles(scene, seconds)
    again = None
    if grown:
        await contender.grow(grown)
        again = await _cycles(scene, seconds)
    lost = await _difference(scene, grown)
    return TaskRound(full, half, rates, cycled, scene.wrong, lost, again)


async def run_library(contender: TaskContender, seconds: float) -> library.LibraryOutcome:
    """The library's worker, by itself in the middle of three times."""
    key = contender.headers["Authorization"].removeprefix("Bearer ")
    plan = library.LibraryPlan(base=contender.base, key=key, tasks=int(LIBRARY_TASKS_PER_SECOND * seconds))
    took = [await _process("bench.tasks.library", plan, library.LibraryOutcome) for _ in range(CYCLES)]
    if missing := [each.missing for each in took if each.missing]:
        raise TaskRoundFailed(f"the library's worker left {missing} tasks")
    return sorted(took, key=lambda each: each.rate)[CYCLES // 2]


async def _create(scene: _RequestLog, seconds: float, rate: float = 0.0) -> Phase:
    task = {"task_data": {"task_type": TYPE, "user_id": "bench", "task_content": CONTENT}}
    requests = [("POST", "/v1/create_task", task)] * _count_requests_max(seconds, rate)
    phase, answers = await _load(scene, requests, CONNECTIONS, seconds, rate)
    scene.created += [answer["task_id"] for answer in answers]
    return phase


async def _get(scene: _RequestLog, seconds: float, rate: float = 0.0) -> Phase:
    chosen = random.Random(0).choices(scene.created, k=_count_requests_max(seconds, rate))
    requests = [("GET", f"/v1/get_task?task_id={task_id}", None) for task_id in chosen]
    phase, answers = await _load(scene, requests, CONNECTIONS, seconds, rate)
    scene.wrong += sum(not answer["task_data"]["status"] for answer in answers)
    return phase


async def _hold(scene: _RequestLog, seconds: float, rate: float = 0.0) -> Phase:
    """No more than there is: an answer without a task says little."""
    hold = {"task_type": TYPE, "limit": HOLD_LIMIT}
    count = max(1, min(_count_requests_max(seconds, rate), scene.pending // HOLD_LIMIT))
    phase, answers = await _load(scene, [("POST", "/v1/hold_tasks", hold)] * count, HOLD_CONNECTIONS, seconds, rate)
    held = [task for answer in answers for task in answer["task_list"]]
    scene.held += held
    scene.taken += len(held)
    return Phase(
        phase.requests, len(held), phase.seconds, phase.latencies_ms, phase.cpu_seconds, phase.load_cpu_seconds
    )


async def _set(scene: _RequestLog, rate: float = 0.0) -> Phase:
    """All that are held, however long it takes."""
    requests = [
        (
            "POST",
            "/v1/set_task",
            {"task_data": {"task_id": task["task_id"], "task_type": TYPE, "lease": task["lease"], "status": 3}},
        )
        for task in scene.held
    ]
    scene.held = []
    phase, answers = await _load(scene, requests, CONNECTIONS, 3_600.0, rate)
    scene.done += len(answers)
    return phase


async def _cycles(scene: _RequestLog, seconds: float) -> Phase:
    took = [await _cycle(scene, seconds) for _ in range(CYCLES)]
    return sorted(took, key=lambda each: each.task_rate)[CYCLES // 2]


async def _cycle(scene: _RequestLog, seconds: float) -> Phase:
    contender = scene.contender
    plan = cycle.CyclePlan(
        base=contender.base,
        headers=dict(contender.headers),
        create=json.dumps({"task_data": {"task_type": TYPE, "user_id": "bench", "task_content": CONTENT}}),
        hold=json.dumps({"task_type": TYPE, "limit": CYCLE_LIMIT}),
        type=TYPE,
        limit=CYCLE_LIMIT,
        connections=CONNECTIONS,
        seconds=seconds,
    )
    before = contender.cpu_seconds()
    done = await _process("bench.tasks.cycle", plan, cycle.CycleOutcome)
    if done.faults:
        raise TaskRoundFailed(f"{contender.name}: {done.faults[:3]}")
    scene.done += done.tasks
    return _phase(contender, before, done.report, done.tasks)


async def _load(
    scene: _RequestLog, requests: Sequence[tuple[str, str, Any]], connections: int, seconds: float, rate: float
) -> tuple[Phase, list[dict[str, Any]]]:
    """What it took, and the good answers; the others are counted."""
    asked, answered = scene.folder / "requests", scene.folder / "answers"
    asked.write_text("\n".join(map(json.dumps, requests)))
    plan = load.Plan(
        base=scene.contender.base,
        headers=dict(scene.contender.headers),
        requests=asked,
        answers=answered,
        connections=min(connections, len(requests)),
        seconds=seconds,
        per_second=rate,
    )
    before = scene.contender.cpu_seconds()
    report = await _process("bench.load", plan, Report)
    answers = [_decode(line) for line in answered.read_bytes().split(b"\n") if line]
    good = [answer for answer in answers if answer.get("code") == 0]
    scene.wrong += sum(report.statuses.values()) - len(good)
    if not good:
        raise TaskRoundFailed(f"{scene.contender.name} had no good answer: {answers[:1]} {report.statuses}")
    return _phase(scene.contender, before, report, len(good)), good


def _phase(contender: TaskContender, before: Mapping[str, float], report: Report, tasks: int) -> Phase:
    after = contender.cpu_seconds()
    return Phase(
        requests=sum(report.statuses.values()),
        tasks=tasks,
        seconds=report.ended_at - report.begun_at,
        latencies_ms=report.latencies_ms,
        cpu_seconds={name: after[name] - before[name] for name in before},
        load_cpu_seconds=report.cpu_seconds,
    )


async def _process(module: str, plan: BaseModel, outcome: type[Outcome]) -> Outcome:
    """The load generator, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module), cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate(plan.model_dump_json().encode())
    if process.returncode:
        raise TaskRoundFailed(f"{module} ended with {process.returncode}; its error is printed above")
    return outcome.model_validate_json(output)


async def _difference(scene: _RequestLog, grown: int) -> int:
    """How far the queue's own counts are from what it has answered, once they have come to rest."""
    expected = {"pending": 0, "running": 0, "success": scene.done + grown}
    until = time.monotonic() + COUNTING_SECONDS
    while True:
        counts = await scene.contender.counts()
        difference = max(abs(counts[name] - count) for name, count in expected.items())
        if not difference or time.monotonic() > until:
            return difference
        await asyncio.sleep(0.5)


def _count_requests_max(seconds: float, rate: float) -> int:
    return int(seconds * (rate or MOST_PER_SECOND)) + 1
