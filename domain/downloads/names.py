"""Names of the system: its task queues, workflows and their ids, and where its bytes lie in the object store."""

from __future__ import annotations

from domain.downloads import sinks
from domain.downloads.models import DownloadSpec

RETRY = "retry"
"""The signal that has a failed download processed again."""

DOWNLOAD_WORKFLOW = "DownloadWorkflow"

SYSTEM = "downloads"

REQUEST_MEMO = "asked"

RENDER_QUEUE = "downloads-render"

FETCH_QUEUE = "downloads-fetch"

QUEUE = "downloads"
QUEUES = (QUEUE, FETCH_QUEUE, RENDER_QUEUE)
EXPIRE, SWEEP = "download_expire", "download_sweep"
HOUSEKEEPING = (EXPIRE, SWEEP)
STATUS_MEMO = "status"
NAME_MEMO = "file_name"

STAGING = "staging/"
INLINE = "inline/"
FILES = "files/"


def build_workflow_id(project_id: str, task_id: str) -> str:
    """The id of a download's workflow; it names the project, so that no other project can name the workflow."""
    return f"download:{project_id}:{task_id}"


def parse_workflow_id(workflow_id: str) -> tuple[str, str]:
    """The project and the download that such an id names."""
    _, project_id, task_id = workflow_id.split(":", 2)
    return project_id, task_id


def inline_key(project_id: str, task_id: str, table: int = 0) -> str:
    """The rows that came with a request, for one of its tables."""
    return f"{INLINE}{project_id}/{task_id}{f'-{table}' if table else ''}.json"


def staging_prefix(spec: DownloadSpec) -> str:
    """Prefix of everything that goes once the file is made."""
    return f"{STAGING}{spec.project_id}/{spec.task_id}/"


def table_prefix(spec: DownloadSpec) -> str:
    """Prefix of what is staged of the table that the order is about."""
    return f"{staging_prefix(spec)}table-{spec.table}/"


def drawing_key(spec: DownloadSpec) -> str:
    """How the book is to look, with what the sources' first answers say of it."""
    return f"{staging_prefix(spec)}drawing.json"


def ledger_key(spec: DownloadSpec, range_index: int) -> str:
    """The ledger of one range."""
    return f"{table_prefix(spec)}range-{range_index}.json"


def tail_key(spec: DownloadSpec, range_index: int, next_page: int) -> str:
    """A tail that holds the pages before *next_page*; a new name each time keeps the ledger true."""
    return f"{table_prefix(spec)}tail-{range_index}-{next_page}"


def assembly_key(spec: DownloadSpec) -> str:
    """The record of all parts, written before the upload is completed."""
    return f"{table_prefix(spec)}assembly.json"


def upload_key(spec: DownloadSpec) -> str:
    """Where the pieces are joined: the file itself, or what it is rendered from."""
    return f"{table_prefix(spec)}joined" if sinks.build_sink(spec).is_rendered else file_key(spec)


def files_prefix(spec: DownloadSpec) -> str:
    """Prefix of the finished file and its manifest."""
    return f"{FILES}{spec.project_id}/{spec.task_id}/"


def file_key(spec: DownloadSpec) -> str:
    """The finished file."""
    return f"{files_prefix(spec)}data.{sinks.build_sink(spec).extension}"


def book_key(spec: DownloadSpec, segment: int, number: int) -> str:
    """One of the books that an Excel download is rendered to: the file itself, or a member of the archive."""
    return f"{files_prefix(spec)}book-{segment}-{number}.xlsx"


def archive_key(spec: DownloadSpec) -> str:
    """The archive of several books."""
    return f"{files_prefix(spec)}data.zip"


def manifest_key(spec: DownloadSpec) -> str:
    """The manifest, written last."""
    return f"{files_prefix(spec)}manifest.json"
