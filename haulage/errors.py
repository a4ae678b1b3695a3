"""What can go wrong for a caller, told apart by what to do about it."""

from __future__ import annotations

from haulage.models import Download


class HaulageError(Exception):
    """The parent of everything this package raises by itself. The message is for people."""


class WrongAddress(HaulageError):
    """What was given as the address of an API cannot be one."""


class Unreachable(HaulageError):
    """The API, or the store that it sent us to, gave no usable answer for as long as we were patient."""


class Refused(HaulageError):
    """The API said no. `code` is stable and for programs; quote `request_id` when you ask for help."""

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
    """What arrived is not the file that the API described. Nothing was left on disk."""
