"""What is pushed, in groups: messages that come at the same time are written in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import web

from api.shared_reads import BatchedLookup
from services.addresses.cycle_trigger import CycleTrigger
from services.services import Services
from stores.addresses.inbox import DeliveredMessage, Inbox

GROUP_MAX: Final = 500


class Pushed:
    """Takes messages in as they come; who comes while a group is being written is in the next."""

    def __init__(self, services: Services, waker: CycleTrigger) -> None:
        self._inbox = Inbox(services.database, services.settings.addresses.message_max_bytes)
        self._waker = waker
        self._groups = BatchedLookup(self._write, GROUP_MAX)

    async def take_in(self, incoming: DeliveredMessage) -> None:
        """Return when the message is durable: in the log, there before, or in quarantine."""
        await self._groups.get(incoming)

    async def _write(self, group: Sequence[DeliveredMessage]) -> Mapping[DeliveredMessage, bool]:
        taken = await self._inbox.take_in(group)
        if taken.new:
            self._waker.wake()
        return dict.fromkeys(group, True)


PUSHED = web.AppKey("pushed", Pushed)
