"""What the steps of a download are given and give back: one model in, one out."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from domain.downloads.plan import Extent, PageRange
from domain.downloads.request import DownloadOrder
from domain.downloads.staging import PartRecord
from domain.downloads.status import Outcome


class Probe(BaseModel):
    """What the first look at the source told, and the upload that the parts of the file go to."""

    extent: Extent
    columns: list[str]
    row_bytes: float
    """What a row of the first page weighs, encoded."""
    upload_id: str
    resumed: bool = False
    """Whether it goes on from what an earlier processing staged."""


class Course(BaseModel):
    """How far a download has come: what a run that continues as new goes on from."""

    began: datetime
    """When the time that it is allowed began to run."""
    processings: int = 0
    reruns: int = 0
    is_fetching: bool = False
    """Whether the current processing has looked at the source and is fetching."""
    probe: Probe | None = None
    """What the current processing saw, or the last one."""
    one_fetcher: bool = False
    new_columns: list[str] = []
    widenings: int = 0
    expirations: int = 0
    done: list[int] = []
    """Ranges that are staged whole."""
    done_rows: int = 0


class DownloadRun(BaseModel):
    """The workflow's argument."""

    order: DownloadOrder
    course: Course | None = None


class ProbeOrder(BaseModel):
    """Look at the source; keep what is staged if it is recent and the source still has as many rows."""

    order: DownloadOrder
    earlier: Probe | None = None
    columns: list[str] = []
    """Columns that rows were seen to have beyond those of the first page."""


class FetchOrder(BaseModel):
    """One range for one fetcher, which hands it back after a while so that others get their turn."""

    order: DownloadOrder
    probe: Probe
    pages: PageRange
    ranges: int
    slice_seconds: float
    minds_gaps: bool = True
    """Whether a long time since something was staged means that the download starts again."""


class RangeReport(BaseModel):
    """How far a range is."""

    index: int
    rows: int
    done: bool
    new_columns: list[str] = []


class AssembleOrder(BaseModel):
    """All ranges are staged: make them one object."""

    order: DownloadOrder
    probe: Probe
    ranges: int


class RecordOrder(BaseModel):
    """A processing begins."""

    order: DownloadOrder
    processings: int


class FinishOrder(BaseModel):
    """How it ended, for the catalogue."""

    order: DownloadOrder
    outcome: Outcome
    processings: int
    fetchers: int


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
    """What the object was joined of; none where it was rendered as a whole."""
