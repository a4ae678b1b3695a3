"""The GSE of all worlds: each has hosts and faults of its own, all behind one address."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from sims.gse.disks import HostDisks
from sims.gse.scenario import Empty, GseAction, GseCall, GseRule, GseScenario, Shape
from sims.gse.server import PATHS, Handler, answer_call
from sims.gse.world import GseWorld as Gse
from tests.worlds.flaws import Flaw
from tests.worlds.transfers.flaws import KINDS, TransferFlawGroup
from tests.worlds.transfers.naming import TransferNames, find_name

HOST = "127.0.0.1"
FATAL_CODES = (122, 119, 1326)
RETRYABLE_CODES = (703, 117, 120)
UPLOAD_CODES = (705, 701, 104)
RUNNING = 115
WORD = "E17"
CODES: Mapping[str, Sequence[int | str]] = {
    "fails": FATAL_CODES,
    "fails_for_now": RETRYABLE_CODES,
    "fails_then_runs_for_ever": RETRYABLE_CODES,
    "unknown_code": (-1, 4711, 2),
    "code_is_a_word": (WORD,),
    "old_agent": (117,),
    "container_gone": (2_000,),
    "upload_fails": UPLOAD_CODES,
    "upload_cannot": (119,),
    "create_refused": (1_000_200,),
}
"""GSE reports one of these for a flaw, by its dial."""
AGENT_STATES: Mapping[str, Sequence[int]] = {"agent_gone": (6, 7, -2), "agent_state_odd": (0, 1, 99)}
"""GSE reports one of these states for the agents of a flaw: some receive nothing for certain, others may."""
FLAPS_FOR_NOW, FLAPS_AS_IF_FINAL = 703, 122
HANG_SECONDS = 7.0
STATUS_REWRITTEN = 200

TRANSFER, RESULTS, TERMINATE, STATES = (frozenset({call}) for call in GseCall)
UNREADABLE = (
    GseRule(action=GseAction.NO_CODE, calls=TRANSFER),
    GseRule(action=GseAction.HTML, calls=TRANSFER, status=STATUS_REWRITTEN),
    GseRule(action=GseAction.NO_TASK_ID, calls=TRANSFER),
    GseRule(action=GseAction.STATUS, calls=TRANSFER, status=STATUS_REWRITTEN, code=1_650_200),
)
LIMITED = (
    GseRule(action=GseAction.RATE_LIMIT, calls=TRANSFER, seconds=1),
    GseRule(action=GseAction.STATUS, calls=TRANSFER, status=503, code=1_650_300),
    GseRule(action=GseAction.STATUS, calls=TRANSFER, status=STATUS_REWRITTEN, code=1_642_901),
)
DOWN = (
    GseRule(action=GseAction.STATUS, calls=RESULTS, status=500, code=1_650_000),
    GseRule(action=GseAction.HTML, calls=RESULTS, status=502),
    GseRule(action=GseAction.RATE_LIMIT, calls=RESULTS, seconds=1),
    GseRule(action=GseAction.RESET, calls=RESULTS),
)
SHAPES: Mapping[str, Shape] = {
    "records_shuffled": Shape(shuffled=True),
    "no_records_after_upload": Shape(records_after_failed_upload=False),
    "codes_as_texts": Shape(text_codes=True),
    "records_of_strangers": Shape(unknown_target=True),
    "records_twice": Shape(duplicates=True),
    "older_records_too": Shape(older_too=True, shuffled=True),
    "success_below_100": Shape(progress_at_success=97),
}

Value = TypeVar("Value")


def code_of(flaw: Flaw) -> int | str:
    """Return the code that GSE reports for a flaw; the code of a running target if it reports no final one."""
    if flaw.name == "flaps":
        return FLAPS_FOR_NOW if flaw.passes else FLAPS_AS_IF_FINAL
    codes = CODES.get(flaw.name, (RUNNING,))
    return codes[flaw.dial % len(codes)]


def make_scenario(names: TransferNames) -> tuple[GseScenario, list[str]]:
    """Return how a world's GSE behaves, and the name of the flaw behind each of its rules."""
    rules = [(rule, flaw.name) for flaw in names.world.flaws for rule in _make_rules(names, flaw)]
    scenario = GseScenario(
        seed=names.number,
        upload_seconds=0.05,
        download_seconds=names.world.download_seconds,
        jitter_seconds=0.05,
        terminate_seconds=0.05,
        agent_states=_states(names),
        shape=_shape(names.world.group(TransferFlawGroup.RECORDS)),
        rules=tuple(rule for rule, _ in rules),
    )
    return scenario, [name for _, name in rules]


