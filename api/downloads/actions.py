"""Actions on a download: cancel, delete and retry it, and send its webhooks again."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from pydantic import Field
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from api import webhooks
from api.downloads import creation, quotas, responses
from api.downloads.context import DownloadPath, get_status_reader, routes
from api.downloads.responses import DownloadResponse
from api.downloads.status import build_not_found
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call
from api.webhooks import WebhookDeliveryResponse
from domain.downloads import names
from domain.downloads.models import DownloadPhase, DownloadSpec, DownloadState
from domain.faults import Conflict, Exhausted, Invalid
from domain.webhooks.deliveries import DELIVERY_ID_PATTERN, WebhookOwner
from stores.downloads import catalogue
from stores.tables.downloads import Download
from workflows.downloads import handle

RETRY_VISIBLE_SECONDS = 2.0
"""How long a retry waits until a worker has taken it up, so that whoever asks next does not see the old failure."""
RETRY_POLL_SECONDS = 0.05


@routes.post("/v1/downloads/{task_id}/cancel", access=Access.PROJECT, status=HTTPStatus.ACCEPTED)
async def cancel(call: Call, path: DownloadPath) -> DownloadResponse:
    """Cancel a download.

    What runs is stopped, and nothing of it stays; its state becomes `cancelled` in a moment. One that is over stays as
    it is, only what a failed one keeps for a retry goes.
    """
    return await _cancel(call, path.task_id)


@routes.delete("/v1/downloads/{task_id}", access=Access.PROJECT, problems={"download_not_over": Conflict})
async def delete(call: Call, path: DownloadPath) -> DownloadResponse:
    """Remove the file of a download that is over, before its time.

    Its links lead nowhere from then on, and its state becomes `expired`. Of one that failed, what waits for a retry
    goes. One that runs is cancelled first, by `POST …/cancel`.
    """
    answer = await get_status_reader(call).read(call.project_id, path.task_id)
    if not answer.state.final:
        raise Conflict(
            "download_not_over",
            f"This download is {answer.state}; only one that is over can be removed.",
            f"Cancel it first: POST /v1/downloads/{path.task_id}/cancel.",
        )
    row = await get_status_reader(call).read_row(call.project_id, path.task_id)
    if answer.state is DownloadState.FAILED:
        return await _cancel(call, path.task_id)
    if row is not None and answer.state is DownloadState.SUCCEEDED:
        await catalogue.remove_file(
            call.services.database, call.services.objects, DownloadSpec.model_validate(row.request)
        )
        get_status_reader(call).invalidate(call.project_id, path.task_id)
    return await get_status_reader(call).read(call.project_id, path.task_id)


@routes.post(
    "/v1/downloads/{task_id}/retry",
    access=Access.PROJECT,
    status=HTTPStatus.ACCEPTED,
    problems={"download_not_failed": Conflict, quotas.QUOTA_EXCEEDED: Exhausted},
)
async def retry(call: Call, path: DownloadPath) -> DownloadResponse:
    """Retry a failed download, under the same id.

    It goes on from what was fetched if that is recent and the source still has as many rows, else it starts again.
    """
    answer = await get_status_reader(call).read(call.project_id, path.task_id)
    row = await get_status_reader(call).read_row(call.project_id, path.task_id)
    if row is None or answer.state is not DownloadState.FAILED:
        raise Conflict(
            "download_not_failed",
            f"This download is {answer.state}; only a failed one can be retried.",
            "Wait for its end, or start a new download.",
        )
    spec = DownloadSpec.model_validate(row.request)
    await quotas.admit(call, spec)
    await _signal_or_restart(call, row, spec)
    return await _wait_until_taken_up(call, row)


async def _cancel(call: Call, task_id: str) -> DownloadResponse:
    row = await get_status_reader(call).read_row(call.project_id, task_id)
    try:
        await _get_handle(call, task_id).cancel()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        if row is None:
            raise build_not_found(task_id) from None
    get_status_reader(call).invalidate(call.project_id, task_id)
    return await get_status_reader(call).read(call.project_id, task_id)


async def _signal_or_restart(call: Call, row: Download, spec: DownloadSpec) -> None:
    """By a signal, if the run still waits for one; else by a new run."""
    try:
        await _get_handle(call, row.task_id).signal(names.RETRY)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    else:
        return
    await creation.start_download(call.services, spec, again=True)


async def _wait_until_taken_up(call: Call, before: Download) -> DownloadResponse:
    """Where it stands once a worker has taken it up, or that it waits for one."""
    get_status_reader(call).invalidate(call.project_id, before.task_id)
    try:
        async with asyncio.timeout(RETRY_VISIBLE_SECONDS):
            while True:
                row = await get_status_reader(call).read_row(call.project_id, before.task_id)
                if row is not None and (row.state, row.processings) != (before.state, before.processings):
                    return await get_status_reader(call).read(call.project_id, before.task_id)
                await asyncio.sleep(RETRY_POLL_SECONDS)
    except TimeoutError:
        waiting = {"state": DownloadState.PENDING, "label": DownloadState.PENDING.label, "phase": DownloadPhase.WAITING}
        return responses.build_response_from_row(before).model_copy(
            update={**waiting, "fault": None, "finished_at": None}
        )


def _get_handle(call: Call, task_id: str) -> WorkflowHandle[Any, Any]:
    return handle.get_download_handle(call.services.engine, call.project_id, task_id)


class DeliveryPath(DownloadPath):
    """One of the deliveries of a download."""

    delivery_id: str = Field(pattern=DELIVERY_ID_PATTERN)


@routes.get("/v1/downloads/{task_id}/deliveries", access=Access.PROJECT, problems={"cursor_invalid": Invalid})
async def list_download_deliveries(
    call: Call, path: DownloadPath, query: PageQuery
) -> PageResponse[WebhookDeliveryResponse]:
    """List what was sent to the callback address of a download, newest first."""
    page = await webhooks.list_deliveries(call, call.project_id, _owner_of(path), query)
    if not page.items:
        # A download may have no delivery: then it must be there.
        await get_status_reader(call).read(call.project_id, path.task_id)
    return page


@routes.post("/v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver", access=Access.PROJECT, status=202)
async def redeliver(call: Call, path: DeliveryPath) -> WebhookDeliveryResponse:
    """Send it again, now.

    It keeps its `webhook-id` and its body, and begins the attempts anew: whether it is still being tried, has arrived,
    has failed, or was stopped by a 410.
    """
    return await webhooks.redeliver(call, call.project_id, _owner_of(path), path.delivery_id)


def _owner_of(path: DownloadPath) -> WebhookOwner:
    return WebhookOwner(system=names.SYSTEM, id=path.task_id)
