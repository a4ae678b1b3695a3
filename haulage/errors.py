"""Errors of the client, one class for each way to react."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haulage.models import Download


class HaulageError(Exception):
    """Base class of the errors of this package. The message is for people."""


class InvalidBaseUrl(HaulageError):
    """The base URL is not an HTTP address."""


class ApiUnreachable(HaulageError):
    """The API, or the object store that it redirects to, did not answer within `patience_seconds`."""


class RequestRefused(HaulageError):
    """The API refused the request. `code` is stable and for programs; quote `request_id` when you ask for help."""

    def __init__(self, status: int, code: str, detail: str, request_id: str) -> None:
        self.status = status
        self.code = code
        self.request_id = request_id
        super().__init__(detail)


class WorkFailed(HaulageError):
    """Work was done, and ended without success. `facts` name it and say how it ended, for programs."""

    def __init__(self, sentence: str, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        super().__init__(sentence)


class DownloadFailed(WorkFailed):
    """The download ended without a file."""

    def __init__(self, download: Download) -> None:
        self.download = download
        fault = download.fault
        facts = {"task_id": download.task_id, "state": download.state} | ({"code": fault.code} if fault else {})
        sentence = fault.sentence if fault else f"The download is {download.state}, so it has no file."
        super().__init__(sentence, facts)


class FileDamaged(HaulageError):
    """The file differs from what the API described. It was removed from disk."""
