"""Steering: cancel what runs, retry what failed."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from api.downloads import answers, quotas, starting
from api.downloads.answers import DownloadAnswer
from api.downloads.board import missing
from api.downloads.room import TaskPath, board, routes
from api.http.routes import Access, Call
from domain.downloads import names
from domain.downloads.models import DownloadOrder, Phase, State
from domain.faults import Conflict, Exhausted
from stores.downloads import catalogue
from stores.tables.downloads import Download
from workflows.downloads import handle

SEEN_SECONDS = 2.0
"""How long a retry waits until a worker has taken it up, so that whoever asks next does not see the old failure."""
SEEN_POLL_SECONDS = 0.05


@routes.post("/v1/downloads/{task_id}/cancel", access=Access.PROJECT, status=HTTPStatus.ACCEPTED)
async def cancel(call: Call, path: TaskPath) -> DownloadAnswer:
    """Cancel a download.

    What runs is stopped, and nothing of it stays; its state becomes `cancelled` in a moment. One that is over stays as
    it is, only what a failed one keeps for a retry goes.
    """
    return await _cancel(call, path.task_id)


@routes.delete("/v1/downloads/{task_id}", access=Access.PROJECT, problems={"download_not_over": Conflict})
async def delete(call: Call, path: TaskPath) -> DownloadAnswer:
    """Remove the file of a download that is over, before its time.

    Its links lead nowhere from then on, and its state becomes `expired`. Of one that failed, what waits for a retry
    goes. One that runs is cancelled first, by `POST …/cancel`.
    """
    answer = await board(call).read(call.project_id, path.task_id)
    if not answer.state.final:
        raise Conflict(
            "download_not_over",
            f"This download is {answer.state}; only one that is over can be removed.",
            f"Cancel it first: POST /v1/downloads/{path.task_id}/cancel.",
        )
    row = await board(call).row(call.project_id, path.task_id)
    if answer.state is State.FAILED:
        return await _cancel(call, path.task_id)
    if row is not None and answer.state is State.SUCCEEDED:
        await catalogue.remove(call.services.database, call.services.objects, DownloadOrder.model_validate(row.request))
        board(call).forget(call.project_id, path.task_id)
    return await board(call).read(call.project_id, path.task_id)


@routes.post(
    "/v1/downloads/{task_id}/retry",
    access=Access.PROJECT,
    status=HTTPStatus.ACCEPTED,
    problems={"download_not_failed": Conflict, quotas.CODE: Exhausted},
)
async def retry(call: Call, path: TaskPath) -> DownloadAnswer:
    """Retry a failed download, under the same id.

    It goes on from what was fetched if that is recent and the source still has as many rows, else it starts again.
    """
    answer = await board(call).read(call.project_id, path.task_id)
    row = await board(call).row(call.project_id, path.task_id)
    if row is None or answer.state is not State.FAILED:
        raise Conflict(
            "download_not_failed",
            f"This download is {answer.state}; only a failed one can be retried.",
            "Wait for its end, or start a new download.",
        )
    order = DownloadOrder.model_validate(row.request)
    await quotas.admit(call, order)
    await _process_again(call, row, order)
    return await _taken_up(call, row)


async def _cancel(call: Call, task_id: str) -> DownloadAnswer:
    row = await board(call).row(call.project_id, task_id)
    try:
        await _handle(call, task_id).cancel()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        if row is None:
            raise missing(task_id) from None
    board(call).forget(call.project_id, task_id)
    return await board(call).read(call.project_id, task_id)


async def _process_again(call: Call, row: Download, order: DownloadOrder) -> None:
    """By a signal, if the run still waits for one; else by a new run."""
    try:
        await _handle(call, row.task_id).signal(names.RETRY)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    else:
        return
    await starting.start(call.services, order, again=True)


async def _taken_up(call: Call, before: Download) -> DownloadAnswer:
    """Where it stands once a worker has taken it up, or that it waits for one."""
    board(call).forget(call.project_id, before.task_id)
    try:
        async with asyncio.timeout(SEEN_SECONDS):
            while True:
                row = await board(call).row(call.project_id, before.task_id)
                if row is not None and (row.state, row.processings) != (before.state, before.processings):
                    return await board(call).read(call.project_id, before.task_id)
                await asyncio.sleep(SEEN_POLL_SECONDS)
    except TimeoutError:
        waiting = {"state": State.PENDING, "label": State.PENDING.label, "phase": Phase.WAITING}
        return answers.of_row(before).model_copy(update={**waiting, "fault": None, "finished_at": None})


def _handle(call: Call, task_id: str) -> WorkflowHandle[Any, Any]:
    return handle.get(call.services.engine, call.project_id, task_id)
