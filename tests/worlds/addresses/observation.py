"""What was observed of a world: what the log reports of its messages, and what its modules really did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from domain.addresses.messages import MessageState, Topic

Entry = tuple[int, Mapping[str, Any]]
"""What a UPRN has: the id of its address, and the record."""


@dataclass(frozen=True)
class MessageReport:
    """What the log, or its history, reports of a message."""

    id: int
    number: str
    topic: Topic
    uprns: tuple[int, ...]
    state: MessageState
    acked: frozenset[str] = frozenset()
    """Modules that have acknowledged it."""
    unsure: frozenset[str] = frozenset()
    """Modules that may have applied it."""
    kind: str | None = None
    """Why it is not done."""
    behind: int | None = None
    missing: tuple[int, ...] = ()
    superseded_by: int | None = None
    reason: str = ""
    cycle_id: str | None = None

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """Return the report of a message in a list of the API."""
        waits = answer["waits"] or {}
        return cls(
            id=answer["message_id"],
            number=answer["msg_no"],
            topic=Topic(answer["topic"]),
            uprns=tuple(uprn for uprn in (answer["uprn_1"], answer["uprn_2"]) if uprn),
            state=MessageState(answer["state"]),
            acked=frozenset(module for module, ack in answer["acks"].items() if ack["ack"] == "Y"),
            unsure=frozenset(waits.get("unsure", ())),
            kind=waits.get("kind"),
            behind=waits.get("behind"),
            missing=tuple(waits.get("missing", ())),
            superseded_by=answer["superseded_by"],
            reason=answer["reason"] or "",
            cycle_id=answer["cycle_id"],
        )

    @property
    def is_done(self) -> bool:
        """Whether it ended."""
        return self.state is MessageState.DONE

    @property
    def is_swap(self) -> bool:
        """Whether it exchanges two UPRNs."""
        return self.topic is Topic.SWAP

    @property
    def is_touched(self) -> bool:
        """Whether it says that a module has applied it, or may have."""
        return bool(self.acked or self.unsure)


@dataclass
class Observation:
    """All that was observed of a world."""

    reports: Sequence[MessageReport] = ()
    """In the order of their ids; one that is in the log and in the history is here twice."""
    applied: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By module: the ids of the messages that took effect, in the order of the commits."""
    sent: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By module: the messages that it was asked to apply, whatever it answered."""
    live: Mapping[str, Mapping[int, Entry]] = field(default_factory=dict)
    """By module and UPRN."""
    hit: frozenset[int] = frozenset()
    """Messages that failed because of a flaw of operations that lasts."""
    skipped: frozenset[int] = frozenset()
    """Messages that an operator has skipped."""
    retried: bool = False
    """Whether all that was given up was tried again when everything was mended."""
    refused: Sequence[str] = ()
    """Numbers of messages that are in quarantine."""
    fired: frozenset[str] = frozenset()
    kept: frozenset[int] = frozenset()
    """Addresses that a module has logically deleted, now that it has no orders in flight."""
    listed: frozenset[int] = frozenset()
    """Addresses that the product lists as logically deleted."""
    lost: frozenset[int] = frozenset()
    """UPRNs whose addresses a module lost, as no operation would."""
    forgotten: frozenset[int] = frozenset()
    """Of these: those that it lacked when modules were compared."""
    found: frozenset[int] = frozenset()
    """Of these: those that the comparison found."""
    late: str = ""
    """What had not come to rest in time."""


QUEUEING = (MessageState.FAILED, MessageState.PROCESSING)
"""States of a message that queues: cycles take it again and again."""


def is_at_rest(reports: Mapping[int, MessageReport]) -> bool:
    """Return whether no message will change without an operator: what queues does so behind what waits for one.

    Args:
        reports: Messages of the log, by id.
    """

    def waits_for_a_person(each: MessageReport, depth: int = 0) -> bool:
        if each.state is MessageState.GIVEN_UP or depth > len(reports):
            return each.state is MessageState.GIVEN_UP
        if each.is_done:
            # Modules are asked about one that was made needless once nothing later of its UPRN is unfinished.
            later = [other for other in reports.values() if other.id > each.id and set(other.uprns) & set(each.uprns)]
            return any(not other.is_done and waits_for_a_person(other, depth + 1) for other in later)
        ahead = reports.get(each.behind or 0) if each.kind == "behind" and each.state in QUEUEING else None
        return ahead is not None and not ahead.is_done and waits_for_a_person(ahead, depth + 1)

    return all(waits_for_a_person(each) for each in reports.values())