def _make_rules(names: TransferNames, flaw: Flaw) -> Sequence[GseRule]:
    match KINDS[flaw.name].group:
        case TransferFlawGroup.TARGET:
            return _spread(names, _target_rules(flaw, words_of(names, flaw)))
        case TransferFlawGroup.UPLOAD:
            return [_upload_rule(flaw, words_of(names, flaw))]
        case TransferFlawGroup.CALLS:
            return [_call_rule(flaw, words_of(names, flaw))]
        case TransferFlawGroup.TERMINATE:
            return [_terminate_rule(names, flaw)]
        case _:
            return []


def _target_rules(flaw: Flaw, words: str) -> Sequence[GseRule]:
    fails = GseRule(action=GseAction.FAIL, code=code_of(flaw), message=words)
    match flaw.name:
        case "fails_for_now":
            return [fails.model_copy(update={"times": 1 + flaw.dial % 2 if flaw.passes else None})]
        case "fails_then_runs_for_ever":
            return [fails.model_copy(update={"times": 1}), GseRule(action=GseAction.STUCK)]
        case "runs_for_ever":
            return [GseRule(action=GseAction.STUCK)]
        case "never_reported":
            return [GseRule(action=GseAction.MISSING)]
        case "flaps":
            return [GseRule(action=GseAction.FLAP, code=code_of(flaw), times=1)]
        case "success_without_file":
            return [GseRule(action=GseAction.LOSE)]
        case "other_bytes_arrive":
            return [GseRule(action=GseAction.SPOIL)]
        case name if name in AGENT_STATES:
            return []
        case _:
            return [fails]


def _spread(names: TransferNames, rules: Sequence[GseRule]) -> list[GseRule]:
    """Return rules for each of the hosts that they hit."""
    struck = [host for host in names.world.hosts if names.world.is_struck(host.number)]
    whose = [{"agent": names.agent_id(host), "container": names.container_id(host)} for host in struck]
    exactly = [{name: re.escape(value) for name, value in each.items()} for each in whose]
    return [rule.model_copy(update=each) for each in exactly for rule in rules]


def _states(names: TransferNames) -> dict[str, int]:
    """Return the states of the agents that a flaw of states hits."""
    flaw = names.world.flaw(*AGENT_STATES)
    struck = [host for host in names.world.hosts if names.world.is_struck(host.number)]
    return {re.escape(names.agent_id(host)): _pick(flaw, AGENT_STATES[flaw.name]) for host in struck} if flaw else {}


def _upload_rule(flaw: Flaw, words: str) -> GseRule:
    if flaw.name == "upload_runs_for_ever":
        return GseRule(action=GseAction.UPLOAD_STUCK)
    times = 1 if flaw.passes else None
    return GseRule(
        action=GseAction.UPLOAD_FAIL, code=code_of(flaw), message=words, times=times, seconds=flaw.share * 0.3
    )


