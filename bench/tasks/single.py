"""One client at an idle queue: what a create, a hold and a set take beside an update that does nothing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from temporalio import workflow
from temporalio.client import WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench.report import RATIO, Figure
from bench.tasks.contenders import LEASE_SECONDS, TaskContender, post_json
from infra import temporal

TYPE: Final = "single"
QUEUE: Final = "bench-bare-update"
WARM_UP_TURNS: Final = 20
REACH: Final = 1.5


class WrongAnswer(Exception):
    """A queue answered one client with something else than its own task."""


@workflow.defn(name="BenchBareUpdate")
class BareUpdate:
    """A workflow that takes updates and does nothing with them."""

    def __init__(self) -> None:
        self._is_over = False

    @workflow.run
    async def run(self) -> None:
        """Wait for the end."""
        await workflow.wait_condition(lambda: self._is_over)

    @workflow.update
    def do_nothing(self) -> None:
        """Return at once."""

    @workflow.signal
    def end(self) -> None:
        """End the run."""
        self._is_over = True


@dataclass(frozen=True)
class SingleClient:
    """Milliseconds of each request, and of each update beside them."""

    requests: Mapping[str, list[float]] = field(default_factory=lambda: {"create": [], "hold": [], "set": []})
    updates: list[float] = field(default_factory=list)

    def build_figures(self) -> Iterator[Figure]:
        """Return one ratio of medians for each route."""
        bare = median(self.updates)
        for route, milliseconds in self.requests.items():
            ratio = median(milliseconds) / bare
            how = (
                f"p50 of {len(milliseconds)} requests, one at a time, {median(milliseconds):.1f} ms, by that of an "
                f"empty update after each, {bare:.1f} ms, of the same engine from the same process"
            )
            yield Figure(
                f"one client: {route} ÷ a bare update", ratio, RATIO, how, f"≤ {REACH:g}", ratio <= REACH
            )  # fmt: skip


async def measure(contender: TaskContender, environment: Mapping[str, str], turns: int) -> SingleClient:
    """Create, hold and set one task after the other, each followed by an empty update.

    Args:
        environment: Names the engine that the queue uses.

    Raises:
        WrongAnswer: A hold gave something else than the task that was created before.
    """
    engine = await temporal.connect(environment)
    kind = {"task_type": TYPE, "schedule_limit": 1, "max_processing_time": LEASE_SECONDS}
    await _ask(contender, "register_task_type", {"task_type_data": kind})
    async with Worker(engine, task_queue=QUEUE, workflows=[BareUpdate], workflow_runner=UnsandboxedWorkflowRunner()):
        bare = await engine.start_workflow(BareUpdate.run, id=f"bench-{uuid.uuid4().hex}", task_queue=QUEUE)
        await _run_turns(contender, bare, WARM_UP_TURNS)
        took = await _run_turns(contender, bare, turns)
        await bare.signal(BareUpdate.end)
        await bare.result()
    return took


async def _run_turns(contender: TaskContender, bare: WorkflowHandle[BareUpdate, None], turns: int) -> SingleClient:
    took = SingleClient()

    async def ask(route: str, path: str, body: object) -> dict[str, Any]:
        began = time.perf_counter()
        answer = await _ask(contender, path, body)
        answered = time.perf_counter()
        await bare.execute_update(BareUpdate.do_nothing)
        took.requests[route].append((answered - began) * 1e3)
        took.updates.append((time.perf_counter() - answered) * 1e3)
        return answer

    for _ in range(turns):
        created = await ask("create", "create_task", {"task_data": {"task_type": TYPE, "user_id": "bench"}})
        held = (await ask("hold", "hold_tasks", {"task_type": TYPE, "limit": 1}))["task_list"]
        if [task["task_id"] for task in held] != [created["task_id"]]:
            raise WrongAnswer(f"created {created['task_id']}, and the next hold gave {held}")
        task = {"task_id": created["task_id"], "task_type": TYPE, "lease": held[0]["lease"], "status": 3}
        await ask("set", "set_task", {"task_data": task})
    return took


async def _ask(contender: TaskContender, path: str, body: object) -> dict[str, Any]:
    answer = await post_json(contender.session, f"{contender.base}/v1/{path}", body, contender.headers)
    if answer["code"]:
        raise WrongAnswer(f"{path}: {answer}")
    return answer
