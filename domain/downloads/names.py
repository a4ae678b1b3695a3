"""Names of the system: its task queues, workflows and their ids, and where its bytes lie in the object store."""

from __future__ import annotations

from domain.downloads import sinks
from domain.downloads.models import DownloadOrder

RETRY = "retry"
"""The signal that has a failed download processed again."""

DOWNLOAD_WORKFLOW = "DownloadWorkflow"

SYSTEM = "downloads"

ASKED_MEMO = "asked"

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


def workflow_id(project_id: str, task_id: str) -> str:
    """The id of a download's workflow; it names the project, so that no other project can name the workflow."""
    return f"download:{project_id}:{task_id}"


def names_in(workflow_id: str) -> tuple[str, str]:
    """The project and the download that such an id names."""
    _, project_id, task_id = workflow_id.split(":", 2)
    return project_id, task_id


def inline(project_id: str, task_id: str, table: int = 0) -> str:
    """The rows that came with a request, for one of its tables."""
    return f"{INLINE}{project_id}/{task_id}{f'-{table}' if table else ''}.json"


def staging(order: DownloadOrder) -> str:
    """Prefix of everything that goes once the file is made."""
    return f"{STAGING}{order.project_id}/{order.task_id}/"


def table(order: DownloadOrder) -> str:
    """Prefix of what is staged of the table that the order is about."""
    return f"{staging(order)}table-{order.table}/"


def drawing(order: DownloadOrder) -> str:
    """How the book is to look, with what the sources' first answers say of it."""
    return f"{staging(order)}drawing.json"


def ledger(order: DownloadOrder, range_index: int) -> str:
    """The ledger of one range."""
    return f"{table(order)}range-{range_index}.json"


def tail(order: DownloadOrder, range_index: int, next_page: int) -> str:
    """A tail that holds the pages before *next_page*; a new name each time keeps the ledger true."""
    return f"{table(order)}tail-{range_index}-{next_page}"


def assembly(order: DownloadOrder) -> str:
    """The record of all parts, written before the upload is completed."""
    return f"{table(order)}assembly.json"


def upload(order: DownloadOrder) -> str:
    """Where the pieces are joined: the file itself, or what it is rendered from."""
    return f"{table(order)}joined" if sinks.sink_for(order).rendered else data(order)


def files(order: DownloadOrder) -> str:
    """Prefix of the finished file and its manifest."""
    return f"{FILES}{order.project_id}/{order.task_id}/"


def data(order: DownloadOrder) -> str:
    """The finished file."""
    return f"{files(order)}data.{sinks.sink_for(order).extension}"


def book(order: DownloadOrder, segment: int, number: int) -> str:
    """One of the books that an Excel download is rendered to: the file itself, or a member of the archive."""
    return f"{files(order)}book-{segment}-{number}.xlsx"


def archive(order: DownloadOrder) -> str:
    """The archive of several books."""
    return f"{files(order)}data.zip"


def manifest(order: DownloadOrder) -> str:
    """The manifest, written last."""
    return f"{files(order)}manifest.json"
