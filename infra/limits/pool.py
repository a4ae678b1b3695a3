"""What one process holds of a host's permits, and how it hands them out and renews them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from domain.limits import PermitShare
from infra import log
from infra.database import FAILURES
from infra.limits.limiter import Sharing

RENEWALS: Final = 10
"""How often permits are renewed within the time that they live."""
HUNGRY_RENEWALS: Final = 50
"""How often a process asks that got less than it could use."""

_log = log.get(__name__)


Ask = Callable[..., Awaitable[PermitShare]]


class Pool:
    """One host's permits in this process. It lives as long as somebody needs them, and ends empty.

    Args:
        ask: Asks the limiter for this process' share, given what is `in_use` and the `demand`.
        rules: How the limiter shares permits out.
    """

    def __init__(self, ask: Ask, rules: Sharing) -> None:
        self._ask = ask
        self._limit = rules.limit
        self._ttl_seconds = rules.ttl.total_seconds()
        self._in_use = 0
        self._peak = 0  # the most that could be used at once since we last asked
        self._share = PermitShare(usable=0, permits=0)
        self._is_short = False
        self._good_until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._renewing = self._loop.create_task(self._renew_and_tell())

    @property
    def ended(self) -> bool:
        """Whether it holds nothing any more, and never will."""
        return self._renewing.done()

    async def take(self) -> None:
        """Wait for a permit."""
        self._peak = max(self._peak, self._in_use + len(self._waiting) + 1)
        if not self._waiting and self._is_free():
            self._in_use += 1
            return
        if not self._is_short:
            self._wake.set()
        await self._queue()

    def give_back(self) -> None:
        """End a permit; whoever waits longest gets it next."""
        self._in_use -= 1
        self._hand_out()
        if self._share.permits > self._share.usable:
            self._wake.set()

    async def close(self) -> None:
        """Renew no longer; who still waits gets an error."""
        self._renewing.cancel()
        await asyncio.wait([self._renewing])

    def _is_free(self) -> bool:
        return self._in_use < self._share.usable and self._loop.time() < self._good_until

    def _hand_out(self) -> None:
        while self._waiting and self._is_free():
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_use += 1
                turn.set_result(None)

    async def _queue(self) -> None:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.cancelled() and turn.exception() is None:
                self.give_back()  # it was its turn at the very moment it was cancelled
            raise

    async def _renew_and_tell(self) -> None:
        try:
            await self._renew()
        except BaseException as error:
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_exception(ConnectionError(f"The host gate ended while a request waited at it: {error!r}"))
            raise

    async def _renew(self) -> None:
        """Ask again and again for what could be used, until that is nothing."""
        while True:
            try:
                demand = await self._ask_again()
            except FAILURES as error:
                _log.warning("permits_not_renewed", error=str(error))
                await asyncio.sleep(self._ttl_seconds / RENEWALS)
                continue
            if not (demand or self._peak or self._share.permits):
                return
            if max(self._in_use, self._share.usable) == self._share.permits:
                await self._pause()

    async def _ask_again(self) -> int:
        asked_at = self._loop.time()
        if asked_at >= self._good_until:
            self._share = PermitShare(usable=0, permits=self._share.permits)
        could_use = self._in_use + len(self._waiting)
        demand = min(self._limit, max(self._peak, could_use))
        self._peak = could_use
        self._wake.clear()
        # What is usable now may come into use before the answer is here.
        self._share = await self._ask(in_use=max(self._in_use, self._share.usable), demand=demand)
        self._good_until = asked_at + self._ttl_seconds
        self._is_short = self._share.usable < demand
        self._hand_out()
        return demand

    async def _pause(self) -> None:
        hungry = self._is_short and self._share.usable < self._limit
        with suppress(TimeoutError):
            async with asyncio.timeout(self._ttl_seconds / (HUNGRY_RENEWALS if hungry else RENEWALS)):
                await self._wake.wait()
