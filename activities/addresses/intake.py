"""The activity of intake: pull the messages of a topic into the log."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from temporalio import activity

from clients.http import RequestSize
from clients.pubsub import PubSubClient, PubSubFailure, ReceivedMessage
from domain.addresses.activity_models import IntakeMessageCounts, PulledMessageCountsOrOff, PullTopicInput
from domain.addresses.messages import Topic
from infra import log
from infra.address_settings import AddressSettings
from infra.heartbeats import send_heartbeats_during_block
from services.addresses import CycleTrigger
from services.services import Services
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter

_log = log.get(__name__)

IDLE_SECONDS: Final = 0.2
"""The pause after an empty response that came at once, which the real service never gives."""
LAST_RESPONSES_SECONDS: Final = 1.0
"""When a pull of several has failed, for how long the others may still receive what is on its way to them."""
PULL_USUAL_BYTES: Final = 12 * 1024 * 1024
"""Data of a pull beyond which fewer messages are pulled at a time; in base64 it is a quarter of what is read."""


class AddressIntakeActivities:
    """Pulls the messages of a topic into the inbox."""

    def __init__(self, services: Services) -> None:
        self._settings = services.settings.addresses
        self._inbox = MessageLogAndQuarantineWriter(services.database, self._settings.message_max_bytes)
        self._trigger = CycleTrigger(services.engine, self._settings.pause_seconds)
        self._sizes = {topic: RequestSize(self._settings.pubsub.pull_max) for topic in Topic}

    @activity.defn(name="address_pull")
    async def pull_messages(self, params: PullTopicInput) -> PulledMessageCountsOrOff:
        """Pull for a number of seconds, or until this worker stops."""
        if not self._settings.pubsub.project:
            return PulledMessageCountsOrOff(is_off=True)
        async with send_heartbeats_during_block(), PubSubClient(self._settings.pubsub) as pubsub:
            name, size = get_subscription_name(self._settings, params.topic), self._sizes[params.topic]
            slice_ = _ConcurrentTopicPuller(pubsub, self._inbox, self._trigger, params, name, size)
            return PulledMessageCountsOrOff(
                taken=await slice_.pull_concurrently_until_stopped(self._settings.pubsub.pulls)
            )


def get_subscription_name(settings: AddressSettings, topic: Topic) -> str:
    """Return the subscription of a topic."""
    names = settings.pubsub.subscriptions
    return {Topic.SWAP: names.swap, Topic.CREATE_UPDATE: names.create_update, Topic.DELETE: names.delete}[topic]


class _ConcurrentTopicPuller:
    """Pulls one topic for a while with several pulls at a time: while one writes, another waits for messages."""

    def __init__(
        self,
        pubsub: PubSubClient,
        inbox: MessageLogAndQuarantineWriter,
        trigger: CycleTrigger,
        params: PullTopicInput,
        name: str,
        size: RequestSize,
    ) -> None:
        self._pubsub = pubsub
        self._inbox = inbox
        self._trigger = trigger
        self._topic = params.topic
        self._subscription = name
        self._size = size
        self._until = time.monotonic() + params.seconds
        self._stopping = asyncio.create_task(activity.wait_for_worker_shutdown())
        self._counts = IntakeMessageCounts()

    async def pull_concurrently_until_stopped(self, pulls: int) -> IntakeMessageCounts:
        pulling = [asyncio.create_task(self._pull_until_time_or_shutdown()) for _ in range(pulls)]
        try:
            await asyncio.wait(pulling, return_when=asyncio.FIRST_EXCEPTION)
            # If one has failed, the others go on for a moment, and end only when they have stored or given back what
            # they received: cancelled before, it would wait for the end of its deadline.
            await asyncio.wait(pulling, timeout=LAST_RESPONSES_SECONDS)
            self._stopping.cancel()
            await asyncio.wait(pulling)
        finally:
            for each in (self._stopping, *pulling):
                each.cancel()
            results = await asyncio.gather(*pulling, return_exceptions=True)
        # The pulls of a slice fail for the same reason: one is enough for the history.
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return self._counts

    async def _pull_until_time_or_shutdown(self) -> None:
        while (left := self._until - time.monotonic()) > 0 and not self._stopping.done():
            begun = time.monotonic()
            received = await self._pull_once(left)
            if received:
                await self._store_and_acknowledge(received)
            elif time.monotonic() - begun < IDLE_SECONDS:
                await asyncio.wait([self._stopping], timeout=IDLE_SECONDS)

    async def _pull_once(self, seconds: float) -> list[ReceivedMessage]:
        """Return the messages that arrive in time and fit. Those of a cancelled pull are delivered again."""
        size = self._size.items
        pulling = asyncio.create_task(self._pubsub.pull(self._subscription, size))
        try:
            await asyncio.wait([pulling, self._stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            received = await pulling if pulling.done() else []
        except PubSubFailure as failure:
            if not failure.is_too_large or not self._size.shrink_if_possible(size):
                raise
            # They are delivered again when their deadline ends, and then fewer at a time.
            _log.warning("address_pull_too_large", topic=self._topic, messages=size)
            return []
        else:
            # What is too large to be read is kept back until its deadline ends, and later messages come before it.
            data_bytes = sum(len(each.message.data) for each in received)
            if data_bytes > PULL_USUAL_BYTES:
                self._size.shrink_if_possible(len(received))
            elif data_bytes < PULL_USUAL_BYTES // 2 and len(received) >= size:
                self._size.grow()
            return received
        finally:
            pulling.cancel()
            with suppress(asyncio.CancelledError, PubSubFailure):
                await pulling

    async def _store_and_acknowledge(self, received: list[ReceivedMessage]) -> None:
        ack_ids = [each.ack_id for each in received]
        try:
            taken = await self._inbox.store_messages_or_quarantine_them(
                [DeliveredMessage(self._topic, each.message, each.refusal) for each in received]
            )
        except BaseException:  # also where the activity is cancelled
            # Another worker may reach the database; kept here, they would wait for the end of their deadline.
            with suppress(PubSubFailure):
                await self._pubsub.make_available_for_next_pull(self._subscription, ack_ids)
            raise
        if taken.new:
            self._trigger.request_cycle()
        await self._pubsub.acknowledge(self._subscription, ack_ids)
        self._counts = self._counts.add(taken)
        _log.info("address_messages_received", topic=self._topic, **taken.model_dump())
