"""Inputs and results of the activities of a download, and what its workflow carries on from run to run."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from domain.downloads.books import RenderedBook, Segment
from domain.downloads.models import DownloadResult, DownloadSpec, StoredFile
from domain.downloads.plan import PageRange, SourceExtent
from domain.downloads.retries import PageTries, RetryWait
from domain.downloads.shape import TableShape
from domain.downloads.staging import PartRecord, RenderedSegment


class TableProbe(BaseModel):
    """What the first look at a source told, and the upload that the parts of its rows go to."""

    extent: SourceExtent
    shape: TableShape
    row_bytes: float
    """What a row of the first page weighs, encoded."""
    first_rows: str = ""
    """What is remembered of the rows of the first page: where they change, nothing that is staged counts any more."""
    upload_id: str = ""
    books: int = 0
    """How many books its rows are planned for, if each is made where its rows are fetched: it has as many ranges."""


class SourcesProbe(BaseModel):
    """What the first look at the sources of all tables told."""

    tables: list[TableProbe]
    resumed: bool = False
    """Whether it goes on from what an earlier processing staged."""
    archive: str = ""
    """The upload that fetchers put their books into as parts of an archive, if they make them."""

    @property
    def total(self) -> int | None:
        """Rows of all tables, if all of them tell."""
        totals = [probe.extent.total for probe in self.tables]
        return sum(total or 0 for total in totals) if None not in totals else None

    @property
    def exact_total(self) -> int | None:
        """Rows of all tables, if it is known before they are fetched."""
        return self.total if all(probe.extent.is_exact for probe in self.tables) else None


class DownloadProgress(BaseModel):
    """How far a download has come: what a run that continues as new goes on from."""

    began: datetime
    """When the time that it is allowed began to run."""
    processings: int = 0
    reruns: int = 0
    resets: int = 0
    """How often it began again because the source changed meanwhile."""
    is_fetching: bool = False
    """Whether the current processing has looked at the source and is fetching."""
    sources: SourcesProbe | None = None
    """What the current processing saw, or the last one."""
    single_fetcher: bool = False
    page_size_max: int | None = None
    """How many rows a page may have, where larger ones took too long."""
    new_columns: dict[int, list[str]] = {}
    """Columns of each table that rows were seen to have beyond those of its first page."""
    left_out: list[str] = []
    """Keys that rows were seen to have beyond those of the first page, and that no template shows."""
    warnings: list[str] = []
    """What a reader of the file should know of its source."""
    column_additions: int = 0
    expirations: int = 0
    done: list[int] = []
    """Ranges that are staged whole."""
    done_rows: int = 0


class DownloadInput(BaseModel):
    """The workflow's argument."""

    spec: DownloadSpec
    progress: DownloadProgress | None = None


class ProbeInput(BaseModel):
    """Look at the sources; keep what is staged if it is recent and they still have as many rows."""

    spec: DownloadSpec
    earlier: SourcesProbe | None = None
    columns: dict[int, list[str]] = {}
    """Columns of each table that rows were seen to have beyond those of its first page."""
    single_fetcher: bool = False
    """Whether a single range has all rows."""
    page_size_max: int | None = None
    """How many rows a page may have, where larger ones took too long."""
    tries: list[PageTries] = []
    """What came of the tries before a wait, for each question that failed."""


class ProbeResult(BaseModel):
    """What the first look told, or when to look again."""

    sources: SourcesProbe | None = None
    wait: RetryWait | None = None


class FetchRangeInput(BaseModel):
    """One range for one fetcher, which hands it back after a while so that others get their turn."""

    spec: DownloadSpec
    """For the table that the range is of."""
    probe: TableProbe
    pages: PageRange
    ranges: int
    slice_seconds: float
    archive: str = ""
    """The upload that the books of the range go to; without it, its rows are staged."""
    tries: list[PageTries] = []
    """What came of the tries before a wait, for each question that failed since rows came last."""
    checks_staging_age: bool = True
    """Whether a long time since something was staged means that the download starts again."""


class FetchRangeResult(BaseModel):
    """How far a range is."""

    number: int
    rows: int
    done: bool
    new_columns: list[str] = []
    left_out: list[str] = []
    warnings: list[str] = []
    """What a reader of the file should know of its source."""
    wait: RetryWait | None = None
    """Where a page is to be asked for again, but not at once."""


class AssembleInput(BaseModel):
    """All ranges are staged: make those of each table one object."""

    spec: DownloadSpec
    sources: SourcesProbe
    ranges: list[int]
    """How many each table has."""
    pages: list[list[int]]
    """The first page of each range of each table."""
    warnings: list[str] = []
    """What fetchers have to say of the source."""


class AssembleResult(BaseModel):
    """The file, or what is to be rendered to make it."""

    file: StoredFile | None = None
    segments: list[Segment] = []
    rendered: list[RenderedSegment] = []
    """What fetchers have rendered already: then that is all."""
    archive: str = ""
    """The upload that the books go to as parts of an archive, where they are large enough."""
    warnings: list[str] = []
    """What a reader of the file should know of its source."""
    has_gaps: bool = False
    """Whether pages had fewer rows than they should, and said that more follow."""


class RenderInput(BaseModel):
    """Make books of some of the rows."""

    spec: DownloadSpec
    sources: SourcesProbe
    segment: Segment
    archive: str = ""


class BindInput(BaseModel):
    """Make one file of all books."""

    spec: DownloadSpec
    sources: SourcesProbe
    rendered: list[RenderedSegment]
    archive: str = ""
    left_out: list[str]
    warnings: list[str] = []
    has_gaps: bool = False

    @property
    def books(self) -> list[RenderedBook]:
        """All books, in order."""
        return [book for rendered in self.rendered for book in rendered.books]


class RecordInput(BaseModel):
    """A processing begins."""

    spec: DownloadSpec
    processings: int


class FinishInput(BaseModel):
    """How it ended, for the catalogue."""

    spec: DownloadSpec
    outcome: DownloadResult
    processings: int
    fetchers: int
    rows: int = 0
    """How many were fetched."""


class FileManifest(StoredFile):
    """The last object written: only what has one is a finished file."""

    task_id: str
    columns: list[str]
    parts: list[PartRecord]
    """What the object was joined of; none where it was rendered."""

    @property
    def file(self) -> StoredFile:
        """What is told of the file."""
        return StoredFile.model_validate(self.model_dump(include=set(StoredFile.model_fields)))


class SweepResult(BaseModel):
    """What nobody would have come back to."""

    uploads: int
    objects: int
