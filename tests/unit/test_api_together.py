"""Asking together: shared answers and questions that cannot be told from asking alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from api.together import Gathered, Together


class Oracle:
    """Answers with how often it was asked, when it is let."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let = asyncio.Event()

    async def ask(self, key: str) -> int:
        """One question."""
        self.asked.append(key)
        number = len(self.asked)
        await self.let.wait()
        if key == "broken":
            raise LookupError(key)
        return number


async def turns() -> None:
    """Let every task take the steps that it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_asks_while_others_are_answered_shares_the_next_question() -> None:
    """A hundred that come during the first question need one more, and none of them gets the older answer."""
    oracle = Oracle()
    together = Together(oracle.ask)
    first = asyncio.create_task(together.ask("a"))
    await turns()
    others = [asyncio.create_task(together.ask("a")) for _ in range(100)]
    await turns()
    assert oracle.asked == ["a"]

    oracle.let.set()

    assert await first == 1
    assert await asyncio.gather(*others) == [2] * 100
    assert await together.ask("a") == 3


async def test_different_questions_do_not_wait_for_each_other() -> None:
    """Each has turns of its own."""
    oracle = Oracle()
    together = Together(oracle.ask)
    asking = [asyncio.create_task(together.ask(key)) for key in "abc"]
    await turns()

    assert oracle.asked == ["a", "b", "c"]
    oracle.let.set()
    assert await asyncio.gather(*asking) == [1, 2, 3]


async def test_a_failure_is_everybody_s_who_shares_it_and_nobody_else_s() -> None:
    """The next question is asked anew."""
    oracle = Oracle()
    oracle.let.set()
    together = Together(oracle.ask)
    sharing = [asyncio.create_task(together.ask("broken")) for _ in range(2)]

    for task in sharing:
        with pytest.raises(LookupError):
            await task
    assert oracle.asked == ["broken"]
    with pytest.raises(LookupError):
        await together.ask("broken")
    assert oracle.asked == ["broken"] * 2


async def test_who_goes_away_takes_nobody_s_answer() -> None:
    """A cancelled caller leaves the question to the others."""
    oracle = Oracle()
    together = Together(oracle.ask)
    leaving = asyncio.create_task(together.ask("a"))
    staying = asyncio.create_task(together.ask("a"))
    await turns()
    leaving.cancel()
    oracle.let.set()

    assert await staying == 1


async def test_where_many_ask_the_next_question_waits_for_company() -> None:
    """A lone caller is answered at once, also the next time; those who came together let others join the next."""
    oracle = Oracle()
    oracle.let.set()
    together = Together(oracle.ask, pause_seconds=0.05)
    assert [await together.ask("a"), await together.ask("a")] == [1, 2]

    assert [*await asyncio.gather(together.ask("a"), together.ask("a"))] == [3, 3]
    joining = [asyncio.create_task(together.ask("a"))]
    await turns()
    joining.append(asyncio.create_task(together.ask("a")))
    assert await asyncio.gather(*joining) == [4, 4]


class Library:
    """Answers many questions at once, when it is let."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.let = asyncio.Event()

    async def ask_all(self, keys: Sequence[int]) -> dict[int, str]:
        """The even ones have an answer; a negative one breaks everything."""
        self.asked.append(list(keys))
        await self.let.wait()
        if min(keys) < 0:
            raise LookupError("negative")
        return {key: f"{key}!" for key in keys if key % 2 == 0}


async def test_different_questions_are_put_as_one() -> None:
    """Those that come while one is under way go together, so many at a time; each caller gets its own answer."""
    library = Library()
    gathered = Gathered(library.ask_all, 3)
    first = asyncio.create_task(gathered.ask(0))
    await turns()
    others = [asyncio.create_task(gathered.ask(key)) for key in (1, 2, 2, 3, 4)]
    await turns()
    library.let.set()

    assert await first == "0!"
    assert await asyncio.gather(*others) == [None, "2!", "2!", None, "4!"]
    assert library.asked == [[0], [1, 2, 3], [4]]


async def test_a_broken_question_breaks_only_those_that_went_with_it() -> None:
    """The next one is asked; and nobody minds a caller who has gone."""
    library = Library()
    gathered = Gathered(library.ask_all, 2)
    first, gone, good = (asyncio.create_task(gathered.ask(key)) for key in (-1, -2, 2))
    await turns()
    gone.cancel()
    library.let.set()

    with pytest.raises(LookupError):
        await first
    assert await good == "2!"


async def test_a_question_that_is_cancelled_leaves_nobody_waiting() -> None:
    """Neither who asked it nor who waits for the next one; and who comes then asks anew."""

    async def give_up(_key: str) -> int:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    together = Together(give_up)
    first = asyncio.create_task(together.ask("a"))
    await asyncio.sleep(0)
    second = asyncio.create_task(together.ask("a"))

    for asking in (first, second, asyncio.create_task(together.ask("a"))):
        with pytest.raises(asyncio.CancelledError):
            await asking
