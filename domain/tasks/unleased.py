"""Results that name no lease, as flowSvr's own client sends them: whose word it is, told from the log that it keeps.

That client writes into each result what was tried: a number for the attempt that it tells of, and the numbers of those
before. So a result is its holder's only if the attempt before it is the one that the task's log ends with. A time-out
leaves no trace in the log; it is told from the count of retries, which every attempt begins with and reports.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from domain.tasks.messages import Code, Status, Task


class UnleasedResult(Struct, frozen=True):
    """What a client without leases says of its task."""

    status: int
    crt_retry_num: int
    stage: str | None
    """None: as it was."""
    log: str
    is_over: bool
    """The handler came to its end; before that the client sends the log back as it got it."""


class _Attempt(Struct, frozen=True, rename="pascal"):
    trace_id: str = ""
    err_msg: str = ""


class _Log(Struct, frozen=True, rename="pascal"):
    last_data: _Attempt = _Attempt()
    history_datas: list[_Attempt] | None = None


_decode: Final = msgspec.json.Decoder(_Log).decode
_EMPTY: Final = _Log()


def judge(result: UnleasedResult, task: Task, log: str) -> str:
    """Whether a result is the word of the task's holder.

    Args:
        task: As it stands.
        log: Its log in full.

    Returns:
        `Code.SAME` for a result that was taken before, `Code.STALE` for one whose attempt was not the last that began,
        `Code.OK` where nothing speaks against it: also of results whose log is not the original client's.
    """
    sent, known = _read(result.log), _read(log)
    if sent is None:
        return Code.OK
    last = (known or _EMPTY).last_data.trace_id
    if not result.is_over:
        return Code.OK if sent.last_data.trace_id == last else Code.STALE
    if sent.last_data.trace_id and sent.last_data.trace_id == last:
        return Code.SAME
    before = sent.history_datas[-1].trace_id if sent.history_datas else ""
    if before != last or _began_before_a_timeout(result, task, failed=bool(sent.last_data.err_msg)):
        return Code.STALE
    return Code.OK


def _began_before_a_timeout(result: UnleasedResult, task: Task, *, failed: bool) -> bool:
    if result.crt_retry_num < task.crt_retry_num:
        # A handler may count anew for its next stage; that is not told from a word that comes late.
        is_reset = result.crt_retry_num == 0 and result.status == Status.PENDING
        return not (is_reset and result.stage not in (None, task.stage))
    # The holder's own failure is one more than the task has, unless it was the last one.
    return failed and result.status in (Status.PENDING, Status.SUCCESS) and result.crt_retry_num == task.crt_retry_num


def _read(log: str) -> _Log | None:
    """The log of the original client; None for any other text."""
    try:
        return _decode(log)
    except msgspec.DecodeError:
        return None
