"""Asking together: what many want to know at once is asked once, and never before the last of them wanted it.

`Together` shares one answer among those who ask the same, `Gathered` one question among those who ask different things.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
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


class Gathered(Generic[Key, Answer]):
    """Puts many small questions as one: who comes while one is under way is in the next.

    Args:
        ask_all: Answers questions; it leaves out those that have no answer.
        most: How many at a time.
    """

    def __init__(self, ask_all: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Answer]]], most: int) -> None:
        self._ask_all = ask_all
        self._most = most
        self._waiting: dict[Key, asyncio.Future[Answer | None]] = {}
        self._serving: asyncio.Task[None] | None = None

    async def ask(self, key: Key) -> Answer | None:
        """The answer to a question that has not been put yet."""
        answer = self._waiting.get(key)
        if answer is None:
            answer = self._waiting[key] = asyncio.get_running_loop().create_future()
            if self._serving is None:
                self._serving = asyncio.create_task(self._serve())
        return await asyncio.shield(answer)

    async def _serve(self) -> None:
        while self._waiting:
            batch = dict(islice(self._waiting.items(), self._most))
            for key in batch:
                del self._waiting[key]
            try:
                found = await self._ask_all(list(batch))
            except Exception as error:  # noqa: BLE001 - everybody who asked is told, whatever it was
                for answer in batch.values():
                    answer.set_exception(error)
                    # Those who asked may have gone; then nobody else looks at it.
                    answer.exception()
            else:
                for key, answer in batch.items():
                    answer.set_result(found.get(key))
        self._serving = None
