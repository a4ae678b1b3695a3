"""Small files: the activity that probes a source also reads and stores a file of a few megabytes, without staging it.

To stage, join and verify parts takes more than to read ten pages. Whatever comes in between, such as a page that is
late, is left to the fetchers: what was read by then is staged for them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from activities.downloads import assembly
from activities.downloads.fetching import RangeFetcher
from activities.downloads.stager import InMemoryFileStager
from clients.sources import RetryingPageReader
from domain.downloads import names, plan, sinks
from domain.downloads.activity_models import FetchRangeInput, FetchRangeResult, FileManifest, SourcesProbe, TableProbe
from domain.downloads.models import DownloadSpec, StoredFile
from domain.downloads.retries import RetryWait
from domain.downloads.staging import RangeLedger, StagedPartsInvalid, UploadedPartRecord
from domain.faults import SourceFault
from infra.heartbeats import require_current_attempt
from infra.objects import ObjectStore

READ_SECONDS_MAX: Final = 2.0


def is_small_enough_for_two_seconds(
    spec: DownloadSpec, probes: list[TableProbe], max_bytes: int, seconds_per_page: float
) -> bool:
    """Return whether the file is probably made within two seconds, of rows that fit into memory."""
    probe = probes[0]
    total = probe.extent.total
    if total is None or len(probes) > 1 or probe.books or sinks.build_sink(spec).needs_rendering:
        return False
    seconds = plan.count_pages(total, probe.extent.page_size) * seconds_per_page
    return total * probe.row_bytes <= max_bytes and seconds <= READ_SECONDS_MAX


@dataclass
class SmallFileMaker:
    """A small file that is read at once."""

    objects: ObjectStore
    fetch: FetchRangeInput
    wait: RetryWait | None = None
    """The pause before a page is requested again, where the file could not be made for that."""
    is_slow: bool = False
    """Whether a page took too long."""
    _stager: InMemoryFileStager = field(init=False)

    def __post_init__(self) -> None:
        pages = self.fetch.pages
        ledger = RangeLedger(upload_id="", range=pages.index, next_page=pages.first)
        self._stager = InMemoryFileStager(self.objects, self.fetch, ledger)

    @classmethod
    def create(cls, objects: ObjectStore, spec: DownloadSpec, probe: TableProbe) -> SmallFileMaker:
        """Create the file of a source that was probed."""
        (pages,) = plan.plan_ranges(probe.extent.total, probe.extent.page_size, 1)
        fetch = FetchRangeInput(
            spec=spec.build_table_spec(0),
            probe=probe,
            pages=pages,
            ranges=1,
            slice_seconds=min(READ_SECONDS_MAX, spec.slice_seconds),
            leaves_slow_pages=True,
        )
        return cls(objects, fetch)

    async def read_all_pages_and_store_file(self, source: RetryingPageReader) -> StoredFile | None:
        """Read all pages, check them, and store file and manifest; None where fetchers have to do it."""
        try:
            with source.redact_faults_and_release_slot():
                report = await RangeFetcher(source, self._stager, self.fetch).fetch_and_stage_until(
                    deadline=time.monotonic() + self.fetch.slice_seconds
                )
            self.wait, self.is_slow = report.wait, report.is_slow
            if not report.done or report.new_columns:
                return None
            return await self._check_rows_and_store_file(report)
        except (SourceFault, StagedPartsInvalid):
            # A fetcher meets the fault again, and says how far it came and what helps.
            return None

    async def stage_read_pages_for_fetchers(self, upload_id: str) -> None:
        """Stage what was read, so that a fetcher goes on from there."""
        await self._stager.stage_collected_pages(upload_id)

    async def _check_rows_and_store_file(self, report: FetchRangeResult) -> StoredFile:
        spec, probe, ledger = self.fetch.spec, self.fetch.probe, self._stager.build_whole_ledger()
        assembly.count_rows_and_require_total(probe, [ledger])
        warnings = report.warnings + assembly.check_page_repeats_and_collect_warnings(
            spec, SourcesProbe(tables=[probe]), [[self.fetch.pages.first]], [[ledger]]
        )
        content_type = sinks.build_sink(spec).content_type
        key, data = names.build_file_key(spec), self._stager.join_collected_pages()
        await require_current_attempt()
        stored = await self.objects.put(key, data, content_type=content_type, metadata={"task": spec.task_id})
        part = UploadedPartRecord(
            number=1, bytes=stored.size, etag=stored.etag, sha256=stored.sha256, rows=self._stager.rows
        )
        manifest = FileManifest(
            task_id=spec.task_id,
            key=key,
            name=spec.file_name,
            content_type=content_type,
            columns=probe.shape.columns,
            rows=self._stager.rows,
            bytes=stored.size,
            etag=stored.etag,
            parts=[part],
            warnings=warnings,
        )
        await self.objects.put(names.build_manifest_key(spec), manifest.model_dump_json().encode())
        return manifest.file
