"""Who listens to PostgreSQL can always be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from infra import database

STOP_SECONDS = 10.0


class Connection:
    """A connection that says what the test wants, when it wants."""

    def __init__(self) -> None:
        self.say: Callable[[str], None] = lambda _: None

    def add_termination_listener(self, callback: Callable[..., None]) -> None:
        """It never breaks."""

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        """Keep the listener."""
        self.say = lambda payload: callback(self, 1, channel, payload)


async def test_a_listener_that_hears_something_as_it_is_stopped_stops() -> None:
    """The cancellation and the notification come in the same turn of the loop: neither hides the other."""
    connection: Any = Connection()

    async def listen() -> None:
        async for _ in database._iterate_notifications_until_broken(connection, "news"):
            pass

    listening = asyncio.create_task(listen())
    # It begins to listen, and waits; then it is told, and stopped before it could take what it was told.
    for _ in range(10):
        await asyncio.sleep(0)
    connection.say("something")
    await asyncio.sleep(0)
    listening.cancel()

    _, pending = await asyncio.wait([listening], timeout=STOP_SECONDS)
    listening.cancel()
    assert not pending
