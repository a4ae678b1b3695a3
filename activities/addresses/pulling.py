"""Pulling: what Pub/Sub delivers is written into the log, and acknowledged after that."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from temporalio import activity

from clients.pubsub import PubSub, PubSubFailure, Received
from domain.addresses.intake import PullOrder, PullReport, Taken
from domain.addresses.messages import Topic
from infra import log
from infra.heartbeats import beating
from infra.settings import AddressSettings
from services.addresses.waking import Waker
from services.services import Services
from stores.addresses.inbox import Inbox, Incoming

IDLE_SECONDS: Final = 0.2
"""After an answer without messages that came at once, which the real service never gives."""

_log = log.get(__name__)


class AddressPulling:
    """The activity that pulls a topic."""

    def __init__(self, services: Services) -> None:
        self._settings = services.settings.addresses
        self._inbox = Inbox(services.database, self._settings.message_max_bytes)
        self._waker = Waker(services.engine)

    @activity.defn(name="address_pull")
    async def pull(self, order: PullOrder) -> PullReport:
        """Pull for a while, or until this worker stops."""
        if not self._settings.pubsub.project:
            return PullReport(is_off=True)
        async with beating(), PubSub(self._settings.pubsub) as pubsub:
            slice_ = _Slice(pubsub, self._inbox, self._waker, order, subscription(self._settings, order.topic))
            return PullReport(taken=await slice_.run(self._settings.pubsub.pulls))


def subscription(settings: AddressSettings, topic: Topic) -> str:
    """The subscription of a topic."""
    names = settings.pubsub.subscriptions
    return {Topic.SWAP: names.swap, Topic.CREATE_UPDATE: names.create_update, Topic.DELETE: names.delete}[topic]


class _Slice:
    """One topic, pulled for a while by several pulls at a time: while one writes, another waits for messages."""

    def __init__(self, pubsub: PubSub, inbox: Inbox, waker: Waker, order: PullOrder, name: str) -> None:
        self._pubsub = pubsub
        self._inbox = inbox
        self._waker = waker
        self._topic = order.topic
        self._subscription = name
        self._until = time.monotonic() + order.seconds
        self._stopping = asyncio.create_task(activity.wait_for_worker_shutdown())
        self._taken = Taken()

    async def run(self, pulls: int) -> Taken:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(pulls):
                    group.create_task(self._pump())
        except ExceptionGroup as failures:
            # One sentence is enough for the history: the pulls of a slice fail for the same reason.
            raise failures.exceptions[0] from None
        finally:
            self._stopping.cancel()
        return self._taken

    async def _pump(self) -> None:
        while (left := self._until - time.monotonic()) > 0 and not self._stopping.done():
            begun = time.monotonic()
            received = await self._pulled(left)
            if received:
                await self._take_in(received)
            elif time.monotonic() - begun < IDLE_SECONDS:
                await asyncio.wait([self._stopping], timeout=IDLE_SECONDS)

    async def _pulled(self, seconds: float) -> list[Received]:
        """What comes in time; a pull that is given up when this worker stops takes nothing with it for long."""
        pulling = asyncio.create_task(self._pubsub.pull(self._subscription))
        try:
            await asyncio.wait([pulling, self._stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return await pulling if pulling.done() else []
        finally:
            pulling.cancel()
            with suppress(asyncio.CancelledError, PubSubFailure):
                await pulling

    async def _take_in(self, received: list[Received]) -> None:
        ack_ids = [each.ack_id for each in received]
        try:
            taken = await self._inbox.take_in([Incoming(self._topic, each.message, each.refusal) for each in received])
        except Exception:
            # Another worker may have a database; here they would wait for the end of their deadline.
            with suppress(PubSubFailure):
                await self._pubsub.release(self._subscription, ack_ids)
            raise
        if taken.new:
            self._waker.wake()
        await self._pubsub.acknowledge(self._subscription, ack_ids)
        self._taken = self._taken.plus(taken)
        _log.info("address_messages_taken", topic=self._topic, **taken.model_dump())
