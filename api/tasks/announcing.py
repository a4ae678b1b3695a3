"""Announcements: tell other API processes at once that a lane has something to give out again.

A lane writes its head down within a second. A caller that waits for tasks in one process would wait as long for a task
that was created through another one; so the process that a lane tells first tells the others, by a notification that
holds the head. That the notification is lost costs that second, and nothing else.
"""

from __future__ import annotations

import asyncio

import msgspec

from domain.tasks.messages import Head
from infra import log
from infra.database import Database
from stores.tasks import heads

SPACING_SECONDS = 0.05
"""From one transaction of announcements to the next: a queue that is emptied and filled all the time costs no more."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Head).decode
_log = log.get(__name__)


class Announcer:
    """Sends announcements, those that come together in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, Head] = {}
        self._has_some = asyncio.Event()

    def announce(self, type_: str, pos: int, head: Head) -> None:
        """Have the others told how a lane stands; returns at once."""
        self._waiting[f"{type_}/{pos}"] = head
        self._has_some.set()

    async def run(self) -> None:
        """Send announcements for ever; what cannot be sent is left to the lanes' own word."""
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            told = [f"{lane} {_encode(head).decode()}" for lane, head in self._waiting.items()]
            self._waiting.clear()
            try:
                await heads.announce(self._database, told)
            except Exception as error:  # noqa: BLE001 - callers find the task a second later, whatever it was
                _log.warning("heads_not_announced", lanes=len(told), error=repr(error))
            await asyncio.sleep(SPACING_SECONDS)


def read(payload: str) -> tuple[str, int, Head | None]:
    """Return the type and position of the lane that a notification is about, and its head if that was announced."""
    lane, _, head = payload.partition(" ")
    type_, _, pos = lane.rpartition("/")
    return type_, int(pos), _decode(head) if head else None
