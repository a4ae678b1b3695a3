"""Batches of requests: what goes over together, who is told what, and how long a message is sent again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from api import batching
from api.batching import Batcher, Patience, Request
from infra.outages import EngineSilent, Part, find_part

ROOM = 10


class Ferry(Batcher[str, int]):
    """Takes weights up to its room, and answers with the number of the crossing."""

    def __init__(self) -> None:
        super().__init__()
        self.crossings: list[list[str]] = []
        self.let = asyncio.Event()
        self.let.set()
        self.rests = 0
        self.is_waiting_for_more = False

    def measure(self) -> Callable[[Request[str, int]], bool]:
        """See base class."""
        left = ROOM

        def has_room(request: Request[str, int]) -> bool:
            nonlocal left
            left -= request.weight
            return left >= 0

        return has_room

    def is_ready(self) -> bool:
        """See base class."""
        return self.weight >= ROOM

    async def gather(self) -> None:
        """See base class."""
        if self.is_waiting_for_more:
            await self.wait_until_ready(60.0)

    async def flush(self, batch: list[Request[str, int]]) -> None:
        """See base class."""
        self.crossings.append([request.what for request in batch])
        await self.let.wait()
        if "broken" in self.crossings[-1]:
            raise LookupError("broken")
        late = [request for request in batch if request.what == "late" and len(self.crossings) == 1]
        for request in batch:
            if request not in late:
                request.tell(len(self.crossings))
        self.put_back(late)

    def rest(self) -> None:
        """See base class."""
        self.rests += 1


async def turns() -> None:
    """Let every task take the steps that it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_requests_go_over_in_order_as_many_as_there_is_room_for() -> None:
    """The first one goes even if it alone is too much: it would wait for ever."""
    ferry = Ferry()
    answers = [ferry.put(name, weight) for name, weight in [("a", 4), ("b", 6), ("c", 1), ("huge", 11), ("d", 10)]]

    assert await asyncio.gather(*answers) == [1, 1, 2, 3, 4]
    assert ferry.crossings == [["a", "b"], ["c"], ["huge"], ["d"]]
    assert (ferry.weight, ferry.rests) == (0, 1)


async def test_one_batch_is_under_way_at_a_time() -> None:
    """Those that come meanwhile are in the next, which leaves when the one before has its answers."""
    ferry = Ferry()
    ferry.let.clear()
    first = ferry.put("a")
    await turns()
    others = [ferry.put(name) for name in "bc"]
    await turns()
    assert ferry.crossings == [["a"]]

    ferry.let.set()

    assert [await first, *await asyncio.gather(*others)] == [1, 2, 2]


async def test_a_batch_leaves_as_soon_as_it_is_full() -> None:
    """It waits for company, but not once there is no room for any."""
    ferry = Ferry()
    ferry.is_waiting_for_more = True
    first = ferry.put("a", 6)
    await turns()
    assert ferry.crossings == []

    assert [await ferry.put("b", 4), await first] == [1, 1]


async def test_those_left_over_are_the_first_in_the_next_batch() -> None:
    """They were before those that have come since."""
    ferry = Ferry()
    ferry.let.clear()
    late, other = ferry.put("late"), ferry.put("other")
    await turns()
    last = ferry.put("last")
    ferry.let.set()

    assert [await late, await other, await last] == [2, 1, 2]
    assert ferry.crossings == [["late", "other"], ["late", "last"]]


async def test_a_failure_is_told_to_those_who_went_with_it() -> None:
    """The next batch goes; a caller who has gone is not asked for, and takes no room."""
    ferry = Ferry()
    broken, beside, gone = ferry.put("broken", 5), ferry.put("beside", 5), ferry.put("gone", 10)
    gone.cancel()
    good = ferry.put("good", 10)

    for answer in (broken, beside):
        with pytest.raises(LookupError):
            await answer
    assert await good == 2
    assert ferry.crossings == [["broken", "beside"], ["good"]]


async def test_a_batch_that_is_cancelled_leaves_nobody_waiting() -> None:
    """Neither those in it nor those behind it; and what comes then goes over."""
    ferry = Ferry()
    ferry.let.clear()
    inside, behind = ferry.put("a", 10), ferry.put("b", 10)
    await turns()
    assert ferry.serving is not None
    ferry.serving.cancel()
    await turns()

    assert (inside.cancelled(), behind.cancelled()) == (True, True)
    ferry.let.set()
    assert await ferry.put("c") == 2


async def test_patience_ends_with_an_outage_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says who did not answer, and why at last."""
    monkeypatch.setattr(batching, "PATIENCE_SECONDS", 0.2)
    patience, waits = Patience("a lane", EngineSilent), 0

    async def ask_again() -> None:
        nonlocal waits
        while True:
            await patience.wait(ConnectionResetError("by peer"))
            waits += 1

    with pytest.raises(EngineSilent, match=r"a lane did not answer in 0\.2 s: by peer") as over:
        await ask_again()
    assert 1 <= waits <= 4
    assert find_part(over.value) is Part.ENGINE


async def test_what_may_be_taken_at_once_is_sent_again_at_once() -> None:
    """A workflow that continues as new is back in milliseconds; one that may be away is left alone for longer."""
    patience = Patience("a lane", EngineSilent)
    began = time.monotonic()
    await patience.wait(ConnectionError("closing"), soon=True)
    soon = time.monotonic() - began
    began = time.monotonic()
    await patience.wait(ConnectionError("unanswered"))

    assert soon >= batching.SOON_SECONDS
    assert time.monotonic() - began >= batching.AGAIN_SECONDS > batching.SOON_SECONDS
