"""Where the bytes of a download lie in the object store."""

from __future__ import annotations

from domain.downloads.request import DownloadOrder


def staging(order: DownloadOrder) -> str:
    """Prefix of everything that goes once the file is made."""
    return f"staging/{order.project_id}/{order.task_id}/"


def ledger(order: DownloadOrder, range_index: int) -> str:
    """The ledger of one range."""
    return f"{staging(order)}range-{range_index}.json"


def tail(order: DownloadOrder, range_index: int, next_page: int) -> str:
    """A tail that holds the pages before *next_page*; a new name each time keeps the ledger true."""
    return f"{staging(order)}tail-{range_index}-{next_page}"


def assembly(order: DownloadOrder) -> str:
    """The record of all parts, written before the upload is completed."""
    return f"{staging(order)}assembly.json"


def files(order: DownloadOrder) -> str:
    """Prefix of the finished file and its manifest."""
    return f"files/{order.project_id}/{order.task_id}/"


def data(order: DownloadOrder) -> str:
    """The finished file."""
    return f"{files(order)}data.{order.type}"


def manifest(order: DownloadOrder) -> str:
    """The manifest, written last."""
    return f"{files(order)}manifest.json"
