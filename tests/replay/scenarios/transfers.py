"""Jobs to be recorded: one of each way that they can take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from domain.transfers import names
from domain.transfers.joining import TransferJobInput
from domain.transfers.models import FileByBizAppAndPath
from infra.objects import ObjectStore
from sims.gse.scenario import GseAction, GseRule, GseScenario
from sims.gse.server import running_gse
from sims.gse.world import GseWorld
from tests.replay.recorder import Recorder
from tests.support.transfers import CONTENT, FOLDER, sha256
from workflows.transfers.job import TransferJob

PORT = 18_977
VARIABLES: Mapping[str, str] = {
    "HAULAGE_GSE__BASE_URL": f"http://127.0.0.1:{PORT}",
    "HAULAGE_GSE__APP_CODE": "haulage",
    "HAULAGE_GSE__APP_SECRET": "secret",
    "HAULAGE_GSE__SOURCE_AGENT_ID": "0:10.0.0.1",
    "HAULAGE_TRANSFERS__WINDOW_SECONDS": "2",
    "HAULAGE_TRANSFERS__TIMEOUT_SECONDS": "4",
    "HAULAGE_TRANSFERS__SHARD_TARGETS": "4",
    "HAULAGE_TRANSFERS__TERMINATE_WAIT_SECONDS": "0.5",
}
WORKFLOW = TransferJob.__name__
STUCK = GseRule(action=GseAction.STUCK, agent="stuck.*")
# Whom to send what, by the name of the history that it gives.
JOBS: dict[str, tuple[Sequence[str], bytes]] = {
    "one-target": (["agent"], CONTENT),
    "many-shards": ([f"agent-{n}" for n in range(10)], CONTENT),
    "file-missing": (["agent"], b"never uploaded"),
    "too-late": (["agent", "stuck"], CONTENT),
}


async def record(recorder: Recorder) -> None:
    """Send in every way and keep the histories."""
    store = ObjectStore(recorder.running.settings.objects)
    await store.put(f"transfers/2/{sha256(CONTENT)}", CONTENT)
    await store.close()
    async with running_gse(GseWorld(GseScenario(rules=(STUCK,))), PORT):
        for app_id, (name, (agents, content)) in enumerate(JOBS.items()):
            job_id = await _join(recorder, app_id, agents, content)
            await recorder.engine.get_workflow_handle(job_id).result()
            await recorder.keep(job_id, WORKFLOW, name)
        await _record_cancelled_job(recorder, app_id=100)
        await _record_closed_job(recorder, app_id=101)
        await _record_empty_job(recorder, app_id=102)
        await _record_retried_job(recorder, app_id=103)


async def _record_cancelled_job(recorder: Recorder, app_id: int) -> None:
    """From outside, in the middle of the transfer."""
    job_id = await _join(recorder, app_id, ["agent", "stuck"], CONTENT)
    handle = recorder.engine.get_workflow_handle(job_id)
    await asyncio.sleep(3)
    await handle.cancel()
    await handle.result()
    await recorder.keep(job_id, WORKFLOW, "cancelled")


async def _record_closed_job(recorder: Recorder, app_id: int) -> None:
    """By its project, while the window is open."""
    job_id = await _join(recorder, app_id, ["agent"], CONTENT)
    handle = recorder.engine.get_workflow_handle(job_id)
    await handle.signal(TransferJob.refuse_further_targets, recorder.project_id)
    await handle.result()
    await recorder.keep(job_id, WORKFLOW, "project-excluded")


async def _record_retried_job(recorder: Recorder, app_id: int) -> None:
    """Targets that failed, again."""
    job_id = await _join(recorder, app_id, ["agent", "stuck"], CONTENT)
    await recorder.engine.get_workflow_handle(job_id).result()
    async with recorder.session.post(f"/v1/transfers/jobs/{quote(job_id)}/retry", json={}) as answer:
        assert answer.status == 202, await answer.text()
        again = (await answer.json())["job_id"]
    await recorder.engine.get_workflow_handle(again).result()
    await recorder.keep(again, WORKFLOW, "retried")


async def _record_empty_job(recorder: Recorder, app_id: int) -> None:
    """A job that no target joins."""
    now = datetime.now(UTC)
    file = FileByBizAppAndPath(biz_id=2, app_id=app_id, path="/f")
    order = TransferJobInput(
        job_id=f"AsyncDownloadJob:2:{app_id}:/f:1", file=file, window_closes_at=now, deadline_at=now
    )
    await recorder.engine.execute_workflow(TransferJob.run, order, id=order.job_id, task_queue=names.QUEUE)
    await recorder.keep(order.job_id, WORKFLOW, "empty")


async def _join(recorder: Recorder, app_id: int, agents: Sequence[str], content: bytes) -> str:
    body: dict[str, Any] = {
        "biz_id": 2,
        "app_id": app_id,
        "file_path": "/etc/app.conf",
        "file_name": "app.conf",
        "signature": sha256(content),
        "target_user": "root",
        "target_file_dir": FOLDER,
        "targets": [{"target_agent_id": agent_id} for agent_id in agents],
    }
    async with recorder.session.post("/v1/transfers:batch", json=body) as answer:
        assert answer.status == 202, await answer.text()
        job_id: str = (await answer.json())["job_id"]
        return job_id
