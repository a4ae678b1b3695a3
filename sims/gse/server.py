"""A stand-in GSE over HTTP: the four calls behind their gateway, and `/_sim/…` to set faults and read counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from aiohttp import web

from sims.common import PageTable, add_lie, add_page, answer_line, read_scenario
from sims.gse import orders
from sims.gse.orders import GseCallRefused
from sims.gse.scenario import CALL_ACTIONS, GseAction, GseCall, GseRule, GseScenario
from sims.gse.world import GseWorld

HOST = "127.0.0.1"
BODY_MAX_BYTES = 40 * 1024 * 1024
PATHS = {
    GseCall.TRANSFER: "/api/v2/task/extensions/async_transfer_file",
    GseCall.RESULTS: "/api/v2/task/extensions/get_transfer_file_result",
    GseCall.TERMINATE: "/api/v2/task/extensions/async_terminate_transfer_file",
    GseCall.STATES: "/api/v2/cluster/list_agent_state",
}
WORLD = web.AppKey("world", GseWorld)

ANSWERED_INSTEAD = CALL_ACTIONS - {GseAction.SLOW, GseAction.DROP, GseAction.FORGET}
"""Faults after which nothing was done."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def running_gse(world: GseWorld, port: int = 0) -> AsyncIterator[str]:
    """Serve a world on 127.0.0.1 and yield the address; port 0 picks a free one. The world survives the server."""
    app = web.Application(client_max_size=BODY_MAX_BYTES)
    app[WORLD] = world
    for call, path in PATHS.items():
        app.router.add_post(path, _handler(call))
    app.router.add_put("/_sim/scenario", _set_scenario)
    app.router.add_post("/_sim/{deed:restart|clear|advance}", _do)
    app.router.add_get("/_sim/{view:stats|tasks|targets}", _look)
    text = "Stands in for the agents of hosts, and for the service that sends files to them."
    add_page(app, "GSE", text, lambda: _describe(world))
    add_lie(app, world.set_lying)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=True)
    await runner.setup()
    time_passes = asyncio.create_task(world.run())
    try:
        await web.TCPSite(runner, HOST, port).start()
        host, bound_port = runner.addresses[0][:2]
        yield f"http://{host}:{bound_port}"
    finally:
        time_passes.cancel()
        with suppress(asyncio.CancelledError):
            await time_passes
        await runner.cleanup()


def _describe(world: GseWorld) -> list[PageTable]:
    """Return counts, tasks and hosts for the page."""
    stats = orders.build_stats(world)
    counts = {name: value for name, value in stats.items() if name != "calls"} | stats["calls"]
    tasks = [
        {"task": each["task_id"], "targets": each["targets"], "file": each["source"]}
        for each in orders.list_tasks(world)
    ]
    hosts = [
        {
            "host": f"{spot.agent} {spot.container}",
            "file": f"{spot.folder}/{spot.name}",
            "sent": count,
            "received": world.received[spot],
        }
        for spot, count in world.sends.items()
    ]
    return [PageTable("Counts", [counts]), PageTable("Tasks", tasks), PageTable("Hosts", hosts)]


def _handler(call: GseCall) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer_call(request, request.app[WORLD], call)

    return handle


async def answer_call(request: web.Request, world: GseWorld, call: GseCall) -> web.StreamResponse:
    """Answer one request from a world."""
    world.calls[call] += 1
    rule = world.fault(call)
    if rule and rule.action in ANSWERED_INSTEAD:
        return _faulty(request, rule)
    if rule and rule.action is GseAction.FORGET:
        world.forget(await _parse_task_id(request))
    answer = await _answer(request, world, call)
    if rule and rule.action is GseAction.SLOW:
        await asyncio.sleep(rule.seconds)
    if rule and rule.action is GseAction.DROP:
        return _cut(request)
    return await _answer_with_task(request, world, answer) if call is GseCall.TRANSFER else answer


async def _parse_task_id(request: web.Request) -> str:
    body = msgspec.json.decode(await request.read())
    return str(body["task_id"])


