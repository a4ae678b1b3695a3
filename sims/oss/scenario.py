"""The faults of the modules: which, where and how often, drawn from a seed."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

from pydantic import BaseModel, ConfigDict, Field

MODULES = ("ed", "im", "wfm", "od")
KINDS = ("swap", "upsert", "delete", "purge")


class OssAction(StrEnum):
    """A fault."""

    # with a call
    SLOW = "slow"  # correct, but begun after `seconds`, or once another scenario is set
    ERROR = "error"  # 500, nothing was done
    RESET = "reset"  # the connection is cut, nothing was done
    LOST = "lost"  # it is done, and then the connection is cut
    LATE = "late"  # it is done, and answered after `seconds`, or once another scenario is set
    CHOKE = "choke"  # 500 for a call with an operation of `uprns`, nothing was done
    # with one operation
    FAIL = "fail"  # its transaction fails in the middle


class OssRule(BaseModel):
    """A fault, where it occurs, and how often."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: OssAction
    modules: frozenset[str] = frozenset(MODULES)
    kinds: frozenset[str] = frozenset(KINDS)
    """For FAIL: the operations."""
    uprns: frozenset[int] | None = None
    """For FAIL and CHOKE: only operations that name one of them."""
    fraction: float = Field(default=1.0, ge=0, le=1)
    """The fraction that is affected."""
    skip: int = Field(default=0, ge=0)
    """How many succeed first: calls of a module, or attempts of an operation there."""
    times: int | None = Field(default=None, ge=0)
    """How many fail then."""
    from_second: float = 0.0
    """When it begins, since the scenario was set."""
    to_second: float | None = None
    seconds: float = 0.5
    status: int = Field(default=500, ge=400, le=599)
    """For ERROR."""

    def counts(self, occurrence: int, now: float) -> bool:
        """Return whether the rule applies to the nth occurrence (from 0), at this second."""
        last = None if self.times is None else self.skip + self.times
        in_turn = occurrence >= self.skip and (last is None or occurrence < last)
        return in_turn and now >= self.from_second and (self.to_second is None or now < self.to_second)


class OssScenario(BaseModel):
    """All faults of the modules."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    rules: tuple[OssRule, ...] = ()

    def rolls(self, rule: int, what: object) -> bool:
        """Return whether the fraction of a rule includes this."""
        draw = blake2b(f"{self.seed}/{rule}/{what}".encode(), digest_size=8).digest()
        return int.from_bytes(draw) < self.rules[rule].fraction * 2**64
