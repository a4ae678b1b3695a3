"""Pushing: each message is sent to the endpoint of its subscription until it is answered by a success."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp

from sims.pubsub.broker import Broker, BrokerSubscription, Sent
from sims.pubsub.signing import Signer

TIMEOUT = aiohttp.ClientTimeout(total=10)


class Pusher:
    """Serves the subscriptions that have an endpoint."""

    def __init__(self, broker: Broker, signer: Signer) -> None:
        self._broker = broker
        self._signer = signer
        self._tasks: list[asyncio.Task[None]] = []
        self.answers: dict[int, int] = {}
        """How often each status was answered; 0 means no answer at all."""

    def serve(self, subscription: BrokerSubscription) -> None:
        """Begin to push."""
        self._tasks.append(asyncio.create_task(self._serve(subscription)))

    async def close(self) -> None:
        """Stop pushing."""
        for task in self._tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks)

    async def _serve(self, subscription: BrokerSubscription) -> None:
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session, asyncio.TaskGroup() as group:
            for _ in range(self._broker.scenario.push_calls):
                group.create_task(self._pump(session, subscription))

    async def _pump(self, session: aiohttp.ClientSession, subscription: BrokerSubscription) -> None:
        while True:
            for ack_id, sent in await self._broker.pull(subscription, 1):
                if await self._push(session, subscription, sent):
                    self._broker.acknowledge(subscription, [ack_id])
                else:
                    await asyncio.sleep(self._broker.scenario.push_retry_seconds)
                    self._broker.extend(subscription, [ack_id], 0)

    async def _push(self, session: aiohttp.ClientSession, subscription: BrokerSubscription, sent: Sent) -> bool:
        envelope = {"message": sent.to_json(), "subscription": subscription.name, "deliveryAttempt": sent.deliveries}
        try:
            async with session.post(subscription.endpoint, json=envelope, headers=self._headers(subscription)) as said:
                status = said.status
        except (aiohttp.ClientError, TimeoutError):
            status = 0
        self.answers[status] = self.answers.get(status, 0) + 1
        return 200 <= status < 300

    def _headers(self, subscription: BrokerSubscription) -> dict[str, str]:
        asked = subscription.push.get("oidcToken")
        if not asked:
            return {}
        token = self._signer.token(email=asked["serviceAccountEmail"], audience=asked["audience"])
        return {"Authorization": f"Bearer {token}"}
