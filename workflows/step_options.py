"""How long each kind of step may take, how soon a lost one is noticed, and how often it is tried: the one table.

A plan unpacks a row where it has a step done: `execute_activity_method(Steps.finish, order, **SHORT_STEP)`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypedDict, TypeVar

from temporalio.common import RetryPolicy

HEARTBEAT: Final = timedelta(seconds=5)
"""A worker that is silent for so long is lost, and its step begins elsewhere."""

UNTIL_DONE: Final = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=15))
"""Try without end: the part that is away comes back, and then the step succeeds."""
UNTIL_DONE_PROMPTLY: Final = replace(UNTIL_DONE, maximum_interval=timedelta(seconds=5))
"""Try without end, with short pauses: callers, or a deadline of seconds, wait for the step."""
ONCE: Final = RetryPolicy(maximum_attempts=1)
"""The workflow itself decides what is tried again, and when."""


class ShortStep(TypedDict):
    """A step so short that its own time-out soon shows that its worker is lost."""

    start_to_close_timeout: timedelta
    retry_policy: RetryPolicy


class QueuedStep(ShortStep):
    """A short step on a queue that may have no worker."""

    schedule_to_start_timeout: timedelta


class LongStep(ShortStep):
    """A step that may take long, and says all the time that it goes on."""

    heartbeat_timeout: timedelta


Options = TypeVar("Options", bound=ShortStep)


def give_up_on(options: Options, *errors: type[Exception]) -> Options:
    """Return the same options for a step that is not tried again after one of these errors."""
    changed = copy(options)
    types = [error.__name__ for error in errors]
    changed["retry_policy"] = replace(options["retry_policy"], non_retryable_error_types=types)
    return changed


# Of every system.
SHORT_STEP: Final = ShortStep(start_to_close_timeout=timedelta(seconds=30), retry_policy=UNTIL_DONE)
# A worker that hangs still takes steps, a few of them, one after the other: each costs this long.
PROMPT_STEP: Final = ShortStep(start_to_close_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE_PROMPTLY)
# The next run of the schedule tries again anyway.
HOUSEKEEPING: Final = LongStep(
    start_to_close_timeout=timedelta(minutes=10),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(maximum_attempts=5),
)

# Of downloads. Reading a source retries pages by itself, with pauses as long as the source asks for.
SOURCE_READING: Final = LongStep(
    start_to_close_timeout=timedelta(hours=1), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE
)
FILE_MAKING: Final = LongStep(
    start_to_close_timeout=timedelta(hours=12), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE
)

# Of transfers. The job's own deadline ends a shipment long before.
SHIPPING: Final = LongStep(
    start_to_close_timeout=timedelta(days=1),
    heartbeat_timeout=timedelta(seconds=8),
    retry_policy=UNTIL_DONE_PROMPTLY,
)

# Of orders. The clock is a request that may have to wait for its turn.
CLOCK_READING: Final = QueuedStep(
    schedule_to_start_timeout=timedelta(seconds=60),
    start_to_close_timeout=timedelta(seconds=60),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3),
)
PRESENCE_CHECK: Final = ShortStep(start_to_close_timeout=timedelta(seconds=10), retry_policy=ONCE)
_REPORT_TRIES: Final = RetryPolicy(initial_interval=timedelta(seconds=10), maximum_attempts=20)
# A part ends with the first slice's length of time that is read after half a minute; at one request a minute that
# alone takes hours.
REPORT_READING: Final = LongStep(
    start_to_close_timeout=timedelta(hours=6), heartbeat_timeout=timedelta(seconds=10), retry_policy=_REPORT_TRIES
)
REPORT_WRITING: Final = LongStep(
    start_to_close_timeout=timedelta(minutes=30), heartbeat_timeout=timedelta(seconds=10), retry_policy=_REPORT_TRIES
)

# Of addresses.
ADDRESS_BATCH: Final = LongStep(
    start_to_close_timeout=timedelta(minutes=10), heartbeat_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE
)
# Hundreds of swaps of one address go one by one, and each may have to wait for a slow module.
ADDRESS_CHANGES: Final = LongStep(
    start_to_close_timeout=timedelta(hours=2), heartbeat_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE
)
ADDRESS_CHECK: Final = LongStep(
    start_to_close_timeout=timedelta(hours=6), heartbeat_timeout=timedelta(seconds=10), retry_policy=UNTIL_DONE
)
# A module that is away makes no report; who wants one asks again.
MODULE_COMPARISON: Final = LongStep(
    start_to_close_timeout=timedelta(hours=6),
    heartbeat_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=10), maximum_attempts=5),
)

# Of webhooks. The receiver has at most 30 of these seconds.
WEBHOOK_ATTEMPT: Final = LongStep(
    start_to_close_timeout=timedelta(seconds=45), heartbeat_timeout=HEARTBEAT, retry_policy=UNTIL_DONE
)
