"""A worker killed between two attempts, or in the middle of one: the receiver is told all the same."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from infra import services
from infra.embedded import Stack
from infra.settings import Settings
from sims.receiver import running_receiver
from tests.support.api import running_api
from tests.support.waiting import eventually
from tests.support.webhooks import Webhooks, make_order, start, verified, with_receiver

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def worker_process(environment: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process of webhooks."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", "worker", "--queues", "webhooks", cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("answers", "delay_ms", "messages", "attempts"),
    [("500,200", 0, 2, 2), ("200", 8_000, 2, 1)],
    ids=["between attempts", "in an attempt"],
)
async def test_a_killed_worker_s_delivery_arrives(
    settings: Settings,
    stack: Stack,
    environment: dict[str, str],
    namespace: str,
    answers: str,
    delay_ms: int,
    messages: int,
    attempts: int,
) -> None:
    """Another worker goes on with the ladder; an attempt that nobody booked is made again under the same id."""
    async with running_receiver() as receiver:
        settings = with_receiver(settings, receiver, retry_pauses_seconds=[10.0])
        environment |= stack.environment(settings, namespace)
        async with running_api(settings) as api_client, services.connect(settings) as held:
            project_id, key = await api_client.make_project()
            deliveries = Webhooks(api_client, receiver, held, project_id, key)
            secret = await deliveries.rotate(0)
            order = make_order(held.sealer, project_id, receiver.url(answers=answers, delay_ms=delay_ms))
            await start(held.engine, order)
            async with worker_process(environment) as first:
                await eventually(lambda: len(receiver.received()) == 1)
                if not delay_ms:
                    await deliveries.became(order, "pending", 1)
                first.kill()
                await first.wait()
            async with worker_process(environment):
                await eventually(lambda: len(receiver.received()) == messages)
                await deliveries.became(order, "succeeded", attempts)

        assert {message.headers["webhook-id"] for message in receiver.received()} == {order.delivery_id}
        assert all(verified(message, secret) for message in receiver.received())
