"""The contract with the modules: what an operation asks of a module, and what each answer means.

A module is a map: each UPRN has an address, which is an id and a record, or none. What an operation does to the map
hangs on nothing but the operation and what its own UPRNs have, so that modules that apply the operations of each UPRN
in the same order are alike. UPRNs are unique; ids are as unique as publishers make them: in between, two UPRNs may have
one.

**upsert** (`uprn`, `address_id`, `record`: always the whole record)
  The UPRN has this id and this record, whatever it had before. An address of another id that it had is taken away as by
  a delete. What was deleted logically under this id is no more: it lives again.
**delete** (`uprn`): the address of the UPRN is taken away; nobody has it: `applied`. If it has orders in flight and no
  other UPRN has its id, it is deleted logically: kept under its id, without a UPRN.
**swap** (`uprn`, `uprn_2`): both live: each gets what the other has; else `missing`. With `delete_after`, what `uprn`
  then has (the virtual address) is taken away as by a delete, in the same transaction. Both the same: `refused`.
**purge** (`address_id`; `seq` and `uprn` of the delete): removes a logically deleted address for good, if it has no
  order in flight at that moment. Not there: `applied`. Live again, or deleted again by a younger delete: `stale`.

**The fence.** A module remembers two numbers for each UPRN: the highest `seq` of the upserts and deletes that it
applied (a `delete_after` counts as a delete, too), and that of the swaps, counted on both UPRNs. An operation whose
`seq` is not above the number of its own sort is `stale`. The sorts do not fence each other: in a cycle an upsert may
follow a younger swap, and a waiting swap a younger upsert. So the fence does not order a swap against an upsert or
delete that was sent and has no final answer yet: whoever sends must hold a swap back while an attempted upsert or
delete of one of its UPRNs is unfinished, and the other way round, or modules may come to differ.

**Sides.** A swap that one module applied and another misses a side of would be on both sides of the upsert that brings
this side. So whoever sends asks all modules first (`Lookup`), and sends a swap to all of them or to none.

**Deletes name no id.** One that spared an address of another id would spare it in those modules only that still miss an
upsert, which the delete itself makes needless.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from domain.faults import MESSAGE_MAX_CHARACTERS, sanitize_text

BATCH_MAX: Final = 500
LOOKUP_MAX: Final = 2 * BATCH_MAX
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

    @cached_property
    def written(self) -> bytes:
        """As it is sent: the same to every module, and written once for all of them."""
        return self.model_dump_json(exclude_none=True).encode()


_NEEDED: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.SWAP: ("uprn", "uprn_2"),
    Kind.UPSERT: ("uprn", "address_id", "record"),
    Kind.DELETE: ("uprn",),
    Kind.PURGE: ("uprn", "address_id"),
}


def _cut(text: object) -> object:
    return sanitize_text(text) if isinstance(text, str) else text


class OperationResult(BaseModel):
    """What became of an operation in one module."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    op_id: str
    outcome: Outcome
    was: Outcome | None = None
    """Of `already`: the outcome of the first time."""
    # A default of its own for each would be copied deeply, which costs more than all the rest of reading a result.
    missing: list[int] = Field(default_factory=list)
    """Of `missing`: the UPRNs that no address has."""
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
        return self.outcome in _SETTLED

    @property
    def effect(self) -> Outcome:
        """The outcome, or that of the first time."""
        return self.was or self.outcome


class Away(OperationResult):
    """Stands for the result of a module that said nothing about the operation: it is asked again, at no cost."""

    is_unapplied: bool = False
    """Whether the module said that it has not applied it, and no call of it is on its way."""


_SETTLED: Final = frozenset({Outcome.APPLIED, Outcome.LOGICAL, Outcome.ALREADY, Outcome.STALE})


class Lookup(BaseModel):
    """What a module has of the UPRNs and operations that it was asked about."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    live: frozenset[int]
    """UPRNs that an address has."""
    applied: frozenset[str]
    """Operations that took effect; looked up after the UPRNs."""


class AddressEntry(BaseModel):
    """What a UPRN has in a module."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    uprn: int
    address_id: int
    record: dict[str, Any] | None = None
    digest: str | None = None
    """Instead of the record: SHA-256 of it as JSON, see `drift.digest`."""


class AddressPage(BaseModel):
    """What UPRNs have, in their ascending order; a page shorter than asked for is the last."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    addresses: list[AddressEntry] = []


def message_id(log_id: int) -> str:
    """The id under which the message of this row is sent, whatever its topic."""
    return str(log_id)


def purge_id(address_id: int, attempt: str) -> str:
    """The id of one attempt to purge an address.

    Modules remember ids, so that an attempt whose name was used before would be answered by what it came to then. An
    address may be purged, created, deleted and purged again: name each attempt by what never comes again.
    """
    return f"purge:{address_id}:{attempt}"
