"""How workflows call activities: timeouts and retries of each kind of activity, and how a failed call is read.

A workflow unpacks a row of options where it calls: `execute_activity_method(Tasks.archive, input_, **SHORT_ACTIVITY)`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypedDict, TypeVar

from pydantic import BaseModel
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from domain.faults import FaultRecord
from infra.interceptors import FAULT_TYPE

HEARTBEAT: Final = timedelta(seconds=5)
"""An activity whose worker is silent for this long is started again by another worker."""

UNTIL_DONE: Final = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=15))
"""Retry without end: the component that is away comes back, and then the activity succeeds."""
UNTIL_DONE_PROMPTLY: Final = replace(UNTIL_DONE, maximum_interval=timedelta(seconds=5))
"""Retry without end, with short pauses: callers, or a deadline of seconds, wait for the activity."""
ONCE: Final = RetryPolicy(maximum_attempts=1)
"""Never retry: the workflow itself decides what is tried again, and when."""

Model = TypeVar("Model", bound=BaseModel)


class ShortActivityOptions(TypedDict):
    """Options of an activity so short that its own timeout soon shows that its worker is lost."""

    start_to_close_timeout: timedelta
    retry_policy: RetryPolicy


class ActivityOptionsWithHeartbeat(ShortActivityOptions):
    """Options of an activity that may take long and sends heartbeats."""

    heartbeat_timeout: timedelta


class ActivityOptionsWithQueueTimeout(ActivityOptionsWithHeartbeat):
    """Options of an activity on a queue that may have no worker."""

    schedule_to_start_timeout: timedelta


Options = TypeVar("Options", bound=ShortActivityOptions)


def disable_retry_on_error_types(options: Options, *errors: type[Exception]) -> Options:
    """Return the same options for an activity that is not retried after one of these errors."""
    changed = copy(options)
    types = [error.__name__ for error in errors]
    changed["retry_policy"] = replace(options["retry_policy"], non_retryable_error_types=types)
    return changed


def build_fault(error: ActivityError) -> FaultRecord:
    """Return the fault that an activity failed with; any other error becomes a fault with the code `internal_error`."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == FAULT_TYPE:
        return FaultRecord.model_validate(cause.details[0])
    return FaultRecord(
        code="internal_error",
        message=f"The activity {error.activity_type} failed and is not retried: {cause or error}.",
        hint="Start again. If it fails again, give the operator this id: the history shows all attempts.",
    )


def read_fault_note(error: ActivityError, model: type[Model]) -> Model | None:
    """Return the note that an activity attached to its fault, or None if it attached none."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == FAULT_TYPE and len(cause.details) > 1:
        return model.model_validate(cause.details[1])
    return None


def has_error_type(error: ActivityError, name: str) -> bool:
    """Return whether an activity failed with an error of the class called *name*."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == name


# All systems.
SHORT_ACTIVITY: Final = ShortActivityOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=UNTIL_DONE)
# A worker that hangs still takes activities, a few of them, one after the other: each costs this long.
PROMPT_ACTIVITY: Final = ShortActivityOptions(
    start_to_close_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE_PROMPTLY
)
# The next run of the schedule removes what a failed one left.
HOUSEKEEPING: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(maximum_attempts=5),
)

# Downloads. Reading a source retries pages by itself, with pauses as long as the source asks for.
SOURCE_READING: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(hours=1), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE
)
FILE_MAKING: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(hours=12), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE
)

# Transfers. 100,000 targets are saved or ended in one transaction, which begins anew where it takes longer.
ALL_TARGETS: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(minutes=2), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE_PROMPTLY
)
# The job's own deadline ends a shipment long before.
SHIPPING: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(days=1),
    heartbeat_timeout=timedelta(seconds=8),
    retry_policy=UNTIL_DONE_PROMPTLY,
)

# Orders. A cycle stands still while it claims: a worker that hangs must not hold it up for long.
CLAIM: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(seconds=60), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE
)
# The clock is a request that may have to wait for its turn.
CLOCK_READING: Final = ActivityOptionsWithQueueTimeout(
    schedule_to_start_timeout=timedelta(seconds=60),
    start_to_close_timeout=timedelta(seconds=60),
    heartbeat_timeout=HEARTBEAT,
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3),
)
PRESENCE_CHECK: Final = ShortActivityOptions(start_to_close_timeout=timedelta(seconds=10), retry_policy=ONCE)
_REPORT_TRIES: Final = RetryPolicy(initial_interval=timedelta(seconds=10), maximum_attempts=20)
# A part ends with the first slice's length of time that is read after half a minute; at one request a minute that
# alone takes hours.
REPORT_READING: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(hours=6), heartbeat_timeout=timedelta(seconds=10), retry_policy=_REPORT_TRIES
)
REPORT_WRITING: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(minutes=30), heartbeat_timeout=timedelta(seconds=10), retry_policy=_REPORT_TRIES
)

# Addresses.
ADDRESS_BATCH: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(minutes=10), heartbeat_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE
)
# Hundreds of swaps of one address go one by one, and each may have to wait for a slow module.
ADDRESS_CHANGES: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(hours=2), heartbeat_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE
)
# Also of purges: a module may take its addresses one by one, and looks at the orders of each.
ADDRESS_CHECK: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(hours=6), heartbeat_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE
)
# Without its module a comparison makes no report; an operator orders it again.
MODULE_COMPARISON: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(hours=6),
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=10), maximum_attempts=5),
)

# Webhooks. The receiver has at most 30 seconds of these.
WEBHOOK_ATTEMPT: Final = ActivityOptionsWithHeartbeat(
    start_to_close_timeout=timedelta(seconds=45), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE
)
