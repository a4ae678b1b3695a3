"""Middleware around every request: its id, time limit, log line and metric, and problems instead of tracebacks."""

from __future__ import annotations

import asyncio
import re
import time
from functools import cache
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict, istr
from prometheus_client import Counter, Histogram

from api.http import problems
from api.http.deadlines import DeadlineQueue, FindHanging
from api.http.routes import REQUEST_STATE, RequestState
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


def build_middleware(time_limit_seconds: float, find_hanging: FindHanging) -> Middleware:
    """Return the outermost middleware; every exception that reaches it becomes a problem.

    Args:
        time_limit_seconds: How long a request may take.
        find_hanging: Returns a component that hangs: requests that wait for it are answered at once.
    """
    deadlines = DeadlineQueue(time_limit_seconds, find_hanging)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        state = request[REQUEST_STATE] = RequestState(read_or_create_request_id(request), deadlines.start_deadline())
        log.bind(request_id=state.id)
        try:
            resource = request.match_info.route.resource
            with state.deadline, tracing.trace_request(request.method, resource, request.headers):
                response = await handler(request)
        except Exception as error:  # noqa: BLE001 (the last catch before the wire)
            response = (
                _abort_connection(error, request, state.response)
                if state.response
                else _log_and_render_error(error, state)
            )
        _record_metrics_and_log(state, response, time.perf_counter() - started)
        if state.code == QUOTA_EXCEEDED:
            await asyncio.sleep(QUOTA_PAUSE_SECONDS)
        return response

    return middleware


async def set_response_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every response; aiohttp calls this just before it is sent."""
    state = request.get(REQUEST_STATE)
    if state is None:
        return  # aiohttp refused the request before the middleware; the server dresses its own response.
    state.response = response
    response.headers[REQUEST_ID_HEADER] = state.id
    if state.headers:
        response.headers.update(state.headers)
    set_security_headers(response.headers)


def set_security_headers(headers: CIMultiDict[str]) -> None:
    """Add the security headers and remove the name of the server."""
    headers.merge(SECURITY_HEADERS)
    headers.popall(hdrs.SERVER, None)


def read_or_create_request_id(request: web.BaseRequest) -> str:
    """Return the caller's request id if it is well-formed, else a new one."""
    given = request.headers.get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.create_random_token()


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


def _abort_connection(error: Exception, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
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
    _get_request_histogram(name, response.status).observe(seconds)
    refused = {}
    if state.code:
        # The routes of tasks answer a refusal with 200, as flowSvr does: the code alone says that it was one.
        _get_refusal_counter(name, state.code).inc()
        refused = {"code": state.code}
    # The path's template, never the address: a query may carry secrets.
    _log.info("request_served", route=name, status=response.status, milliseconds=round(seconds * 1000, 1), **refused)


@cache
def _get_refusal_counter(route: str, code: str) -> Counter:
    return REFUSALS.labels(route, code)


@cache
def _get_request_histogram(route: str, status: int) -> Histogram:
    return REQUESTS.labels(route, str(status))
