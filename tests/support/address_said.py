"""Change messages as tests publish them: topic, number, and what they say."""

from __future__ import annotations

from typing import Any

from domain.addresses.messages import Topic
from domain.addresses.operations import Module

Said = tuple[Topic, str, dict[str, Any]]


def create(number: str, uprn: int, n: int = 0) -> Said:
    """A createUpdate."""
    return Topic.CREATE_UPDATE, number, {"uprn": uprn, "address_id": 1_000 + uprn, "record": {"n": n}}


def swap(number: str, one: int, other: int) -> Said:
    """A swap."""
    return Topic.SWAP, number, {"uprn_1": one, "uprn_2": other}


def delete(number: str, uprn: int) -> Said:
    """A delete."""
    return Topic.DELETE, number, {"uprn": uprn}


def acks(row: dict[str, Any]) -> dict[Module, str | None]:
    """The four acknowledgements."""
    return {module: row[f"{module}_ack"] for module in Module}
