"""Names of downloads: task queues, workflow ids, and keys in the object store."""

from __future__ import annotations

from domain.downloads import sinks
from domain.downloads.models import DownloadSpec

RETRY = "retry"
"""The signal that retries a failed download."""

DOWNLOAD_WORKFLOW = "DownloadWorkflow"

SYSTEM = "downloads"

REQUEST_MEMO = "asked"

RENDER_QUEUE = "downloads-render"

FETCH_QUEUE = "downloads-fetch"
SLOW_FETCH_QUEUE = "downloads-fetch-slow"
"""Served by the workers of the other one, with places of its own for fetchers that wait for slow pages."""

QUEUE = "downloads"
QUEUES = (QUEUE, FETCH_QUEUE, RENDER_QUEUE)
EXPIRE, SWEEP = "download_expire", "download_sweep"
HOUSEKEEPING = (EXPIRE, SWEEP)
STATUS_MEMO = "status"
NAME_MEMO = "file_name"

STAGING = "staging/"
INLINE = "inline/"
FILES = "files/"


def build_download_workflow_id(project_id: str, task_id: str) -> str:
    """Return the id of a workflow; it contains the project, so that other projects cannot address it."""
    return f"download:{project_id}:{task_id}"


def build_inline_rows_key(project_id: str, task_id: str, table: int = 0) -> str:
    """Key of the rows that were sent with a request, for one of its tables."""
    return f"{INLINE}{project_id}/{task_id}{f'-{table}' if table else ''}.json"


def parse_download_of_key(key: str) -> tuple[str, str] | None:
    """Return project and download of an object's key; None for one that no download has."""
    area, _, rest = key.partition("/")
    project_id, _, rest = rest.partition("/")
    task_id = rest.partition("/")[0]
    if f"{area}/" == INLINE:
        # The rows of further tables have their number behind the id.
        task_id = task_id.removesuffix(".json").partition("-")[0]
    return (project_id, task_id) if project_id and task_id else None


def build_staging_prefix(spec: DownloadSpec) -> str:
    """Prefix of everything that is deleted once the file is finished."""
    return f"{STAGING}{spec.project_id}/{spec.task_id}/"


def build_table_staging_prefix(spec: DownloadSpec) -> str:
    """Prefix of the staged rows of a spec's table."""
    return f"{build_staging_prefix(spec)}table-{spec.table}/"


def build_drawing_key(spec: DownloadSpec) -> str:
    """Key of the drawing, complete with what the sources' first answers say of it."""
    return f"{build_staging_prefix(spec)}drawing.json"


def build_range_ledger_key(spec: DownloadSpec, range_index: int) -> str:
    """Key of the ledger of a range."""
    return f"{build_table_staging_prefix(spec)}range-{range_index}.json"


def build_tail_key(spec: DownloadSpec, range_index: int, next_page: int) -> str:
    """Key of the tail with the pages before *next_page*; each tail has a new key, so that the ledger stays valid."""
    return f"{build_table_staging_prefix(spec)}tail-{range_index}-{next_page}"


def build_assembly_record_key(spec: DownloadSpec) -> str:
    """Key of the list of all parts, written before the upload is completed."""
    return f"{build_table_staging_prefix(spec)}assembly.json"


def build_joined_parts_key(spec: DownloadSpec) -> str:
    """Key of the joined parts: the file itself, or the rows that it is rendered from."""
    return (
        f"{build_table_staging_prefix(spec)}joined" if sinks.build_sink(spec).needs_rendering else build_file_key(spec)
    )


def build_files_prefix(spec: DownloadSpec) -> str:
    """Prefix of the finished file and its manifest."""
    return f"{FILES}{spec.project_id}/{spec.task_id}/"


def build_file_key(spec: DownloadSpec) -> str:
    """Key of the finished file."""
    return f"{build_files_prefix(spec)}data.{sinks.build_sink(spec).extension}"


def build_book_key(spec: DownloadSpec, segment: int, number: int) -> str:
    """Key of one book of an Excel download: the file itself, or a member of the archive."""
    return f"{build_files_prefix(spec)}book-{segment}-{number}.xlsx"


def build_archive_key(spec: DownloadSpec) -> str:
    """Key of the archive of several books."""
    return f"{build_files_prefix(spec)}data.zip"


def build_manifest_key(spec: DownloadSpec) -> str:
    """Key of the manifest, which is written last."""
    return f"{build_files_prefix(spec)}manifest.json"
