"""The modules over HTTP: `/ed`, `/im`, `/wfm` and `/od` hold the contract, `/_sim/…` orders faults and looks inside."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from sims.common import PageTable, add_lie, add_page, read_scenario
from sims.oss.module import OssCall, OssModule
from sims.oss.scenario import MODULES, OssAction, OssRule, OssScenario

HOST = "127.0.0.1"
TOKEN = "token-of-modules"  # noqa: S105 - of a stand-in
BODY_MAX_BYTES = 32 * 1024 * 1024


@dataclass
class Oss:
    """The four modules and what goes wrong with them."""

    folder: Path
    base: str = ""
    scenario: OssScenario = field(default_factory=OssScenario)
    modules: dict[str, OssModule] = field(default_factory=dict)
    lies: bool = False
    """Whether the module `od` says that it has applied operations, and keeps other records."""
    _since: float = 0.0
    _occurrences: Counter[tuple[object, ...]] = field(default_factory=Counter)
    _replaced: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.modules = {name: OssModule(name, self.folder / f"{name}.sqlite", TOKEN) for name in MODULES}
        self.set(self.scenario)

    def url(self, name: str) -> str:
        """The base address of a module."""
        return f"{self.base}/{name}"

    def set(self, scenario: OssScenario) -> None:
        """Begin another scenario; what goes wrong is counted anew, and calls that are late go on."""
        self.scenario, self._since = scenario, time.monotonic()
        self._replaced.set()
        self._replaced = asyncio.Event()
        self._occurrences.clear()

    async def wait(self, seconds: float) -> None:
        """Wait, at most until another scenario begins."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._replaced.wait()

    def set_lying(self, lies: bool) -> None:
        """Begin or end to keep other records in `od` than it was sent."""
        self.lies = lies

    def describe(self) -> list[PageTable]:
        """Return the addresses and calls of each module for the page."""
        rows = [
            {"module": name, "addresses": f"{len(module.live()):,}", "calls": f"{len(module.calls):,}"}
            for name, module in self.modules.items()
        ]
        return [PageTable("Modules", rows), *(self._describe_module(name) for name in self.modules)]

    def _describe_module(self, name: str) -> PageTable:
        live = self.modules[name].live().values()
        rows = [{"uprn": each.uprn, "address_id": each.address_id, "record": each.record} for each in live]
        return PageTable(f"Addresses of {name}", rows)

    def calls(self) -> int:
        """How many calls with operations came, in all."""
        return sum(len(module.calls) for module in self.modules.values())

    def fault(self, module: str) -> OssRule | None:
        """What goes wrong with the call that has just come."""
        for index, rule in enumerate(self.scenario.rules):
            if rule.action in (OssAction.FAIL, OssAction.CHOKE) or module not in rule.modules:
                continue
            turn = self._turn(index, module)
            if rule.counts(turn, self._now()) and self.scenario.rolls(index, (module, turn)):
                return rule
        return None

    def chokes(self, module: str, operations: Sequence[dict[str, Any]]) -> bool:
        """Whether the module cannot even read these."""
        named = {uprn for each in operations for uprn in (each["uprn"], each.get("uprn_2"))}
        rules = (rule for rule in self.scenario.rules if rule.action is OssAction.CHOKE and module in rule.modules)
        return any(rule.uprns is not None and named & rule.uprns for rule in rules)

    def broken(self, module: str, operations: Sequence[dict[str, Any]]) -> list[int]:
        """The UPRNs of those operations that are to break this time."""
        return [each["uprn"] for each in operations if self._breaks(module, each)]

    def _breaks(self, module: str, operation: dict[str, Any]) -> bool:
        for index, rule in enumerate(self.scenario.rules):
            named = {operation["uprn"], operation.get("uprn_2")}
            concerned = module in rule.modules and operation["kind"] in rule.kinds
            if (
                rule.action is not OssAction.FAIL
                or not concerned
                or (rule.uprns is not None and not named & rule.uprns)
            ):
                continue
            what = (module, operation["op_id"])
            if self.scenario.rolls(index, what) and rule.counts(self._turn(index, what), self._now()):
                return True
        return False

    def _turn(self, *key: object) -> int:
        self._occurrences[key] += 1
        return self._occurrences[key] - 1

    def _now(self) -> float:
        return time.monotonic() - self._since


