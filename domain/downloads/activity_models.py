"""Inputs and results of the activities of a download, and the progress that its workflow carries from run to run."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from domain.downloads.models import DownloadResult, DownloadSpec, StoredFile
from domain.downloads.plan import PageRange, RowSegment, SourceExtent
from domain.downloads.retries import PageAttempts, RetryWait
from domain.downloads.shape import TableShape
from domain.downloads.staging import RenderedBook, RenderedSegment, UploadedPartRecord


class TableProbe(BaseModel):
    """The probed source of one table, and the upload for the parts of its rows."""

    extent: SourceExtent
    shape: TableShape
    row_bytes: float
    """Encoded bytes per row of the first page."""
    first_rows: str = ""
    """Mark of the first page's rows: if it changes, staged rows are not used any more."""
    upload_id: str = ""
    books: int = 0
    """Number of planned books if fetchers render them, one for each range; otherwise 0."""


class SourcesProbe(BaseModel):
    """The probed sources of all tables."""

    tables: list[TableProbe]
    resumed: bool = False
    """Whether the rows staged by an earlier processing are used."""
    archive: str = ""
    """The upload of the archive, if fetchers render books as its parts."""
    is_slow: bool = False
    """Whether to probe them took longer than a fetcher may wait for a page beside others."""

    @property
    def total_rows(self) -> int | None:
        """Rows of all tables, if every source reports its total."""
        totals = [probe.extent.total for probe in self.tables]
        return sum(total or 0 for total in totals) if None not in totals else None

    @property
    def exact_total_rows(self) -> int | None:
        """Rows of all tables, if the number is known before they are fetched."""
        return self.total_rows if all(probe.extent.is_exact for probe in self.tables) else None


class DownloadStateCarriedToNextRun(BaseModel):
    """The progress of a download, with which the next run continues."""

    began: datetime
    """When the time limit began to run."""
    times_processed: int = 0
    reruns: int = 0
    resets: int = 0
    """How often processing started over because the source had changed."""
    is_fetching: bool = False
    """Whether the current processing has probed the sources and is fetching."""
    sources: SourcesProbe | None = None
    """The sources as last probed."""
    is_source_slow: bool = False
    """Whether its fetchers wait for pages where they hold up no others."""
    single_fetcher: bool = False
    page_size_max: int | None = None
    """Upper bound of the page size, after larger pages timed out."""
    new_columns: dict[int, list[str]] = {}
    """New columns of each table, beyond those of its first page."""
    left_out: list[str] = []
    """New keys of the rows that no template uses."""
    warnings: list[str] = []
    """Warnings about the source, for the reader of the file."""
    column_additions: int = 0
    expirations: int = 0
    done: list[int] = []
    """Numbers of the ranges that are completely staged."""
    done_rows: int = 0
    done_with_new_columns: list[int] = []
    """Numbers of the ranges that were read to their ends for their new columns, with which all are read again."""
    found_columns: dict[int, dict[str, tuple[int, int]]] = {}
    """New columns of each table by their names, each with the first range that has it and its place there."""

    def begin_again(self, now: datetime) -> None:
        """Begin anew what is limited, with a probe, also where fetchers were stopped in their midst."""
        self.began, self.reruns, self.is_fetching = now, 0, False
        self.resets = self.column_additions = self.expirations = 0


class DownloadInput(BaseModel):
    """The input of the workflow."""

    spec: DownloadSpec
    progress: DownloadStateCarriedToNextRun | None = None


class ProbeInput(BaseModel):
    """Record that a processing begins, and probe the sources; keep staged rows if they may be used."""

    spec: DownloadSpec
    times_processed: int
    """How often it was processed, this time included."""
    earlier: SourcesProbe | None = None
    columns: dict[int, list[str]] = {}
    """Known new columns of each table, beyond those of its first page."""
    single_fetcher: bool = False
    """Whether a single range holds all rows."""
    page_size_max: int | None = None
    """Upper bound of the page size, after larger pages timed out."""
    tries: list[PageAttempts] = []
    """Failed attempts of each request before the last wait."""


class ProbedSourcesOrWaitOrFile(BaseModel):
    """The probed sources, or how long to wait before probing again; of both, the wait comes before fetching."""

    sources: SourcesProbe | None = None
    wait: RetryWait | None = None
    file: StoredFile | None = None
    """The file, if it is so small that it was made at once."""


class FetchRangeInput(BaseModel):
    """Fetch one range, for a limited time, so that other fetchers get their turn."""

    spec: DownloadSpec
    """The spec of the table that the range belongs to."""
    probe: TableProbe
    pages: PageRange
    ranges: int
    slice_seconds: float
    archive: str = ""
    """The upload that receives the books of the range; if empty, rows are staged."""
    tries: list[PageAttempts] = []
    """Failed attempts of each request since rows last arrived."""
    checks_staging_age: bool = True
    """Whether rows staged longer ago than the resume window are refused."""
    leaves_slow_pages: bool = False
    """Whether it gives its place back instead of waiting for a slow page."""


class FetchRangeResult(BaseModel):
    """The progress of a range."""

    number: int
    rows: int
    done: bool
    new_columns: list[str] = []
    left_out: list[str] = []
    warnings: list[str] = []
    """Warnings about the source, for the reader of the file."""
    wait: RetryWait | None = None
    """How long to wait before a page is requested again, if it must wait."""
    is_slow: bool = False
    """Whether it gave its place back, because a page took too long."""


class AssembleInput(BaseModel):
    """Join the staged ranges of each table into one object."""

    spec: DownloadSpec
    sources: SourcesProbe
    ranges: list[int]
    """Number of ranges of each table."""
    pages: list[list[int]]
    """First page of each range of each table."""
    rows: int | None = None
    """Rows that the fetchers reported at the ends of their ranges; None if that is not known."""
    warnings: list[str] = []
    """Warnings of the fetchers."""


class FileOrSegments(BaseModel):
    """The file, or the segments to render."""

    file: StoredFile | None = None
    segments: list[RowSegment] = []
    rendered: list[RenderedSegment] = []
    """Segments that fetchers rendered already; then no segment is left."""
    archive: str = ""
    """The upload that receives the books as parts of an archive, if they are large enough."""
    warnings: list[str] = []
    """Warnings about the source, for the reader of the file."""
    has_gaps: bool = False
    """Whether pages had fewer rows than they should, and announced more."""


class RenderSegmentInput(BaseModel):
    """Render the books of one segment of the rows."""

    spec: DownloadSpec
    sources: SourcesProbe
    segment: RowSegment
    archive: str = ""


class CombineBooksInput(BaseModel):
    """Combine all books into one file."""

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


class RecordEndInput(BaseModel):
    """Record the result in the catalogue."""

    spec: DownloadSpec
    outcome: DownloadResult
    times_processed: int
    fetchers: int
    rows: int = 0
    """Rows that were fetched."""


class FileManifest(StoredFile):
    """The last object that is written: a file without it is not finished."""

    task_id: str
    columns: list[str]
    parts: list[UploadedPartRecord]
    """The parts of the object; none if it was rendered."""

    @property
    def file(self) -> StoredFile:
        """The file that it describes."""
        return StoredFile.model_validate(self.model_dump(include=set(StoredFile.model_fields)))


class RemovedStagingCounts(BaseModel):
    """What housekeeping removed."""

    uploads: int
    objects: int
    rows: int = 0
