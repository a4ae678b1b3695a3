"""Killed between pull and commit, and between commit and acknowledgement: each message is in the log once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from activities.addresses.inbox import LOCK
from cli.house import worker_names
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.settings import AddressSettings
from sims.pubsub.broker import Broker, Subscription
from sims.pubsub.scenario import Scenario
from sims.pubsub.server import PubSubSim, running_pubsub
from tests import address_fleet
from tests.address_fleet import PATIENCE_SECONDS, Fleet
from tests.pubsub import PROJECT, Publisher, create_update, delete, publisher, swap
from tests.stack import eventually

# Either worker may have the intake of a topic.
VICTIMS = {"workers": worker_names(), "engine": ["engine"], "database": ["database"]}
ADDRESSES = 40
DEADLINE_SECONDS = 2
POISON = b"{}"

_WAITING = f"""
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted AND classid = {LOCK >> 32} AND objid = {LOCK & 0xFFFFFFFF}
    """  # noqa: S608 - numbers of ours


@dataclass
class Scene:
    """A house that pulls, from whom, and what was published."""

    fleet: Fleet
    sim: PubSubSim
    publisher: Publisher
    readable: set[tuple[str, str]] = field(default_factory=set)
    poison: set[tuple[str, str]] = field(default_factory=set)
    firsts: itertools.count[int] = field(default_factory=lambda: itertools.count(1, ADDRESSES))

    async def publish(self) -> None:
        """New addresses, of which some exchange their UPRNs and others go; and in each topic what nobody can read."""
        first = next(self.firsts)
        uprns = range(first, first + ADDRESSES)
        await self._published(Topic.CREATE_UPDATE, *(create_update(uprn, 1_000 + uprn) for uprn in uprns))
        await self._published(Topic.SWAP, *(swap(uprn, uprn + 1) for uprn in uprns[:20:2]))
        await self._published(Topic.DELETE, *(delete(uprn) for uprn in uprns[20:30]))

    async def _published(self, topic: Topic, *said: dict[str, Any]) -> None:
        *readable, poison = await self.publisher.publish(topic, *said, POISON)
        self.readable |= {(topic, each) for each in readable}
        self.poison.add((topic, poison))

    async def acknowledged(self) -> None:
        """Wait until nothing is left to deliver."""
        await eventually(lambda: not any(each.waiting for each in self.subscriptions), timeout=PATIENCE_SECONDS)

    @property
    def subscriptions(self) -> list[Subscription]:
        """What the three topics have still to deliver."""
        return list(self.sim.broker.subscriptions.values())

    @property
    def is_overdue(self) -> bool:
        """Whether whatever is not acknowledged by now will come again."""
        now = time.monotonic()
        return all(until <= now for each in self.subscriptions for until, _ in each.leases.values())

    @property
    def delivered(self) -> int:
        """How often messages were delivered."""
        return sum(each.delivered for each in self.subscriptions)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """All three topics, at rest."""
    subscriptions = AddressSettings().pubsub.subscriptions
    names = (subscriptions.swap, subscriptions.create_update, subscriptions.delete)
    async with running_pubsub(Broker(Scenario(wait_seconds=0.5))) as sim, publisher(sim.base) as publishing:
        for topic, name in zip(Topic, names, strict=True):
            await publishing.subscribe(topic, name, ackDeadlineSeconds=DEADLINE_SECONDS)
        own = {"PUBSUB__PROJECT": PROJECT, "PUBSUB__BASE_URL": sim.base, "PUBSUB__PULL_MAX": "7"}
        async with address_fleet.fleet(own) as fleet:
            yield Scene(fleet, sim, publishing)


Moment = Callable[[Scene], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def pulled_and_not_committed(scene: Scene) -> AsyncIterator[None]:
    """Whoever has pulled messages waits for the lock under which they are written."""
    holder, watcher = [await asyncpg.connect(scene.fleet.database_url) for _ in range(2)]
    try:
        await holder.execute("SELECT pg_advisory_lock($1)", LOCK)
        await scene.publish()

        async def waits() -> int:
            waiting: int = await watcher.fetchval(_WAITING)
            return waiting

        await eventually(waits)
        yield
    finally:
        # It may be the database that was killed, and then the lock is gone, too.
        for connection in (holder, watcher):
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.close(timeout=5)


@asynccontextmanager
async def committed_and_not_acknowledged(scene: Scene) -> AsyncIterator[None]:
    """Nobody hears the acknowledgements that are sent."""
    broker = scene.sim.broker
    before = broker.hung
    broker.scenario = broker.scenario.model_copy(update={"hang_acks": True})
    try:
        await scene.publish()
        await eventually(lambda: broker.hung > before)
        yield
    finally:
        broker.scenario = broker.scenario.model_copy(update={"hang_acks": False})


MOMENTS: tuple[Moment, ...] = (pulled_and_not_committed, committed_and_not_acknowledged)


@pytest.mark.timeout(420)
@pytest.mark.parametrize("victim", VICTIMS)
async def test_a_kill_of_the_intake_loses_no_message_and_repeats_none(scene: Scene, victim: str) -> None:
    """Not in the log and its history, not in quarantine, and not in any module."""
    await scene.publish()
    await scene.acknowledged()
    for moment in MOMENTS:
        async with moment(scene):
            for name in VICTIMS[victim]:
                scene.fleet.running.stack.kill(name)
            await asyncio.gather(*(scene.fleet.running.stack.ready(name) for name in VICTIMS[victim]))
            await eventually(lambda: scene.is_overdue)
        await scene.acknowledged()
    rows = await scene.fleet.settled()

    assert sorted((row["topic"], row["msg_no"]) for row in rows.values()) == sorted(scene.readable)
    quarantined = await scene.fleet.fetch("SELECT topic, msg_no FROM addr_sync_quarantine")
    assert sorted((row["topic"], row["msg_no"]) for row in quarantined) == sorted(scene.poison)
    assert scene.delivered > len(scene.readable) + len(scene.poison)
    for module in Module:
        applied = scene.fleet.oss.modules[module].applied()
        assert len(applied) == len(set(applied)), module
        assert scene.fleet.states(module) == scene.fleet.states(Module.ED), module
