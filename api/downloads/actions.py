"""Actions on a download: cancel, delete and retry it, and send its webhooks again."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

from pydantic import Field
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from api import webhooks
from api.downloads import creation, quotas, responses
from api.downloads.context import DownloadPath, get_status_reader, routes
from api.downloads.responses import DownloadResponse, build_missing_download_fault
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess
from api.pauses import SYSTEM_PAUSED
from api.webhooks import WebhookDeliveryResponse
from domain.downloads import names
from domain.downloads.models import DownloadPhase, DownloadSpec, DownloadState, SealedRequestValues
from domain.faults import Conflict, Invalid, Paused
from domain.webhooks import DELIVERY_ID_PATTERN, WebhookEventSubject
from infra import outages
from infra.secrets import refuse_unreadable_seals
from stores import sealed
from stores.downloads import catalogue
from stores.tables.downloads import Download
from workflows.downloads import handle

RETRY_VISIBLE_SECONDS = 2.0
"""How long a retry waits until a worker has taken it up, so that the next query does not show the old failure."""
RETRY_POLL_SECONDS = 0.05


@routes.post("/v1/downloads/{task_id}/cancel", access=RouteAccess.PROJECT, status=HTTPStatus.ACCEPTED)
async def cancel_download(call: Call, path: DownloadPath) -> DownloadResponse:
    """Cancel a download.

    It is stopped and all its rows are deleted; its state becomes `cancelled` within moments. A download that has ended
    keeps its state; a failed one can no longer be retried from staged rows.
    """
    return await _cancel_run_and_read_status(call, path.task_id)


@routes.delete("/v1/downloads/{task_id}", access=RouteAccess.PROJECT, problems={"download_not_ended": Conflict})
async def delete_file(call: Call, path: DownloadPath) -> DownloadResponse:
    """Delete the file of a download that has ended, before it expires.

    Its links stop working, and its state becomes `expired`. Of a failed download, the rows kept for a retry are
    deleted. Cancel a running download first, by `POST …/cancel`.
    """
    response = await get_status_reader(call).read_status(call.project_id, path.task_id)
    if not response.state.is_final:
        raise Conflict(
            "download_not_ended",
            f"This download is {response.state}; only one that is over can be removed.",
            f"Cancel it first: POST /v1/downloads/{path.task_id}/cancel.",
        )
    row = await get_status_reader(call).read_catalogue_row(call.project_id, path.task_id)
    if response.state is DownloadState.FAILED:
        # Its run waits for a retry with the rows that it fetched, and deletes them when it is cancelled.
        return await _cancel_run_and_read_status(call, path.task_id)
    if row is not None and response.state is DownloadState.SUCCEEDED:
        await catalogue.delete_file_and_mark_expired(
            call.services.database, call.services.objects, DownloadSpec.model_validate(row.request)
        )
        get_status_reader(call).forget_cached_status(call.project_id, path.task_id)
    return await get_status_reader(call).read_status(call.project_id, path.task_id)


@routes.post(
    "/v1/downloads/{task_id}/retry",
    access=RouteAccess.PROJECT,
    status=HTTPStatus.ACCEPTED,
    begins_work=True,
    problems={"download_not_failed": Conflict, "seal_unreadable": Conflict, SYSTEM_PAUSED: Paused},
)
async def retry_download(call: Call, path: DownloadPath) -> DownloadResponse:
    """Retry a failed download, under the same id.

    It resumes from the rows that were fetched if they are recent and the source has not changed; otherwise it starts
    over.
    """
    response = await get_status_reader(call).read_status(call.project_id, path.task_id)
    row = await get_status_reader(call).read_catalogue_row(call.project_id, path.task_id)
    if row is None or response.state is not DownloadState.FAILED:
        raise Conflict(
            "download_not_failed",
            f"This download is {response.state}; only a failed one can be retried.",
            "Wait for its end, or start a new download.",
        )
    with refuse_unreadable_seals():
        # `haulage reseal` may have passed over the row since it was read, and counted the runs.
        resealed = sealed.reseal_values_in_download_request(call.services.sealer, json.dumps(row.request))
    spec = DownloadSpec.model_validate_json(resealed) if resealed else DownloadSpec.model_validate(row.request)
    async with quotas.consume_quotas_for_start(call, spec):
        await _signal_waiting_run_or_start_new_run(call, spec)
    return await _wait_until_retry_starts(call, row)


async def _cancel_run_and_read_status(call: Call, task_id: str) -> DownloadResponse:
    row = await get_status_reader(call).read_catalogue_row(call.project_id, task_id)
    try:
        await _get_workflow_handle(call, task_id).cancel()
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise
        if row is None:
            raise build_missing_download_fault(task_id) from None
    get_status_reader(call).forget_cached_status(call.project_id, task_id)
    return await get_status_reader(call).read_status(call.project_id, task_id)


async def _signal_waiting_run_or_start_new_run(call: Call, spec: DownloadSpec) -> None:
    """Signal the run if it still waits for a retry; otherwise start a new run."""
    try:
        stored = SealedRequestValues.model_validate(spec, from_attributes=True)
        await _get_workflow_handle(call, spec.task_id).signal(names.RETRY, stored)
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise
        await creation.start_download(call.services, spec, allow_restart=True)


async def _wait_until_retry_starts(call: Call, before: Download) -> DownloadResponse:
    """Wait until a worker has taken the retry up, and return the download; after a timeout, return it as pending."""
    get_status_reader(call).forget_cached_status(call.project_id, before.task_id)
    try:
        async with asyncio.timeout(RETRY_VISIBLE_SECONDS):
            while True:
                row = await get_status_reader(call).read_catalogue_row(call.project_id, before.task_id)
                if row is not None and (row.state, row.processings) != (before.state, before.processings):
                    return await get_status_reader(call).read_status(call.project_id, before.task_id)
                await asyncio.sleep(RETRY_POLL_SECONDS)
    except TimeoutError:
        waiting = {
            "state": DownloadState.PENDING,
            "state_label": DownloadState.PENDING.chinese_label,
            "phase": DownloadPhase.WAITING,
        }
        return responses.build_response_from_row(before).model_copy(
            update={**waiting, "fault": None, "finished_at": None}
        )


def _get_workflow_handle(call: Call, task_id: str) -> WorkflowHandle[Any, Any]:
    return handle.get_download_handle(call.services.engine, call.project_id, task_id)


class DeliveryPath(DownloadPath):
    """The ids of a download and of one of its webhook deliveries."""

    delivery_id: str = Field(pattern=DELIVERY_ID_PATTERN)


@routes.get("/v1/downloads/{task_id}/deliveries", access=RouteAccess.PROJECT, problems={"cursor_invalid": Invalid})
async def list_download_deliveries(
    call: Call, path: DownloadPath, query: PageQuery
) -> PageResponse[WebhookDeliveryResponse]:
    """List the webhook deliveries of a download, newest first."""
    page = await webhooks.list_deliveries(call, call.project_id, _build_event_subject(path), query)
    if not page.items:
        # An empty list may mean that there is no such download.
        await get_status_reader(call).read_status(call.project_id, path.task_id)
    return page


@routes.post(
    "/v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver",
    access=RouteAccess.PROJECT,
    status=HTTPStatus.ACCEPTED,
    problems={"seal_unreadable": Conflict},
)
async def redeliver_webhook(call: Call, path: DeliveryPath) -> WebhookDeliveryResponse:
    """Send a webhook again, now.

    The delivery keeps its `webhook-id` and its body and starts its attempts anew, whether it is still being retried,
    has arrived, has failed, or was stopped by a 410.
    """
    return await webhooks.redeliver_webhook(call, call.project_id, _build_event_subject(path), path.delivery_id)


def _build_event_subject(path: DownloadPath) -> WebhookEventSubject:
    return WebhookEventSubject(system=names.SYSTEM, id=path.task_id)
