"""Orders as a source of downloads, in the download center's own protocol, frozen at a mark.

A mark is a number of a commit: what is exported is what was there then, whatever is written meanwhile. Copies that were
replaced since are kept for some days for that.
"""

from __future__ import annotations

import re
import time
from typing import Final, Self
from urllib.parse import urlencode

from aiohttp import web
from pydantic import AwareDatetime, Field, model_validator

from api.http import timestamps
from api.http.models import Request, Response
from api.http.routes import JSON, Access, Call
from api.http.timestamps import QueryTimestamp
from api.orders.frozen import FROZEN
from api.orders.room import routes
from domain.faults import Conflict, Gone, Missing
from domain.orders import names
from stores.orders import platforms
from stores.orders.search import OrderSnapshot
from stores.tables.orders import OrderPlatform

PAGE_SIZE_MAX: Final = 10_000
CLOCKS_APART_SECONDS: Final = 60
MARK: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,11})")
"""A commit, and when it was seen: copies that were replaced later are kept for some days from then on."""


class Filters(Request):
    """Which orders."""

    platform: str = Field(pattern=names.PLATFORM_PATTERN)
    modified_after: QueryTimestamp | None = Field(default=None, description="at or after this time")
    modified_before: QueryTimestamp | None = Field(default=None, description="before this time")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(
            self.modified_after, self.modified_before, ("modified_after", "modified_before")
        )
        return self


class Asked(Filters):
    """One page of the source's protocol."""

    mark: str = Field(pattern=f"^{MARK.pattern}$", description="as GET /v1/orders/mark told it")
    page: int = Field(ge=0, le=10**9)
    page_size: int = Field(ge=1, le=PAGE_SIZE_MAX)


class Mark(Response):
    """What an export can be frozen at."""

    platform: str
    mark: str
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
    told = f"{row.revision}-{int(time.time())}"
    filters = query.model_dump(mode="json", exclude_none=True)
    return Mark(
        platform=row.platform,
        mark=told,
        complete_to=row.complete_to,
        total=await call.request.app[FROZEN].total(_excerpt(query, row.revision)),
        source_url=f"{own.rstrip('/')}/v1/orders/source?{urlencode({**filters, 'mark': told})}",
    )


@routes.get(
    "/v1/orders/source",
    access=Access.PROJECT,
    media_type=JSON,
    problems={"not_found": Missing, "mark_gone": Gone},
)
async def source(call: Call, query: Asked) -> web.StreamResponse:
    """Answer one page of the download center's protocol: `{"total": …, "data": […]}`."""
    row = await _owned(call, query.platform)
    excerpt = _excerpt(query, _revision(call, query.mark, row))
    frozen = call.request.app[FROZEN]
    total = await frozen.total(excerpt)
    rows = await frozen.page(excerpt, query.page * query.page_size, query.page_size)
    return web.Response(text=f'{{"total":{total},"data":[{",".join(rows)}]}}', content_type=JSON)


def _revision(call: Call, mark: str, row: OrderPlatform) -> int:
    """The commit that a mark names, if what was there then can still be told."""
    revision, told = map(int, mark.split("-"))
    if revision > row.revision or told > time.time() + CLOCKS_APART_SECONDS:
        raise Missing("not_found", f"There is no mark {mark} yet.", "Get one with GET /v1/orders/mark.")
    days = call.services.settings.orders.copies_kept_days
    if time.time() > told + days * 86_400:
        raise Gone(
            "mark_gone",
            f"The mark {mark} is older than {days} days, for which replaced orders are kept.",
            "Get a new one with GET /v1/orders/mark.",
        )
    return revision


def _excerpt(query: Filters, revision: int) -> OrderSnapshot:
    return OrderSnapshot(query.platform, revision, query.modified_after, query.modified_before)


async def _owned(call: Call, platform: str) -> OrderPlatform:
    async with call.services.database.session() as session:
        row = await platforms.find(session, platform)
    if row is None or row.project_id != call.project_id:
        raise platforms.build_not_found(platform)
    return row
