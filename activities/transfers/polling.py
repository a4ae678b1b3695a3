"""When GSE is asked again for the results of a shard."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

_FIRST_POLL_PAUSES = (1.0, 1.0)
_POLL_PAUSES = ((2.0, 9), (5.0, 56))
"""Seconds between further polls, and how often; after these LAST_POLL_SECONDS."""
LAST_POLL_SECONDS = 10.0


class PollSchedule:
    """The pauses between polls of one shard: short at first, longer while no target ends."""

    def __init__(self) -> None:
        self._pauses: Iterator[float] = itertools.chain(_FIRST_POLL_PAUSES, _iterate_poll_pauses())

    def advance_to_next_pause(self, *, any_just_ended: bool) -> float:
        """Return the pause before the next poll; begin with 2 s again if targets ended since the last poll."""
        if any_just_ended:
            self._pauses = _iterate_poll_pauses()
        return next(self._pauses)


def _iterate_poll_pauses() -> Iterator[float]:
    first = (itertools.repeat(seconds, times) for seconds, times in _POLL_PAUSES)
    return itertools.chain(itertools.chain.from_iterable(first), itertools.repeat(LAST_POLL_SECONDS))
