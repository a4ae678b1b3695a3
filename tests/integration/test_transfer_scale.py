"""One large job: within Temporal's limits, every target sent once; a full one sends the rest to the next window."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from domain.transfers import names
from domain.transfers.joining import JoinBatch, TargetsWithSameSpec, TransferJobInput
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from infra.settings import Settings
from sims.gse.scenario import GseCall
from tests.support.transfers import QUICK, running_transfers, sha256
from workflows.transfers.job import TransferJob

pytestmark = pytest.mark.stack

HISTORY_MAX_EVENTS, HISTORY_MAX_BYTES = 10_240, 10 * 1024 * 1024
"""Where Temporal begins to warn."""


@pytest.mark.parametrize("count", [5_000, pytest.param(50_000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
@pytest.mark.long
async def test_a_large_job_is_sent_in_shards(settings: Settings, count: int) -> None:
    """No target is lost or sent to twice, and GSE is called a few times for hundreds of targets."""
    async with running_transfers(settings, QUICK, window_seconds=15) as transfers:
        agents = [f"02000000024201{n:06x}" for n in range(count)]
        batches = [agents[start : start + 2_500] for start in range(0, count, 2_500)]
        task_ids = [
            task_id
            for task_ids in await asyncio.gather(*(transfers.join_many(batch) for batch in batches))
            for task_id in task_ids
        ]
        jobs = {(await transfers.status(task_ids[n]))["job_id"] for n in (0, -1)}
        ends = [await transfers.wait_for_job_end(job_id, timeout=400) for job_id in jobs]
        engine = transfers.worker.services.engine
        executions = [
            (await engine.get_workflow_handle(job_id).describe()).raw_description.workflow_execution_info
            for job_id in jobs
        ]

        assert len(set(task_ids)) == count
        assert sum(end["counts"]["Success"] for end in ends) == count
        assert transfers.sends == {(agent_id, ""): 1 for agent_id in agents}
        assert transfers.world.calls[GseCall.TRANSFER] <= count / 500 + len(jobs)
        assert transfers.world.calls[GseCall.RESULTS] <= count / 25
        assert max(execution.history_length for execution in executions) < HISTORY_MAX_EVENTS
        assert max(execution.history_size_bytes for execution in executions) < HISTORY_MAX_BYTES


async def test_a_full_job_answers_next(settings: Settings) -> None:
    """By targets or by groups; a group that comes again under its id is still the same one."""
    async with running_transfers(settings) as transfers:
        engine = transfers.worker.services.engine
        soon = datetime.now(UTC) + timedelta(seconds=60)
        file = FileByBizAppAndPath(biz_id=2, app_id=7, path="/f")
        order = TransferJobInput(
            job_id="AsyncDownloadJob:2:7:/f:1",
            file=file,
            window_closes_at=soon,
            deadline_at=soon,
            targets_max=3,
            batches_max=3,
        )
        handle = await engine.start_workflow(TransferJob.run, order, id=order.job_id, task_queue=names.QUEUE)

        async def join(group_id: str, *keys: int) -> tuple[bool, int, int]:
            wanted = TransferSpec(project_id="p", signature=sha256(b"nothing"), user="root", folder="/data")
            group = TargetsWithSameSpec(spec=wanted, file_name="f", targets=[(key, f"a{key}", "") for key in keys])
            reply = await handle.execute_update(TransferJob.join, JoinBatch(groups=[group]), id=group_id)
            return not reply.refused, reply.batches, reply.targets

        assert await join("first", 1, 2) == (True, 1, 2)
        assert await join("first", 1, 2) == (True, 1, 2)
        assert await join("too-many", 3, 4) == (False, 2, 2)
        assert await join("second", 3) == (True, 3, 3)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await join("no-more", 4)
        assert cast("ApplicationError", refused.value.cause).type == names.JOB_FULL
        assert await handle.query(TransferJob.count_project_targets, "p") == 3
        assert await handle.query(TransferJob.count_project_targets, "q") == 0
        await handle.terminate()
