"""The platforms over HTTP: `/p/NUMBER/…` is one of them, `/_sim/NUMBER/…` creates and controls it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus

from aiohttp import BasicAuth, web
from pydantic import TypeAdapter, ValidationError

from sims.common import PageTable, add_lie, add_page, read_scenario
from sims.platforms import login
from sims.platforms.clock import MICRO
from sims.platforms.dialects.base import Reply, StandInRequest
from sims.platforms.gate import Mishap
from sims.platforms.platform import Platform
from sims.platforms.scenario import PlatformScenario

HOST = "127.0.0.1"


@dataclass
class Platforms:
    """All that one process plays, by number."""

    base: str = ""
    by_number: dict[str, Platform] = field(default_factory=dict)
    file: Path | None = None
    """Where the scenarios are kept, if they are."""

    def url(self, number: str) -> str:
        """The base address of a platform."""
        return f"{self.base}/p/{number}"

    def add(self, number: str, scenario: PlatformScenario) -> Platform:
        """Begin a platform, or begin it anew."""
        self.by_number[number] = Platform(scenario)
        return self.by_number[number]

    def load(self) -> None:
        """Begin each platform of the file again: the same orders by the same seed, up to the real time with a skew."""
        try:
            kept = _SCENARIOS.validate_json(self.file.read_bytes()) if self.file and self.file.exists() else {}
        except ValidationError as error:
            # Of another version, perhaps; without it the other stand-ins would not start either.
            sys.stderr.write(f"{self.file} is ignored: {error}\n")
            kept = {}
        for number, scenario in kept.items():
            self.add(number, scenario)

    def save(self) -> None:
        """Keep the scenarios of all platforms for the next start."""
        if self.file is None:
            return
        scenarios = {number: each.scenario for number, each in self.by_number.items()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        written = self.file.with_suffix(".new")
        written.write_bytes(_SCENARIOS.dump_json(scenarios, exclude_unset=True, indent=2))
        written.replace(self.file)

    def set_lying(self, lies: bool) -> None:
        """Begin or end to leave a row out of each page."""
        for platform in self.by_number.values():
            faults = platform.scenario.faults.model_copy(update={"drop_share": float(lies)})
            platform.set(platform.scenario.model_copy(update={"faults": faults}))

    def describe(self) -> list[PageTable]:
        """Return each platform for the page."""
        rows = [
            {
                "platform": number,
                "kind": each.scenario.kind,
                "address": self.url(number),
                "time": _now(each.market.tick()),
            }
            | {name: value for name, value in each.stats().items() if name not in ("calls", "late_most_seconds")}
            for number, each in self.by_number.items()
        ]
        newest = [
            PageTable(f"Orders of {number}, last changed first", _describe_newest(each))
            for number, each in self.by_number.items()
        ]
        return [PageTable("Platforms", rows), *newest]


_SCENARIOS = TypeAdapter(dict[str, PlatformScenario])
ORDERS_SHOWN = 20
PLATFORMS = web.AppKey("platforms", Platforms)


@asynccontextmanager
async def running_platforms(port: int = 0, file: Path | None = None) -> AsyncIterator[Platforms]:
    """Serve on 127.0.0.1; port 0 picks a free one. With a file, scenarios that are set over HTTP outlive a restart."""
    platforms = Platforms(file=file)
    platforms.load()
    app = web.Application()
    app[PLATFORMS] = platforms
    app.router.add_get("/stats", _all)
    app.router.add_route("*", "/p/{number}{path:/.*}", _play)
    app.router.add_put("/_sim/{number}", _begin)
    app.router.add_patch("/_sim/{number}", _set)
    app.router.add_post("/_sim/{number}/{deed:advance|run|freeze|create|modify}", _do)
    app.router.add_get("/_sim/{number}/{view:ledger|stats|now|times|credentials}", _look)
    add_page(app, "Order platforms", "Stand in for the platforms that orders come from.", platforms.describe)
    add_lie(app, platforms.set_lying)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        await site.start()
        host, bound_port = runner.addresses[0][:2]
        platforms.base = f"http://{host}:{bound_port}"
        yield platforms
    finally:
        await runner.cleanup()


async def _play(request: web.Request) -> web.StreamResponse:
    number = request.match_info["number"]
    platform = _platform(request)
    base = f"{request.app[PLATFORMS].base}/p/{number}"
    if request.match_info["path"] == login.PATH and request.method == "POST":
        return await _log_in(request, platform)
    sent = request.rel_url.raw_path.removeprefix(f"/p/{number}/")
    segments = [unquote(each) for each in sent.split("/")]
    asked = StandInRequest(request.match_info["path"], request.query, request.headers, base, segments)
    if platform.scenario.faults.slow_ms:
        await asyncio.sleep(platform.scenario.faults.slow_ms / 1_000)
    reply, mishap = platform.answer(asked)
    if mishap is Mishap.RESET:
        return await _broken_off(request, reply)
    return web.Response(body=reply.body, status=reply.status, headers=reply.headers)


async def _log_in(request: web.Request, platform: Platform) -> web.Response:
    form = dict(parse_qsl((await request.read()).decode()))
    if shown := request.headers.get("Authorization"):
        client = BasicAuth.decode(shown)
        form |= {"client_id": unquote_plus(client.login), "client_secret": unquote_plus(client.password)}
    await asyncio.sleep(platform.scenario.faults.login_slow_ms / 1_000)
    reply = platform.login.answer(form, platform.tokens, platform.scenario.faults)
    return web.Response(body=reply.body, status=reply.status, headers=reply.headers)


async def _broken_off(request: web.Request, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(headers={**reply.headers, "Content-Length": str(len(reply.body))})
    await response.prepare(request)
    await response.write(reply.body[: len(reply.body) // 2])
    if request.transport:
        request.transport.abort()
    return response


async def _begin(request: web.Request) -> web.Response:
    platforms, number = request.app[PLATFORMS], request.match_info["number"]
    platforms.add(number, await read_scenario(request, PlatformScenario))
    platforms.save()
    return web.json_response({"url": platforms.url(number)})


async def _set(request: web.Request) -> web.Response:
    platform, sent = _platform(request), await read_scenario(request, PlatformScenario)
    # What is not sent stays, above all the kind.
    platform.set(platform.scenario.model_copy(update={name: getattr(sent, name) for name in sent.model_fields_set}))
    request.app[PLATFORMS].save()
    return web.json_response({})


async def _do(request: web.Request) -> web.Response:
    market, query = _platform(request).market, request.query
    late_us = int(float(query.get("late_seconds", "0")) * MICRO)
    told: dict[str, Any] = {}
    match request.match_info["deed"]:
        case "advance":
            market.clock.advance(float(query["seconds"]))
        case "run":
            market.clock.run(float(query["speed"]))
        case "freeze":
            market.freeze()
        case "create":
            told = {"numbers": [market.create(market.now_us, late_us) for _ in range(int(query.get("count", "1")))]}
        case _:
            market.modify(int(query["number"]), market.now_us, late_us)
    market.tick()
    return web.json_response({**told, "now": _now(market.now_us)})


async def _look(request: web.Request) -> web.Response:
    platform = _platform(request)
    match request.match_info["view"]:
        case "ledger":
            seen: Any = platform.ledger()
        case "stats":
            seen = platform.stats()
        case "times":
            seen = platform.throttle.times
        case "credentials":
            seen = platform.credentials
        case _:
            seen = {"now": _now(platform.market.now_us)}
    return web.Response(body=json.dumps(seen).encode(), content_type="application/json")


async def _all(request: web.Request) -> web.Response:
    by_number = request.app[PLATFORMS].by_number
    return web.json_response({number: platform.stats() for number, platform in by_number.items()})


def _platform(request: web.Request) -> Platform:
    number = request.match_info["number"]
    try:
        return request.app[PLATFORMS].by_number[number]
    except KeyError:
        raise web.HTTPNotFound(text=f"There is no platform {number}. Make it with PUT /_sim/{number}.") from None


def _describe_newest(platform: Platform) -> list[dict[str, object]]:
    """Return the orders of a platform that changed last."""
    market = platform.market
    newest = market.descending(market.everything(), 0, ORDERS_SHOWN)
    ids = platform.ledger()["ids"]
    return [
        {
            "order": ids[number],
            "created": _now(market.created[number]),
            "modified": _now(market.shown.modified[number]),
            "version": market.shown.version[number],
        }
        for number in newest
    ]


def _now(now_us: int) -> str:
    return datetime.fromtimestamp(now_us / MICRO, UTC).isoformat()
