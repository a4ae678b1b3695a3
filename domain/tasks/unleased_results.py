"""Results without a lease, as flowSvr's own client sends them: decide from the task's log whether to accept one.

That client writes its attempts into the log of each result: a trace id for the attempt that ended, and those of earlier
attempts. A result belongs to the current holder only if its previous attempt is the last one in the task's log. A
time-out leaves no trace in the log; the retry count shows it, which every attempt receives and reports.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from domain.tasks.messages import OperationCode, Task, TaskStatus


class UnleasedResult(Struct, frozen=True):
    """A result as a client without leases sends it."""

    status: int
    crt_retry_num: int
    stage: str | None
    """None leaves the stage unchanged."""
    log: str
    has_ended: bool
    """The handler has ended; before that the client returns the log as it received it."""


class _LoggedError(Struct, frozen=True, rename="pascal"):
    trace_id: str = ""
    err_msg: str = ""


class _Log(Struct, frozen=True, rename="pascal"):
    last_data: _LoggedError = _LoggedError()
    history_datas: list[_LoggedError] | None = None


_decode: Final = msgspec.json.Decoder(_Log).decode
_EMPTY: Final = _Log()


def check_unleased_result(result: UnleasedResult, task: Task, log: str) -> str:
    """Decide whether a result comes from the task's current holder.

    Args:
        task: Its current state.
        log: Its log in full.

    Returns:
        `OperationCode.SAME` for a result that was accepted before, `STALE` for one whose attempt is not the latest, and
        `OK` otherwise, also for a result whose log is not in the format of flowSvr's client.
    """
    sent, known = _parse_log(result.log), _parse_log(log)
    if sent is None:
        return OperationCode.OK
    last = (known or _EMPTY).last_data.trace_id
    if not result.has_ended:
        return OperationCode.OK if sent.last_data.trace_id == last else OperationCode.STALE
    if sent.last_data.trace_id and sent.last_data.trace_id == last:
        return OperationCode.SAME
    before = sent.history_datas[-1].trace_id if sent.history_datas else ""
    if before != last or _began_before_a_timeout(result, task, failed=bool(sent.last_data.err_msg)):
        return OperationCode.STALE
    return OperationCode.OK


def _began_before_a_timeout(result: UnleasedResult, task: Task, *, failed: bool) -> bool:
    if result.crt_retry_num < task.crt_retry_num:
        # A handler may reset the count for its next stage, which looks the same as a late result.
        is_reset = result.crt_retry_num == 0 and result.status == TaskStatus.PENDING
        return not (is_reset and result.stage not in (None, task.stage))
    # The holder reports a failure with a count one higher than the task's, unless retries are used up.
    return (
        failed
        and result.status in (TaskStatus.PENDING, TaskStatus.SUCCESS)
        and result.crt_retry_num == task.crt_retry_num
    )


def _parse_log(log: str) -> _Log | None:
    """Parse the log of flowSvr's client; None for any other text."""
    try:
        return _decode(log)
    except msgspec.DecodeError:
        return None
