"""What surrounds each request: its id, time limit, log line and metric, problems instead of tracebacks, and headers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import cache, lru_cache
from http import HTTPStatus
from typing import Any, TypeAlias

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler
from aiohttp.web_urldispatcher import UrlMappingMatchInfo
from multidict import CIMultiDict, istr
from prometheus_client import Counter, Histogram

from api.http import problems
from api.http.deadlines import DeadlineQueue
from api.http.routes import JSON, REQUEST_STATE, RequestState
from domain.quotas import QUOTA_EXCEEDED
from infra import log, secrets, tracing

REQUEST_ID_HEADER = istr("X-Request-Id")
UNROUTED = "none"
QUOTA_PAUSE_SECONDS = 1.0
"""How long a request beyond a quota waits for its answer: a caller that repeats it at once would cost as much as one
that is served."""
REQUESTS = Histogram("haulage_request_seconds", "Time a request took, by route and status.", ["route", "status"])
REFUSALS = Counter(
    "haulage_request_refusals", "Requests that were refused or failed, by route and problem code.", ["route", "code"]
)

_REQUEST_ID = re.compile(r"[0-9A-Za-z._:-]{8,64}")

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


RequestHandler: TypeAlias = Callable[[Any], Awaitable[web.StreamResponse]]
DEADLINES = web.AppKey("deadlines", DeadlineQueue)
_NOT_ROUTED = (web.HTTPNotFound, web.HTTPMethodNotAllowed)


def wrap_handler_with_deadline_and_problems(handle: RequestHandler, app: web.Application) -> RequestHandler:
    """Return a handler that surrounds an application's; every exception of a route becomes a problem.

    aiohttp's own middlewares cost several calls each for every request; this is one. A path without variables is looked
    up in a table instead of searched for.

    Args:
        handle: Finds the route of a request and calls it.
        app: The application, whose `DEADLINES` end requests that take too long or wait for a component that hangs.
    """
    deadlines = app[DEADLINES]
    matches = {} if app.middlewares else index_paths_without_variables(app)

    async def handle_request(request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        state = request[REQUEST_STATE] = RequestState(read_or_create_request_id(request), deadlines.start_deadline())
        log.bind(request_id=state.id)
        try:
            with state.deadline:
                match = matches.get((request.method, request.raw_path))
                if match is None or hdrs.EXPECT in request.headers:
                    response = await handle(request)
                else:
                    request._match_info = match  # as aiohttp does once it has searched
                    response = await match.handler(request)
        except Exception as error:
            if state.route is None and not isinstance(error, _NOT_ROUTED):
                del request[REQUEST_STATE]
                raise  # before a route was looked for: the server's own answer says what is wrong with the request
            response = (
                _abort_connection(error, request, state.response)
                if state.response
                else _log_and_render_error(error, state)
            )
        _record_metrics_and_log(state, response, time.perf_counter() - started)
        if state.code == QUOTA_EXCEEDED:
            await asyncio.sleep(QUOTA_PAUSE_SECONDS)
        return response

    return handle_request


def index_paths_without_variables(app: web.Application) -> dict[tuple[str, str], UrlMappingMatchInfo]:
    """Return what aiohttp would find for each path without variables, by method and path."""
    matches = {}
    for route in app.router.routes():
        if isinstance(route.resource, web.PlainResource):
            match = matches[route.method, route.resource.canonical] = UrlMappingMatchInfo({}, route)
            match.add_app(app)
            match.freeze()
    return matches


@web.middleware
async def trace_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Trace a request; only a process with a collector has this middleware."""
    with tracing.trace_request(request.method, request.match_info.route.resource, request.headers):
        return await handler(request)


class JsonResponse(web.Response):
    """A response of JSON, whose head is not built anew for each unless something else sets headers, too."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status=status, body=body, content_type=JSON)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send head and body at once where the head is that of most responses; see base class."""
        state = request.get(REQUEST_STATE)
        if (
            state is None
            or state.headers
            or len(self.headers) != 1
            or self.keep_alive is not None
            or request.version != HttpVersion11
            or not request.keep_alive
            or request.method == hdrs.METH_HEAD
            or not isinstance(self.body, bytes)
            or not isinstance(request, web.Request)
            or any(len(app.on_response_prepare) > 1 for app in request.match_info.apps)
        ):
            return await super().prepare(request)
        state.response = self
        self._keep_alive = True
        self._eof_sent = True
        lines = f"{len(self.body)}\r\nDate: {_format_http_date(int(time.time()))}\r\nX-Request-Id: {state.id}\r\n\r\n"
        await request.writer.write(b"".join((_encode_response_head(self.status), lines.encode("ascii"), self.body)))
        return None


async def set_response_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every response; aiohttp calls this just before it is sent."""
    state = request.get(REQUEST_STATE)
    if state is None:
        return  # aiohttp refused the request before the middleware; the server dresses its own response.
    state.response = response
    response.headers[REQUEST_ID_HEADER] = state.id
    if state.headers:
        response.headers.update(state.headers)
    add_security_headers_and_remove_server_name(response.headers)


def add_security_headers_and_remove_server_name(headers: CIMultiDict[str]) -> None:
    """Add the security headers and remove the name of the server."""
    headers.merge(SECURITY_HEADERS)
    headers.popall(hdrs.SERVER, None)


def read_or_create_request_id(request: web.BaseRequest) -> str:
    """Return the caller's request id if it is well-formed, else a new one."""
    given = request.headers.get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.create_random_token()


@cache
def _encode_response_head(status: int) -> bytes:
    """Return the head of a JSON response up to the value of Content-Length."""
    headers = {hdrs.CONTENT_TYPE: JSON, **SECURITY_HEADERS}
    lines = [
        f"HTTP/1.1 {status} {problems.get_phrase(HTTPStatus(status))}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "Content-Length: "]).encode("ascii")


@lru_cache(maxsize=2)
def _format_http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _log_and_render_error(error: Exception, state: RequestState) -> web.StreamResponse:
    problem = problems.convert_error_to_problem(error, state.id)
    state.code = problem.code
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request_failed", exc_info=error)
    elif problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log.warning("component_unavailable", error=repr(error))
    response = state.route.render(problem) if state.route else problems.render_problem(problem)
    if isinstance(error, web.HTTPMethodNotAllowed):
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _abort_connection(error: Exception, request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection: a response in progress cannot become a problem, and must not look complete."""
    if isinstance(error, ConnectionError):
        _log.info("caller_disconnected")
    else:
        _log.error("response_aborted", exc_info=error)
    if request.transport is not None:
        request.transport.abort()
    return response


def _record_metrics_and_log(state: RequestState, response: web.StreamResponse, seconds: float) -> None:
    name = state.route.name if state.route else UNROUTED
    status = response.status
    _get_request_histogram(name, status).observe(seconds)
    milliseconds = round(seconds * 1000, 1)
    # The path's template, never the address: a query may carry secrets.
    if not state.code:
        _log.info("request_served", route=name, status=status, milliseconds=milliseconds)
        return
    # The routes of tasks answer a refusal with 200, as flowSvr does: the code alone says that it was one.
    _get_refusal_counter(name, state.code).inc()
    _log.info("request_served", route=name, status=status, milliseconds=milliseconds, code=state.code)


@cache
def _get_refusal_counter(route: str, code: str) -> Counter:
    return REFUSALS.labels(route, code)


@cache
def _get_request_histogram(route: str, status: int) -> Histogram:
    return REQUESTS.labels(route, str(status))
