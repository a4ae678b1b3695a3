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

    Args:
        pause_seconds: Where several ask at a time, so long passes between two questions, that more may come together.
    """

    def __init__(self, ask: Callable[[Key], Awaitable[Answer]], pause_seconds: float = 0.0) -> None:
        self._ask = ask
        self._pause_seconds = pause_seconds
        self._waiting: dict[Key, list[asyncio.Future[Answer]]] = {}
        self._serving: dict[Key, asyncio.Task[None]] = {}

    async def ask(self, key: Key) -> Answer:
        """The answer to a question that has not been put yet."""
        # A future for each: whoever stops waiting does not stop the question of the others.
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(answer)
        if key not in self._serving:
            self._serving[key] = asyncio.create_task(self._serve(key))
        return await answer

    async def _serve(self, key: Key) -> None:
        waiting: list[asyncio.Future[Answer]] = []
        try:
            while waiting := self._waiting.pop(key, []):
                await self._answer(key, waiting)
                if self._pause_seconds and len(waiting) > 1:
                    await asyncio.sleep(self._pause_seconds)
        finally:
            # Empty, unless this was cancelled in the middle of a question.
            del self._serving[key]
            for answer in (*waiting, *self._waiting.pop(key, [])):
                answer.cancel()

    async def _answer(self, key: Key, waiting: Sequence[asyncio.Future[Answer]]) -> None:
        try:
            found = await self._ask(key)
        except Exception as error:  # noqa: BLE001 - everybody who asked is told, whatever it was
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for answer in waiting:
                if not answer.done():
                    answer.set_result(found)


class Gathered(Generic[Key, Answer]):
    """Puts many small questions as one: who comes while one is under way is in the next.

    Args:
        ask_all: Answers questions; it leaves out those that have no answer.
        most: How many at a time.
    """

    def __init__(self, ask_all: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Answer]]], most: int) -> None:
        self._ask_all = ask_all
        self._most = most
        self._waiting: dict[Key, list[asyncio.Future[Answer | None]]] = {}
        self._serving: asyncio.Task[None] | None = None

    async def ask(self, key: Key) -> Answer | None:
        """The answer to a question that has not been put yet."""
        # A future for each: whoever stops waiting does not stop the question of the others.
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(answer)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return await answer

    async def _serve(self) -> None:
        while self._waiting:
            batch = dict(islice(self._waiting.items(), self._most))
            for key in batch:
                del self._waiting[key]
            try:
                found = await self._ask_all(list(batch))
            except Exception as error:  # noqa: BLE001 - everybody who asked is told, whatever it was
                for answer in (each for answers in batch.values() for each in answers if not each.done()):
                    answer.set_exception(error)
                    # Who asked may go before being told; then nobody else looks at it.
                    answer.exception()
            else:
                for key, answers in batch.items():
                    for answer in answers:
                        if not answer.done():
                            answer.set_result(found.get(key))
        self._serving = None
