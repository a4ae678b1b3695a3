"""Helpers for tests of intake: a stand-in Pub/Sub with the three topics, and a publisher of change messages."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from domain.addresses.messages import Topic
from infra.address_settings import AddressSettings
from infra.settings import Settings
from sims.pubsub.broker import Broker
from sims.pubsub.scenario import Scenario
from sims.pubsub.server import PubSubSim, running_pubsub
from tests.support.pace import measure_pace

PROJECT = "test-project"


def swap(uprn_1: int = 1, uprn_2: int = 2, **fields: Any) -> dict[str, Any]:
    """A swap."""
    return {"uprn_1": uprn_1, "uprn_2": uprn_2, **fields}


def create_update(uprn: int = 1, address_id: int = 101, **fields: Any) -> dict[str, Any]:
    """A createUpdate."""
    return {"uprn": uprn, "address_id": address_id, "record": {"street": "Main Street", "number": uprn}, **fields}


def delete(uprn: int = 1, **fields: Any) -> dict[str, Any]:
    """A delete."""
    return {"uprn": uprn, **fields}


@dataclass
class Publisher:
    """Publishes over REST, to any server that speaks it, and keeps the ids that it was given."""

    base: str
    session: aiohttp.ClientSession
    sent: dict[Topic, list[str]] = field(default_factory=lambda: {topic: [] for topic in Topic})

    async def publish(self, topic: Topic, *messages: dict[str, Any] | bytes) -> list[str]:
        """Publish messages in this order; bytes as they are."""
        raws = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        body = {"messages": [{"data": b64encode(raw).decode()} for raw in raws]}
        answer = await self.call("POST", f"topics/{topic}:publish", body)
        ids: list[str] = answer["messageIds"]
        self.sent[topic] += ids
        return ids

    async def subscribe(self, topic: Topic, name: str, **options: Any) -> None:
        """Make a subscription of a topic."""
        body = {"topic": f"projects/{PROJECT}/topics/{topic}", **options}
        await self.call("PUT", f"subscriptions/{name}", body)

    async def call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One call of the project's."""
        url = f"{self.base}/v1/projects/{PROJECT}/{path}"
        async with self.session.request(method, url, json=body) as answer:
            assert answer.status == 200, await answer.text()
            told: dict[str, Any] = await answer.json()
            return told


@asynccontextmanager
async def publisher(base: str) -> AsyncIterator[Publisher]:
    """A publisher, and the three topics."""
    async with aiohttp.ClientSession() as session:
        publishing = Publisher(base, session)
        for topic in Topic:
            await publishing.call("PUT", f"topics/{topic}", {})
        yield publishing


@dataclass
class Intake:
    """A stand-in, a publisher, and settings that lead to both."""

    sim: PubSubSim
    publisher: Publisher
    settings: Settings

    @property
    def waiting(self) -> int:
        """How many messages are not acknowledged."""
        return sum(each.waiting for each in self.sim.broker.subscriptions.values())


def with_pubsub(settings: Settings, base: str, **changes: Any) -> AddressSettings:
    """Settings of addresses that pull from this address."""
    pubsub = settings.addresses.pubsub.model_copy(update={"project": PROJECT, "base_url": base, **changes})
    return settings.addresses.model_copy(update={"pubsub": pubsub})


@asynccontextmanager
async def running_intake(
    settings: Settings, scenario: Scenario | None = None, *, deadline_seconds: float = 1.0, **changes: Any
) -> AsyncIterator[Intake]:
    """A stand-in with the three topics and our subscriptions of them.

    Args:
        deadline_seconds: When what was not acknowledged comes again, on a machine that has nothing else to do: on a
            slow one it would always come again before it is acknowledged.
        changes: Replace settings of Pub/Sub.
    """
    async with running_pubsub(Broker(scenario)) as sim, publisher(sim.base) as publishing:
        addresses = with_pubsub(settings, sim.base, **changes)
        names = addresses.pubsub.subscriptions
        seconds = deadline_seconds * measure_pace()
        for topic, name in zip(Topic, (names.swap, names.create_update, names.delete), strict=True):
            await publishing.subscribe(topic, name, ackDeadlineSeconds=seconds)
        yield Intake(sim, publishing, settings.model_copy(update={"addresses": addresses}))


def many(count: int, *, first: int = 1) -> Sequence[dict[str, Any]]:
    """CreateUpdates of different addresses."""
    return [create_update(number, 1_000_000 + number) for number in range(first, first + count)]
