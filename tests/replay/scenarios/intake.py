"""Intakes of addresses to be recorded."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio.client import WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy

from domain.addresses import names as addresses_names
from domain.addresses.activity_models import IntakeMessageCounts, IntakeTopicAndCarriedCounts
from domain.addresses.messages import Topic
from sims.pubsub.scenario import Scenario
from sims.pubsub.server import PubSubSim, running_pubsub
from tests.replay.recorder import Recorder
from tests.support.pubsub import PROJECT, Publisher, create_update, publisher
from tests.support.waiting import eventually
from workflows.addresses.maintenance import AddressIntake

PORT = 18_978
SUBSCRIPTION = "recorded"
EVENTS_MAX = 40
"""Runs of a few slices go on in another."""
VARIABLES: Mapping[str, str] = {
    "HAULAGE_ADDRESSES__PUBSUB__PROJECT": PROJECT,
    "HAULAGE_ADDRESSES__PUBSUB__BASE_URL": f"http://127.0.0.1:{PORT}",
    "HAULAGE_ADDRESSES__PUBSUB__SUBSCRIPTIONS__CREATE_UPDATE": SUBSCRIPTION,
}
WORKFLOW = AddressIntake.__name__


async def record(recorder: Recorder) -> None:
    """Pull for some slices, and keep the history of a run that goes on."""
    async with running_pubsub(port=PORT) as sim, publisher(sim.base) as publishing:
        await publishing.subscribe(Topic.CREATE_UPDATE, SUBSCRIPTION)
        handle = await _start(recorder, Topic.CREATE_UPDATE)
        await _wait_until_taken(handle, publishing, 1)
        await recorder.keep(handle.id, WORKFLOW, "pulls", run_id=handle.result_run_id)
        await handle.terminate()
        await _record_retried_and_cancelled(recorder, sim, publishing)


async def _record_retried_and_cancelled(recorder: Recorder, sim: PubSubSim, publishing: Publisher) -> None:
    """An intake never fails: a pull that fails is repeated until it succeeds, and only a cancellation ends the run."""
    sim.broker.scenario = Scenario(fail=1.0)
    handle = await _start(recorder, Topic.CREATE_UPDATE)
    await recorder.wait_for_failed_attempt(handle.id)
    sim.broker.scenario = Scenario()
    await _wait_until_taken(handle, publishing, 2)
    await recorder.keep(handle.id, WORKFLOW, "retried", run_id=handle.result_run_id)
    await handle.cancel()
    await recorder.wait_for_end(handle.id)
    await recorder.keep(handle.id, WORKFLOW, "cancelled", run_id=handle.result_run_id)


async def _wait_until_taken(
    handle: WorkflowHandle[AddressIntake, IntakeMessageCounts], publishing: Publisher, uprn: int
) -> None:
    """Publish messages until the intake has taken one."""

    async def has_taken() -> bool:
        await publishing.publish(Topic.CREATE_UPDATE, create_update(uprn))
        taken: IntakeMessageCounts = await handle.query(AddressIntake.status)
        return taken.new > 0

    await eventually(has_taken)


async def record_continued(recorder: Recorder) -> None:
    """The first run of an intake whose history has grown long."""
    async with running_pubsub(port=PORT) as sim, publisher(sim.base) as publishing:
        await publishing.subscribe(Topic.CREATE_UPDATE, SUBSCRIPTION)
        handle = await _start(recorder, Topic.CREATE_UPDATE)
        newest = recorder.engine.get_workflow_handle(handle.id)

        async def has_gone_on() -> bool:
            return (await newest.describe()).run_id != handle.result_run_id

        await eventually(has_gone_on)
        await recorder.keep(handle.id, WORKFLOW, "continued", run_id=handle.result_run_id)
        await newest.terminate()


async def _start(recorder: Recorder, topic: Topic) -> WorkflowHandle[AddressIntake, IntakeMessageCounts]:
    """Start instead of the worker's own intake, whose slices are long, and which would take the messages."""
    return await recorder.engine.start_workflow(
        AddressIntake.run,
        IntakeTopicAndCarriedCounts(topic=topic, slice_seconds=0.5),
        id=addresses_names.build_intake_workflow_id(topic),
        task_queue=addresses_names.INTAKE_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
    )
