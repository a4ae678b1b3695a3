"""The HTTP server: aiohttp's, with limits on idle connections, and problems for requests that are not HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.web_protocol import RequestHandler

from api.http import middleware, problems
from infra import log
from infra.settings import ApiSettings
from infra.stopping import REQUEST_SHUTDOWN_SECONDS

LINGERING_SECONDS = 10.0  # how long an unread body is drained, so that its sender gets the response


@asynccontextmanager
async def open_server(app: web.Application, settings: ApiSettings) -> AsyncIterator[list[str]]:
    """Serve while the block runs, then let requests in progress finish.

    Yields the base address, and the process' own if other processes share the first. Port 0 picks a free one.
    """
    runner = _ProblemAnsweringAppRunner(
        app,
        access_log=None,
        # aiohttp's default keeps an idle connection open for 3,630 s.
        keepalive_timeout=settings.keepalive_seconds,
        lingering_time=LINGERING_SECONDS,
        shutdown_timeout=REQUEST_SHUTDOWN_SECONDS,
        # A compressed body is rejected by its header.
        auto_decompress=False,
    )
    await runner.setup()
    try:
        shared = settings.own_port is not None
        await web.TCPSite(runner, settings.host, settings.port, reuse_port=shared).start()
        if shared:
            await web.TCPSite(runner, settings.host, settings.own_port).start()
        yield [f"http://{host}:{port}" for host, port, *_ in runner.addresses]
    finally:
        await runner.cleanup()


def build_continue_handler(body_max_bytes: int) -> Callable[[web.Request], Awaitable[None]]:
    """Return the handler of `Expect`: a body that will be refused for its length is not asked for."""

    async def answer_expect_continue_or_refuse_large_body(request: web.Request) -> None:
        if request.version < HttpVersion11:
            return
        if request.headers.get(hdrs.EXPECT, "").lower() != "100-continue":
            raise web.HTTPExpectationFailed
        if (request.content_length or 0) <= body_max_bytes:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # The response has not begun: aiohttp takes what was written for a part of it.
            request.writer.output_size = 0

    return answer_expect_continue_or_refuse_large_body


class _ProblemAnsweringAppRunner(web.AppRunner):
    """Creates connections of class `_ProblemAnsweringAndHalfClosingConnection`, and surrounds every request."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        handle = middleware.wrap_handler_with_deadline_and_problems(server.request_handler, self.app)
        return _ProblemAnsweringServer(handle, request_factory=server.request_factory, **self._kwargs)


class _ProblemAnsweringServer(web.Server):
    def __call__(self) -> RequestHandler:
        return _ProblemAnsweringAndHalfClosingConnection(self, loop=self._loop, **self._kwargs)


class _ProblemAnsweringAndHalfClosingConnection(RequestHandler):
    """A connection that answers malformed HTTP with problems, and sends errors to callers that are still sending."""

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response; if it rejects a body that is still arriving, close only the sending side.

        Closing both sides resets the connection, and the reset may overtake the response. So the caller reads the
        response and its end, while the rest of the body is drained for `LINGERING_SECONDS`.
        """
        if isinstance(resp, web.HTTPExpectationFailed):
            # aiohttp refuses an unknown `Expect` before the middleware, which would make a problem of it.
            resp = self.handle_error(request, resp.status, resp)
        is_rejection = resp.status >= HTTPStatus.BAD_REQUEST and not request.content.is_eof()
        if is_rejection:
            resp.force_close()
        sent = await super().finish_response(request, resp, start_time)
        if is_rejection and self.transport and not self.transport.is_closing():
            self.transport.write_eof()
        return sent

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """See base class."""
        if request.writer.output_size > 0:
            raise ConnectionError("a response is already being sent") from exc
        if isinstance(exc, UnicodeError):
            status = HTTPStatus.BAD_REQUEST  # aiohttp failed to quote an `Expect` that is no text.
        request_id = middleware.read_or_create_request_id(request)
        log.get(__name__).warning("request_unreadable", request_id=request_id, status=status, error=repr(exc))
        detail = "The request is not well-formed HTTP. Check its first line, its headers and their length."
        response = _ProblemResponseWithoutRequest(
            problems.build_problem(HTTPStatus(status), "malformed_request", detail, request_id)
        )
        response.headers[middleware.REQUEST_ID_HEADER] = request_id
        response.force_close()
        return response


class _ProblemResponseWithoutRequest(web.Response):
    """A response without a request: aiohttp runs no signal for it, so it sets the headers itself."""

    def __init__(self, problem: problems.Problem) -> None:
        body = problem.model_dump_json().encode()
        super().__init__(status=problem.status, body=body, content_type=problems.MEDIA_TYPE)

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        middleware.add_security_headers_and_remove_server_name(self.headers)
