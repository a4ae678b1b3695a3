"""Asking together: what many want to know at once is asked once, and never before the last of them wanted it.

`Together` shares one answer among those who ask the same, `Gathered` one question among those who ask different things.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from api.batching import Batcher, Request

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
        self._questions: dict[Key, _Question[Key, Answer]] = {}

    async def ask(self, key: Key) -> Answer:
        """The answer to a question that has not been put yet."""
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = _Question(key, self._ask, self._pause_seconds, self._questions)
        return await question.put(key)


class _Question(Batcher[Key, Answer]):
    """One question, and all who ask it."""

    def __init__(
        self,
        key: Key,
        ask: Callable[[Key], Awaitable[Answer]],
        pause_seconds: float,
        questions: dict[Key, _Question[Key, Answer]],
    ) -> None:
        super().__init__()
        self._key = key
        self._put = ask
        self._pause_seconds = pause_seconds
        self._questions = questions

    def measure(self) -> Callable[[Request[Key, Answer]], bool]:
        """See base class. One answer is for however many."""
        return lambda _request: True

    async def flush(self, batch: list[Request[Key, Answer]]) -> None:
        """See base class."""
        answer = await self._put(self._key)
        for request in batch:
            request.tell(answer)
        if self._pause_seconds and len(batch) > 1:
            await asyncio.sleep(self._pause_seconds)

    def rest(self) -> None:
        """See base class. A question that nobody asks is forgotten."""
        self._questions.pop(self._key, None)


class Gathered(Batcher[Key, Answer | None]):
    """Puts many small questions as one: who comes while one is under way is in the next.

    Args:
        ask_all: Answers questions; it leaves out those that have no answer.
        most: How many at a time.
    """

    def __init__(self, ask_all: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Answer]]], most: int) -> None:
        super().__init__()
        self._ask_all = ask_all
        self._most = most

    async def ask(self, key: Key) -> Answer | None:
        """The answer to a question that has not been put yet."""
        return await self.put(key)

    def measure(self) -> Callable[[Request[Key, Answer | None]], bool]:
        """See base class. Those who ask the same take one place."""
        keys: set[Key] = set()

        def has_room(request: Request[Key, Answer | None]) -> bool:
            keys.add(request.what)
            return len(keys) <= self._most

        return has_room

    async def flush(self, batch: list[Request[Key, Answer | None]]) -> None:
        """See base class."""
        found = await self._ask_all(list(dict.fromkeys(request.what for request in batch)))
        for request in batch:
            request.tell(found.get(request.what))
