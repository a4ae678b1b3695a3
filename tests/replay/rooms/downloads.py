"""Downloads to be recorded: one of each way that they can take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.replay.recorder import Recorder
from workflows import downloads

VARIABLES: Mapping[str, str] = {}
POLL_SECONDS = 0.1
# What to export, by the name of the history that it gives.
EXPORTS = {
    "linear": "rows=1000",
    "parallel": "rows=50000",
    "empty": "rows=0",
    "source-missing": "rows=1000&faults=404&rate=1",
}


async def record(recorder: Recorder) -> None:
    """Export in every way and keep the histories."""
    for name, query in EXPORTS.items():
        task_id = await _export(recorder, f"{recorder.running.source}/rows?{query}")
        await recorder.keep(downloads.workflow_id(recorder.project_id, task_id), "DownloadWorkflow", name)


async def _export(recorder: Recorder, url: str) -> str:
    async with recorder.session.post("/v1/downloads", json={"source_url": url, "page_size": 100}) as answer:
        task_id: str = (await answer.json())["task_id"]
    state = "pending"
    while state in ("pending", "running"):
        await asyncio.sleep(POLL_SECONDS)
        async with recorder.session.get(f"/v1/downloads/{task_id}") as answer:
            state = (await answer.json())["state"]
    return task_id
