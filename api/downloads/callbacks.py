"""Callbacks: what was sent to the address of a download, and sending it again."""

from __future__ import annotations

from pydantic import Field

from api import webhooks
from api.downloads.room import TaskPath, board, routes
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call
from api.webhooks import DeliveryResponse
from domain.downloads import names
from domain.faults import Invalid
from domain.webhooks.deliveries import DELIVERY_ID_PATTERN, WebhookOwner


class DeliveryPath(TaskPath):
    """One of the deliveries of a download."""

    delivery_id: str = Field(pattern=DELIVERY_ID_PATTERN)


@routes.get("/v1/downloads/{task_id}/deliveries", access=Access.PROJECT, problems={"cursor_invalid": Invalid})
async def browse_deliveries(call: Call, path: TaskPath, query: PageQuery) -> PageResponse[DeliveryResponse]:
    """List what was sent to the callback address of a download, newest first."""
    page = await webhooks.list_deliveries(call, call.project_id, _owner(path), query)
    if not page.items:
        # A download may have no delivery: then it must be there.
        await board(call).read(call.project_id, path.task_id)
    return page


@routes.post("/v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver", access=Access.PROJECT, status=202)
async def redeliver(call: Call, path: DeliveryPath) -> DeliveryResponse:
    """Send it again, now.

    It keeps its `webhook-id` and its body, and begins the attempts anew: whether it is still being tried, has arrived,
    has failed, or was stopped by a 410.
    """
    return await webhooks.redeliver(call, call.project_id, _owner(path), path.delivery_id)


def _owner(path: TaskPath) -> WebhookOwner:
    return WebhookOwner(system=names.SYSTEM, id=path.task_id)
