"""The UPRNs, numbers and payloads of a world that is played beside others, over one log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from domain.addresses import messages
from domain.addresses.messages import Topic
from domain.addresses.operations import Operation
from tests.support.address_oracle import build_operation
from tests.worlds.addresses.world import LATER, MessageKind, PlannedMessage, World

UPRNS_OF_A_WORLD = 1_000
TOPICS = {
    MessageKind.SWAP: Topic.SWAP,
    MessageKind.CREATE: Topic.CREATE_UPDATE,
    MessageKind.DELETE: Topic.DELETE,
}
TOO_MANY_BYTES = 1_100_000
UNKNOWN_TOPIC = "somethingElse"
POISONS: Mapping[str, tuple[str, bytes]] = {
    "bad_json": (Topic.CREATE_UPDATE, b'{"uprn": 7, "addr'),
    "no_uprn": (Topic.CREATE_UPDATE, b'{"address_id": 7, "record": {}}'),
    "swap_with_itself": (Topic.SWAP, b'{"uprn_1": 7, "uprn_2": 7}'),
    "huge": (Topic.DELETE, b'{"uprn": 7, "x": "' + b"x" * TOO_MANY_BYTES + b'"}'),
    "wrong_base64": (Topic.CREATE_UPDATE, b"{}"),
    "unknown_topic": (UNKNOWN_TOPIC, b'{"uprn": 7}'),
    "dead_lettered": (Topic.DELETE, b'{"uprn": "seven"}'),
}
REFUSED = {"wrong_base64": 422, "unknown_topic": 404}
"""Poisons that did not come as Pub/Sub sends them: they are not taken in at all."""


@dataclass(frozen=True)
class Publication:
    """A message as it is delivered."""

    topic: str
    number: str
    payload: bytes
    times: int = 1
    is_accepted: bool = True
    """Whether it gets a row of the log: it can be read, and is no repetition of an event."""
    poison: str = ""
    is_unread: bool = False
    loses: tuple[str, int] | None = None
    """The module that loses the address of a UPRN before this is published."""

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.payload)
        return content

    def operation(self, id_: int) -> Operation:
        """What it asks of modules, as the message of this id."""
        return build_operation(id_, messages.parse_payload(Topic(self.topic), self.content))

    @property
    def is_quarantined(self) -> bool:
        """Whether it is kept in quarantine."""
        return bool(self.poison) and self.poison not in REFUSED


@dataclass(frozen=True)
class Names:
    """A world and its place among those that are played."""

    world: World
    place: int
    rounds: list[list[Publication]] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = sum(len(each.messages) for each in self.world.rounds)
        numbers = [f"w{self.place}-{number}" for number in range(count)]
        if self.world.has("numbers_reversed"):
            numbers.reverse()
        left = iter(numbers)
        self.rounds.extend(
            [each for planned in part.messages for each in self._publish(planned, next(left))]
            for part in self.world.rounds
        )

    def uprn(self, number: int) -> int:
        """The UPRN of this number."""
        return self.place * UPRNS_OF_A_WORLD + number + 1

    @property
    def uprns(self) -> range:
        """All that it may name."""
        first = self.place * UPRNS_OF_A_WORLD
        return range(first, first + UPRNS_OF_A_WORLD)

    @property
    def address_ids(self) -> list[int]:
        """All addresses that its messages may bring."""
        numbers = (*range(self.world.uprns), LATER)
        return [self._address_id(number, address) for number in numbers for address in (0, 1)]

    def _address_id(self, number: int, address: int) -> int:
        return self.uprn(number) + UPRNS_OF_A_WORLD // 2 - 200 * address

    @property
    def accepted(self) -> list[Publication]:
        """The messages that get a row of the log, in the order of their ids."""
        return [each for part in self.rounds for each in part if each.is_accepted]

    def list_snapshot(self) -> list[Publication]:
        """List the addresses of the first round as a snapshot repeats them: the same events under other numbers."""
        return [
            Publication(each.topic, f"{each.number}-again", each.payload, is_accepted=False)
            for each in self.rounds[0]
            if not each.poison and "event_id" in each.content
        ]

    def _publish(self, planned: PlannedMessage, number: str) -> Iterator[Publication]:
        if planned.kind is MessageKind.POISON:
            topic, payload = POISONS[planned.poison]
            yield Publication(topic, number, payload, planned.times, is_accepted=False, poison=planned.poison)
            return
        if planned.is_dropped:
            return
        payload = json.dumps(self._payload(planned, number)).encode()
        loses = planned.loses and (planned.loses[0], self.uprn(planned.loses[1]))
        yield Publication(
            TOPICS[planned.kind], number, payload, planned.times, is_unread=planned.is_unread, loses=loses
        )
        if planned.is_repeated:
            yield Publication(TOPICS[planned.kind], f"{number}-again", payload, is_accepted=not planned.has_event)

    def _payload(self, planned: PlannedMessage, number: str) -> dict[str, Any]:
        event = {"event_id": f"e-{number}"} if planned.has_event else {}
        uprn = self.uprn(planned.one)
        match planned.kind:
            case MessageKind.SWAP:
                assert planned.other is not None
                other = self.uprn(planned.other)
                return {"uprn_1": uprn, "uprn_2": other, "delete_after": planned.delete_after, **event}
            case MessageKind.CREATE:
                address_id = self._address_id(planned.one, planned.address)
                return {"uprn": uprn, "address_id": address_id, "record": {"number": number}, **event}
            case _:
                return {"uprn": uprn, **event}
