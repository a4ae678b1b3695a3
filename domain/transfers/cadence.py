"""How often GSE is asked: often at first, ever more rarely while nothing happens, often again when targets finish."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

FIRST_SECONDS = 1.0
LAST_SECONDS = 10.0
_LADDER = ((FIRST_SECONDS, 2), (2.0, 9), (5.0, 56))


class Cadence:
    """The pauses between the polls of one shard."""

    def __init__(self) -> None:
        self._pauses = _pauses()

    def next_seconds(self, *, finishing: bool) -> float:
        """The pause before the next poll.

        Args:
            finishing: Whether targets have finished since the last one: then others are about to.
        """
        if finishing:
            self._pauses = _pauses()
        return next(self._pauses)


def _pauses() -> Iterator[float]:
    ladder = (itertools.repeat(seconds, times) for seconds, times in _LADDER)
    return itertools.chain(itertools.chain.from_iterable(ladder), itertools.repeat(LAST_SECONDS))
