"""Orders as a source of downloads, in the download center's own protocol, frozen at a mark.

A mark is a number of a commit: what is exported is what was there then, whatever is written meanwhile. Copies that were
replaced since are kept for some days for that.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from aiohttp import web
from pydantic import AwareDatetime, Field
from sqlalchemy import BigInteger, bindparam, text

from activities.orders import configuration
from api.models import Answer, Request
from api.moments import Moment
from api.orders.room import routes
from api.routes import JSON, Access, Call
from domain.faults import Conflict, Gone, Missing
from domain.orders import places
from infra.tables.orders import OrderPlatform

PAGE_SIZE_MAX: Final = 10_000
_FROZEN: Final = """
FROM (
    SELECT platform, shop, order_id, modified_at, version, raw FROM orders
    WHERE platform = :platform AND revision <= :mark
    UNION ALL
    SELECT platform, shop, order_id, modified_at, version, raw FROM order_copies
    WHERE platform = :platform AND revision <= :mark AND until_revision > :mark
) AS frozen
WHERE modified_at >= coalesce(:after, '-infinity'::timestamptz)
    AND modified_at < coalesce(:before, 'infinity'::timestamptz)
"""
_ROW: Final = """
json_build_object(
    'platform', platform, 'shop', shop, 'order_id', order_id,
    'modified_at', to_char(modified_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'version', version,
    'order', raw::json
)::text
"""
_COUNT: Final = text(f"SELECT count(*) {_FROZEN}").bindparams(bindparam("mark", type_=BigInteger))
_PAGE: Final = text(f"SELECT {_ROW} AS row {_FROZEN} ORDER BY shop, order_id LIMIT :size OFFSET :skipped").bindparams(
    bindparam("mark", type_=BigInteger)
)


class Filters(Request):
    """Which orders."""

    platform: str = Field(pattern=places.PLATFORM_PATTERN)
    modified_after: Moment | None = Field(default=None, description="at or after this time")
    modified_before: Moment | None = Field(default=None, description="before this time")


class Asked(Filters):
    """One page of the source's protocol."""

    mark: int = Field(ge=0, le=2**62, description="as GET /v1/orders/mark told it")
    page: int = Field(ge=0, le=10**9)
    page_size: int = Field(ge=1, le=PAGE_SIZE_MAX)


class Mark(Answer):
    """What an export can be frozen at."""

    platform: str
    mark: int
    complete_to: AwareDatetime | None = Field(description="up to when every order is in it")
    total: int = Field(description="how many orders it has")
    source_url: str = Field(description="what to send as `source_url`, with your key in `headers`")


@routes.get("/v1/orders/mark", access=Access.PROJECT, problems={"not_found": Missing, "own_address_unset": Conflict})
async def mark(call: Call, query: Filters) -> Mark:
    """Get a mark of now, and the address that exports the orders of this moment.

    `POST /v1/downloads` with `{"source_url": …, "headers": {"Authorization": "Bearer <your key>"}}` makes them a file.
    """
    row = await _owned(call, query.platform)
    own = call.services.settings.orders.own_address
    if not own:
        raise Conflict(
            "own_address_unset",
            "This installation does not say under which address its workers reach the API.",
            "Ask the operator to set HAULAGE_ORDERS__OWN_ADDRESS.",
        )
    filters = query.model_dump(mode="json", exclude_none=True)
    address = f"{own.rstrip('/')}/v1/orders/source?{urlencode({**filters, 'mark': row.revision})}"
    total = await _total(call, query, row.revision)
    return Mark(platform=row.platform, mark=row.revision, complete_to=row.complete_to, total=total, source_url=address)


@routes.get(
    "/v1/orders/source",
    access=Access.PROJECT,
    media_type=JSON,
    problems={"not_found": Missing, "mark_gone": Gone},
)
async def source(call: Call, query: Asked) -> web.StreamResponse:
    """Answer one page of the download center's protocol: `{"total": …, "data": […]}`."""
    row = await _owned(call, query.platform)
    if query.mark > row.revision:
        raise Missing("not_found", f"There is no mark {query.mark} yet.", "Get one with GET /v1/orders/mark.")
    total = await _total(call, query, query.mark)
    parameters = _parameters(query, query.mark) | {"size": query.page_size, "skipped": query.page * query.page_size}
    async with call.services.database.session() as session:
        rows = (await session.execute(_PAGE, parameters)).scalars().all()
    body = f'{{"total":{total},"data":[{",".join(rows)}]}}'
    return web.Response(text=body, content_type=JSON)


async def _owned(call: Call, platform: str) -> OrderPlatform:
    async with call.services.database.session() as session:
        row = await session.get(OrderPlatform, platform)
    if row is None or row.project_id != call.project_id:
        raise configuration.unknown(platform)
    return row


async def _total(call: Call, query: Filters, at: int) -> int:
    async with call.services.database.session() as session:
        return int((await session.execute(_COUNT, _parameters(query, at))).scalar_one())


def _parameters(query: Filters, at: int) -> dict[str, object]:
    return {
        "platform": query.platform,
        "mark": at,
        "after": query.modified_after,
        "before": query.modified_before,
    }
