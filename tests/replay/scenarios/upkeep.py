"""What is done beside the cycles of addresses, to be recorded: each plan has one step, whatever it finds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from domain.addresses import names as addresses_names
from domain.addresses.activity_models import ComparisonNameInput, PurgeAddressesInput
from domain.addresses.operations import Module
from sims.oss.server import TOKEN, running_oss
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


async def record(recorder: Recorder) -> None:
    """One of each, over modules without addresses."""
    make_folder()
    engine, check, purge, drift = (
        recorder.engine,
        "check-recorded",
        addresses_names.build_purge_workflow_id("1"),
        addresses_names.build_comparison_workflow_id("1"),
    )
    async with running_oss(FOLDER, PORT):
        await engine.execute_workflow(LogicalDeleteCheck.run, id=check, task_queue=addresses_names.QUEUE)
        await recorder.keep(check, LogicalDeleteCheck.__name__, "nothing-listed")
        order = PurgeAddressesInput(address_ids=[1], who="recorder")
        await engine.execute_workflow(SelectedAddressesPurge.run, order, id=purge, task_queue=addresses_names.QUEUE)
        await recorder.keep(purge, SelectedAddressesPurge.__name__, "not-listed")
        await engine.execute_workflow(
            ModuleComparison.run, ComparisonNameInput(report="1"), id=drift, task_queue=addresses_names.QUEUE
        )
        await recorder.keep(drift, ModuleComparison.__name__, "no-addresses")


def make_folder() -> None:
    """Where the modules have their tables, and we their token."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "oss.json").write_text(json.dumps({"token": TOKEN}))
