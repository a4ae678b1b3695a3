"""What is pushed, in groups: messages that come at the same time are written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import web

from api.shared_reads import BatchedLookup
from services.addresses.waking import Waker
from services.services import Services
from stores.addresses.inbox import Inbox, Incoming

GROUP_MAX: Final = 500


class Pushed:
    """Takes messages in as they come; who comes while a group is being written is in the next."""

    def __init__(self, services: Services, waker: Waker) -> None:
        self._inbox = Inbox(services.database, services.settings.addresses.message_max_bytes)
        self._waker = waker
        self._groups = BatchedLookup(self._write, GROUP_MAX)

    async def take_in(self, incoming: Incoming) -> None:
        """Return when the message is durable: in the log, there before, or in quarantine."""
        await self._groups.get(incoming)

    async def _write(self, group: Sequence[Incoming]) -> Mapping[Incoming, bool]:
        taken = await self._inbox.take_in(group)
        if taken.new:
            self._waker.wake()
        return dict.fromkeys(group, True)


PUSHED = web.AppKey("pushed", Pushed)
