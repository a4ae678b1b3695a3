"""Where the bytes of a download lie in the object store."""

from __future__ import annotations

from domain.downloads import sinks
from domain.downloads.request import DownloadOrder

STAGING = "staging/"
INLINE = "inline/"
FILES = "files/"


def workflow_id(project_id: str, task_id: str) -> str:
    """The id of a download's workflow; it names the project, so that no other project can name the workflow."""
    return f"download:{project_id}:{task_id}"


def inline(project_id: str, task_id: str) -> str:
    """The rows that came with a request."""
    return f"{INLINE}{project_id}/{task_id}.json"


def staging(order: DownloadOrder) -> str:
    """Prefix of everything that goes once the file is made."""
    return f"{STAGING}{order.project_id}/{order.task_id}/"


def ledger(order: DownloadOrder, range_index: int) -> str:
    """The ledger of one range."""
    return f"{staging(order)}range-{range_index}.json"


def tail(order: DownloadOrder, range_index: int, next_page: int) -> str:
    """A tail that holds the pages before *next_page*; a new name each time keeps the ledger true."""
    return f"{staging(order)}tail-{range_index}-{next_page}"


def assembly(order: DownloadOrder) -> str:
    """The record of all parts, written before the upload is completed."""
    return f"{staging(order)}assembly.json"


def upload(order: DownloadOrder) -> str:
    """Where the pieces are joined: the file itself, or what it is rendered from."""
    return f"{staging(order)}joined" if sinks.sink_for(order).rendered else data(order)


def files(order: DownloadOrder) -> str:
    """Prefix of the finished file and its manifest."""
    return f"{FILES}{order.project_id}/{order.task_id}/"


def data(order: DownloadOrder) -> str:
    """The finished file."""
    return f"{files(order)}data.{sinks.sink_for(order).extension}"


def manifest(order: DownloadOrder) -> str:
    """The manifest, written last."""
    return f"{files(order)}manifest.json"
