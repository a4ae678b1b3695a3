"""Typed client of a Haulage API."""

from haulage.client import Client
from haulage.errors import DownloadFailed, FileDamaged, HaulageError, Refused, Unreachable, WorkFailed, WrongAddress
from haulage.models import Align, Columns, Download, DownloadRequest, Encoding, Fault, FileType, Multi, Sheet, State
from haulage.saving import Saved

__all__ = [
    "Align",
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
    "Multi",
    "Refused",
    "Saved",
    "Sheet",
    "State",
    "Unreachable",
    "WorkFailed",
    "WrongAddress",
]
