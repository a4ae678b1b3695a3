"""The listening server: aiohttp's own, with limits on idle connections and problems for what is not even HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from api.http import middleware, problems
from infra import log
from infra.settings import ApiSettings

LINGERING_SECONDS = 10.0  # how long an unread body is drained, so that its sender still sees our answer
SHUTDOWN_SECONDS = 10.0  # how long requests under way may take to finish


@asynccontextmanager
async def open_server(app: web.Application, settings: ApiSettings) -> AsyncIterator[list[str]]:
    """Serve until the block ends, then let requests under way finish.

    Gives the base address, and the process' own where others share the first. Port 0 picks one.
    """
    runner = _Runner(
        app,
        access_log=None,
        # aiohttp would leave an idle connection open for 3,630 s.
        keepalive_timeout=settings.keepalive_seconds,
        lingering_time=LINGERING_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        # A compressed body is refused by its header, not unpacked.
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


class _Runner(web.AppRunner):
    """Builds connections of our own kind."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(server.request_handler, request_factory=server.request_factory, **self._kwargs)


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    """A connection whose last-resort errors are problems, and whose refusals reach a caller that is still sending."""

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response; if it refuses a body that is still coming, end our side of the connection with it.

        Closing both sides resets the connection, and the reset may overtake the response. So the caller reads the
        response and the end, while what it still sends is drained for `LINGERING_SECONDS`.
        """
        is_refusal = resp.status >= HTTPStatus.BAD_REQUEST and not request.content.is_eof()
        if is_refusal:
            resp.force_close()
        sent = await super().finish_response(request, resp, start_time)
        if is_refusal and self.transport and not self.transport.is_closing():
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
            raise ConnectionError("an answer is already on its way") from exc
        request_id = middleware.get_request_id(request)
        log.get(__name__).warning("request_unreadable", request_id=request_id, status=status, error=repr(exc))
        detail = "The request is not well-formed HTTP. Check its first line, its headers and their length."
        response = _Bare(problems.build_problem(HTTPStatus(status), "malformed_request", detail, request_id))
        response.headers[middleware.REQUEST_ID_HEADER] = request_id
        response.force_close()
        return response


class _Bare(web.Response):
    """An answer to no request: aiohttp runs no signal for it, so it dresses itself."""

    def __init__(self, problem: problems.Problem) -> None:
        body = problem.model_dump_json().encode()
        super().__init__(status=problem.status, body=body, content_type=problems.MEDIA_TYPE)

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        middleware.set_security_headers(self.headers)
