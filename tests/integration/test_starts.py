"""Starts of workflows from outside: what becomes of a second one, and what a start carries."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    WorkflowHandle,
)

from infra import starts, temporal
from infra.housekeeping import HousekeepingActivityNamesInput
from infra.starts import SUMMARY_MAX_BYTES, SameIdPolicy, WorkflowStart

pytestmark = pytest.mark.stack

QUEUE = "nobody"


@pytest.fixture
async def engine(namespace: str) -> Client:
    """The engine, with a namespace of the test's own."""
    return await temporal.connect()


def a_start(same_id: SameIdPolicy, *, summary: str = "first", signal: str | None = None) -> WorkflowStart:
    """A start that no worker takes up, so that its workflow runs until the test ends it."""
    return WorkflowStart(
        workflow="Nobody",
        argument=HousekeepingActivityNamesInput(activities=["sweep"]),
        id="the-one",
        queue=QUEUE,
        same_id=same_id,
        attributes=starts.build_search_attributes("tasks", project_id="prj_1", state="pending"),
        summary=summary,
        memo={"name": "订单.csv"},
        signal=signal,
    )


@pytest.mark.parametrize(
    ("same_id", "while_running", "after_end"),
    [
        (SameIdPolicy.REFUSE, False, False),
        (SameIdPolicy.REFUSE_WHILE_RUNNING, False, True),
        (SameIdPolicy.JOIN_WHILE_RUNNING, True, True),
        (SameIdPolicy.JOIN_OR_REFUSE, True, False),
    ],
    ids=lambda value: value.name if isinstance(value, SameIdPolicy) else str(value),
)
async def test_a_second_start_of_an_id_is_joined_or_refused(
    engine: Client, same_id: SameIdPolicy, *, while_running: bool, after_end: bool
) -> None:
    """One workflow runs under an id at a time; whether a second start counts depends on what its order is."""
    first = engine.get_workflow_handle("the-one")

    assert await starts.start_workflow(engine, a_start(same_id))
    run_id = (await first.describe()).run_id
    assert await starts.start_workflow(engine, a_start(same_id)) is while_running
    assert (await first.describe()).run_id == run_id
    await first.terminate()
    assert await starts.start_workflow(engine, a_start(same_id)) is after_end
    assert ((await first.describe()).run_id != run_id) is after_end


async def test_a_start_is_found_and_shown(engine: Client) -> None:
    """Its search attributes, memo and summary are the engine's; its signal reaches one that runs already."""
    await starts.start_workflow(engine, a_start(SameIdPolicy.JOIN_WHILE_RUNNING))
    await starts.start_workflow(engine, a_start(SameIdPolicy.JOIN_WHILE_RUNNING, signal="wake"))
    described = await engine.get_workflow_handle("the-one").describe()
    signals = await list_signals(engine.get_workflow_handle("the-one"))

    found = described.typed_search_attributes
    assert [found[key] for key in temporal.SEARCH_ATTRIBUTES] == ["tasks", "prj_1", "pending"]
    assert (await described.memo())["name"] == "订单.csv"
    assert await described.static_summary() == "first"
    assert signals == ["wake"]


async def test_a_summary_too_long_for_the_engine_is_cut(engine: Client) -> None:
    """A file may have a name of 200 characters of three bytes each; Temporal promises to take 400 bytes."""
    await starts.start_workflow(engine, a_start(SameIdPolicy.REFUSE, summary="export to " + "页" * 200))
    shown = await (await engine.get_workflow_handle("the-one").describe()).static_summary()

    assert shown is not None
    assert shown == "export to " + "页" * ((SUMMARY_MAX_BYTES - len("export to ")) // 3)


async def test_a_pause_beside_triggers_holds(engine: Client) -> None:
    """Whatever patches come at once, a schedule that was paused is paused, and one that was resumed runs."""
    action = ScheduleActionStartWorkflow("Nobody", id="scheduled", task_queue=QUEUE)
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=1))])
    handle = await engine.create_schedule("steered", Schedule(action=action, spec=spec))
    for is_paused in [True, False] * 4:
        triggering = asyncio.gather(*(handle.trigger() for _ in range(3)))
        described = await starts.set_schedule_paused(handle, "ann: test", is_paused=is_paused)
        await triggering
        assert described.schedule.state.paused is is_paused
        assert (await handle.describe()).schedule.state.paused is is_paused


async def list_signals(workflow: WorkflowHandle[object, object]) -> list[str]:
    """The names of the signals in a workflow's history, in order."""
    history = await workflow.fetch_history()
    return [
        event.workflow_execution_signaled_event_attributes.signal_name
        for event in history.events
        if event.HasField("workflow_execution_signaled_event_attributes")
    ]
