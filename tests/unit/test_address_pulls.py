"""How many messages a pull asks for: fewer while they are large, and what was read is stored all the same."""

from __future__ import annotations

from typing import cast
from unittest.mock import AsyncMock, MagicMock

import pytest
from temporalio.testing import ActivityEnvironment

from activities.addresses import intake
from clients.http import RequestSize
from clients.pubsub import PubSubClient, PubSubFailure, ReceivedMessage
from domain.addresses.activity_models import PullTopicInput
from domain.addresses.messages import PublishedMessage, Topic


class Subscription:
    """Messages that wait, and the numbers that were asked for."""

    def __init__(self, sizes: list[int], readable: int) -> None:
        self.sizes = sizes
        self.readable = readable
        self.asked: list[int] = []

    async def pull(self, subscription: str, max_messages: int) -> list[ReceivedMessage]:
        self.asked.append(max_messages)
        taken = self.sizes[:max_messages]
        if sum(taken) > self.readable:
            failure = PubSubFailure("The answer is too large.")
            failure.is_too_large = True
            raise failure
        del self.sizes[: len(taken)]
        return [ReceivedMessage(str(size), PublishedMessage(str(size), b"x" * size)) for size in taken]


async def pull_all(subscription: Subscription, most: int) -> list[int]:
    """Pull until no messages wait, and return how many each pull brought."""

    async def pull() -> list[int]:
        params = PullTopicInput(topic=Topic.DELETE, seconds=60)
        puller = intake._ConcurrentTopicPuller(
            cast("PubSubClient", subscription), AsyncMock(), MagicMock(), params, "name", RequestSize(most)
        )
        brought = []
        while subscription.sizes:
            brought.append(len(await puller._pull_once(10.0)))
        puller._stopping.cancel()
        return brought

    return await ActivityEnvironment().run(pull)


@pytest.mark.parametrize(
    ("readable", "asked", "brought"),
    [(8_000, [20, 10, 5, 2, 2, 2], [20, 10, 5, 2, 2, 1]), (3_500, [20, 10, 5, 2], [0, 10, 5, 2])],
)
async def test_fewer_messages_are_pulled_while_they_are_large(
    monkeypatch: pytest.MonkeyPatch, readable: int, asked: list[int], brought: list[int]
) -> None:
    """What can be read is stored: left to its deadline, it would come after later messages."""
    monkeypatch.setattr(intake, "PULL_USUAL_BYTES", 1_000, raising=False)
    subscription = Subscription([300] * sum(brought), readable)

    assert await pull_all(subscription, 20) == brought
    assert subscription.asked == asked