OSS = web.AppKey("oss", Oss)


@asynccontextmanager
async def running_oss(folder: Path, port: int = 0, *, kind: type[Oss] = Oss) -> AsyncIterator[Oss]:
    """Serve on 127.0.0.1. The tables stay in the folder.

    Args:
        folder: Where they are.
        port: 0 picks a free one.
        kind: Who knows what goes wrong.
    """
    oss = kind(folder)
    app = web.Application(client_max_size=BODY_MAX_BYTES, middlewares=[_mischief])
    app[OSS] = oss
    app.router.add_put("/_sim/scenario", _set_scenario)
    app.router.add_post("/_sim/{module}/{deed:begin-orders|end-orders|forget|spoil}", _do)
    app.router.add_get("/_sim/{module}/{view:states|applied|calls}", _look)
    text = "Stand in for the four modules that keep addresses."
    add_page(app, "Address modules", text, oss.describe)
    add_lie(app, oss.set_lying)
    for name, module in oss.modules.items():
        app.add_subapp(f"/{name}", module.app())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        host, bound_port = runner.addresses[0][:2]
        oss.base = f"http://{host}:{bound_port}"
        yield oss
    finally:
        await runner.cleanup()


@web.middleware
async def _mischief(request: web.Request, handler: Handler) -> web.StreamResponse:
    oss, name = request.app[OSS], request.path.split("/")[1]
    module = oss.modules.get(name)
    if module is None:
        return await handler(request)
    operations = _operations(await request.read()) if "/operations" in request.path else []
    rule = oss.fault(name)
    if operations:
        module.calls.append(
            OssCall(request.method, tuple(each["op_id"] for each in operations), rule.action if rule else None)
        )
    if rule and rule.action is OssAction.SLOW:
        await oss.wait(rule.seconds)
    if rule and rule.action is OssAction.ERROR:
        return web.Response(status=rule.status, text="ordered fault")
    if oss.chokes(name, operations):
        return web.Response(status=500, text="cannot digest that")
    if rule and rule.action is OssAction.RESET:
        return _cut(request)
    answer = await _play_answer(request, handler, module, oss.broken(name, operations))
    if oss.lies and name == "od":
        module.spoil([each["address_id"] for each in operations if each.get("address_id")])
    if rule and rule.action is OssAction.LATE:
        await oss.wait(rule.seconds)
    return _cut(request) if rule and rule.action is OssAction.LOST else answer


async def _play_answer(
    request: web.Request, handler: Handler, module: OssModule, broken: Sequence[int]
) -> web.StreamResponse:
    module.cursed.update(broken)
    try:
        return await handler(request)
    finally:
        module.cursed.subtract(broken)
        module.cursed += Counter()


def _operations(body: bytes) -> list[dict[str, Any]]:
    sent = msgspec.json.decode(body)
    operations: list[dict[str, Any]] = sent.get("operations", [sent])
    return operations


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport:
        request.transport.abort()
    return web.Response()


async def _set_scenario(request: web.Request) -> web.Response:
    request.app[OSS].set(await read_scenario(request, OssScenario))
    return web.json_response({})


async def _do(request: web.Request) -> web.Response:
    module, address_ids = _find_module(request), msgspec.json.decode(await request.read(), type=list[int])
    match request.match_info["deed"]:
        case "begin-orders":
            module.begin_orders(address_ids)
        case "end-orders":
            module.end_orders(address_ids)
        case "forget":
            module.forget(address_ids)
        case _:
            module.spoil(address_ids)
    return web.json_response({})


async def _look(request: web.Request) -> web.Response:
    module = _find_module(request)
    match request.match_info["view"]:
        case "states":
            seen: object = [asdict(state) for state in module.states()]
        case "applied":
            seen = module.list_applied()
        case _:
            seen = [asdict(call) for call in module.calls]
    return web.Response(body=msgspec.json.encode(seen), content_type="application/json")


def _find_module(request: web.Request) -> OssModule:
    try:
        return request.app[OSS].modules[request.match_info["module"]]
    except KeyError:
        raise web.HTTPNotFound(text=f"There is no such module. Name one of {', '.join(MODULES)}.") from None
