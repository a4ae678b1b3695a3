"""States: how a message stands, as operators ask for it."""

from __future__ import annotations

from enum import StrEnum

from domain.addresses.messages import Topic


class State(StrEnum):
    """How a message stands."""

    WAITING = "waiting"
    """No cycle has taken it yet."""
    PROCESSING = "processing"
    """A cycle has it."""
    FAILED = "failed"
    """It failed, and a later cycle will try it again."""
    GIVEN_UP = "given_up"
    """It failed as often as it may, and waits for a person."""
    DONE = "done"
    """All modules have it, a later message made it needless, or somebody skipped it."""


def state(*, proc_flag: str | None, topic: str, is_due: bool, retry_times: int, retries: int) -> State:
    """What the flags of the log mean.

    Args:
        is_due: Whether it has a moment from which on it is tried again; a swap that is being tried again has none.
    """
    match proc_flag:
        case None:
            return State.WAITING
        case "Y":
            return State.DONE
        case "N" if is_due or topic != Topic.SWAP:
            return State.FAILED if retry_times < retries else State.GIVEN_UP
        case _:
            return State.PROCESSING
