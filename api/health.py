"""Health: is the process alive, can it serve, what are its figures."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from aiohttp import web

from api.http.models import Response
from api.http.problems import FieldProblem, RequestRejected
from api.http.routes import Access, Call, Routes
from domain import VERSION
from infra import metrics, temporal

routes = Routes("health", "Whether the service lives, and how it does.")


class Pong(Response):
    """Who answers; `code` and `msg` are for callers of flowSvr's routes, who look for them in every answer."""

    code: Literal[0] = 0
    msg: Literal["SUCCESS"] = "SUCCESS"
    service: Literal["haulage"] = "haulage"
    version: str = VERSION


class Alive(Response):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(Response):
    """Every part answers."""

    parts: dict[str, Literal["ok"]]


@routes.get("/v1/ping", access=Access.PUBLIC)
async def ping(_call: Call) -> Pong:
    """Say who answers."""
    return Pong()


@routes.get("/livez", access=Access.PUBLIC)
async def live(_call: Call) -> Alive:
    """Tell whether the process lives.

    It asks no other part: restart the process when this fails.
    """
    return Alive()


@routes.get("/readyz", access=Access.PUBLIC)
async def ready(call: Call) -> Ready:
    """Tell whether every part answers.

    The problem `not_ready` (503) names each part that does not: send requests elsewhere meanwhile.
    """
    failing = await call.services.failing()
    if not any(failing.values()):
        return Ready(parts=dict.fromkeys(failing, "ok"))
    down = [part for part, fails in failing.items() if fails]
    raise RequestRejected(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "not_ready",
        f"These parts do not answer: {', '.join(down)}.",
        "Start them, or run `haulage doctor`.",
        errors=[FieldProblem(path=part, message="it does not answer.") for part in down],
    )


@routes.get("/metrics", access=Access.PUBLIC, media_type="text/plain")
async def figures(_call: Call) -> web.Response:
    """Read this process's figures, in Prometheus' text format."""
    return web.Response(
        body=await metrics.page(temporal.telemetry().address), content_type="text/plain", charset="utf-8"
    )