async def _answer_with_task(request: web.Request, world: GseWorld, answer: web.Response) -> web.Response:
    """Answer, and note on the task that the caller received its id, unless the caller is gone."""
    await answer.prepare(request)
    await answer.write_eof()
    data = msgspec.json.decode(answer.body if isinstance(answer.body, bytes) else b"{}").get("data") or {}
    if (task := world.tasks.get(data.get("result", {}).get("task_id", ""))) and not _is_gone(request):
        task.told_at = time.time()
    return answer


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _answer(request: web.Request, world: GseWorld, call: GseCall) -> web.Response:
    if refusal := _build_refusal(request, world):
        return refusal
    try:
        body = msgspec.json.decode(await request.read())
        return _build_answer(0, "", orders.execute_call(world, call, body))
    except web.HTTPRequestEntityTooLarge:
        return _gateway(413, 1641301, "the body is too large")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _gateway(400, 1640001, "the body is no JSON")
    except GseCallRefused as error:
        return _build_answer(error.code, str(error), None)


def _build_refusal(request: web.Request, world: GseWorld) -> web.Response | None:
    """What the gateway has against a caller."""
    scenario = world.scenario
    try:
        keys = msgspec.json.decode(request.headers["X-Bkapi-Authorization"])
        code, secret = keys["bk_app_code"], keys["bk_app_secret"]
    except (KeyError, TypeError, msgspec.DecodeError):
        code = secret = None
    if not code or not secret:
        world.refused_keys += 1
        return _gateway(400, 1640001, "bk_app_code and bk_app_secret must stand in X-Bkapi-Authorization")
    if scenario.app_code and (code, secret) != (scenario.app_code, scenario.app_secret):
        world.refused_keys += 1
        return _gateway(401, 1640101, "app verification failed")
    if scenario.tenant_id and request.headers.get("X-Bk-Tenant-Id") != scenario.tenant_id:
        return _gateway(403, 1640302, "cross-tenant calls are forbidden")
    return None


def _faulty(request: web.Request, rule: GseRule) -> web.StreamResponse:
    match rule.action:
        case GseAction.STATUS:
            return _gateway(rule.status, int(rule.code), rule.message or "ordered fault")
        case GseAction.HTML:
            return web.Response(status=rule.status, content_type="text/html", text="<html><h1>Bad Gateway</h1></html>")
        case GseAction.RATE_LIMIT:
            answer = _gateway(429, 1642902, "rate limit exceeded")
            answer.headers["X-Bkapi-RateLimit-Reset"] = str(int(rule.seconds))
            return answer
        case GseAction.REFUSE:
            return _build_answer(int(rule.code), rule.message or "ordered fault", None)
        case GseAction.NO_CODE:
            return web.json_response({"message": "", "data": {"result": {"task_id": "no-code"}}})
        case GseAction.NO_TASK_ID:
            return _build_answer(0, "", {"result": {"task_id": ""}})
        case GseAction.IGNORE:
            return _build_answer(0, "", {"result": {"task_id": "ignored"}})
        case _:
            return _cut(request)


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport:
        request.transport.abort()
    return web.Response()


def _gateway(status: int, code: int, message: str) -> web.Response:
    body = {"code_name": "SIMULATED", "code": code, "message": message, "result": False, "data": None}
    return web.json_response(body, status=status, headers={"X-Bkapi-Error-Code": str(code)})


def _build_answer(code: int, message: str, data: Any) -> web.Response:
    body = msgspec.json.encode({"code": code, "message": message, "data": data})
    return web.Response(body=body, content_type="application/json", headers={"X-Bkapi-Request-Id": "simulated"})


async def _set_scenario(request: web.Request) -> web.Response:
    request.app[WORLD].set(await read_scenario(request, GseScenario))
    return answer_line({})


async def _do(request: web.Request) -> web.Response:
    world = request.app[WORLD]
    match request.match_info["deed"]:
        case "restart":
            world.restart()
        case "clear":
            world.clear()
        case _:
            await world.advance(float(request.query["seconds"]))
    return answer_line({})


async def _look(request: web.Request) -> web.Response:
    world = request.app[WORLD]
    match request.match_info["view"]:
        case "stats":
            seen: object = orders.build_stats(world)
        case "tasks":
            seen = orders.list_tasks(world)
        case _:
            seen = orders.list_targets(world)
    return web.Response(body=msgspec.json.encode(seen), content_type="application/json")
