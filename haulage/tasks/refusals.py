"""Errors of task queues."""

from __future__ import annotations

from haulage.errors import HaulageError

FAIL_PREFIX = "FAIL_REASON::"


class TaskRequestRefused(HaulageError):
    """The queue refused a request. `code` is one of flowSvr's numbers, 8020 to 8045; the message says what to do."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(reason.removeprefix(FAIL_PREFIX))
