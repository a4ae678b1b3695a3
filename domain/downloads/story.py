"""The end of a download as outsiders are told it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from domain.downloads.request import DownloadOrder
from domain.downloads.status import Outcome

LIST_MAX = 30
ENTRY_MAX_CHARACTERS = 200


def told(order: DownloadOrder, outcome: Outcome, processings: int) -> dict[str, JsonValue]:
    """What a callback carries: enough to fetch the file or to know why there is none."""
    file = outcome.file
    return {
        "task_id": order.task_id,
        "project_id": order.project_id,
        "operator_id": order.operator_id,
        "state": outcome.state,
        "state_label": outcome.state.label,
        "file_name": file.name if file else order.file_name,
        "download_url": f"{order.public_base.rstrip('/')}/v1/downloads/{order.task_id}/file" if file else None,
        "rows": file.rows if file else None,
        "bytes": file.bytes if file else None,
        "files": file.files if file else None,
        "left_out": _short(file.left_out if file else []),
        "left_out_count": len(file.left_out) if file else 0,
        "warnings": _short(file.warnings if file else []),
        "processings": processings,
        "fault": outcome.fault.model_dump(mode="json") if outcome.fault else None,
    }


def _short(entries: Sequence[str]) -> list[JsonValue]:
    """As many as a message of some kilobytes holds; `GET /v1/downloads/{task_id}` lists them all."""
    return [entry[:ENTRY_MAX_CHARACTERS] for entry in entries[:LIST_MAX]]
