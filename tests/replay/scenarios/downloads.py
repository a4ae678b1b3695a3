"""Downloads to be recorded: one of each way that they can take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from domain.downloads import names
from tests.replay.recorder import Recorder

VARIABLES: Mapping[str, str] = {
    "HAULAGE_DOWNLOADS__RETRY_PAUSE_SECONDS": "0.01",
    "HAULAGE_DOWNLOADS__RERUN_PAUSE_SECONDS": "0.05",
    "HAULAGE_DOWNLOADS__RESUME_WINDOW_SECONDS": "1",
    "HAULAGE_DOWNLOADS__SLICE_SECONDS": "0.2",
    "HAULAGE_DOWNLOADS__EXCEL_FILE_MAX_ROWS": "20000",
}
EVENTS_MAX = 60
"""Runs of a few ranges go on in another."""
WORKFLOW = "DownloadWorkflow"
# What to export, by the name of the history that it gives: one source for each table.
EXPORTS: dict[str, tuple[str | list[str], dict[str, Any]]] = {
    "linear": ("rows=1000", {}),
    "parallel": ("rows=50000", {}),
    "sliced": ("rows=2000&delay_ms=60", {}),
    "empty": ("rows=0", {}),
    "no-total": ("rows=1000&no_total=1", {}),
    "columns-open": ("rows=1000&late_from=500", {"columns": "open"}),
    "parquet": ("rows=1000", {"type": "parquet"}),
    "excel": ("rows=1000", {"type": "excel", "title": "订单"}),
    "excel-archive": ("rows=50000", {"type": "excel", "template": {"id": "编号", "city": "城市"}}),
    "excel-tables": (["rows=300", "rows=400&no_total=1"], {"type": "excel", "multi": "page"}),
    "source-missing": ("rows=1000&faults=404&rate=1", {}),
    "rerun": ("rows=1000&tag=rerun&away_after=6&away_for=9", {}),
    "told-to-wait": ("rows=1000&faults=429&rate=1&only_page=3&fail_first=1&retry_after=2", {}),
    "total-changed": ("rows=1000&faults=total&rate=1&only_page=3&fail_first=3", {}),
    "given-up": ("rows=1000&faults=short&rate=1&only_page=3", {}),
    "small": ("rows=100", {}),
    "small-after-a-wait": ("rows=200&tag=wait&faults=429&rate=1&only_page=1&fail_first=1&retry_after=2", {}),
    "too-long": ("rows=100000&delay_ms=500", {"max_exec_time": 2}),
}


async def record(recorder: Recorder) -> None:
    """Export in every way and keep the histories."""
    for name, (query, request) in EXPORTS.items():
        await _save_history(recorder, await _wait_for_end(recorder, await _start(recorder, query, request)), name)
    told = await _start(recorder, "rows=100", {"callback": recorder.receiver.url(tag="callback")})
    await _save_history(recorder, await _wait_for_end(recorder, told), "callback")
    cancelled = await _start(recorder, "rows=100000&delay_ms=100", {})
    await asyncio.sleep(1)
    await recorder.session.post(f"/v1/downloads/{cancelled}/cancel")
    await _save_history(recorder, await _wait_for_end(recorder, cancelled), "cancelled")


async def record_continued(recorder: Recorder) -> None:
    """The first and the last run of an export whose history has grown long."""
    workflow_id = names.build_download_workflow_id(recorder.project_id, await _start(recorder, *EXPORTS["parallel"]))
    handle = recorder.engine.get_workflow_handle(workflow_id)
    first = (await handle.describe()).run_id
    await handle.result()
    await recorder.keep(workflow_id, WORKFLOW, "continued", run_id=first)
    await recorder.keep(workflow_id, WORKFLOW, "went-on")


async def _start(recorder: Recorder, query: str | list[str], request: Mapping[str, Any]) -> str:
    base = f"{recorder.running.source}/rows?"
    urls = base + query if isinstance(query, str) else [base + each for each in query]
    body = {"source_url": urls, "page_size": 100, **request}
    async with recorder.session.post("/v1/downloads", json=body) as answer:
        assert answer.status == 202, await answer.text()
        task_id: str = (await answer.json())["task_id"]
        return task_id


async def _wait_for_end(recorder: Recorder, task_id: str) -> str:
    """Wait for the end of the workflow, which is later than the download's where it waits for a retry."""
    handle = recorder.engine.get_workflow_handle(names.build_download_workflow_id(recorder.project_id, task_id))
    await handle.result()
    return task_id


async def _save_history(recorder: Recorder, task_id: str, name: str) -> None:
    await recorder.keep(names.build_download_workflow_id(recorder.project_id, task_id), WORKFLOW, name)
