"""Build results of tasks, with failed attempts in their log."""

from __future__ import annotations

import json
from typing import Any

from haulage.errors import HaulageError
from haulage.tasks.models import HeldTask, Status, TaskResult

LOG_ENTRIES = 3
LOG_ERROR_CHARACTERS = 256
LOG_CHARACTERS = 4_096
"""Limit of the API for a whole log."""


def build_result(task: HeldTask, status: Status, **more: Any) -> TaskResult:
    """Build a result with the lease of the task."""
    return TaskResult(task_id=task.task_id, lease=task.lease, status=status, **more)


def build_failed_attempt_result(task: HeldTask, error: BaseException, seconds: float) -> TaskResult:
    """Build the result of a failed attempt, with the error in the task's log."""
    log = append_attempt_to_log(task, error, seconds)
    return build_result(task, Status.PENDING, crt_retry_num=task.crt_retry_num + 1, schedule_log=log)


def append_attempt_to_log(task: HeldTask, error: BaseException, seconds: float) -> str:
    """Append an attempt to the task's log; keep the last few attempts, as far as they fit."""
    try:
        before = json.loads(task.schedule_log)
    except (ValueError, RecursionError):  # of another client, which may nest as deeply as it likes
        before = []
    entry = {
        "attempt": task.crt_retry_num + 1,
        "stage": task.stage,
        "error": describe_error(error)[:LOG_ERROR_CHARACTERS],
        "seconds": round(seconds, 3),
    }
    entries = [*(before if isinstance(before, list) else []), entry][-LOG_ENTRIES:]
    while len(entries) > 1 and len(json.dumps(entries, ensure_ascii=False)) > LOG_CHARACTERS:
        del entries[0]
    return json.dumps(entries, ensure_ascii=False)


def describe_error(error: BaseException) -> str:
    """Describe an error without characters that the API refuses: NUL and unpaired surrogates."""
    try:
        text = str(error) if isinstance(error, HaulageError) else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the `__str__` of a handler's error may fail
        text = type(error).__name__
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
