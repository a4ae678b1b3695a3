"""The rules of a single task: how long a retry waits, where it stands in the queue, how much of a lane it takes."""

from __future__ import annotations

from typing import Final

import msgspec

from domain.faults import Invalid
from domain.tasks.messages import REF_CHARACTERS, STAGE_MAX_BYTES, Rules

SECOND: Final = 1_000
"""Milliseconds."""

_DOUBLINGS_MAX: Final = 31
# A task in JSON without its texts: key, numbers at their longest, a stage, brackets and commas.
_NUMBERS_BYTES: Final = 35 + 8 + 2 + 7 + 2 + 3 * 14 + 11 + 14 + 14
_BARE_BYTES: Final = _NUMBERS_BYTES + STAGE_MAX_BYTES + 3
_REF_BYTES: Final = REF_CHARACTERS + 3

_encode: Final = msgspec.json.Encoder().encode


def delay(rules: Rules, retries: int) -> int:
    """How long a task waits that fails after so many retries; the first delay is `retry_interval`, if they double."""
    longest = rules.max_retry_interval
    if longest < 0:
        return -longest * SECOND
    return min(rules.retry_interval << min(retries, _DOUBLINGS_MAX), longest) * SECOND


def check_pauses(retry_interval: int, max_retry_interval: int) -> None:
    """Raise `Invalid` where pauses double and the first is longer than the longest: it would be cut in silence."""
    if 0 < max_retry_interval < retry_interval:
        raise Invalid(
            "pauses_contradict",
            f"retry_interval is {retry_interval}, more than max_retry_interval, which is {max_retry_interval}.",
            "Send both, with a first pause that is no longer than the longest; a pause that is always the same is a "
            "negative max_retry_interval.",
            field="retry_interval",
        )


def is_used_up(rules: Rules, retries: int) -> bool:
    """Whether a task that fails after so many retries gets no other: N retries are N + 1 attempts."""
    return retries >= rules.max_retry_num


def order_time(now: int, priority: int) -> int:
    """Where a task stands that is created or goes on to a next stage: so many seconds ahead of its time."""
    return now - priority * SECOND


def weight(user_id: str, content: str, log: str) -> int:
    """What a task takes of its lane, in bytes of JSON at their most.

    A reference never weighs more than the text whose place it takes, were that empty: so there is always room for it.
    """
    return _BARE_BYTES + _width(user_id) + max(_REF_BYTES, _width(content)) + max(_REF_BYTES, _width(log))


def _width(text: str) -> int:
    return len(_encode(text)) + 1
