"""What the steps of a download are given and give back: one model in, one out."""

from __future__ import annotations

from pydantic import BaseModel

from domain.downloads.plan import PageRange
from domain.downloads.request import DownloadOrder
from domain.downloads.staging import PartRecord
from domain.downloads.status import Outcome


class Probe(BaseModel):
    """What the first look at the source told, and the upload that the parts of the file go to."""

    total: int
    columns: list[str]
    upload_id: str


class FetchOrder(BaseModel):
    """One range for one fetcher."""

    order: DownloadOrder
    probe: Probe
    pages: PageRange


class RangeDone(BaseModel):
    """A range that is staged whole."""

    index: int
    rows: int
    bytes: int


class AssembleOrder(BaseModel):
    """All ranges are staged: make them one object."""

    order: DownloadOrder
    probe: Probe
    ranges: int


class FinishOrder(BaseModel):
    """How it ended, for the catalogue."""

    order: DownloadOrder
    outcome: Outcome


class Manifest(BaseModel):
    """The last object written: only what has one is a finished file."""

    task_id: str
    key: str
    name: str
    content_type: str
    columns: list[str]
    rows: int
    bytes: int
    etag: str
    parts: list[PartRecord]
