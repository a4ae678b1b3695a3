"""Records histories of real runs for the replay tests: `python -m tests.replay.record` on a machine with the parts."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
from temporalio.client import Client

from cli import process
from cli.house import House, house
from infra import temporal
from infra.settings import Settings
from workflows import downloads

HISTORIES = Path(__file__).parent / "histories"
POLL_SECONDS = 0.1
# What to export, by the name of the history that it gives.
EXPORTS = {
    "linear": "rows=1000",
    "parallel": "rows=50000",
    "empty": "rows=0",
    "source-missing": "rows=1000&faults=404&rate=1",
}


async def record() -> None:
    """Export in every way and keep the histories."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings().model_copy(update={"data_dir": Path(folder)})
        async with house(settings) as running, aiohttp.ClientSession(base_url=running.api) as session:
            engine = await temporal.connect()
            project = await _project(session, running)
            for name, query in EXPORTS.items():
                task_id = await _export(session, f"{running.source}/rows?{query}")
                await _keep(engine, downloads.workflow_id(project, task_id), "DownloadWorkflow", name)


async def _project(session: aiohttp.ClientSession, running: House) -> str:
    headers = {"Authorization": f"Bearer {running.admin_key}"}
    async with session.post("/v1/projects", json={"name": "record"}, headers=headers) as answer:
        made = await answer.json()
    session.headers["Authorization"] = f"Bearer {made['key']['api_key']}"
    project_id: str = made["project_id"]
    return project_id


async def _export(session: aiohttp.ClientSession, url: str) -> str:
    async with session.post("/v1/downloads", json={"source_url": url, "page_size": 100}) as answer:
        task_id: str = (await answer.json())["task_id"]
    state = "pending"
    while state in ("pending", "running"):
        await asyncio.sleep(POLL_SECONDS)
        async with session.get(f"/v1/downloads/{task_id}") as answer:
            state = (await answer.json())["state"]
    return task_id


async def _keep(engine: Client, workflow_id: str, workflow: str, name: str) -> None:
    history = await engine.get_workflow_handle(workflow_id).fetch_history()
    path = HISTORIES / workflow / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_anonymous(json.loads(history.to_json())), indent=1) + "\n")


def _anonymous(value: Any) -> Any:
    """Without the names of the machine and process that recorded it."""
    match value:
        case dict():
            return {key: "recorder" if key == "identity" else _anonymous(each) for key, each in value.items()}
        case list():
            return [_anonymous(each) for each in value]
        case _:
            return value


if __name__ == "__main__":
    process.run(record())
