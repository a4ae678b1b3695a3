"""What a lane remembers of those who ask it, so that a group that comes twice is done once."""

from __future__ import annotations

from collections.abc import Iterable

from domain.tasks.carrying import SENDERS_MAX, SENDERS_MAX_BYTES, Answered


class Senders:
    """The last group of each of the last senders."""

    def __init__(self, answered: Iterable[Answered] = ()) -> None:
        self._answered: dict[str, Answered] = {}
        self._weight = 0
        for each in answered:
            self.remember(each)

    def last(self, sender: str) -> Answered | None:
        """The last group of a sender, if it is remembered."""
        return self._answered.get(sender)

    def remember(self, answered: Answered) -> None:
        """This is the sender's last group now; whoever was silent for longest is forgotten for it."""
        if (before := self._answered.pop(answered.sender, None)) is not None:
            self._weight -= _weight(before)
        self._answered[answered.sender] = answered
        self._weight += _weight(answered)
        while len(self._answered) > SENDERS_MAX or self._weight > SENDERS_MAX_BYTES:
            self._weight -= _weight(self._answered.pop(next(iter(self._answered))))

    def all(self) -> list[Answered]:
        """Whoever was silent for longest first."""
        return list(self._answered.values())


def _weight(answered: Answered) -> int:
    """At most so many bytes of JSON, for senders whose names need no escapes."""
    codes = len(answered.creates) + len(answered.sets) + len(answered.beats) + len(answered.cancels)
    return 100 + 5 * len(answered.holds) + codes + len(answered.sender.encode())
