"""Asking together: what many want to know at once is asked once, and never before the last of them wanted it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class Together(Generic[Key, Answer]):
    """Shares answers among those who ask the same at the same time.

    Who comes while a question is being answered waits for the next one: an answer is never older than the wish for it,
    so that sharing cannot be told from asking alone.
    """

    def __init__(self, ask: Callable[[Key], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._asking: dict[Key, asyncio.Task[Answer]] = {}
        self._next: dict[Key, asyncio.Task[Answer]] = {}

    async def ask(self, key: Key) -> Answer:
        """The answer to a question that has not been put yet."""
        turn = self._next.get(key)
        if turn is None:
            turn = self._next[key] = asyncio.create_task(self._take_turn(key, self._asking.get(key)))
        # Whoever stops waiting does not stop the question of the others.
        return await asyncio.shield(turn)

    async def _take_turn(self, key: Key, before: asyncio.Task[Answer] | None) -> Answer:
        if before is not None:
            await asyncio.wait([before])
        turn = self._asking[key] = self._next.pop(key)
        try:
            return await self._ask(key)
        finally:
            if self._asking[key] is turn:
                del self._asking[key]
