"""Around every request: its id, its time limit, one log line, one figure, and problems instead of tracebacks."""

from __future__ import annotations

import re
import time
from functools import cache
from http import HTTPStatus

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict
from prometheus_client import Histogram

from api import problems
from api.deadlines import Deadlines
from api.routes import DEADLINE, Route
from infra import log, tokens

ROUTE = web.RequestKey("route", Route)
BEGUN = web.RequestKey("begun", web.StreamResponse)
REQUEST_ID = web.RequestKey("request_id", str)
HEADERS = web.RequestKey("headers", dict[str, str])
"""What a handler wants told in the headers, whether its answer is a result or a problem."""
REQUEST_ID_HEADER = "X-Request-Id"
UNROUTED = "none"
REQUESTS = Histogram("haulage_request_seconds", "Time a request took, by route and status.", ["route", "status"])

_SANE_REQUEST_ID = re.compile(r"[0-9A-Za-z._:-]{8,64}")

_log = log.get(__name__)

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def door(time_limit_seconds: float) -> Middleware:
    """The outermost middleware; nothing that goes wrong inside leaves as anything but a problem."""
    deadlines = Deadlines(time_limit_seconds)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        request_id = request[REQUEST_ID] = id_of(request)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            with deadlines.begin() as request[DEADLINE]:
                response = await handler(request)
        except Exception as error:  # noqa: BLE001 (the last catch before the wire)
            begun = request.get(BEGUN)
            response = _broken_off(error, request, begun) if begun else _shown(error, request, request_id)
        _note(request, response, time.perf_counter() - started)
        return response

    return middleware


async def dress(request: web.Request, response: web.StreamResponse) -> None:
    """The signal that dresses every answer just before it is sent."""
    request[BEGUN] = response
    response.headers[REQUEST_ID_HEADER] = request[REQUEST_ID]
    response.headers.update(request.get(HEADERS, {}))
    dress_headers(response.headers)


def dress_headers(headers: CIMultiDict[str]) -> None:
    """Put the security headers on and take the server's name off."""
    headers.merge(SECURITY_HEADERS)
    headers.popall("Server", None)


def id_of(request: web.BaseRequest) -> str:
    """The caller's request id where it is sane, else a new one."""
    given = request.headers.get(REQUEST_ID_HEADER, "")
    return given if _SANE_REQUEST_ID.fullmatch(given) else tokens.token()


def _shown(error: Exception, request: web.Request, request_id: str) -> web.StreamResponse:
    problem = problems.of(error, request_id)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request_failed", exc_info=error)
    elif problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log.warning("part_unavailable", error=repr(error))
    route = request.get(ROUTE)
    response = route.render(problem) if route else problems.respond(problem)
    if isinstance(error, web.HTTPMethodNotAllowed):
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _broken_off(error: Exception, request: web.Request, begun: web.StreamResponse) -> web.StreamResponse:
    """An answer on its way cannot become a problem: it is cut, so that nobody takes half of it for the whole."""
    if isinstance(error, ConnectionError):
        _log.info("caller_gone")
    else:
        _log.error("answer_cut", exc_info=error)
    if request.transport is not None:
        request.transport.abort()
    return begun


def _note(request: web.Request, response: web.StreamResponse, seconds: float) -> None:
    route = request.get(ROUTE)
    name = route.name if route else UNROUTED
    _figure(name, response.status).observe(seconds)
    # The path's template, never the address itself: a query may carry what no log should hold.
    _log.info("request_served", route=name, status=response.status, milliseconds=round(seconds * 1000, 1))


@cache
def _figure(route: str, status: int) -> Histogram:
    return REQUESTS.labels(route, str(status))
