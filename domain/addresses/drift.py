"""Drift: how modules differ in what a UPRN has, that all of them should have alike.

Compared is what is live: its address id and its record. What a module keeps logically deleted is its own affair,
because it hangs on its own orders.
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


class Kind(StrEnum):
    """In what modules differ."""

    PRESENCE = "presence"
    """The UPRN has an address in some of them only."""
    ADDRESS_ID = "address_id"
    RECORD = "record"


class Side(NamedTuple):
    """What a UPRN has in one module."""

    address_id: int
    digest: str


Sides = Mapping[Module, Side | None]


class Difference(NamedTuple):
    """A UPRN that modules have differently."""

    uprn: int
    kinds: tuple[Kind, ...]
    sides: Sides


def compare(uprn: int, sides: Sides) -> Difference | None:
    """How the modules differ, if they do."""
    live = [side for side in sides.values() if side]
    kinds = [
        kind
        for kind, differs in (
            (Kind.PRESENCE, 0 < len(live) < len(sides)),
            (Kind.ADDRESS_ID, len({side.address_id for side in live}) > 1),
            (Kind.RECORD, len({side.digest for side in live}) > 1),
        )
        if differs
    ]
    return Difference(uprn, tuple(kinds), sides) if kinds else None


def side(entry: AddressEntry) -> Side:
    """What a module tells of a UPRN."""
    return Side(entry.address_id, entry.digest.lower() if entry.digest else digest(entry.record or {}))


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
    """UPRNs that any module has."""
    live: dict[Module, int]
    different: int
    presence: int
    address_id: int
    record: int
    under_way: int
    """Of those shown: with a message that is not done yet, which may explain them."""
    shown: int
    """In the workbook."""
    key: str
