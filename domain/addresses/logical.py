"""Logical deletes: which modules still need an address, when it may be removed, and what a purge came to.

OD, WFM and ED say whether they have orders in flight. An address is removable once all three have said no; each module
looks once more in the transaction that removes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from domain.addresses.operations import Kind, Module, Operation, OperationResult, Outcome, purge_id
from domain.addresses.verdicts import IN_FLIGHT_FLAGS

PURGE_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Listed:
    """An address that is listed, with the modules that have orders in flight as far as is known."""

    address_id: int
    uprn: int
    log_id: int
    busy: frozenset[Module]
    is_checked: bool = False
    """Whether all modules were asked, so that `busy` is the whole truth."""

    @property
    def removable(self) -> bool:
        """Whether no module needs it any more."""
        return self.is_checked and not self.busy

    def checked(self, in_flight: Mapping[Module, Set[int] | None]) -> Listed:
        """The same after modules were asked; None stands for one that did not answer: of it we know what we knew."""
        busy = {
            module
            for module in IN_FLIGHT_FLAGS
            if (module in self.busy if (told := in_flight[module]) is None else self.address_id in told)
        }
        answered = all(in_flight[module] is not None for module in IN_FLIGHT_FLAGS)
        return replace(self, busy=frozenset(busy), is_checked=answered)

    def needed_by(self, modules: Set[Module]) -> Listed:
        """The same after modules found orders in flight, whatever they had said before."""
        return replace(self, busy=self.busy | modules)

    def purge(self, attempt: str) -> Operation:
        """The operation that removes it, unless it lives again or was deleted anew."""
        return Operation(
            op_id=purge_id(self.address_id, attempt),
            seq=self.log_id,
            kind=Kind.PURGE,
            uprn=self.uprn,
            address_id=self.address_id,
        )


class Ending(StrEnum):
    """What became of a purge."""

    PURGED = "purged"
    """It is gone from all four modules."""
    BUSY = "busy"
    """A module has orders in flight again."""
    ALIVE = "alive"
    """It was created again, or deleted anew: this delete keeps it nowhere."""
    FAILED = "failed"
    """A module gave no answer, or refused. It may be purged again."""


def ending(results: Mapping[Module, OperationResult]) -> Ending:
    """What the answers of all four come to."""
    effects = {result.effect for result in results.values()}
    if Outcome.LOGICAL in effects:
        return Ending.BUSY
    if effects - {Outcome.APPLIED, Outcome.STALE}:
        return Ending.FAILED
    return Ending.ALIVE if Outcome.STALE in effects else Ending.PURGED


def needed_by(results: Mapping[Module, OperationResult]) -> frozenset[Module]:
    """The modules that found orders in flight."""
    return frozenset(module for module, result in results.items() if result.effect is Outcome.LOGICAL)


class CheckReport(BaseModel):
    """What a check of all listed addresses found."""

    model_config = ConfigDict(frozen=True)

    checked_at: AwareDatetime
    listed: int = 0
    removable: int = 0
    purged: int = 0
    unanswered: list[Module] = []
    """Modules that did not say, at least once: what they alone may hold back stays listed."""


class PurgeOrder(BaseModel):
    """Asks for the removal of listed addresses."""

    model_config = ConfigDict(frozen=True)

    address_ids: list[int] = Field(max_length=PURGE_MAX)
    who: str
    reason: str | None = None


class PurgeReport(BaseModel):
    """What became of each; those that are in no list were not listed any more."""

    model_config = ConfigDict(frozen=True)

    purged: list[int] = []
    busy: list[int] = []
    alive: list[int] = []
    failed: list[int] = []
