"""The contract with the modules: what an operation asks of a module, and what each answer means.

A module keeps addresses. An address has an id for life and a live one has a UPRN, which no other live address has. A
logically deleted address keeps its id and its record, and holds no UPRN: another address may get it.

**upsert** (`uprn`, `address_id`, `record`: always the whole record)
  1. The UPRN is live under this id, or the id is live under another UPRN (after a swap): the record of whatever address
     has the UPRN is replaced. No id ever moves.
  2. The UPRN is live under another id and this id is not live: that address is put away as by a delete, then as 3.
  3. The UPRN is not live: the logically deleted address of this id is revived with UPRN and record, else inserted.
  The id is live under another UPRN and nobody has this UPRN: `refused`.
**delete** (`uprn`): the address that has the UPRN is removed; with orders in flight it is deleted logically. Nobody
  has it: `applied`, nothing changes. Where `address_id` is given and the UPRN is live under another id: `refused`.
**swap** (`uprn`, `uprn_2`): both live: they exchange their UPRNs, nothing else; else `missing`. With `delete_after`,
  the address that then has `uprn` (the virtual one) is deleted in the same transaction. Both the same: `refused`.
**purge** (`address_id`; `seq` and `uprn` of the delete): removes a logically deleted address for good, if it has no
  order in flight at that moment. Not there: `applied`. Live again, or deleted again by a younger delete: `stale`.

**The fence.** A module remembers two numbers for each UPRN: the highest `seq` of the upserts and deletes that it
applied (a `delete_after` counts as a delete, too), and that of the swaps, counted on both UPRNs. An operation whose
`seq` is not above the number of its own sort is `stale`. The sorts do not fence each other: in a cycle an upsert may
follow a younger swap, and a waiting swap a younger upsert. So the fence does not order a swap against an upsert or
delete that was sent and has no final answer yet: whoever sends must hold a swap back while an attempted upsert or
delete of one of its UPRNs is unfinished, or modules may come to differ.

**Ids.** What an upsert does hangs on whether its id is live under another UPRN, and so on messages of that one. So a
publisher does not give an id that one UPRN had to another, except by a swap. Where it does while a message of the first
is unfinished, modules may come to differ in the ids of these UPRNs; the drift report shows it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from domain.faults import MESSAGE_MAX_CHARACTERS, bounded

BATCH_MAX: Final = 500
UPRN_MAX: Final = 2**63 - 1


class Module(StrEnum):
    """Who keeps addresses."""

    ED = "ed"
    IM = "im"
    WFM = "wfm"
    OD = "od"


class Kind(StrEnum):
    """What is asked."""

    SWAP = "swap"
    UPSERT = "upsert"
    DELETE = "delete"
    PURGE = "purge"


class Outcome(StrEnum):
    """What an answer means. Each has one meaning."""

    APPLIED = "applied"
    """It took effect now, and is committed."""
    LOGICAL = "logical"
    """A delete took effect now, and the address is kept because of orders in flight; or a purge found it so still."""
    ALREADY = "already"
    """It took effect when it was sent before; `was` and all else are of that time. Nothing changed now."""
    STALE = "stale"
    """Something younger took effect there before: nothing changed, and it never will be applied."""
    MISSING = "missing"
    """A swap without one side or both; nothing changed. It may be sent again under the same id."""
    REFUSED = "refused"
    """It contradicts what the module has, as `error` says; nothing changed. Somebody has to look."""
    FAILED = "failed"
    """Nobody knows whether it took effect: no answer, an error, a module that is away. Send it again."""


class Operation(BaseModel):
    """One change. The same `op_id` is the same change, however often it is sent."""

    model_config = ConfigDict(frozen=True)

    op_id: str = Field(min_length=1, max_length=64)
    seq: int = Field(ge=1)
    """The message's id in the log; of a purge, that of the delete whose traces it removes."""
    kind: Kind
    uprn: int = Field(ge=1, le=UPRN_MAX)
    uprn_2: int | None = Field(default=None, ge=1, le=UPRN_MAX)
    address_id: int | None = Field(default=None, ge=1, le=UPRN_MAX)
    record: dict[str, Any] | None = None
    delete_after: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Self:
        needed = _NEEDED[self.kind]
        if lacking := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"a {self.kind} needs {', '.join(needed)}; {' and '.join(lacking)} is not there")
        return self


_NEEDED: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.SWAP: ("uprn", "uprn_2"),
    Kind.UPSERT: ("uprn", "address_id", "record"),
    Kind.DELETE: ("uprn",),
    Kind.PURGE: ("uprn", "address_id"),
}


def _cut(text: object) -> object:
    return bounded(text) if isinstance(text, str) else text


class OperationResult(BaseModel):
    """What became of an operation in one module."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    op_id: str
    outcome: Outcome
    was: Outcome | None = None
    """Of `already`: the outcome of the first time."""
    missing: list[int] = []
    """Of `missing`: the UPRNs that no live address has."""
    address_id: int | None = None
    """The address that an upsert, delete or purge was about."""
    logical_address_id: int | None = None
    """The address that this operation left logically deleted: by a delete, by a swap with `delete_after`, by an upsert
    that gave the UPRN to another address, or by a purge that found orders in flight."""
    in_flight: bool = False
    """Whether that one has orders in flight here."""
    error: Annotated[str, BeforeValidator(_cut)] = Field(default="", max_length=MESSAGE_MAX_CHARACTERS)
    """A longer one is cut: the rest of a batch must not suffer from it."""

    @property
    def settled(self) -> bool:
        """Whether the module needs it no more: its acknowledgement is Y."""
        return self.outcome in (Outcome.APPLIED, Outcome.LOGICAL, Outcome.ALREADY, Outcome.STALE)

    @property
    def effect(self) -> Outcome:
        """The outcome, or that of the first time."""
        return self.was or self.outcome


class AddressEntry(BaseModel):
    """An address as a module keeps it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    address_id: int
    uprn: int
    """Of a logically deleted one: its last."""
    record: dict[str, Any] | None = None
    digest: str | None = None
    """Instead of the record: SHA-256 of it as JSON, see `drift.digest`."""
    logical: bool = False


class AddressPage(BaseModel):
    """Addresses in ascending order of their ids; one shorter than asked for is the last."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    addresses: list[AddressEntry] = []


def message_id(log_id: int) -> str:
    """The id under which the message of this row is sent, whatever its topic."""
    return str(log_id)


def purge_id(address_id: int, attempt: int) -> str:
    """The id of the nth try at purging an address."""
    return f"purge:{address_id}:{attempt}"
