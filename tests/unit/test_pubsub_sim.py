"""The stand-in Pub/Sub: by default it is fair, and each fault comes by the seed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from sims.pubsub.broker import Broker, BrokerSubscription, MissingResource
from sims.pubsub.scenario import Scenario
from tests.support.waiting import PATIENCE_SECONDS, eventually

TOPIC = "projects/p/topics/t"
COUNT = 200
MESSAGES: list[dict[str, Any]] = [{"data": ""}] * COUNT


def build_subscription(
    scenario: Scenario, *, deadline_seconds: float = 60.0
) -> tuple[Broker, BrokerSubscription, list[str]]:
    """A broker with one subscription, and messages that were published to it."""
    broker = Broker(scenario)
    broker.add_topic(TOPIC)
    subscription = BrokerSubscription("s", TOPIC, deadline_seconds)
    broker.subscribe(subscription)
    return broker, subscription, broker.publish(TOPIC, MESSAGES)


def test_a_broker_that_is_started_again_repeats_no_id() -> None:
    """Its ids begin where its process says."""
    broker = Broker(first_id=7)
    broker.add_topic(TOPIC)

    assert broker.publish(TOPIC, [{"data": ""}] * 2) == ["7", "8"]


def drain(broker: Broker, subscription: BrokerSubscription, until: int, *, at_most: int = 7) -> list[str]:
    """Pull and acknowledge until this number of deliveries was made."""
    seen: list[str] = []
    give_up = time.monotonic() + 20
    while len(seen) < until and time.monotonic() < give_up:
        taken = broker.take(subscription, at_most)
        broker.acknowledge(subscription, [ack_id for ack_id, _ in taken])
        seen += [sent.message_id for _, sent in taken]
    return seen


def test_by_default_messages_come_once_and_in_order() -> None:
    """What a test finds wrong is then not the stand-in's doing."""
    broker, subscription, ids = build_subscription(Scenario())

    assert drain(broker, subscription, COUNT) == ids
    assert subscription.waiting == 0


def test_messages_are_shuffled_within_reach_and_the_same_for_a_seed() -> None:
    """Each comes once; none much earlier than it was sent."""
    runs = [drain(*build_subscription(Scenario(reorder=10, seed=seed))[:2], COUNT) for seed in (1, 1, 2)]
    ids = build_subscription(Scenario())[2]

    assert runs[0] == runs[1] != runs[2]
    assert sorted(runs[0]) == ids != runs[0]
    assert all(ids.index(each) - place < 10 for place, each in enumerate(runs[0]))


def test_a_share_comes_again_after_its_acknowledgement() -> None:
    """Once more, and then no more."""
    broker, subscription, ids = build_subscription(Scenario(duplicate=0.3, delay_seconds=0, seed=3))
    seen = _until_empty(broker, subscription)

    again = [each for each in ids if seen.count(each) == 2]
    assert set(seen) == set(ids)
    assert len(seen) == COUNT + len(again)
    assert 0.15 * COUNT < len(again) < 0.45 * COUNT


def _until_empty(broker: Broker, subscription: BrokerSubscription) -> list[str]:
    seen: list[str] = []
    while subscription.waiting:
        seen += drain(broker, subscription, 1)
    return seen


def test_acknowledgements_get_lost_and_the_messages_come_again() -> None:
    """After their deadline; in the end each is acknowledged."""
    broker, subscription, ids = build_subscription(Scenario(drop_acks=0.3, seed=4), deadline_seconds=0.01)
    seen = _until_empty(broker, subscription)

    assert set(seen) == set(ids)
    assert subscription.dropped > 0
    assert len(seen) >= COUNT + subscription.dropped


def test_a_share_comes_late() -> None:
    """Behind what was published after it."""
    broker, subscription, ids = build_subscription(Scenario(delay=0.2, delay_seconds=0.05, seed=5))
    at_once = drain(broker, subscription, COUNT, at_most=COUNT)[:COUNT]
    late = build_subscription(Scenario(delay=0.2, delay_seconds=60, seed=5))[1].later

    assert sorted(at_once) == ids != at_once
    assert 0.1 * COUNT < len(late) < 0.3 * COUNT


def test_a_lease_that_ended_cannot_be_acknowledged() -> None:
    """The message was offered to another subscriber."""
    broker, subscription, _ = build_subscription(Scenario(), deadline_seconds=0.0)
    (ack_id, sent), *_ = broker.take(subscription, 1)
    broker.acknowledge(subscription, [ack_id])

    assert subscription.waiting == COUNT
    assert sent.acks == 0


async def test_acknowledgements_wait_while_nobody_hears_them() -> None:
    """And count as soon as one does."""
    broker = Broker(Scenario(hang_acks=True))
    hearing = asyncio.create_task(broker.wait_while_acks_hang())
    await eventually(lambda: broker.hung == 1)
    assert not hearing.done()
    broker.scenario = Scenario()
    await asyncio.wait_for(hearing, PATIENCE_SECONDS)
    await broker.wait_while_acks_hang()

    assert broker.hung == 1


def test_an_extended_lease_lasts() -> None:
    """Its old deadline no longer counts."""
    broker, subscription, _ = build_subscription(Scenario(), deadline_seconds=0.0)
    ack_ids = [ack_id for ack_id, _ in broker.take(subscription, 1)]
    broker.extend(subscription, ack_ids, 60)
    broker.acknowledge(subscription, ack_ids)

    assert subscription.waiting == COUNT - 1


def test_what_does_not_exist_is_missing() -> None:
    """Topics and subscriptions alike."""
    broker = Broker()
    for use in (
        lambda: broker.publish(TOPIC, MESSAGES),
        lambda: broker.find("s"),
        lambda: broker.subscribe(BrokerSubscription("s", TOPIC, 1)),
    ):
        with pytest.raises(MissingResource):
            use()
