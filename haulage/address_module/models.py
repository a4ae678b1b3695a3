"""What Haulage sends and a module answers. The page for module owners explains each field."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

BATCH_MAX: Final = 500
ERROR_MAX_CHARACTERS: Final = 8_000
LOOKUP_MAX: Final = 2 * BATCH_MAX
UPRN_MAX: Final = 2**63 - 1


class OperationKind(StrEnum):
    SWAP = "swap"
    UPSERT = "upsert"
    DELETE = "delete"
    PURGE = "purge"


class OperationOutcome(StrEnum):
    """The outcome of an operation."""

    APPLIED = "applied"
    LOGICAL = "logical"
    ALREADY = "already"
    STALE = "stale"
    MISSING = "missing"
    REFUSED = "refused"
    FAILED = "failed"


class Operation(BaseModel):
    """One change. The same `op_id` is the same change, however often it is sent."""

    model_config = ConfigDict(frozen=True)

    op_id: str = Field(min_length=1, max_length=64)
    seq: int = Field(ge=1)
    kind: OperationKind
    uprn: int = Field(ge=1, le=UPRN_MAX)
    uprn_2: int | None = Field(default=None, ge=1, le=UPRN_MAX)
    address_id: int | None = Field(default=None, ge=1, le=UPRN_MAX)
    record: dict[str, Any] | None = None
    delete_after: bool = False

    @model_validator(mode="after")
    def _require_fields_of_kind(self) -> Self:
        needed = _REQUIRED_FIELDS[self.kind]
        if lacking := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"a {self.kind} needs {', '.join(needed)}; {' and '.join(lacking)} is not there")
        return self

    @property
    def uprns(self) -> list[int]:
        """The UPRNs of the operation, in the order in which they are locked."""
        return sorted({self.uprn, self.uprn_2 or self.uprn})


_REQUIRED_FIELDS: Final[dict[OperationKind, tuple[str, ...]]] = {
    OperationKind.SWAP: ("uprn", "uprn_2"),
    OperationKind.UPSERT: ("uprn", "address_id", "record"),
    OperationKind.DELETE: ("uprn",),
    OperationKind.PURGE: ("uprn", "address_id"),
}


class OperationResult(BaseModel):
    """The result of an operation."""

    model_config = ConfigDict(frozen=True)

    op_id: str
    outcome: OperationOutcome
    was: OperationOutcome | None = None
    missing: list[int] = Field(default_factory=list)
    address_id: int | None = None
    logical_address_id: int | None = None
    in_flight: bool = False
    error: str = Field(default="", max_length=ERROR_MAX_CHARACTERS)


class AddressEntry(BaseModel):
    """The address of a UPRN."""

    model_config = ConfigDict(frozen=True)

    uprn: int
    address_id: int
    record: dict[str, Any] | None = None
    digest: str | None = None
