"""The stream: what a publisher sends, what the modules have before, and, in plain Python, what they have after it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

from domain.addresses.messages import Topic

WRITES, SWAPS = 0.7, 0.2
"""The rest are deletes."""
SUPERSEDED: Final = 0.05
"""Of all messages: createUpdates that are followed by another of the same UPRN."""
REPEATED: Final = 0.05
"""Of all deliveries: messages that come again."""
NEW: Final = 0.5
"""Of the other createUpdates: addresses that no module has yet."""
EARLY: Final = 0.02
"""Of the swaps: one side is created by the stream itself, and may come after the swap."""
RETIRING: Final = 0.05
"""Of the swaps: what then has the first UPRN is deleted."""
BUSY: Final = 0.02
"""Of the deletes: the address has orders in flight in two modules."""
NEAR: Final = 500
"""A createUpdate is superseded within this number of others."""
_STREETS: Final = ("Nanjing Road", "Queen's Road", "Des Voeux Road", "Hennessy Road", "Castle Peak Road")

Address: TypeAlias = tuple[int, dict[str, Any]]
"""An id and a record."""
Sent: TypeAlias = tuple[Topic, dict[str, Any]]


@dataclass
class Stream:
    """Messages in the order of their publication, about UPRNs that no other stream has."""

    messages: list[Sent] = field(default_factory=list)
    before: dict[int, Address] = field(default_factory=dict)
    """What every module has at first."""
    busy: set[int] = field(default_factory=set)
    """Ids of addresses with orders in flight."""


class _Publisher:
    def __init__(self, number: int, messages: int) -> None:
        self._dice = random.Random(number)
        self._uprns = count(number * 10**9 + 1)
        self._recent: list[tuple[int, int]] = []
        self._owed: list[int] = []
        self.stream = Stream()
        self._pool = [self._draw_known_uprn() for _ in range(max(2, int(messages * SWAPS)))]

    def fill(self, messages: int) -> None:
        """The last of them create what swaps still wait for."""
        while len(self.stream.messages) + len(self._owed) < messages:
            self._send()
        while self._owed:
            self.stream.messages.append((Topic.CREATE_UPDATE, self._write()))

    def _send(self) -> None:
        topics = (Topic.CREATE_UPDATE, Topic.SWAP, Topic.DELETE)
        topic = self._dice.choices(topics, (WRITES, SWAPS, 1 - WRITES - SWAPS))[0]
        said = {Topic.CREATE_UPDATE: self._write, Topic.SWAP: self._swap, Topic.DELETE: self._delete}[topic]()
        self.stream.messages.append((topic, said))

    def _draw_known_uprn(self) -> int:
        uprn = next(self._uprns)
        self.stream.before[uprn] = (uprn, self._record())
        return uprn

    def _write(self) -> dict[str, Any]:
        dice = self._dice
        if self._owed:
            uprn = self._owed.pop()
        elif self._recent and dice.random() < SUPERSEDED / WRITES:
            uprn = dice.choice(self._recent)[0]
        else:
            uprn = next(self._uprns) if dice.random() < NEW else self._draw_known_uprn()
            self._recent = [*self._recent[1 - NEAR :], (uprn, uprn)]
        return {"uprn": uprn, "address_id": uprn, "record": self._record()}

    def _swap(self) -> dict[str, Any]:
        drawn = self._dice.random()
        if drawn < EARLY:
            one, other = next(self._uprns), self._draw_known_uprn()
            self._owed.append(one)
        elif drawn < EARLY + RETIRING:
            one, other = self._draw_known_uprn(), self._draw_known_uprn()
        else:
            one, other = self._dice.sample(self._pool, 2)
        return {"uprn_1": one, "uprn_2": other, "delete_after": EARLY <= drawn < EARLY + RETIRING}

    def _delete(self) -> dict[str, Any]:
        uprn = self._draw_known_uprn()
        if self._dice.random() < BUSY:
            self.stream.busy.add(uprn)
        return {"uprn": uprn, "address_id": uprn}

    def _record(self) -> dict[str, Any]:
        dice = self._dice
        return {
            "flat": str(dice.randint(1, 40)),
            "floor": str(dice.randint(1, 60)),
            "building": f"Block {dice.randint(1, 12)}, Harbour Court",
            "street": f"{dice.randint(1, 999)} {dice.choice(_STREETS)}",
            "district": f"District {dice.randint(1, 18)}",
            "latitude": round(dice.uniform(22.2, 22.5), 6),
            "longitude": round(dice.uniform(113.9, 114.3), 6),
            "serviceable": dice.random() < 0.9,
            "technologies": dice.sample(["GPON", "XGS-PON", "VDSL", "Ethernet"], 2),
        }


def build_stream(number: int, messages: int) -> Stream:
    """Return a number of different messages; the same seed makes the same stream, and another has other UPRNs."""
    publisher = _Publisher(number, messages)
    publisher.fill(messages)
    return publisher.stream


def compute_outcome(before: dict[int, Address], messages: Iterable[Sent]) -> dict[int, Address]:
    """What a module has after it: one message after the other, and again the swaps that missed a side."""
    live = dict(before)
    waiting = [said for topic, said in messages if not _apply(live, topic, said)]
    while left := [said for said in waiting if not _apply(live, Topic.SWAP, said)]:
        if len(left) == len(waiting):
            break
        waiting = left
    return live


def _apply(live: dict[int, Address], topic: Topic, said: dict[str, Any]) -> bool:
    match topic:
        case Topic.CREATE_UPDATE:
            live[said["uprn"]] = (said["address_id"], said["record"])
        case Topic.DELETE:
            live.pop(said["uprn"], None)
        case _:
            one, other = said["uprn_1"], said["uprn_2"]
            if one not in live or other not in live:
                return False
            live[one], live[other] = live[other], live[one]
            if said["delete_after"]:
                del live[one]
    return True


def merge_streams(streams: Sequence[Stream]) -> Stream:
    """All of them, one after the other."""
    whole = Stream()
    for each in streams:
        whole.messages += each.messages
        whole.before |= each.before
        whole.busy |= each.busy
    return whole
