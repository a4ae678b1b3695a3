"""What others install: the typed client of a Haulage API."""

from haulage.client import Client
from haulage.errors import DownloadFailed, FileDamaged, HaulageError, Refused, Unreachable, WrongAddress
from haulage.models import Columns, Download, DownloadRequest, Encoding, Fault, FileType, State
from haulage.saving import Saved

__all__ = [
    "Client",
    "Columns",
    "Download",
    "DownloadFailed",
    "DownloadRequest",
    "Encoding",
    "Fault",
    "FileDamaged",
    "FileType",
    "HaulageError",
    "Refused",
    "Saved",
    "State",
    "Unreachable",
    "WrongAddress",
]
