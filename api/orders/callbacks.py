"""Callbacks: what was sent to the address of a platform's administrator, and sending it again."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import Field

from api import webhooks
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call
from api.orders.room import PlatformPath, routes
from api.webhooks import DeliveryResponse
from domain.faults import Invalid, Missing
from domain.orders import names
from domain.webhooks.deliveries import DELIVERY_ID_PATTERN, WebhookOwner
from stores.orders import platforms


class DeliveryPath(PlatformPath):
    """One of the deliveries of a platform."""

    delivery_id: str = Field(pattern=DELIVERY_ID_PATTERN)


@routes.get(
    "/v1/platforms/{platform}/deliveries",
    access=Access.ADMIN,
    problems={"not_found": Missing, "cursor_invalid": Invalid},
)
async def browse_deliveries(call: Call, path: PlatformPath, query: PageQuery) -> PageResponse[DeliveryResponse]:
    """List what was sent to the `notify_url` of a platform, newest first.

    It tells of slices and backfills that failed, and of what keeps the platform from being fetched.
    """
    return await webhooks.list_deliveries(call, await _project_id(call, path), _owner(path), query)


@routes.post(
    "/v1/platforms/{platform}/deliveries/{delivery_id}/redeliver",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing},
)
async def redeliver(call: Call, path: DeliveryPath) -> DeliveryResponse:
    """Send it again, now.

    It keeps its `webhook-id` and its body, and begins the attempts anew: whether it is still being tried, has arrived,
    has failed, or was stopped by a 410.
    """
    return await webhooks.redeliver(call, await _project_id(call, path), _owner(path), path.delivery_id)


async def _project_id(call: Call, path: PlatformPath) -> str:
    async with call.services.database.session() as session:
        return (await platforms.load(session, path.platform)).row.project_id


def _owner(path: PlatformPath) -> WebhookOwner:
    return WebhookOwner(system=names.SYSTEM, id=path.platform)
