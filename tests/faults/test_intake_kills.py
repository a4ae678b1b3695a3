"""Killed between pull and commit, and between commit and acknowledgement: each message is in the log once."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from dev.local import list_worker_names
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from sims.pubsub.broker import Broker, BrokerSubscription
from sims.pubsub.scenario import Scenario
from stores.addresses.inbox import INTAKE_LOCK
from tests.support.address_log import PATIENCE_SECONDS, AddressLog
from tests.support.deployment import Deployment
from tests.support.kills import Killer
from tests.support.pubsub import create_update, delete, swap
from tests.support.selecting import mark_long_except
from tests.support.waiting import eventually

# Either worker may have the intake of a topic.
VICTIMS = {"workers": list_worker_names(), "engine": ["engine"], "database": ["database"]}
ADDRESSES = 40
FIRST_UPRN, UPRNS_EACH = 1_000_000, 1_000
POISON = b"{}"

_WAITING = f"""
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND NOT granted AND classid = {INTAKE_LOCK >> 32} AND objid = {INTAKE_LOCK & 0xFFFFFFFF}
    """  # noqa: S608 - constant numbers


@dataclass
class Scene:
    """A deployment that pulls, and what was published to it by one test."""

    deployment: Deployment
    log: AddressLog
    readable: set[tuple[str, str]] = field(default_factory=set)
    poison: set[tuple[str, str]] = field(default_factory=set)
    delivered_before: int = 0
    turn: int = 0

    async def publish(self) -> None:
        """New addresses, some of which swap their UPRNs or go; and in each topic a message that cannot be read."""
        first = self.log.uprns.start + self.turn * ADDRESSES
        self.turn += 1
        uprns = range(first, first + ADDRESSES)
        await self._publish(Topic.CREATE_UPDATE, *(create_update(uprn, 1_000_000 + uprn) for uprn in uprns))
        await self._publish(Topic.SWAP, *(swap(uprn, uprn + 1) for uprn in uprns[:20:2]))
        await self._publish(Topic.DELETE, *(delete(uprn) for uprn in uprns[20:30]))

    async def _publish(self, topic: Topic, *said: dict[str, Any]) -> None:
        *readable, poison = await self.deployment.publisher.publish(topic, *said, POISON)
        self.readable |= {(topic, each) for each in readable}
        self.poison.add((topic, poison))

    async def wait_until_acknowledged(self) -> None:
        """Wait until nothing is left to deliver."""
        await eventually(lambda: not any(each.waiting for each in self.subscriptions), timeout=PATIENCE_SECONDS)

    @property
    def broker(self) -> Broker:
        """Where the messages wait."""
        return self.deployment.pubsub.broker

    @property
    def subscriptions(self) -> list[BrokerSubscription]:
        """What the three topics have still to deliver."""
        return list(self.broker.subscriptions.values())

    @property
    def is_overdue(self) -> bool:
        """Whether whatever is not acknowledged by now will come again."""
        now = time.monotonic()
        return all(until <= now for each in self.subscriptions for until, _ in each.leases.values())

    @property
    def delivered(self) -> int:
        """How often messages of this test were delivered."""
        return sum(each.delivered for each in self.subscriptions) - self.delivered_before


_firsts = itertools.count(FIRST_UPRN, UPRNS_EACH)


@pytest.fixture
async def scene(deployment: Deployment) -> Scene:
    """Return all three topics, at rest; cycles run."""
    first = next(_firsts)
    scene = Scene(deployment, AddressLog(deployment, range(first, first + UPRNS_EACH)))
    scene.delivered_before = scene.delivered
    scene.broker.scenario = Scenario(wait_seconds=0.5)
    await scene.log.resume()
    return scene


Moment = Callable[[Scene], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def pulled_and_not_committed(scene: Scene) -> AsyncIterator[None]:
    """A worker that has pulled messages waits for the lock under which they are written."""
    holder, watcher = [await scene.deployment.connect_database() for _ in range(2)]
    try:
        await holder.execute("SELECT pg_advisory_lock($1)", INTAKE_LOCK)
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
    """The acknowledgements that are sent get lost."""
    broker = scene.broker
    before = broker.hung
    broker.scenario = broker.scenario.model_copy(update={"hang_acks": True})
    try:
        await scene.publish()
        await eventually(lambda: broker.hung > before)
        yield
    finally:
        broker.scenario = broker.scenario.model_copy(update={"hang_acks": False})


MOMENTS: tuple[Moment, ...] = (pulled_and_not_committed, committed_and_not_acknowledged)


@pytest.mark.parametrize("victim", mark_long_except(VICTIMS, ("engine",)))
async def test_a_kill_of_the_intake_loses_no_message_and_repeats_none(
    scene: Scene, killer: Killer, victim: str
) -> None:
    """Not in the log and its history, not in quarantine, and not in any module."""
    await scene.publish()
    await scene.wait_until_acknowledged()
    for moment in MOMENTS:
        async with moment(scene):
            # The moment lasts until it is left: each kill hits messages that are held up between two steps.
            await killer.kill(*VICTIMS[victim], under_way=lambda: any(each.waiting for each in scene.subscriptions))
            await eventually(lambda: scene.is_overdue)
        await scene.wait_until_acknowledged()
    rows = await scene.log.settle()

    logged = sorted((row["topic"], row["msg_no"]) for row in rows.values())
    quarantined = await scene.deployment.fetch("SELECT topic, msg_no FROM addr_sync_quarantine")
    refused = sorted(each for row in quarantined if (each := (row["topic"], row["msg_no"])) in scene.poison)
    applied = {module: scene.log.list_applied(module, rows) for module in Module}
    killer.close(
        lost=len(scene.readable - set(logged)) + len(scene.poison - set(refused)),
        doubled=len(logged) - len(set(logged)) + sum(len(each) - len(set(each)) for each in applied.values()),
    )
    assert logged == sorted(scene.readable)
    assert refused == sorted(scene.poison)
    assert scene.delivered > len(scene.readable) + len(scene.poison)
    for module in Module:
        assert len(applied[module]) == len(set(applied[module])), module
        assert scene.log.states(module) == scene.log.states(Module.ED), module
