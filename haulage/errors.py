"""Errors of the client, one class for each way to react."""

from __future__ import annotations

from haulage.models import Download


class HaulageError(Exception):
    """Base class of the errors of this package. The message is for people."""


class WrongAddress(HaulageError):
    """The base URL is not an HTTP address."""


class Unreachable(HaulageError):
    """The API, or the object store that it redirects to, did not answer within `patience_seconds`."""


class Refused(HaulageError):
    """The API refused the request. `code` is stable and for programs; quote `request_id` when you ask for help."""

    def __init__(self, status: int, code: str, detail: str, request_id: str) -> None:
        self.status = status
        self.code = code
        self.request_id = request_id
        super().__init__(detail)


class DownloadFailed(HaulageError):
    """The download ended without a file."""

    def __init__(self, download: Download) -> None:
        self.download = download
        fault = download.fault
        super().__init__(fault.sentence if fault else f"The download is {download.state}, so it has no file.")


class FileDamaged(HaulageError):
    """The file differs from what the API described. It was removed from disk."""
