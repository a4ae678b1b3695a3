"""Reading a window: once, and again where it does not agree with its totals; or it is too large for one reading."""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from activities.orders.storing import DIGEST_BYTES, Copy
from domain.orders.capability import Detail, PagingKind, QueryField
from domain.orders.confirming import Pass, Passes, Verdict
from domain.orders.windows import Window
from infra.platforms import Connector, Page, PlatformFailure, PlatformLied, TooManyRows

DETAILS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Sheet:
    """One page as it was told."""

    number: int
    asked_at: datetime
    body: bytes


@dataclass
class Harvest:
    """What a window holds: of each order the newest copy that was told."""

    copies: dict[str, Copy] = field(default_factory=dict)
    sheets: list[Sheet] = field(default_factory=list)
    total: int | None = None
    passes: int = 0
    outside: int = 0
    undated: int = 0
    _times: list[datetime] = field(default_factory=list)

    def add(self, page: Page) -> None:
        """Take in a page."""
        self.sheets.append(Sheet(page.number, page.asked_at, page.body))
        self.outside += page.outside
        self.undated += page.undated
        self._times = []
        copies, asked_at = self.copies, page.asked_at
        for order in page.orders:
            copy = Copy(order, asked_at)
            before = copies.setdefault(order.order_id, copy)
            if before is not copy and copy.rank > before.rank:
                copies[order.order_id] = copy

    def within(self, first: datetime, last: datetime) -> int:
        """How many orders were modified from one moment to another, both included."""
        self._times = self._times or sorted([copy.order.modified_at for copy in self.copies.values()])
        return bisect_right(self._times, last) - bisect_left(self._times, first)

    @property
    def digest(self) -> bytes:
        """Tells two readings of a window apart: which copies they held."""
        copies = sorted(copy.digest for copy in self.copies.values())
        return hashlib.blake2b(b"".join(copies), digest_size=DIGEST_BYTES).digest()


class TooLarge(Exception):
    """The window holds more orders than one reading may take."""


class Reading:
    """Reads one window of one account.

    Args:
        rows_max: So many orders are too many for one reading; None where the window cannot be split any more.
    """

    def __init__(self, connector: Connector, window: Window, rows_max: int | None) -> None:
        self._connector = connector
        self._window = window
        self._rows_max = rows_max
        self._is_numbered = connector.capability.paging.kind is PagingKind.NUMBER
        self.harvest = Harvest()

    async def once(self) -> Harvest:
        """One pass, for who only wants to see whether there is anything new."""
        await self._pass(self._window, await self._counted(), opposite=False)
        return self.harvest

    async def confirmed(self) -> Harvest:
        """Read until the window is confirmed: where a pass does not agree with the totals around it, what differs.

        Raises:
            TooLarge: It must be split.
            PlatformLied: What it tells does not come to agree with its totals.
        """
        passes = Passes(has_totals=self._connector.capability.total is not None, moves=self._is_numbered)
        verdict = await self._compared(passes, self._window, await self._counted())
        if verdict is Verdict.AGAIN:
            if self._tells_parts():
                await self._mend(self._window, differs=True)
            else:
                await self._repeat(passes, self._window)
        return self.harvest

    async def whole(self, detail: Detail, copies: list[Copy]) -> list[Copy]:
        """The same orders, each told whole where the list tells only parts."""
        turns = asyncio.Semaphore(DETAILS_AT_ONCE)

        async def ask(copy: Copy) -> Copy:
            async with turns:
                return Copy(*await self._connector.detail(detail, copy.order.order_id))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(copy)) for copy in copies]
        except* PlatformFailure as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def _tells_parts(self) -> bool:
        """Whether totals of parts of the window can be held against the orders that we were told for them."""
        by_modification = self._connector.capability.query.field is QueryField.MODIFIED
        has_totals = self._connector.capability.total is not None
        return has_totals and by_modification and not self.harvest.outside and not self.harvest.undated

    async def _mend(self, window: Window, *, differs: bool = False) -> bool:
        """Look which part has moved, by halves, and read it again: orders move a few at a time.

        Args:
            differs: Whether it is known that its total is not what we hold; then it is not asked for.

        Returns:
            Whether all of it was as we hold it.
        """
        asked = self._connector.bounds(window)
        total = held = self.harvest.within(asked.first, asked.last)
        if not differs:
            total = await self._connector.count(window) or 0
            if total == held:
                return True
        halves = window.halves(self._connector.capability.query.window_min_seconds)
        if halves and max(total, held) > self._connector.capability.paging.size:
            agreed = await self._mend(halves[0])
            await self._mend(halves[1], differs=agreed)
        else:
            await self._repeat(Passes(has_totals=True, moves=self._is_numbered), window)
        return False

    async def _repeat(self, passes: Passes, window: Window) -> None:
        """Pass after pass, until they agree."""
        verdict = Verdict.AGAIN
        while verdict is Verdict.AGAIN:
            total = passes.done[-1].after if passes.done else await self._connector.count(window)
            verdict = await self._compared(passes, window, total)
        if verdict is Verdict.UNSTABLE:
            raise _restless(window, passes.done)

    async def _compared(self, passes: Passes, window: Window, before: int | None) -> Verdict:
        opposite = self._is_numbered and len(passes.done) % 2 == 1
        ids = await self._pass(window, before, opposite=opposite)
        after = await self._connector.count(window)
        self.harvest.total = after if window == self._window else self.harvest.total
        return passes.add(before, ids, after)

    async def _counted(self) -> int | None:
        total = await self._connector.count(self._window)
        if total is not None and self._rows_max is not None and total > self._rows_max:
            raise TooLarge
        return total

    async def _pass(self, window: Window, total: int | None, *, opposite: bool) -> set[str]:
        ids: set[str] = set()
        self.harvest.passes += 1
        try:
            async for page in self._connector.pages(window, opposite=opposite, total=total):
                self.harvest.add(page)
                ids.update([order.order_id for order in page.orders])
                if self._rows_max is not None and len(ids) > self._rows_max:
                    raise TooLarge
        except TooManyRows:
            if self._rows_max is None:
                raise
            raise TooLarge from None
        return ids


def _restless(window: Window, done: list[Pass]) -> PlatformLied:
    told = "; ".join(f"{each.before} before, {each.distinct} told, {each.after} after" for each in done)
    return PlatformLied(
        f"The window {window.start.isoformat()} to {window.end.isoformat()} does not come to rest: "
        f"{told}. A longer settle_lag or a shorter interval may help; else redo or skip the slice."
    )
