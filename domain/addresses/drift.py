"""Drift: how the modules differ in what a UPRN has, which should be the same in all of them.

Only live addresses are compared: their ids and records. Logically deleted ones depend on the orders of each module.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from domain.addresses.operations import AddressEntry, Module

EXACT_INTEGER_MAX: Final = 2**53


class DifferenceKind(StrEnum):
    PRESENCE = "presence"
    """Only some modules have an address of the UPRN."""
    ADDRESS_ID = "address_id"
    RECORD = "record"


class AddressFingerprint(NamedTuple):
    """The id and the record's digest of a UPRN's address in one module."""

    address_id: int
    digest: str


Fingerprints = Mapping[Module, AddressFingerprint | None]


class AddressDifference(NamedTuple):
    """A UPRN whose addresses differ between modules."""

    uprn: int
    kinds: tuple[DifferenceKind, ...]
    sides: Fingerprints


def compare_modules(uprn: int, sides: Fingerprints) -> AddressDifference | None:
    """Return how the modules differ, or None if they agree."""
    live = [side for side in sides.values() if side]
    kinds = [
        kind
        for kind, differs in (
            (DifferenceKind.PRESENCE, 0 < len(live) < len(sides)),
            (DifferenceKind.ADDRESS_ID, len({side.address_id for side in live}) > 1),
            (DifferenceKind.RECORD, len({side.digest for side in live}) > 1),
        )
        if differs
    ]
    return AddressDifference(uprn, tuple(kinds), sides) if kinds else None


def build_fingerprint(entry: AddressEntry) -> AddressFingerprint:
    return AddressFingerprint(
        entry.address_id, entry.digest.lower() if entry.digest else digest_record(entry.record or {})
    )


def digest_record(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record in canonical JSON: sorted keys, no spaces, whole numbers without a fraction."""
    text = json.dumps(_normalise_numbers(record), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _normalise_numbers(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) < EXACT_INTEGER_MAX:
            return int(value)
        case dict():
            return {name: _normalise_numbers(each) for name, each in value.items()}
        case list():
            return [_normalise_numbers(each) for each in value]
        case _:
            return value
