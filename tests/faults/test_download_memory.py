"""Memory of the workers under many exports at once, some cancelled, and under pages of many megabytes."""

from __future__ import annotations

import asyncio
import sys

import pytest

from dev.local import list_worker_names
from tests.support.caller import Caller, running_caller
from tests.support.deployment import Deployment
from tests.support.memory import resident_bytes, watching
from tests.support.waiting import eventually

MEGABYTE = 1024 * 1024
MEMORY_MAX_BYTES = 400 * MEGABYTE
QUIET_MAX_BYTES = 300 * MEGABYTE
"""What a worker keeps once there is nothing to do any more."""
EXPORTS, CANCELLED, ROWS = 10, 5, 300_000
CANCEL_AT_ROWS = 50_000
WHOLE_EXPORTS, WHOLE_ROWS = 4, 250_000
"""An answer of these has 53 MB."""
WIDE_ROWS, PAGE_SIZE = 4_000, 1_000
PAGES_BYTES = (24_000_000, 48_000_000, 60_000_000, 72_000_000)
"""The last is more than a page may have."""
PATIENCE_SECONDS = 1_200.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_600)]


async def test_workers_stay_small_and_come_back_down(deployment: Deployment) -> None:
    """Ten exports at once, five cancelled, then pages of 24 to 72 MB: no worker has 400 MB, and both give it back.

    Large pages come from sources that heed `page_size`, and from some that answer all rows at once.
    """
    idle = _measure_memory(deployment)
    async with running_caller(deployment) as caller:
        async with watching(deployment) as many:
            await _run_many_exports(deployment, caller)
        between = _measure_memory(deployment)
        async with watching(deployment) as whole:
            await _export_whole_pages(deployment, caller)
        async with watching(deployment) as wide:
            await _export_wide_pages(deployment, caller)

    async def is_quiet() -> bool:
        return max(_measure_memory(deployment).values()) < QUIET_MAX_BYTES

    told = {
        "idle": idle,
        "many": many.peaks,
        "between": between,
        "whole": whole.peaks,
        "wide": wide.peaks,
        "at once": _measure_memory(deployment),
    }
    try:
        await eventually(is_quiet)
    finally:
        told["quiet"] = _measure_memory(deployment)
        for moment, used in told.items():
            megabytes = {name: used[name] // MEGABYTE for name in list_worker_names()}
            sys.stderr.write(f"{moment}: {megabytes} MB\n")
    assert max(many.peaks.values()) < MEMORY_MAX_BYTES
    assert max(whole.peaks.values()) < MEMORY_MAX_BYTES
    assert max(wide.peaks.values()) < MEMORY_MAX_BYTES


def _measure_memory(deployment: Deployment) -> dict[str, int]:
    return {name: resident_bytes(deployment, name) for name in list_worker_names()}


async def _run_many_exports(deployment: Deployment, caller: Caller) -> None:
    """Half of them as they are asked for, the other half cancelled on their way."""
    url = f"{deployment.source}/rows?rows={ROWS}"
    task_ids = [await caller.start(f"{url}&seed={n}", page_size=PAGE_SIZE) for n in range(EXPORTS)]

    async def cancel(task_id: str) -> None:
        await caller.until(task_id, lambda status: status["rows"] >= CANCEL_AT_ROWS, patience_seconds=PATIENCE_SECONDS)
        await caller.call("POST", f"/v1/downloads/{task_id}/cancel", 202)

    await asyncio.gather(*map(cancel, task_ids[:CANCELLED]))
    ends = await asyncio.gather(*(caller.wait_for_end(each, patience_seconds=PATIENCE_SECONDS) for each in task_ids))
    assert [end["state"] for end in ends] == ["cancelled"] * CANCELLED + ["succeeded"] * (EXPORTS - CANCELLED)
    assert {end["rows"] for end in ends[CANCELLED:]} == {ROWS}


async def _export_whole_pages(deployment: Deployment, caller: Caller) -> None:
    """Exports of one page each, of many small rows, all at once."""
    url = f"{deployment.source}/rows?rows={WHOLE_ROWS}&whole=1"
    task_ids = [await caller.start(f"{url}&seed={n}", page_size=PAGE_SIZE) for n in range(WHOLE_EXPORTS)]
    ends = await asyncio.gather(*(caller.wait_for_end(each, patience_seconds=PATIENCE_SECONDS) for each in task_ids))
    wrong = [end for end in ends if (end["state"], end["rows"]) != ("succeeded", WHOLE_ROWS)]
    assert not wrong, str([end["fault"] for end in wrong])[:900]


async def _export_wide_pages(deployment: Deployment, caller: Caller) -> None:
    """One export of each size, all at once."""
    url = f"{deployment.source}/rows?rows={WIDE_ROWS}"
    task_ids = [await caller.start(f"{url}&pad={size // PAGE_SIZE}", page_size=PAGE_SIZE) for size in PAGES_BYTES]
    ends = await asyncio.gather(*(caller.wait_for_end(each, patience_seconds=PATIENCE_SECONDS) for each in task_ids))
    assert [end["state"] for end in ends] == ["succeeded"] * 3 + ["failed"]
    assert [end["rows"] for end in ends[:3]] == [WIDE_ROWS] * 3
    assert ends[3]["fault"]["code"] == "source_too_large"