def _call_rule(flaw: Flaw, words: str) -> GseRule:
    once = 1 if flaw.passes else None
    match flaw.name:
        case "create_lost":
            # If it lasts, GSE executes the call, and the caller gets no answer.
            action = GseAction.RESET if flaw.passes and flaw.dial % 2 else GseAction.DROP
            return GseRule(action=action, calls=TRANSFER, times=once)
        case "create_unreadable":
            return _pick(flaw, UNREADABLE).model_copy(update={"times": once})
        case "create_limited":
            return _pick(flaw, LIMITED).model_copy(update={"times": 1 + flaw.dial % 2})
        case "create_refused":
            return GseRule(action=GseAction.REFUSE, calls=TRANSFER, code=code_of(flaw), message=words)
        case "results_down":
            down = _pick(flaw, DOWN)
            times = 2 + flaw.dial % (2 if down.action is GseAction.RATE_LIMIT else 7)
            return down.model_copy(update={"times": times if flaw.passes else None})
        case "results_hang":
            return GseRule(action=GseAction.SLOW, calls=RESULTS, seconds=HANG_SECONDS, times=1)
        case "states_down":
            return _pick(flaw, DOWN).model_copy(update={"calls": STATES})
        case "states_hang":
            return GseRule(action=GseAction.SLOW, calls=STATES, seconds=HANG_SECONDS, times=1)
        case _:
            return GseRule(action=GseAction.FORGET, calls=RESULTS, times=1)


def _terminate_rule(names: TransferNames, flaw: Flaw) -> GseRule:
    match flaw.name:
        case "terminate_ignored":
            return GseRule(action=GseAction.IGNORE, calls=TERMINATE)
        case "terminate_down":
            return GseRule(action=GseAction.STATUS, status=500, calls=TERMINATE, times=2 if flaw.passes else None)
        case _:
            agent = names.agent_id(_pick(flaw, names.world.hosts))
            return GseRule(
                action=GseAction.BLOCK_TERMINATE, agent=re.escape(agent), code=1_000_001, message="Bad Request"
            )


def words_of(names: TransferNames, flaw: Flaw) -> str:
    """Return GSE's message about a flaw."""
    return f"{flaw.name} in {names.name}"


def _shape(flaw: Flaw | None) -> Shape:
    match flaw and flaw.name:
        case "empty_at_first" if flaw:
            return Shape(empty_polls=1 + flaw.dial % 2 if flaw.passes else 1_000, empty_as=_pick(flaw, list(Empty)))
        case "records_without_type" if flaw:
            return Shape(types=False, modes=flaw.dial % 2 == 0)
        case name:
            return SHAPES.get(name or "", Shape())


def _pick(flaw: Flaw, values: Sequence[Value]) -> Value:
    return values[flaw.dial % len(values)]


@dataclass
class GseOfWorlds:
    """Finds the world that a request is about."""

    folder: Path
    base: str = ""
    worlds: dict[str, Gse] = field(default_factory=dict)
    _clocks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def add(self, names: TransferNames) -> tuple[Gse, list[str]]:
        """Open a world's GSE; return it and the name of the flaw behind each of its rules."""
        scenario, rules = make_scenario(names)
        gse = self.worlds[names.name] = Gse(scenario, HostDisks(self.folder / names.name, links=False), names.name)
        self._clocks[names.name] = asyncio.create_task(gse.run())
        return gse, rules

    async def close(self, name: str) -> None:
        """Stop the clock of a world."""
        clock = self._clocks.pop(name)
        clock.cancel()
        with suppress(asyncio.CancelledError):
            await clock

    async def close_all(self) -> None:
        """Stop the clocks of worlds that were broken off."""
        for name in list(self._clocks):
            await self.close(name)

    async def answer(self, request: web.Request, call: GseCall) -> web.StreamResponse:
        """Answer out of the world that the request names: in a folder, a task's id or an agent's."""
        text = (await request.read()).decode()
        gse = self.worlds.get(find_name(text))
        if gse is None:
            return web.Response(status=404, text="this is about no world")
        return await answer_call(request, gse, call)


@asynccontextmanager
async def running_gse_of_worlds(folder: Path) -> AsyncIterator[GseOfWorlds]:
    """Serve on a free port of 127.0.0.1; hosts keep their files below a folder."""
    gse = GseOfWorlds(folder)
    app = web.Application()
    for call, path in PATHS.items():
        app.router.add_post(path, _handler(gse, call))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        host, port = runner.addresses[0][:2]
        gse.base = f"http://{host}:{port}"
        yield gse
    finally:
        await gse.close_all()
        await runner.cleanup()


def _handler(gse: GseOfWorlds, call: GseCall) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await gse.answer(request, call)

    return handle
