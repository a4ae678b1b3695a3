"""The broker: topics, subscriptions and leases, in memory."""

from __future__ import annotations

import asyncio
import heapq
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from sims.pubsub.scenario import Scenario

FIRST_ID = 10**15
HANG_SECONDS = 0.02


class MissingResource(LookupError):
    """There is no such topic or subscription."""


@dataclass(slots=True)
class Sent:
    """One message on its way to one subscription."""

    message_id: str
    data: bytes
    attributes: dict[str, str]
    published: str
    deliveries: int = 0
    acks: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON has it: Google writes some names twice."""
        return {
            "data": b64encode(self.data).decode(),
            "attributes": self.attributes,
            "messageId": self.message_id,
            "message_id": self.message_id,
            "publishTime": self.published,
            "publish_time": self.published,
        }


@dataclass
class BrokerSubscription:
    """What one subscriber has not acknowledged yet."""

    name: str
    topic: str
    deadline_seconds: float
    endpoint: str = ""
    push: dict[str, Any] = field(default_factory=dict)
    ready: deque[Sent] = field(default_factory=deque)
    later: list[tuple[float, int, Sent]] = field(default_factory=list)
    leases: dict[str, tuple[float, Sent]] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    delivered: int = 0
    acked: int = 0
    dropped: int = 0

    @property
    def waiting(self) -> int:
        """How many messages are not acknowledged."""
        return len(self.ready) + len(self.later) + len(self.leases)


class Broker:
    """Everything that was published, and who has still to get it."""

    def __init__(self, scenario: Scenario | None = None, *, first_id: int = FIRST_ID) -> None:
        self.scenario = scenario or Scenario()
        self.topics: dict[str, list[BrokerSubscription]] = {}
        self.subscriptions: dict[str, BrokerSubscription] = {}
        self.calls = 0
        self.lies = False
        """Whether each message that is pulled says another street, `Side` for `Main`, than was published."""
        self.hung = 0
        """Acknowledgements that had to wait."""
        self._ids = count(first_id)
        self._numbers = count()

    def set_lying(self, lies: bool) -> None:
        """Begin or end to deliver other messages than were published."""
        self.lies = lies

    def add_topic(self, name: str) -> None:
        """Make a topic, by its whole name; twice is once."""
        self.topics.setdefault(name, [])

    def subscribe(self, subscription: BrokerSubscription) -> None:
        """Make a subscription of a topic: what is published from now on comes to it."""
        if subscription.topic not in self.topics:
            raise MissingResource(subscription.topic)
        self.subscriptions[subscription.name] = subscription
        self.topics[subscription.topic].append(subscription)

    def publish(self, topic: str, messages: Iterable[dict[str, Any]]) -> list[str]:
        """Take messages; their ids."""
        if topic not in self.topics:
            raise MissingResource(topic)
        ids = []
        published = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        for message in messages:
            ids.append(str(next(self._ids)))
            data, attributes = b64decode(message.get("data", "")), message.get("attributes", {})
            for subscription in self.topics[topic]:
                self._offer(subscription, Sent(ids[-1], data, attributes, published))
        return ids

    def find(self, name: str) -> BrokerSubscription:
        """A subscription."""
        if name not in self.subscriptions:
            raise MissingResource(name)
        return self.subscriptions[name]

    def fails(self) -> bool:
        """Whether it is this call's turn to fail."""
        self.calls += 1
        return self.scenario.rolls(self.scenario.fail, "fail", self.calls)

    def take(self, subscription: BrokerSubscription, most: int) -> list[tuple[str, Sent]]:
        """Lease messages: each under an id that is good until its deadline."""
        now = time.monotonic()
        self._return(subscription, now)
        taken: list[tuple[str, Sent]] = []
        while subscription.ready and len(taken) < most:
            sent = self._next(subscription)
            sent.deliveries += 1
            subscription.delivered += 1
            ack_id = f"{sent.message_id}-{sent.deliveries}-{next(self._numbers)}"
            self._lease(subscription, ack_id, sent, now + subscription.deadline_seconds)
            taken.append((ack_id, sent))
        return taken

    async def pull(self, subscription: BrokerSubscription, most: int) -> list[tuple[str, Sent]]:
        """Messages as soon as there are some."""
        until = time.monotonic() + self.scenario.wait_seconds
        while not (taken := self.take(subscription, most)) and (left := until - time.monotonic()) > 0:
            subscription.arrived.clear()
            try:
                async with asyncio.timeout(min(left, self._next_change(subscription))):
                    await subscription.arrived.wait()
            except TimeoutError:
                continue
        return taken

    async def wait_while_acks_hang(self) -> None:
        """Wait until acknowledgements arrive."""
        self.hung += self.scenario.hang_acks
        while self.scenario.hang_acks:  # noqa: ASYNC110 (the scenario may be replaced at any time)
            await asyncio.sleep(HANG_SECONDS)

    def acknowledge(self, subscription: BrokerSubscription, ack_ids: Sequence[str]) -> None:
        """Forget messages; what is no lease any more is passed over, as the real one does."""
        self._return(subscription, time.monotonic())
        for ack_id in ack_ids:
            _, sent = subscription.leases.get(ack_id, (0.0, None))
            if sent is None:
                continue
            if self.scenario.rolls(self.scenario.drop_acks, "ack", sent.message_id, sent.deliveries):
                subscription.dropped += 1
                continue
            del subscription.leases[ack_id]
            subscription.acked += 1
            sent.acks += 1
            if sent.acks == 1 and self.scenario.rolls(self.scenario.duplicate, "again", sent.message_id):
                self._later(subscription, sent, time.monotonic() + self.scenario.delay_seconds)

    def extend(self, subscription: BrokerSubscription, ack_ids: Sequence[str], seconds: float) -> None:
        """Move the deadline of leases; no seconds give them back."""
        now = time.monotonic()
        for ack_id in ack_ids:
            if ack_id in subscription.leases:
                self._lease(subscription, ack_id, subscription.leases[ack_id][1], now + seconds)
        self._return(subscription, now)

    def _offer(self, subscription: BrokerSubscription, sent: Sent) -> None:
        if self.scenario.rolls(self.scenario.delay, "late", sent.message_id):
            self._later(subscription, sent, time.monotonic() + self.scenario.delay_seconds)
        else:
            subscription.ready.append(sent)
        subscription.arrived.set()

    def _later(self, subscription: BrokerSubscription, sent: Sent, at: float) -> None:
        heapq.heappush(subscription.later, (at, next(self._numbers), sent))

    def _lease(self, subscription: BrokerSubscription, ack_id: str, sent: Sent, until: float) -> None:
        subscription.leases[ack_id] = (until, sent)
        heapq.heappush(subscription.ends, (until, ack_id))

    def _return(self, subscription: BrokerSubscription, now: float) -> None:
        """Offer again what is due, and what was not acknowledged in time."""
        while subscription.ends and subscription.ends[0][0] <= now:
            _, ack_id = heapq.heappop(subscription.ends)
            until, sent = subscription.leases.get(ack_id, (now + 1, None))
            if sent is not None and until <= now:
                del subscription.leases[ack_id]
                subscription.ready.append(sent)
        while subscription.later and subscription.later[0][0] <= now:
            subscription.ready.append(heapq.heappop(subscription.later)[2])

    def _next(self, subscription: BrokerSubscription) -> Sent:
        """The first one, or one of the first few."""
        among = min(self.scenario.reorder, len(subscription.ready))
        if among == 1:
            return subscription.ready.popleft()
        first = subscription.ready[0]
        place = int(self.scenario.draw("place", first.message_id, first.deliveries, subscription.delivered) * among)
        subscription.ready.rotate(-place)
        sent = subscription.ready.popleft()
        subscription.ready.rotate(place)
        return sent

    def _next_change(self, subscription: BrokerSubscription) -> float:
        """Seconds until something may be due without any request."""
        now = time.monotonic()
        dues = [heap[0][0] - now for heap in (subscription.ends, subscription.later) if heap]
        return max(0.001, min(dues, default=self.scenario.wait_seconds + 1))
