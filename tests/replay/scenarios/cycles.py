"""Cycles of addresses to be recorded: one of each way that they can take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from domain.addresses import names as addresses_names
from domain.addresses.activity_models import CarriedCycleTotals
from domain.addresses.messages import PublishedMessage, Topic
from infra.database import Database
from sims.oss.server import running_oss
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from tests.replay.recorder import Recorder
from tests.replay.scenarios import upkeep
from workflows.addresses.cycle import AddressCycle

VARIABLES: Mapping[str, str] = {
    **upkeep.VARIABLES,
    "HAULAGE_ADDRESSES__GROUP_MESSAGES_MAX": "3",
    "HAULAGE_ADDRESSES__STEP_CONCURRENCY": "2",
    "HAULAGE_ADDRESSES__THRESHOLD": "20",
    # Only what is started here runs.
    "HAULAGE_ADDRESSES__PAUSE_SECONDS": "86400",
}
EVENTS_MAX: Final = 40
_TOPICS: Final = {"create": Topic.CREATE_UPDATE, "swap": Topic.SWAP, "delete": Topic.DELETE}
# What each history is made of, by its name: creates, swaps and deletes in the order in which they come.
RUNS: Mapping[str, Iterable[tuple[str, int, int]]] = {
    "nothing-to-do": (),
    "one-message": [("create", 1, 0)],
    "many-steps": [("create", uprn, 0) for uprn in range(1, 11)],
    "every-phase": [
        *(("swap", uprn, uprn + 1) for uprn in range(1, 6)),
        ("create", 12, 0),
        ("swap", 11, 12),
        ("create", 11, 0),
        ("delete", 5, 0),
    ],
    "missing-for-good": [("swap", 1, 99)],
    "more-than-a-cycle-holds": [("delete", uprn, 0) for uprn in range(1, 31)],
}


async def record(recorder: Recorder) -> None:
    """Run in every way and keep the histories."""
    upkeep.make_folder()
    async with running_oss(upkeep.FOLDER, upkeep.PORT):
        for name, said in RUNS.items():
            await _publish(recorder, name, said)
            await _run(recorder, name)
        await _record_paused(recorder)


async def record_continued(recorder: Recorder) -> None:
    """With a short limit on the length of histories."""
    upkeep.make_folder()
    async with running_oss(upkeep.FOLDER, upkeep.PORT):
        await _publish(recorder, "continued", [("create", uprn, 0) for uprn in range(101, 151)])
        workflow_id = f"{addresses_names.CYCLE_SCHEDULE}-recorded"
        handle = await recorder.engine.start_workflow(
            AddressCycle.run, CarriedCycleTotals(), id=workflow_id, task_queue=addresses_names.QUEUE
        )
        await handle.result()
        first = handle.first_execution_run_id
        await recorder.keep(workflow_id, AddressCycle.__name__, "goes-on-anew", run_id=first)
        await recorder.keep(workflow_id, AddressCycle.__name__, "went-on")


async def _record_paused(recorder: Recorder) -> None:
    schedule = recorder.engine.get_schedule_handle(addresses_names.CYCLE_SCHEDULE)
    await schedule.pause()
    await _run(recorder, "paused")
    await schedule.unpause()


async def _run(recorder: Recorder, name: str) -> None:
    workflow_id = f"{addresses_names.CYCLE_SCHEDULE}-{name}"
    await recorder.engine.execute_workflow(
        AddressCycle.run, CarriedCycleTotals(), id=workflow_id, task_queue=addresses_names.QUEUE
    )
    await recorder.keep(workflow_id, AddressCycle.__name__, name)


async def _publish(recorder: Recorder, name: str, said: Iterable[tuple[str, int, int]]) -> None:
    database = Database(recorder.running.settings.database)
    incoming = [
        DeliveredMessage(_TOPICS[kind], PublishedMessage(message_id=f"{name}-{number}", data=_json(kind, uprn, other)))
        for number, (kind, uprn, other) in enumerate(said)
    ]
    try:
        await MessageLogAndQuarantineWriter(database, 1_024).store_messages_or_quarantine_them(incoming)
    finally:
        await database.close()


def _json(kind: str, uprn: int, other: int) -> bytes:
    said: dict[str, dict[str, Any]] = {
        "create": {"uprn": uprn, "address_id": 1_000 + uprn, "record": {"street": "Main"}},
        "swap": {"uprn_1": uprn, "uprn_2": other},
        "delete": {"uprn": uprn},
    }
    return msgspec.json.encode(said[kind])
