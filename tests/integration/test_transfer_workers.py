"""Transfers without a worker are refused in a sentence; while one is being replaced, they are accepted."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse

from api import batching
from api.transfers import joins
from domain.transfers import names
from infra import temporal
from tests.support.pace import measure_pace
from tests.support.transfers import QUEUES, Transfers
from tests.support.waiting import eventually
from tests.support.worker import running_worker

pytestmark = pytest.mark.stack

SEEN_WITHIN = timedelta(seconds=1)
TARGET = {"target_agent_id": "agent-1"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is given a second for its answer, on a free core."""
    monkeypatch.setattr(joins, "ANSWER_TIMEOUT", timedelta(seconds=measure_pace()))


async def test_without_workers_a_request_is_refused_soon(transfers: Transfers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which part is missing; it was the sentence of any outage, after half a minute."""
    monkeypatch.setattr(
        joins, "list_polling_workers", lambda answer: temporal.list_polling_workers(answer, SEEN_WITHIN)
    )
    engine = transfers.worker.services.engine
    await transfers.worker.stop()

    async def is_deserted() -> bool:
        answer = await temporal.describe_queue(engine, names.QUEUE, temporal.WORKFLOW_QUEUE)
        return not temporal.list_polling_workers(answer, SEEN_WITHIN)

    await eventually(is_deserted)
    pace, began = measure_pace(), time.monotonic()
    refused = await transfers.ask("POST", "/v1/transfers", json=transfers.build_request() | TARGET)

    assert (refused.status, refused.code) == (503, "no_workers")
    assert "`haulage worker --queues transfers`" in refused.body["detail"]
    assert time.monotonic() - began < pace * batching.RETRY_WINDOW_SECONDS / 2


async def test_a_worker_that_is_being_replaced_is_waited_for(
    transfers: Transfers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile is accepted as soon as the next one is there."""
    looks: list[set[str]] = []

    def note(answer: DescribeTaskQueueResponse) -> set[str]:
        looks.append(temporal.list_polling_workers(answer))
        return looks[-1]

    monkeypatch.setattr(joins, "list_polling_workers", note)
    await transfers.worker.stop()
    asking = asyncio.create_task(transfers.ask("POST", "/v1/transfers", json=transfers.build_request() | TARGET))
    await eventually(lambda: looks)
    async with running_worker(transfers.worker.services.settings, QUEUES):
        accepted = await asking

    assert accepted.status == 202
    assert all(looks)
