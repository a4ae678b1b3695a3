"""Scanning: the addresses of all four modules side by side, in order of their ids, a few pages at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from types import TracebackType
from typing import Final, Protocol, Self

from domain.addresses import drift
from domain.addresses.drift import ABSENT, Side, Sides
from domain.addresses.operations import AddressEntry, AddressPage, Module
from infra.modules import ModuleFailure

PAGE: Final = 1_000


class Pages(Protocol):
    """Who asks modules for their addresses."""

    async def addresses(self, module: Module, after: int, limit: int, /) -> AddressPage:
        """A page of them, in order of their ids."""
        ...


async def scan(modules: Pages) -> AsyncGenerator[tuple[int, Sides], None]:
    """Every address that any module has, and how each has it.

    Raises:
        ModuleFailure: A module does not tell, or not in order.
    """
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(_Reader(modules, module)) for module in Module]
        heads = {reader: await reader.next() for reader in readers}
        while address_id := min((head.address_id for head in heads.values() if head), default=None):
            sides: dict[Module, Side] = {}
            for reader, head in heads.items():
                is_here = head is not None and head.address_id == address_id
                sides[reader.module] = drift.side(head) if head and is_here else ABSENT
                if is_here:
                    heads[reader] = await reader.next()
            yield address_id, sides


async def look(modules: Pages, address_id: int) -> Sides:
    """How each module has one address now."""
    pages = await asyncio.gather(*(modules.addresses(module, address_id - 1, 1) for module in Module))
    found = ([entry for entry in page.addresses if entry.address_id == address_id] for page in pages)
    return {
        module: drift.side(entries[0]) if entries else ABSENT for module, entries in zip(Module, found, strict=True)
    }


async def looks(modules: Pages, address_ids: Collection[int]) -> dict[int, Sides]:
    """The same of several."""
    return dict(zip(address_ids, await asyncio.gather(*(look(modules, each) for each in address_ids)), strict=True))


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
        ids = [self._last, *(entry.address_id for entry in page)]
        if any(later <= earlier for earlier, later in pairwise(ids)):
            raise ModuleFailure(
                f"Module {self.module} tells addresses after {self._last} that are not in ascending order of their "
                "ids. Mend its handler.",
                passing=False,
            )
        self._page, self._place, self._last = page, 0, ids[-1]
        self._coming = asyncio.create_task(self._asked()) if len(page) == PAGE else None

    async def _asked(self) -> AddressPage:
        return await self._modules.addresses(self.module, self._last, PAGE)
