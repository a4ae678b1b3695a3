"""The states of targets and jobs, as clients know them; a final state is never left."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import BaseModel


class State(StrEnum):
    """Where a target, or a whole job, stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    TIMEOUT = "Timeout"

    @property
    def final(self) -> bool:
        """Whether it is over."""
        return self in FINAL


FINAL = frozenset({State.SUCCESS, State.FAILED, State.TIMEOUT})


class Reason(StrEnum):
    """Why a target failed or ran out of time, for programs."""

    GSE_CODE = "gse_code"  # GSE's own code for this target says so; see `code`
    GSE_REFUSED = "gse_refused"
    AGENT_OFFLINE = "agent_offline"  # GSE says that the agent is not there, so nothing was sent
    UPLOAD_FAILED = "upload_failed"
    NEVER_TOLD = "never_told"  # GSE answered, and told nothing of this target
    FILE_UNAVAILABLE = "file_unavailable"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


class End(BaseModel):
    """How targets end that GSE itself says nothing final about."""

    state: State
    reason: Reason
    code: int | None = None
    message: str


class Summary(BaseModel):
    """A job in one word, and whether that word hides that some targets did better."""

    state: State
    partial: bool
    counts: dict[State, int] = {}


def summary(counts: Mapping[State, int]) -> Summary:
    """The state of a job of so many targets in each state.

    It is over when all its targets are. Then one that failed makes it Failed, else one that ran out of time Timeout.
    """
    present = {state for state, count in counts.items() if count}
    state = next((each for each in _WORST_FIRST if each in present), State.PENDING)
    if state is State.PENDING and present - {State.PENDING}:
        state = State.RUNNING
    partial = state in (State.FAILED, State.TIMEOUT) and State.SUCCESS in present
    return Summary(state=state, partial=partial, counts={each: counts.get(each, 0) for each in State})


_WORST_FIRST = (State.RUNNING, State.PENDING, State.FAILED, State.TIMEOUT, State.SUCCESS)
