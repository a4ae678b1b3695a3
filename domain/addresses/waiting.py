"""Waiting: why a message is not done, and behind whom it queues.

Modules stay equal if all of them apply the messages of a UPRN in the same order. Where one of them failed, what comes
after must not overtake in the others. A message is *touched* while a module has applied it, or may have, and it is not
done:

- a swap queues behind whatever touched message shares a UPRN with it, and behind an earlier swap that does and is
  still going to be tried;
- a createUpdate or delete queues behind a touched swap of its UPRN. One that waits for a side is not touched, see
  `sides`: so what brings this side never queues behind it.

createUpdates and deletes do not queue behind each other: the last one wins. What is touched itself has begun and goes
on; of two touched swaps the earlier one goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from domain.addresses.messages import Topic
from domain.addresses.operations import Module


class Kind(StrEnum):
    """Why a message is not done."""

    MISSING = "missing"
    """A swap without one of its sides."""
    BEHIND = "behind"
    """It queues behind another one."""
    REFUSED = "refused"
    """A module says that it cannot be."""
    FAILED = "failed"
    """A module gave no answer."""
    OVERTAKEN = "overtaken"
    """A swap that came after another one of its addresses was applied: it never will be."""


class Reason(BaseModel):
    """Why a message is not done; the log's `wait_reason`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Kind | None = None
    module: Module | None = None
    """The first that said so, unless it queues."""
    uprn: int | None = None
    """Of `missing`: which one."""
    behind: int | None = None
    """Of `behind` and `overtaken`: the id of the other message."""
    missing: list[int] = Field(default_factory=list)
    """All UPRNs that a module misses."""
    unsure: list[Module] = Field(default_factory=list)
    """Modules that may have applied it."""
    inherits: bool = False
    """Whether it made another message needless that some module may have applied."""

    @classmethod
    def read(cls, written: Mapping[str, Any] | None) -> Self:
        """As the log has it."""
        return cls() if written is None else cls.model_validate(written)

    @property
    def written(self) -> str:
        """As the log keeps it."""
        return self.model_dump_json(exclude_defaults=True)

    @property
    def is_mark(self) -> bool:
        """Whether it makes the message a touched one."""
        return bool(self.unsure or self.inherits)

    def queued(self, behind: int) -> Self:
        """The same message, not sent this time."""
        return self.model_copy(update={"kind": Kind.BEHIND, "module": None, "uprn": None, "behind": behind})


MARKS: Final = ("unsure", "inherits")
"""The fields of a written reason that make a message a touched one, beside an acknowledgement."""


class Asking(NamedTuple):
    """A message that is about to be sent."""

    id: int
    topic: Topic
    uprns: tuple[int, ...]
    touched: bool = False


class Neighbour(NamedTuple):
    """A message that is not done."""

    id: int
    is_swap: bool
    uprns: tuple[int, ...]
    due: bool
    """Whether this cycle has it, or a later one will try it by itself."""
    touched: bool


def held(asking: Sequence[Asking], neighbours: Iterable[Neighbour]) -> dict[int, int]:
    """Those that must not be sent yet, each with the id of one that it queues behind."""
    by_uprn: dict[int, list[Neighbour]] = {}
    for neighbour in neighbours:
        for uprn in neighbour.uprns:
            by_uprn.setdefault(uprn, []).append(neighbour)
    if not by_uprn:
        return {}
    found = {each.id: _ahead_of(each, by_uprn) for each in asking}
    return {id_: behind for id_, behind in found.items() if behind is not None}


def _ahead_of(message: Asking, by_uprn: Mapping[int, Sequence[Neighbour]]) -> int | None:
    near = (each for uprn in message.uprns for each in by_uprn.get(uprn, ()) if each.id != message.id)
    goes_first = _before_swap if message.topic is Topic.SWAP else _before_write
    return min((each.id for each in near if goes_first(message, each)), default=None)


def _before_swap(swap: Asking, other: Neighbour) -> bool:
    is_earlier = other.id < swap.id
    if not other.is_swap:
        return other.touched
    return (other.touched and is_earlier) if swap.touched else (other.touched or (other.due and is_earlier))


def _before_write(write: Asking, other: Neighbour) -> bool:
    return other.is_swap and other.touched and not write.touched
