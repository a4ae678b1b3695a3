"""Recorder: what a scenario needs to record histories: an installation, a project, a receiver and a folder."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import text
from temporalio.client import Client, WorkflowFailureError

from dev.embedded import flags
from dev.embedded.flags import ComponentFlag
from dev.local import LocalInstallation, run_installation
from domain import VERSION
from infra import temporal
from infra.database import Database
from infra.settings import Settings
from sims.platforms.server import Platforms, running_platforms
from sims.receiver import Receiver, running_receiver
from tests.support.waiting import eventually

_CONTINUE = "limit.historyCount.suggestContinueAsNew"
HISTORIES = Path(__file__).parent / "histories" / VERSION
"""Histories of this version; those of released versions stay as they are."""


@dataclass(frozen=True)
class Recorder:
    """A running installation, and a project whose runs are recorded."""

    running: LocalInstallation
    receiver: Receiver
    platforms: Platforms
    engine: Client
    session: aiohttp.ClientSession
    project_id: str
    only: Sequence[str] = ("*",)
    """Patterns of the histories that are written, such as `OrderReportWorkflow/*`."""

    async def keep(self, workflow_id: str, workflow: str, name: str, *, run_id: str | None = None) -> None:
        """Write a run's history under this name; without a run id that of the last run."""
        if not any(fnmatch(f"{workflow}/{name}", pattern) for pattern in self.only):
            return
        history = await self.engine.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        path = HISTORIES / workflow / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_anonymous(json.loads(history.to_json())), indent=1) + "\n")

    async def wait_for_end(self, workflow_id: str) -> None:
        """Wait until a workflow ends, also where it fails or is cancelled."""
        with suppress(WorkflowFailureError):
            await self.engine.get_workflow_handle(workflow_id).result()

    async def wait_for_failed_attempt(self, workflow_id: str) -> None:
        """Wait until an attempt of the activity that a workflow waits for has failed, and will be repeated."""

        async def has_failed_attempt() -> bool:
            description = await self.engine.get_workflow_handle(workflow_id).describe()
            return any(each.attempt > 1 for each in description.raw_description.pending_activities)

        await eventually(has_failed_attempt)

    @asynccontextmanager
    async def rename_table_during_block(self, table: str) -> AsyncIterator[None]:
        """Rename a table of the database while the body runs: every activity that needs it fails."""
        database = Database(self.running.settings.database)
        try:
            await _rename(database, table, f"{table}_away")
            try:
                yield
            finally:
                await _rename(database, f"{table}_away", table)
        finally:
            await database.close()


@asynccontextmanager
async def recording(
    variables: Mapping[str, str], events_max: int | None = None, only: Sequence[str] = ("*",)
) -> AsyncIterator[Recorder]:
    """Start everything, with these settings.

    Args:
        events_max: Events after which a run is asked to continue as new; by default the usual number.
        only: Patterns of the histories that are written.
    """
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        async with running_receiver() as receiver, running_platforms() as platforms:
            allowed = json.dumps([each.base.removeprefix("http://") for each in (receiver, platforms)])
            credentials = {"HAULAGE_ORDERS__CREDENTIALS_FOLDER": folder}
            os.environ.update(variables, **credentials, HAULAGE_GUARD__ALLOW=allowed)
            if events_max is not None:
                soon = ComponentFlag(_CONTINUE, events_max, "Runs that go on in another.", "Short histories.")
                patch.setattr(flags, "ENGINE_DYNAMIC", (*flags.ENGINE_DYNAMIC, soon))
            settings = Settings().model_copy(update={"data_dir": Path(folder)})
            async with (
                run_installation(settings, simulated_services=("source",)) as running,
                aiohttp.ClientSession(base_url=running.api) as session,
            ):
                engine = await temporal.connect(running.stack.build_environment(running.settings))
                project_id = await _project(session, running)
                yield Recorder(running, receiver, platforms, engine, session, project_id, only)


async def _rename(database: Database, table: str, name: str) -> None:
    async with database.session() as transaction:
        await transaction.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))


async def _project(session: aiohttp.ClientSession, running: LocalInstallation) -> str:
    headers = {"Authorization": f"Bearer {running.admin_key}"}
    async with session.post("/v1/projects", json={"name": "record"}, headers=headers) as answer:
        made = await answer.json()
    session.headers["Authorization"] = f"Bearer {made['key']['api_key']}"
    project_id: str = made["project_id"]
    return project_id


def _anonymous(value: Any) -> Any:
    """Without the names of the machine and process that recorded it, and without its paths."""
    match value:
        case dict():
            hidden = {"identity": "recorder", "stackTrace": ""}
            return {key: hidden[key] if key in hidden else _anonymous(each) for key, each in value.items()}
        case list():
            return [_anonymous(each) for each in value]
        case _:
            return value
