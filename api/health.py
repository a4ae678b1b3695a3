"""Health: ping, liveness, readiness and metrics."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from aiohttp import web

from api import components, gauges, overview
from api.http.models import Response
from api.http.problems import FieldProblem, RequestRejected
from api.http.routes import Call, RouteAccess, Routes
from domain import VERSION
from domain.faults import Paused
from infra import metrics, temporal

routes = Routes("health", "Liveness, readiness and metrics.")


class PingResponse(Response):
    """The service and its version; `code` and `msg` are for clients of flowSvr, which expect them everywhere."""

    code: Literal[0] = 0
    msg: Literal["SUCCESS"] = "SUCCESS"
    service: Literal["haulage"] = "haulage"
    version: str = VERSION


class LivenessResponse(Response):
    """The process answers."""

    status: Literal["ok"] = "ok"


_PING = PingResponse()
_ALIVE = LivenessResponse()


class ReadinessResponse(Response):
    """Every component answers and can be written."""

    components: dict[str, Literal["ok"]]


@routes.get("/v1/ping", access=RouteAccess.PUBLIC)
async def ping(_call: Call) -> PingResponse:
    """Return the name and version of the service."""
    return _PING


@routes.get("/livez", access=RouteAccess.PUBLIC)
async def check_liveness(_call: Call) -> LivenessResponse:
    """Return 200 while the process is alive.

    It checks no other component: restart the process when this fails.
    """
    return _ALIVE


@routes.get("/readyz", access=RouteAccess.PUBLIC, problems={"not_ready": Paused})
async def check_readiness(call: Call) -> ReadinessResponse:
    """Return 200 while every component answers and can be written.

    The problem `not_ready` (503) names each component that does not serve, with what is wrong (it does not answer, has
    no space left, or takes no writes) and since when this process has found it so. Send requests elsewhere meanwhile.
    """
    health = await components.measure_health_of_all(call.services)
    down = [each for each in health if not each.ok]
    if not down:
        return ReadinessResponse(components={each.name: "ok" for each in health})
    raise RequestRejected(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "not_ready",
        f"These components do not serve: {', '.join(each.name for each in down)}.",
        "`errors` says what is wrong with each; run `haulage doctor`.",
        errors=[
            FieldProblem(path=each.name, message=f"{each.problem} Since {each.down_since:%Y-%m-%d %H:%M:%S} UTC.")
            for each in down
        ],
    )


@routes.get("/metrics", access=RouteAccess.PUBLIC, media_type="text/plain")
async def read_metrics(call: Call) -> web.Response:
    """Read the metrics of this process in the Prometheus text format, and gauges of the whole installation."""
    # An API that serves some routes only, as in tests, has no overview.
    if overview.CONTEXT in call.request.app:
        await gauges.update_installation_gauges(call.request.app)
    return web.Response(
        body=await metrics.render_metrics(temporal.get_or_create_sdk_runtime().address),
        content_type="text/plain",
        charset="utf-8",
    )
