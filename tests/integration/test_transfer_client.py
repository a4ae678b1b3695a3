"""The client library sends a file to hosts, and sends it again where it failed."""

from __future__ import annotations

import pytest

from haulage.transfers import Target, TransferFile, Transfers, TransferState
from sims.gse.scenario import GseAction, GseRule, GseScenario
from tests.support.gse import Gse
from tests.support.transfers import Transfers as Installation

pytestmark = pytest.mark.stack


async def test_failed_targets_are_sent_again(transfers: Installation, gse: Gse) -> None:
    """The first job names the cause; the retry brings the file to the target that failed."""
    gse.world.set(GseScenario(rules=(GseRule(action=GseAction.FAIL, agent="agent-2", code=104, times=1),)))
    body = transfers.build_request()
    file = TransferFile.model_validate({name: body[name] for name in TransferFile.model_fields})
    targets = [Target(target_agent_id=f"agent-{number}") for number in (1, 2, 3)]
    async with Transfers(transfers.api_client.address, transfers.key) as client:
        tasks = await client.send(file, targets)
        states = [job async for job in client.watch(tasks[0].job_id)]
        [failed] = [each async for each in client.list_targets(tasks[0].job_id, status=TransferState.FAILED)]
        retry = await client.retry(tasks[0].job_id)
        retried = [job async for job in client.watch(retry.job_id)]
        ends = [await client.get(task.task_id) for task in tasks]
        listed = [job.job_id async for job in client.list_jobs()]

    assert (states[-1].status, states[-1].partial, states[-1].ended) == (TransferState.FAILED, True, 3)
    assert [(each.reason, each.code, each.count) for each in states[-1].failures_by_reason] == [("gse_code", 104, 1)]
    assert (failed.target_agent_id, retry.retry_of, retry.targets) == ("agent-2", tasks[0].job_id, 1)
    assert retried[-1].status is TransferState.SUCCESS
    assert [each.status for each in ends] == [TransferState.SUCCESS, TransferState.FAILED, TransferState.SUCCESS]
    assert listed == [retry.job_id, tasks[0].job_id]
    assert all(transfers.has_file(target.target_agent_id) for target in targets)
