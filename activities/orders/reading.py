"""Reading a window: pass after pass until it is confirmed, or told to be too large for one reading."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from activities.orders.storing import Copy
from domain.orders.capability import PagingKind
from domain.orders.confirming import Passes, Verdict
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

    def add(self, page: Page, asked_at: datetime) -> None:
        """Take in a page."""
        self.sheets.append(Sheet(page.number, asked_at, page.body))
        self.outside += page.outside
        for order in page.orders:
            copy = Copy(order, asked_at)
            before = self.copies.get(order.order_id)
            if before is None or copy.rank > before.rank:
                self.copies[order.order_id] = copy

    @property
    def digest(self) -> bytes:
        """Tells two readings of a window apart: which orders it held, and how new each was."""
        summary = hashlib.blake2b(digest_size=16)
        for order_id, copy in sorted(self.copies.items()):
            summary.update(f"{order_id}\n{copy.order.modified_at.isoformat()}\n{copy.order.version}\n".encode())
        return summary.digest()


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
        await self._pass(await self._counted(), opposite=False)
        self.harvest.passes = 1
        return self.harvest

    async def confirmed(self) -> Harvest:
        """Pass after pass until the window is confirmed.

        Raises:
            TooLarge: It must be split.
            PlatformLied: What it tells does not come to agree with its totals.
        """
        harvest, verdict = self.harvest, Verdict.AGAIN
        total = await self._counted()
        passes = Passes(has_totals=total is not None, moves=self._is_numbered)
        while verdict is Verdict.AGAIN:
            ids = await self._pass(total, opposite=self._is_numbered and len(passes.done) % 2 == 1)
            after = await self._connector.count(self._window)
            verdict = passes.add(total, ids, after)
            total = after
        harvest.total, harvest.passes = total, len(passes.done)
        if verdict is Verdict.UNSTABLE:
            told = "; ".join(f"{each.before} before, {each.distinct} told, {each.after} after" for each in passes.done)
            raise PlatformLied(
                f"The window {self._window.start.isoformat()} to {self._window.end.isoformat()} does not come to rest: "
                f"{told}. A longer settle_lag or a shorter interval may help; else redo or skip the slice."
            )
        return harvest

    async def whole(self, copies: list[Copy]) -> list[Copy]:
        """The same orders, each told whole where the list tells only parts."""
        turns = asyncio.Semaphore(DETAILS_AT_ONCE)

        async def ask(copy: Copy) -> Copy:
            async with turns:
                asked_at = self._now()
                return Copy(await self._connector.detail(copy.order), asked_at)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(copy)) for copy in copies]
        except* PlatformFailure as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _counted(self) -> int | None:
        total = await self._connector.count(self._window)
        if total is not None and self._rows_max is not None and total > self._rows_max:
            raise TooLarge
        return total

    async def _pass(self, total: int | None, *, opposite: bool) -> set[str]:
        ids: set[str] = set()
        asked_at = self._now()
        try:
            async for page in self._connector.pages(self._window, opposite=opposite, total=total):
                self.harvest.add(page, asked_at)
                ids.update(order.order_id for order in page.orders)
                if self._rows_max is not None and len(ids) > self._rows_max:
                    raise TooLarge
                asked_at = self._now()
        except TooManyRows:
            if self._rows_max is None:
                raise
            raise TooLarge from None
        return ids

    def _now(self) -> datetime:
        """The platform's time: workers' clocks may differ from each other."""
        return datetime.now(UTC) + self._connector.skew
