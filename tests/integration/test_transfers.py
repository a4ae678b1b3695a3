"""Transfers through the public API: a file asked for by many hosts arrives on each of them, once."""

from __future__ import annotations

import asyncio

import pytest

from infra.settings import Settings
from tests.support.transfers import CONTENT, job_of, running_transfers

pytestmark = pytest.mark.stack


async def test_a_file_arrives_where_it_was_asked_for(settings: Settings) -> None:
    """On a host and in a container, under its signature; the task says so with 0 and 100 per cent."""
    async with running_transfers(settings) as transfers:
        host = await transfers.join("0:10.0.0.2")
        container = await transfers.join("020000000242010a", "docker://4f1a")
        ends = [await transfers.wait_for_end(task_id) for task_id in (host, container)]

        assert [(end["status"], end["code"], end["progress"]) for end in ends] == [("Success", 0, 100)] * 2
        assert transfers.has_file("0:10.0.0.2")
        assert transfers.has_file("020000000242010a", "4f1a")
        job = await transfers.wait_for_job_end(job_of(ends[0]))
    assert (job["status"], job["partial"]) == ("Success", False)


async def test_many_requests_of_one_window_are_one_gse_task(settings: Settings) -> None:
    """Whether they came alone or together; the repository is asked once, each target is sent to once."""
    async with running_transfers(settings, window_seconds=3) as transfers:
        agents = [f"agent-{n}" for n in range(300)]
        alone = await asyncio.gather(*(transfers.join(agent_id) for agent_id in agents[:100]))
        together = await transfers.join_many(agents[100:])
        ends = [await transfers.wait_for_end(task_id) for task_id in [*alone, *together]]

        jobs = {job_of(end) for end in ends}
        assert {end["status"] for end in ends} == {"Success"}
        assert len(transfers.world.tasks) == len(jobs) <= 2
        assert all(transfers.sends[agent_id, ""] == 1 for agent_id in agents)
        assert all(transfers.has_file(agent_id, content=CONTENT) for agent_id in agents)
        assert len(set(alone) | set(together)) == 300
