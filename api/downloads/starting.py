"""Starting a run: the workflow first, under the download's own id; its row follows from there."""

from __future__ import annotations

from datetime import timedelta

from api.downloads import answers
from domain.downloads.models import DownloadOrder
from services.services import Services
from workflows.downloads import handle


async def start(services: Services, order: DownloadOrder, *, again: bool = False) -> bool:
    """Start the run of an order; False where it is running already.

    Args:
        services: The process' clients.
        order: What to export.
        again: Whether an earlier run may have ended.
    """
    task_timeout = timedelta(seconds=services.settings.engine.task_timeout_seconds)
    return await handle.start(services.engine, order, answers.asked(order), task_timeout, again=again)
