"""The contract with the modules: what an operation asks of a module, and what each answer means.

A module is a map: each UPRN has an address, which is an id and a record, or none. The effect of an operation depends
only on the operation and on what its own UPRNs have, so that modules which apply the operations of each UPRN in the
same order end up equal. UPRNs are unique. Publishers decide whether address ids are: for a time two UPRNs may have the
same id.

**upsert** (`uprn`, `address_id`, `record`: always the whole record)
  The UPRN gets this id and this record, whatever it had before. An address with another id that it had is removed as by
  a delete. A logically deleted address with this id is live again.
**delete** (`uprn`): the address of the UPRN is removed; without one: `applied`. If it has orders in flight and no
  other UPRN has its id, it is deleted logically: kept under its id, without a UPRN.
**swap** (`uprn`, `uprn_2`): if both are live, each gets what the other has; else `missing`. With `delete_after`, what
  `uprn` then has (the virtual address) is removed as by a delete, in the same transaction. Both the same: `refused`.
**purge** (`address_id`; `seq` and `uprn` of the delete): removes a logically deleted address for good, if it has no
  order in flight at that moment. Not there: `applied`. Live again, or deleted again by a younger delete: `stale`.

**The fence.** A module keeps two numbers for each UPRN: the highest `seq` of the upserts and deletes that it
applied (a `delete_after` counts as a delete, too), and that of the swaps, counted on both UPRNs. An operation whose
`seq` is not above the number of its own sort is `stale`. The sorts do not fence each other: in a cycle an upsert may
follow a younger swap, and a waiting swap a younger upsert. So the fence does not order a swap against an upsert or
delete that was sent and has no final answer yet: the sender must hold a swap back while an attempted upsert or
delete of one of its UPRNs is unfinished, and the other way round, or modules may come to differ.

**Sides.** A swap that one module applied while another misses a side of it would be on both sides of the upsert that
brings this side. So the sender looks both sides up in all modules first (`LiveUprnsAndAppliedOps`), and sends a swap to
all of them or to none.

**Deletes name no id.** A delete that spared an address with another id would spare it only in those modules that still
miss an upsert, which the delete itself supersedes.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from domain.faults import sanitize_and_shorten_text

BATCH_MAX: Final = 500
LOOKUP_MAX: Final = 2 * BATCH_MAX
UPRN_MAX: Final = 2**63 - 1

ReportedId: TypeAlias = Annotated[int, msgspec.Meta(ge=-UPRN_MAX, le=UPRN_MAX), Field(ge=-UPRN_MAX, le=UPRN_MAX)]
"""A UPRN or the id of an address in the answer of a module: one that PostgreSQL can keep."""


class Module(StrEnum):
    """The modules that keep addresses."""

    ED = "ed"
    IM = "im"
    WFM = "wfm"
    OD = "od"


class OperationKind(StrEnum):
    SWAP = "swap"
    UPSERT = "upsert"
    DELETE = "delete"
    PURGE = "purge"


class OperationOutcome(StrEnum):
    """What an answer means."""

    APPLIED = "applied"
    """It took effect now, and is committed."""
    LOGICAL = "logical"
    """A delete took effect, and the address is kept because of orders in flight; or a purge found that it still is."""
    ALREADY = "already"
    """It took effect when it was sent before; `was` and all other fields are of that time. Nothing changed now."""
    STALE = "stale"
    """Something younger took effect there before: nothing changed, and it will never be applied."""
    MISSING = "missing"
    """A swap without one side or both; nothing changed. It may be sent again under the same id."""
    REFUSED = "refused"
    """It contradicts what the module has, as `error` says; nothing changed. An operator has to look."""
    FAILED = "failed"
    """Whether it took effect is unknown: no answer, an error, a module that is away. Send it again."""


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """One change. The same `op_id` is the same change, however often it is sent."""

    op_id: str
    seq: int
    """The message's id in the log; for a purge, that of the delete whose remains it removes."""
    kind: OperationKind
    uprn: int
    uprn_2: int | None = None
    address_id: int | None = None
    record: dict[str, Any] | None = None
    delete_after: bool | None = None

    # The struct's `dict` option keeps the bytes with the operation.
    @cached_property
    def json_bytes(self) -> bytes:
        """The operation as it is sent: the same to every module, and serialised once for all of them."""
        return msgspec.json.encode(self)


class OperationResult(msgspec.Struct, frozen=True):
    """The result of an operation in one module."""

    op_id: str
    outcome: OperationOutcome
    was: OperationOutcome | None = None
    """For `already`: the outcome of the first time."""
    missing: list[ReportedId] = []
    """For `missing`: the UPRNs without an address."""
    address_id: ReportedId | None = None
    """The address that an upsert, delete or purge was about."""
    logical_address_id: ReportedId | None = None
    """The address that this operation left logically deleted: by a delete, by a swap with `delete_after`, by an upsert
    that gave the UPRN to another address, or by a purge that found orders in flight.
    """
    in_flight: bool = False
    """Whether that address has orders in flight in this module."""
    error: str = ""
    """Truncated if it is longer than a message may be, so that it does not spoil the rest of a batch."""

    def __post_init__(self) -> None:
        if self.error:
            msgspec.structs.force_setattr(self, "error", sanitize_and_shorten_text(self.error))

    @property
    def is_acknowledged(self) -> bool:
        """Whether the module needs no further call: its acknowledgement is Y."""
        return self.outcome in _SETTLED

    @property
    def original_outcome(self) -> OperationOutcome:
        """The outcome, or that of the first time."""
        return self.was or self.outcome


class UnansweredResult(OperationResult, frozen=True):
    """The result of a module that did not answer; retrying it does not count as a try."""

    is_unapplied: bool = False
    """Whether the module said that it has not applied the operation, and no call with it is in progress."""
    is_paused: bool = False
    """Whether it was not called because it is paused."""


_SETTLED: Final = frozenset(
    {OperationOutcome.APPLIED, OperationOutcome.LOGICAL, OperationOutcome.ALREADY, OperationOutcome.STALE}
)


class LiveUprnsAndAppliedOps(BaseModel):
    """What a module has of the UPRNs and operations that it was asked about."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    live: frozenset[int]
    """UPRNs with an address."""
    applied: frozenset[str]
    """Operations that took effect; read after the UPRNs."""


class AddressEntry(BaseModel):
    """What a UPRN has in a module."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    uprn: ReportedId
    address_id: ReportedId
    record: dict[str, Any] | None = None
    digest: str | None = None
    """Instead of the record: SHA-256 of it as JSON, see `drift.digest_record`."""


class AddressPage(BaseModel):
    """Addresses in ascending order of their UPRNs; a page shorter than requested is the last."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    addresses: list[AddressEntry] = []


def build_operation_id(log_id: int) -> str:
    """Return the id of the operation of a message, whatever its topic."""
    return str(log_id)


def build_purge_operation_id(address_id: int, attempt: str) -> str:
    """Return the id of one attempt to purge an address.

    Modules remember operation ids, and answer a repeated id with its first result. An address may be purged, created,
    deleted and purged again, so each attempt needs a name that is never reused.
    """
    return f"purge:{address_id}:{attempt}"
