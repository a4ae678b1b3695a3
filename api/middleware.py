"""Around every request: its id, its time limit, one log line, one figure, and problems instead of tracebacks."""

from __future__ import annotations

import re
import time
from functools import cache
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict, istr
from prometheus_client import Histogram

from api import problems
from api.deadlines import Deadlines
from api.routes import VISIT, Visit
from infra import log, tokens

REQUEST_ID_HEADER = istr("X-Request-Id")
UNROUTED = "none"
REQUESTS = Histogram("haulage_request_seconds", "Time a request took, by route and status.", ["route", "status"])

_SANE_REQUEST_ID = re.compile(r"[0-9A-Za-z._:-]{8,64}")

_log = log.get(__name__)

SECURITY_HEADERS = CIMultiDict(
    {
        "Cache-Control": "no-store",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)


def door(time_limit_seconds: float) -> Middleware:
    """The outermost middleware; nothing that goes wrong inside leaves as anything but a problem."""
    deadlines = Deadlines(time_limit_seconds)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        visit = request[VISIT] = Visit(id_of(request), deadlines.begin())
        log.bind(request_id=visit.id)
        try:
            with visit.deadline:
                response = await handler(request)
        except Exception as error:  # noqa: BLE001 (the last catch before the wire)
            response = _broken_off(error, request, visit.begun) if visit.begun else _shown(error, visit)
        _note(visit, response, time.perf_counter() - started)
        return response

    return middleware


async def dress(request: web.Request, response: web.StreamResponse) -> None:
    """The signal that dresses every answer just before it is sent."""
    visit = request[VISIT]
    visit.begun = response
    response.headers[REQUEST_ID_HEADER] = visit.id
    if visit.headers:
        response.headers.update(visit.headers)
    dress_headers(response.headers)


def dress_headers(headers: CIMultiDict[str]) -> None:
    """Put the security headers on and take the server's name off."""
    headers.merge(SECURITY_HEADERS)
    headers.popall(hdrs.SERVER, None)


def id_of(request: web.BaseRequest) -> str:
    """The caller's request id where it is sane, else a new one."""
    given = request.headers.get(REQUEST_ID_HEADER, "")
    return given if _SANE_REQUEST_ID.fullmatch(given) else tokens.token()


def _shown(error: Exception, visit: Visit) -> web.StreamResponse:
    problem = problems.of(error, visit.id)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request_failed", exc_info=error)
    elif problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log.warning("part_unavailable", error=repr(error))
    response = visit.route.render(problem) if visit.route else problems.respond(problem)
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


def _note(visit: Visit, response: web.StreamResponse, seconds: float) -> None:
    name = visit.route.name if visit.route else UNROUTED
    _figure(name, response.status).observe(seconds)
    # The path's template, never the address itself: a query may carry what no log should hold.
    _log.info("request_served", route=name, status=response.status, milliseconds=round(seconds * 1000, 1))


@cache
def _figure(route: str, status: int) -> Histogram:
    return REQUESTS.labels(route, str(status))
