"""Typed client of a Haulage API."""

from haulage.client import Client
from haulage.errors import (
    ApiUnreachable,
    DownloadFailed,
    FileDamaged,
    HaulageError,
    InvalidBaseUrl,
    RequestRefused,
    WorkFailed,
)
from haulage.models import (
    Align,
    Download,
    DownloadRequest,
    Encoding,
    Fault,
    FileType,
    LateColumnPolicy,
    Sheet,
    State,
    TableArrangement,
    Trouble,
)
from haulage.saving import SavedFile

__all__ = [
    "Align",
    "ApiUnreachable",
    "Client",
    "Download",
    "DownloadFailed",
    "DownloadRequest",
    "Encoding",
    "Fault",
    "FileDamaged",
    "FileType",
    "HaulageError",
    "InvalidBaseUrl",
    "LateColumnPolicy",
    "RequestRefused",
    "SavedFile",
    "Sheet",
    "State",
    "TableArrangement",
    "Trouble",
    "WorkFailed",
]
