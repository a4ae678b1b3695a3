"""Drift: how modules differ in an address that all of them should have alike.

Compared is what is live: its UPRN and its record. A module that keeps an address logically deleted agrees with one that
has removed it, because either may be right: that hangs on its own orders.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.addresses.operations import AddressEntry, Module

EXACT_MAX: Final = 2**53


class State(StrEnum):
    """How a module has an address."""

    LIVE = "live"
    LOGICAL = "logically deleted"
    ABSENT = "absent"


class Kind(StrEnum):
    """In what modules differ."""

    PRESENCE = "presence"
    """It is live in some of them only."""
    UPRN = "uprn"
    RECORD = "record"


class Side(NamedTuple):
    """An address as one module has it."""

    state: State
    uprn: int | None = None
    digest: str = ""


ABSENT: Final = Side(State.ABSENT)
Sides = Mapping[Module, Side]


class Difference(NamedTuple):
    """An address that modules have differently."""

    address_id: int
    kinds: tuple[Kind, ...]
    sides: Sides

    @property
    def uprns(self) -> set[int]:
        """The UPRNs that modules tell of it."""
        return {side.uprn for side in self.sides.values() if side.uprn is not None}


def compare(address_id: int, sides: Sides) -> Difference | None:
    """How the modules differ, if they do."""
    live = [side for side in sides.values() if side.state is State.LIVE]
    kinds = [
        kind
        for kind, differs in (
            (Kind.PRESENCE, 0 < len(live) < len(sides)),
            (Kind.UPRN, len({side.uprn for side in live}) > 1),
            (Kind.RECORD, len({side.digest for side in live}) > 1),
        )
        if differs
    ]
    return Difference(address_id, tuple(kinds), sides) if kinds else None


def side(entry: AddressEntry) -> Side:
    """An address as a module tells it."""
    told = entry.digest.lower() if entry.digest else digest(entry.record or {})
    return Side(State.LOGICAL if entry.logical else State.LIVE, entry.uprn, told)


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record as every module can write it: sorted keys, no spaces, whole numbers without a fraction."""
    text = json.dumps(_plain(record), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) < EXACT_MAX:
            return int(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


class DriftOrder(BaseModel):
    """Asks for a comparison."""

    model_config = ConfigDict(frozen=True)

    report: str
    """Names it."""


class DriftReport(BaseModel):
    """What a comparison found. The workbook has the addresses."""

    model_config = ConfigDict(frozen=True)

    report: str
    made_at: AwareDatetime
    compared: int
    """Addresses that any module has, live or logically deleted."""
    live: dict[Module, int]
    different: int
    presence: int
    uprn: int
    record: int
    under_way: int
    """Of those shown: with a message that is not done yet, which may explain them."""
    shown: int
    """In the workbook."""
    key: str
