"""Orders themselves: lists of the newest copies, and exports of a snapshot in the protocol of a download's source.

A mark names a revision: what is exported is what was stored then, whatever is written meanwhile. Replaced copies are
kept for some days for that.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from api.http import pagination
from api.http.pagination import PageResponse
from api.http.routes import JSON, Call, RouteAccess
from api.orders.context import SNAPSHOTS, routes
from api.orders.requests import DownloadSourcePageQuery, ExportMarkRequest, OrdersQuery, SnapshotFilter
from api.orders.responses import ExportMarkResponse, OrderResponse
from domain.faults import Conflict, Gone, Invalid, Missing
from domain.orders.names import EXPORT_ROUTE
from domain.secrets import KeyRight
from stores.orders import order_copies, platforms
from stores.orders.order_copies import OrderFilter, OrderSnapshot
from stores.tables.orders import Order, OrderPlatform


@routes.get("/v1/orders", access=RouteAccess.PROJECTS, problems={"cursor_invalid": Invalid})
async def list_orders(call: Call, query: OrdersQuery) -> PageResponse[OrderResponse] | web.Response:
    """List your orders, last modified first; each as its platform wrote it, to the last digit.

    The admin key that names no project lists those of all projects. A page ends before `limit` once its orders have
    16 MiB.
    """
    filters = OrderFilter(
        project_id=call.project_filter,
        platform=query.platform,
        shop=query.shop,
        order_id=query.order_id,
        modified_after=query.modified_after,
        modified_before=query.modified_before,
        field_condition=query.field_condition,
    )
    after = query.after and (query.after[0], *_decode_cursor_key(query.after[1]))
    async with call.services.database.session() as session:
        page = await order_copies.list_order_page(session, filters, after, query.limit)
    last = page.rows[-1] if page.has_more else None
    more = pagination.encode_cursor((last.modified_at, _encode_cursor_key(last))) if last else None
    body = (
        f'{{"items":[{",".join(map(_render_order_with_original_text, page.rows))}],"next_cursor":{json.dumps(more)}}}'
    )
    return web.Response(text=body, content_type=JSON)


CLOCKS_APART_SECONDS: Final = 60


@routes.post(
    "/v1/orders/marks",
    access=RouteAccess.PROJECT,
    status=HTTPStatus.CREATED,
    right=KeyRight.READ,
    problems={"not_found": Missing, "own_address_unset": Conflict},
)
async def create_mark(call: Call, body: ExportMarkRequest) -> ExportMarkResponse:
    """Create a mark of now, and return the address that exports the orders of this moment.

    `POST /v1/downloads` with `{"source_url": …, "headers": {"Authorization": "Bearer <your key>"}}` makes them a file.
    """
    row = await _require_own_platform(call, body.platform)
    own = call.services.settings.orders.own_address
    if not own:
        raise Conflict(
            "own_address_unset",
            "This installation does not say under which address its workers reach the API.",
            "Ask the operator to set HAULAGE_ORDERS__OWN_ADDRESS.",
        )
    mark = f"{row.revision}-{int(time.time())}"
    filters = body.model_dump(mode="json", exclude_none=True)
    return ExportMarkResponse(
        platform=row.platform,
        mark=mark,
        complete_to=row.complete_to,
        total=await call.request.app[SNAPSHOTS].count_orders(_build_snapshot(body, row.revision)),
        source_url=f"{own.rstrip('/')}{EXPORT_ROUTE}?{urlencode({**filters, 'mark': mark})}",
    )


@routes.get(
    EXPORT_ROUTE,
    access=RouteAccess.PROJECT,
    media_type=JSON,
    problems={"not_found": Missing, "mark_gone": Gone, "page_too_large": Invalid},
)
async def read_download_source_page(call: Call, query: DownloadSourcePageQuery) -> web.StreamResponse:
    """Answer one page of the download center's protocol: `{"total": …, "data": […]}`."""
    row = await _require_own_platform(call, query.platform)
    snapshot = _build_snapshot(query, _parse_mark_within_retention(call, query.mark, row))
    snapshots = call.request.app[SNAPSHOTS]
    total = await snapshots.count_orders(snapshot)
    rows = await snapshots.read_page(snapshot, query.page * query.page_size, query.page_size)
    return web.Response(text=f'{{"total":{total},"data":[{",".join(rows)}]}}', content_type=JSON)


def _render_order_with_original_text(row: Order) -> str:
    """Render an order as JSON; the platform's text is copied, because parsing it would round numbers."""
    shown = OrderResponse.model_construct(
        **{name: getattr(row, name) for name in OrderResponse.model_fields if name != "order"}
    )
    return f'{shown.model_dump_json(exclude={"order"})[:-1]},"order":{row.raw}}}'


def _encode_cursor_key(row: Order) -> str:
    """Encode an order's key in the characters that a cursor may have."""
    return base64.urlsafe_b64encode("\0".join((row.order_id, row.platform, row.shop)).encode()).decode().rstrip("=")


def _decode_cursor_key(encoded_key: str) -> tuple[str, str, str]:
    try:
        text = base64.urlsafe_b64decode(encoded_key + "=" * (-len(encoded_key) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    # None of them holds a NUL character.
    match text.split("\0"):
        case [order_id, platform, shop]:
            return order_id, platform, shop
    raise Invalid("cursor_invalid", "This cursor is not one of this list.", "Send next_cursor of the page before.")


def _parse_mark_within_retention(call: Call, mark: str, row: OrderPlatform) -> int:
    """Return the revision of a mark, if its orders are still kept."""
    revision, created_at = map(int, mark.split("-"))
    if revision > row.revision or created_at > time.time() + CLOCKS_APART_SECONDS:
        raise Missing("not_found", f"There is no mark {mark} yet.", "Create one with POST /v1/orders/marks.")
    days = call.services.settings.orders.copies_kept_days
    if time.time() > created_at + days * 86_400:
        raise Gone(
            "mark_gone",
            f"The mark {mark} is older than {days} days, for which replaced orders are kept.",
            "Create a new one with POST /v1/orders/marks.",
        )
    return revision


def _build_snapshot(query: SnapshotFilter, revision: int) -> OrderSnapshot:
    return OrderSnapshot(query.platform, revision, query.modified_after, query.modified_before)


async def _require_own_platform(call: Call, platform: str) -> OrderPlatform:
    async with call.services.database.session() as session:
        row = await platforms.find_platform(session, platform)
    if row is None or row.project_id != call.project_id:
        raise platforms.build_missing_platform_fault(platform)
    return row
