"""What the original pays for every request and every target again and again, and must not be paid here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import event
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from domain.transfers import joining, names
from domain.transfers.activity_models import TransferJobStatus
from domain.transfers.joining import JoinBatch, ShardOfTargets, TargetsWithSameSpec, TransferJobInput
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from infra.database import Database
from infra.settings import Settings
from sims.gse.scenario import GseAction, GseCall, GseRule
from stores.transfers import shards, targets
from tests.support.transfers import CONTENT, QUICK, job_of, running_transfers, sha256, window_begins
from workflows.transfers.job import TransferJob

pytestmark = pytest.mark.stack

WANTED = TransferSpec(project_id="p", signature=sha256(CONTENT), user="root", folder="/data")


def order(number: int = 1) -> TransferJobInput:
    """A job that takes joins for a minute."""
    file = FileByBizAppAndPath(biz_id=2, app_id=7, path="/f")
    soon = datetime.now(UTC) + timedelta(seconds=60)
    return TransferJobInput(
        job_id=f"AsyncDownloadJob:2:7:/f:{number}", file=file, window_closes_at=soon, deadline_at=soon
    )


def make_group(first: int, count: int) -> TargetsWithSameSpec:
    """Return a group of targets."""
    return TargetsWithSameSpec(
        spec=WANTED, file_name="f", targets=[(key, f"a{key:09}", "") for key in range(first, first + count)]
    )


async def test_joins_for_one_file_do_not_queue_for_each_other(settings: Settings) -> None:
    """Three hundred at once are handed over in a few messages: no lock on the file is taken 300 times."""
    async with running_transfers(settings, window_seconds=30) as transfers:
        task_ids = await asyncio.gather(*(transfers.join(f"agent-{n}") for n in range(300)))
        jobs = {job_of(await transfers.status(task_id)) for task_id in task_ids}
        handles = [transfers.worker.services.engine.get_workflow_handle(job_id) for job_id in jobs]
        statuses = [await handle.query(TransferJob.status) for handle in handles]

    assert len(set(task_ids)) == sum(status.targets for status in statuses) == 300
    assert sum(status.batches for status in statuses) < 100


async def test_a_join_costs_the_same_whoever_has_joined_before(settings: Settings) -> None:
    """What is written for a group is the group, not all that have come so far."""
    async with running_transfers(settings) as transfers:
        handle: WorkflowHandle[TransferJob, TransferJobStatus] = await transfers.worker.services.engine.start_workflow(
            TransferJob.run, order(), id=order().job_id, task_queue=names.QUEUE
        )

        async def bytes_for_groups(first: int) -> int:
            before = await _history_bytes(handle)
            for number in range(first, first + 5):
                await handle.execute_update(TransferJob.join, JoinBatch(groups=[make_group(1_000 * number, 20)]))
            return await _history_bytes(handle) - before

        at_first = await bytes_for_groups(0)
        await handle.execute_update(TransferJob.join, JoinBatch(groups=[make_group(10**8, 1_000)]))
        later = await bytes_for_groups(10)
        await handle.terminate()

    # A thousand that came between would be some 40 kB, each time that they were written again.
    assert later < 2 * at_first < 40_000


async def test_a_window_takes_as_much_as_its_history(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request that comes then joins the next window, and leaves nothing in the history of the full one."""
    monkeypatch.setattr(joining, "JOIN_BYTES_MAX", 350)
    async with running_transfers(settings, window_seconds=4) as transfers:
        await window_begins(4)
        task_ids = [await transfers.join(f"agent-{number}") for number in range(2)]
        ends = [await transfers.wait_for_end(task_id) for task_id in task_ids]
        handle = transfers.worker.services.engine.get_workflow_handle(job_of(ends[0]))
        accepted = [
            each
            async for each in handle.fetch_history_events()
            if each.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
        ]

    assert [end["status"] for end in ends] == ["Success", "Success"]
    assert len({job_of(end) for end in ends}) == 2
    assert len(accepted) == 1


async def _history_bytes(handle: WorkflowHandle[TransferJob, TransferJobStatus]) -> int:
    return (await handle.describe()).raw_description.workflow_execution_info.history_size_bytes


@pytest.mark.parametrize("is_known_to_planner", [True, False])
async def test_a_status_is_looked_up_and_not_searched_for(database: Database, *, is_known_to_planner: bool) -> None:
    """Among ten thousand targets of twenty jobs neither a table nor a shard is read from end to end."""
    for number in range(20):
        shard = ShardOfTargets(number=1, spec=WANTED, file_name="f", targets=make_group(0, 500).targets)
        await shards.insert_missing_shards(database, order(number), [shard])
    async with database.connection() as connection:
        if is_known_to_planner:
            await connection.execute("ANALYZE transfer_jobs, transfer_targets, transfer_shards")
        wanted = ([order(7).job_id], [250], ["p"])
        found = await connection.fetch(targets.FIND, *wanted)
        plan = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {targets.FIND}", *wanted)

    assert [row["agent_id"] for row in found] == ["a000000250"]
    indexes = {
        node["Relation Name"]: node.get("Index Name") for node in _nodes(plan[0]["Plan"]) if "Relation Name" in node
    }
    assert indexes["transfer_targets"] == "pk_transfer_targets"


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from _nodes(inner)


async def test_a_poll_costs_no_statement_for_each_target(settings: Settings) -> None:
    """Neither while nothing happens nor when hundreds have ended: a poll is a few statements for all of them."""
    stuck = QUICK.model_copy(update={"rules": (GseRule(action=GseAction.STUCK, agent="stuck-.*"),)})
    async with running_transfers(settings, stuck, timeout_seconds=6.0) as transfers:
        with statements(transfers.worker.services.database) as seen:
            agents = [f"stuck-{n}" for n in range(150)] + [f"quick-{n}" for n in range(150)]
            task_ids = await transfers.join_many(agents)
            jobs = {job_of(await transfers.status(task_id)) for task_id in task_ids}
            for job_id in jobs:
                await transfers.wait_for_job_end(job_id)
        polls = transfers.world.calls[GseCall.RESULTS]

        assert polls >= 3
        assert 0 < len([each for each in seen if "transfer_" in each]) <= 20 * len(jobs) + 6 * polls


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Every statement that goes through this pool meanwhile."""
    seen: list[str] = []
    listening: list[asyncpg.Connection[asyncpg.Record]] = []

    def note(query: Any) -> None:
        seen.append(query.query)

    def listen(connection: Any, *_: object) -> None:
        driver = connection.driver_connection
        if driver not in listening:
            driver.add_query_logger(note)
            listening.append(driver)

    pool = database._pool.sync_engine
    event.listen(pool, "checkout", listen)
    try:
        yield seen
    finally:
        event.remove(pool, "checkout", listen)
        for driver in listening:
            driver.remove_query_logger(note)
