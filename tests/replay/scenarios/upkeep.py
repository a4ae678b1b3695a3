"""What is done beside the cycles of addresses, to be recorded: each plan has one step, whatever it finds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from domain.addresses import names as addresses_names
from domain.addresses.activity_models import ComparisonIdInput, PurgeAddressesInput
from domain.addresses.operations import Module
from sims.oss.scenario import OssAction, OssRule, OssScenario
from sims.oss.server import TOKEN, Oss, running_oss
from tests.replay.recorder import Recorder
from workflows.addresses.maintenance import LogicalDeleteCheck, ModuleComparison, SelectedAddressesPurge

PORT: Final = 18_979
FOLDER: Final = Path(tempfile.gettempdir()) / "haulage-recorded-modules"
VARIABLES: Mapping[str, str] = {
    "HAULAGE_ADDRESSES__CREDENTIALS_FOLDER": str(FOLDER),
    **{
        f"HAULAGE_ADDRESSES__MODULES__{module.upper()}__{name}": value
        for module in Module
        for name, value in (("BASE_URL", f"http://127.0.0.1:{PORT}/{module}"), ("CREDENTIALS", "oss"))
    },
}

CHECK, PURGE, COMPARISON = (each.__name__ for each in (LogicalDeleteCheck, SelectedAddressesPurge, ModuleComparison))
# Under which name it is registered and with what it starts, by its class.
STARTS: Mapping[str, tuple[str, Sequence[BaseModel]]] = {
    CHECK: (addresses_names.CHECK_WORKFLOW, []),
    PURGE: (addresses_names.PURGE_WORKFLOW, [PurgeAddressesInput(address_ids=[1], who="recorder")]),
    COMPARISON: (addresses_names.COMPARISON_WORKFLOW, [ComparisonIdInput(comparison_id="1")]),
}


async def record(recorder: Recorder) -> None:
    """All of each, over modules without addresses."""
    make_folder()
    async with running_oss(FOLDER, PORT) as oss:
        for workflow, name in ((CHECK, "nothing-listed"), (PURGE, "not-listed"), (COMPARISON, "no-addresses")):
            workflow_id = await _start(recorder, workflow, name)
            await recorder.engine.get_workflow_handle(workflow_id).result()
            await recorder.keep(workflow_id, workflow, name)
        for workflow in (CHECK, PURGE):
            await _record_retried_and_cancelled(recorder, workflow)
        await _record_comparisons_of_refusing_module(recorder, oss)


def make_folder() -> None:
    """Where the modules have their tables, and we their token."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "oss.json").write_text(json.dumps({"token": TOKEN}))


async def _record_retried_and_cancelled(recorder: Recorder, workflow: str) -> None:
    """Checks and purges never fail: their activity is repeated until it succeeds, and only a cancellation ends them."""
    async with recorder.rename_table_during_block("addr_logical_deletes"):
        retried, cancelled = [await _start(recorder, workflow, name) for name in ("retried", "cancelled")]
        for workflow_id in (retried, cancelled):
            await recorder.wait_for_failed_attempt(workflow_id)
        await recorder.engine.get_workflow_handle(cancelled).cancel()
        await recorder.wait_for_end(cancelled)
    await recorder.wait_for_end(retried)
    await recorder.keep(retried, workflow, "retried")
    await recorder.keep(cancelled, workflow, "cancelled")


async def _record_comparisons_of_refusing_module(recorder: Recorder, oss: Oss) -> None:
    """One comparison fails after its last attempt, another is cancelled before it."""
    # Not a status of an outage: that would open the breaker, which the cycles that are recorded next would meet.
    oss.set(OssScenario(rules=(OssRule(action=OssAction.ERROR, status=403, modules=frozenset({"od"})),)))
    failed, cancelled = [await _start(recorder, COMPARISON, name) for name in ("failed", "cancelled")]
    await recorder.wait_for_failed_attempt(cancelled)
    await recorder.engine.get_workflow_handle(cancelled).cancel()
    for workflow_id, name in ((cancelled, "cancelled"), (failed, "failed")):
        await recorder.wait_for_end(workflow_id)
        await recorder.keep(workflow_id, COMPARISON, name)
    oss.set(OssScenario())


async def _start(recorder: Recorder, workflow: str, name: str) -> str:
    workflow_id, (registered, arguments) = f"{workflow}-{name}", STARTS[workflow]
    await recorder.engine.start_workflow(registered, args=arguments, id=workflow_id, task_queue=addresses_names.QUEUE)
    return workflow_id
