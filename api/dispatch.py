"""Dispatch: what happens between a matched route and its handler, in the order that gives the least away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from api import auth, pushers, reading
from api.models import Nothing
from api.routes import JSON, VISIT, Access, Call, Caller, Route
from infra import log
from infra.settings import ApiSettings
from services.services import Services


def endpoint(
    route: Route, services: Services, gate: auth.Gate
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The aiohttp handler of a route."""
    limits = services.settings.api
    if route.body_max_bytes:
        limits = limits.model_copy(update={"body_max_bytes": route.body_max_bytes})

    async def handle(request: web.Request) -> web.StreamResponse:
        request[VISIT].route = route
        caller = await _admit(route, request, gate)
        if caller.project_id:
            log.bind(project_id=caller.project_id, key_id=caller.key_id)
        inputs = await _inputs(route, request, caller, limits)
        return _respond(route, await route.handler(Call(request, caller, services, route), **inputs))

    return handle


async def _admit(route: Route, request: web.Request, gate: auth.Gate) -> Caller:
    if route.access is Access.PUSH:
        await request.app[pushers.PUSHERS].admit(request)
        return Caller()
    return await gate.admit(request, route)


async def _inputs(route: Route, request: web.Request, caller: Caller, limits: ApiSettings) -> dict[str, Any]:
    """The handler's arguments. Whose project it is comes before what was sent."""
    inputs: dict[str, Any] = {}
    if route.variables:
        inputs["path"] = reading.path(request, route.variables)
    if route.access is Access.OWNER:
        auth.check_owner(caller, inputs["path"].project_id)
    # Whoever let the caller in has read it.
    besides = auth.PROJECT_PARAMETER if request.query_string and route.project_in_query else ""
    if route.query:
        inputs["query"] = reading.query(request, route.query, besides)
    elif request.query_string:
        reading.query(request, Nothing, besides)
    if route.headers:
        inputs["headers"] = reading.headers(request, route.headers)
    if route.body and route.body_optional and not request.body_exists:
        inputs["body"] = route.body()
    elif route.body:
        # What has no length yet, or more than is read elsewhere, is read by a request that may be so large.
        if route.body_max_bytes and not 0 < (request.content_length or 0) <= request.client_max_size:
            request = request.clone(client_max_size=route.body_max_bytes)
        inputs["body"] = await reading.body(request, route.body, limits, headerless=route.headerless)
    return inputs


def _respond(route: Route, answer: BaseModel | web.StreamResponse | None) -> web.StreamResponse:
    match answer:
        case web.StreamResponse():
            return answer
        case BaseModel():
            return web.Response(status=route.status, body=answer.model_dump_json().encode(), content_type=JSON)
        case None:
            return web.Response(status=route.status)
