"""Scanning: the addresses of all four modules side by side, in order of their UPRNs, a few pages at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from types import TracebackType
from typing import Final, Protocol, Self

from clients.modules import ModuleFailure
from domain.addresses import drift
from domain.addresses.drift import Side, Sides
from domain.addresses.operations import AddressEntry, AddressPage, Module

PAGE: Final = 1_000


class Pages(Protocol):
    """Who asks modules for their addresses."""

    async def addresses(self, module: Module, after: int, limit: int, /) -> AddressPage:
        """A page of them, in order of their UPRNs."""
        ...


async def scan(modules: Pages) -> AsyncGenerator[tuple[int, Sides], None]:
    """Every UPRN that any module has, and what it has in each.

    Raises:
        ModuleFailure: A module does not tell, or not in order.
    """
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(_Reader(modules, module)) for module in Module]
        heads = {reader: await reader.next() for reader in readers}
        while uprn := min((head.uprn for head in heads.values() if head), default=None):
            sides: dict[Module, Side | None] = {}
            for reader, head in heads.items():
                is_here = head is not None and head.uprn == uprn
                sides[reader.module] = drift.side(head) if head and is_here else None
                if is_here:
                    heads[reader] = await reader.next()
            yield uprn, sides


async def look(modules: Pages, uprn: int) -> Sides:
    """What one UPRN has in each module now."""
    pages = await asyncio.gather(*(modules.addresses(module, uprn - 1, 1) for module in Module))
    found = ([entry for entry in page.addresses if entry.uprn == uprn] for page in pages)
    return {module: drift.side(entries[0]) if entries else None for module, entries in zip(Module, found, strict=True)}


async def looks(modules: Pages, uprns: Collection[int]) -> dict[int, Sides]:
    """The same of several."""
    return dict(zip(uprns, await asyncio.gather(*(look(modules, each) for each in uprns)), strict=True))


class _Reader:
    """One module's addresses; while a page is read, the next is on its way."""

    def __init__(self, modules: Pages, module: Module) -> None:
        self.module = module
        self._modules = modules
        self._page: list[AddressEntry] = []
        self._place = 0
        self._last = 0
        self._coming: asyncio.Task[AddressPage] | None = None

    async def __aenter__(self) -> Self:
        self._coming = asyncio.create_task(self._asked())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._coming:
            self._coming.cancel()
            with suppress(asyncio.CancelledError, ModuleFailure):
                await self._coming

    async def next(self) -> AddressEntry | None:
        """The next address, or None after the last."""
        if self._place == len(self._page):
            if self._coming is None:
                return None
            self._turn((await self._coming).addresses)
            if not self._page:
                return None
        self._place += 1
        return self._page[self._place - 1]

    def _turn(self, page: list[AddressEntry]) -> None:
        uprns = [self._last, *(entry.uprn for entry in page)]
        if any(later <= earlier for earlier, later in pairwise(uprns)):
            raise ModuleFailure(
                f"Module {self.module} tells addresses after {self._last} that are not in ascending order of their "
                "UPRNs. Mend its handler.",
                passing=False,
            )
        self._page, self._place, self._last = page, 0, uprns[-1]
        self._coming = asyncio.create_task(self._asked()) if len(page) == PAGE else None

    async def _asked(self) -> AddressPage:
        return await self._modules.addresses(self.module, self._last, PAGE)
