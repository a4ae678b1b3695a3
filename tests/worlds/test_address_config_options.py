"""Each option of cycles and modules is honoured: two of its values lead to cycles, or calls, that differ."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from domain.addresses import names
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra import temporal
from infra.settings import Settings
from sims.oss.scenario import OssAction, OssRule, OssScenario
from sims.oss.server import Oss, running_oss
from tests.support.addresses import SIGNED, Addresses, running_addresses
from tests.support.waiting import eventually
from tests.worlds.addresses.request_cases import CYCLE_OPTION_CASES, MODULE_OPTION_CASES, MODULES_CASES

pytestmark = [pytest.mark.long, pytest.mark.stack, pytest.mark.timeout(900)]

SLOW_SECONDS = 0.5
COUNT = 3
"""Messages of a case."""


@dataclass
class WatchedOss(Oss):
    """Notes when calls with operations come, and how many were under way as the first one went on."""

    begun: dict[str, list[float]] = field(default_factory=dict)
    at_once: dict[str, int] = field(default_factory=dict)

    def forget_calls(self) -> None:
        """Begin anew."""
        self.begun, self.at_once = {}, {}
        for module in self.modules.values():
            module.calls.clear()

    def chokes(self, module: str, operations: Sequence[dict[str, Any]]) -> bool:
        """See base class; a call that is slow has waited by now."""
        if operations:
            self.begun.setdefault(module, []).append(time.monotonic())
            self.at_once.setdefault(module, len(self.modules[module].calls))
        return super().chokes(module, operations)


@dataclass
class CaseRunner:
    """Addresses whose options are changed, case after case; each has UPRNs of its own."""

    addresses: Addresses
    oss: WatchedOss
    used: int = 0
    unfinished: list[int] = field(default_factory=list)
    """Messages that a case may have left behind."""

    async def begin(self, options: Mapping[str, Any], rules: Sequence[OssRule] = ()) -> range:
        """Pause cycles, bring options into force, and let modules do what is to go wrong; return new UPRNs."""
        await self._pause()
        await self._finish_messages()
        await self._configure(options)
        self.oss.set(OssScenario(rules=tuple(rules)))
        self.oss.forget_calls()
        self.used += 10
        return range(self.used, self.used + 10)

    async def _pause(self) -> None:
        await self._send("POST", "cycle/pause", SIGNED)
        await eventually(self._is_idle)

    async def _is_idle(self) -> bool:
        return bool((await self.addresses.ask("GET", "cycle")).body["workflow_ids"] == [])

    async def _configure(self, options: Mapping[str, Any]) -> None:
        defaults = {"pause_seconds": 1, "retry_pause_seconds": 0, "failed_cycles_max": 50}
        await self._send("PUT", "config", {**SIGNED, "options": {**defaults, **options}})

    async def _finish_messages(self) -> None:
        """Apply what the case before left behind: its retries would be counted as calls of the next case."""
        rows = [await self.addresses.row(id_) for id_ in self.unfinished]
        self.unfinished = [row["id"] for row in rows if row["proc_flag"] != "Y"]
        if self.unfinished:
            await self._configure({})
            self.oss.set(OssScenario())
            await self._send("POST", "messages:retry", {**SIGNED, "ids": self.unfinished})
            await self.run(self.unfinished)
            await self._pause()
            self.unfinished = []

    async def _send(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        reply = await self.addresses.ask(method, path, json=body)
        assert reply.status == 200, reply.body

    async def create(self, uprns: Sequence[int]) -> list[int]:
        """Publish a createUpdate for each of these UPRNs."""
        ids = [
            await self.addresses.publish(Topic.CREATE_UPDATE, uprn=uprn, address_id=uprn, record={"n": uprn})
            for uprn in uprns
        ]
        self.unfinished += ids
        return ids

    async def run(self, ids: Sequence[int]) -> list[Any]:
        """Let cycles run until these messages are done; return their rows."""
        await self.addresses.resume()
        return [await self.addresses.wait_until_applied(id_) for id_ in ids]

    async def run_cycles(self, id_: int, count: int) -> Any:
        """Let so many cycles take a message, or less if it is done; return its row."""
        await self.addresses.resume()
        seen: set[str] = set()

        async def find() -> Any:
            row = await self.addresses.row(id_)
            seen.update([row["cycle_id"]] if row["cycle_id"] and row["proc_flag"] in ("N", "Y") else [])
            return row if len(seen) >= count or row["proc_flag"] == "Y" else None

        return await eventually(find)

    def sizes(self, module: str) -> list[int]:
        """Return how many operations each call to a module had."""
        return sorted(len(call.op_ids) for call in self.oss.modules[module].calls)


@pytest.fixture
async def runner(settings: Settings, tmp_path: Path) -> AsyncIterator[CaseRunner]:
    """API, worker and modules that note their calls."""
    async with running_oss(tmp_path, kind=WatchedOss) as oss:
        assert isinstance(oss, WatchedOss)
        guard = settings.guard.model_copy(update={"allow": [oss.base.removeprefix("http://")]})
        settings = settings.model_copy(update={"guard": guard})
        (tmp_path / "wrong.json").write_text(json.dumps({"token": "another"}))
        async with running_addresses(settings, tmp_path, modules=oss) as addresses:
            yield CaseRunner(addresses, oss)


async def find_cycles(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """Which messages a cycle takes."""
    uprns = await runner.begin({"threshold": COUNT, **options})
    created = await runner.create(uprns[:COUNT])
    deleted = await runner.addresses.publish(Topic.DELETE, uprn=uprns[5])
    rows = await runner.run([*created, deleted])
    cycles = [row["cycle_id"] for row in rows]
    return [cycles.index(cycle) for cycle in cycles]


async def find_tries(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """After how many cycles a hopeless swap is given up."""
    uprns = await runner.begin(options)
    id_ = await runner.addresses.publish(Topic.SWAP, uprn_1=uprns[0], uprn_2=uprns[1])
    await runner.addresses.resume()

    async def is_given_up() -> bool:
        return bool((await runner.addresses.ask("GET", f"messages/{id_}")).body["state"] == "given_up")

    await eventually(is_given_up)
    return (await runner.addresses.row(id_))["retry_times"]


async def find_pause(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """Whether a message that failed once is tried again within some cycles of others."""
    uprns = await runner.begin(options, [OssRule(action=OssAction.FAIL, modules=frozenset({"od"}), times=1)])
    [id_] = await runner.create(uprns[:1])
    row = await runner.run_cycles(id_, 1)
    return (row["next_attempt_at"] - row["proc_update_date"]).total_seconds() if row["next_attempt_at"] else 0.0


async def find_interval(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """How often the schedules look."""
    await runner.begin(options)
    engine = await temporal.connect()
    schedules = [
        await engine.get_schedule_handle(name).describe() for name in (names.CYCLE_SCHEDULE, names.CHECK_SCHEDULE)
    ]
    return [each.schedule.spec.intervals[0].every for each in schedules]


async def find_calls(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """How many operations each call has, in each module."""
    uprns = await runner.begin(options)
    await runner.run(await runner.create(uprns[:COUNT]))
    return {module: runner.sizes(module) for module in Module}


async def find_at_once(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """How many calls a module gets at a time."""
    uprns = await runner.begin(
        options, [OssRule(action=OssAction.SLOW, modules=frozenset({"ed"}), seconds=SLOW_SECONDS)]
    )
    await runner.run(await runner.create(uprns[:COUNT]))
    return runner.oss.at_once["ed"]


async def find_purged(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """Whether a check removes what it finds removable."""
    uprns = await runner.begin(options)
    await runner.run(await runner.create(uprns[:1]))
    runner.oss.modules["od"].begin_orders([uprns[0]])
    await runner.run([await runner.addresses.publish(Topic.DELETE, uprn=uprns[0])])
    runner.oss.modules["od"].end_orders([uprns[0]])
    assert (await runner.addresses.ask("POST", "logical-deletes:check")).status == 202

    async def is_removable() -> bool:
        return bool((await _read_delete(runner, uprns[0]))["removable_at"])

    async def is_over() -> bool:
        schedule = await (await temporal.connect()).get_schedule_handle(names.CHECK_SCHEDULE).describe()
        return not schedule.info.running_actions

    await eventually(is_removable)
    await eventually(is_over)
    return (await _read_delete(runner, uprns[0]))["purged_at"] is not None


async def _read_delete(runner: CaseRunner, address_id: int) -> Any:
    found = []
    for purged in ("false", "true"):
        params = {"address_id": str(address_id), "purged": purged}
        found += (await runner.addresses.ask("GET", "logical-deletes", params=params)).body["items"]
    return found[0]


async def find_module(runner: CaseRunner, options: Mapping[str, Any]) -> Any:
    """Whether ED gets a message within two cycles, where that goes, and what is said if not."""
    rules = options.get("rules", ())
    uprns = await runner.begin({"modules": {"ed": options["ed"]}}, rules)
    [id_] = await runner.create(uprns[:1])
    row = await runner.run_cycles(id_, options.get("cycles", 2))
    begun = runner.oss.begun.get("ed", [])
    return {
        "ack": row["ed_ack"],
        "is_left_alone": "is not called" in (row["ed_stack_trace"] or ""),
        "in": [module for module in Module if uprns[0] in runner.oss.modules[module].live()],
        "is_paused": any(
            later - earlier > MODULE_OPTION_CASES["retry_pause_seconds"].other / 2
            for earlier, later in itertools.pairwise(begun)
        ),
        "calls": len(runner.oss.modules["ed"].calls),
    }


ED = frozenset({"ed"})
AWAY = OssRule(action=OssAction.RESET, modules=ED)
OF_CYCLES: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "threshold": (find_cycles, {}),
    "minimum_share": (find_cycles, {}),
    "pause_seconds": (find_interval, {}),
    "failed_cycles_max": (find_tries, {}),
    "retry_pause_seconds": (find_pause, {}),
    "group_messages_max": (find_calls, {}),
    "step_concurrency": (find_at_once, {"group_messages_max": 1}),
    "check_hours": (find_interval, {}),
    "auto_purge": (find_purged, {}),
}
"""By option: the function that distinguishes its values, and other options that are set."""
OF_A_MODULE: Mapping[str, Mapping[str, Any]] = {
    "base_url": {},
    "credentials": {},
    "timeout_seconds": {"rules": (OssRule(action=OssAction.SLOW, modules=ED, seconds=1.5),)},
    "retries": {"rules": (OssRule(action=OssAction.RESET, modules=ED, times=3),), "ed": {"retry_pause_seconds": 0}},
    "retry_pause_seconds": {"rules": (OssRule(action=OssAction.RESET, modules=ED, times=1),), "ed": {"retries": 1}},
    "breaker_failures": {"rules": (AWAY,), "ed": {"breaker_seconds": 600}, "cycles": 3},
    "breaker_seconds": {
        "rules": (OssRule(action=OssAction.RESET, modules=ED, times=2),),
        "ed": {"breaker_failures": 1},
        "cycles": 3,
    },
    "paused": {},
}
"""By option of a module: what goes wrong there, what else is set, and how many cycles are waited for."""


async def test_every_option_of_cycles_makes_a_difference(runner: CaseRunner) -> None:
    """What cycles take and apply, how often they look, and when they give up."""
    unheeded = []
    for name, case in CYCLE_OPTION_CASES.items():
        find, beside = OF_CYCLES[name]
        one, other = [await find(runner, {**beside, name: value}) for value in (case.one, case.other)]
        unheeded += [f"{name}: {one}"] if one == other else []
    assert unheeded == []
    assert await find_cycles(runner, {}) == await find_cycles(runner, {})


async def test_the_options_of_each_module_are_its_own(runner: CaseRunner) -> None:
    """Batches of one module differ, and those of the others do not."""
    for name, case in MODULES_CASES.items():
        one, other = [await find_calls(runner, {"modules": {name: value}}) for value in (case.one, case.other)]
        assert [module for module in Module if one[module] != other[module]] == [name]


async def test_every_option_of_a_module_makes_a_difference(runner: CaseRunner) -> None:
    """Where calls go, with which token, how many, how large, how often, and when it is left alone."""
    unheeded = []
    for name, case in MODULE_OPTION_CASES.items():
        one, other = [await find_option(runner, name, value) for value in (case.one, case.other)]
        unheeded += [f"{name}: {one}"] if one == other else []
    assert unheeded == []
    assert await find_module(runner, {"ed": {}}) == await find_module(runner, {"ed": {}}), "UPRNs are no part of it"


async def find_option(runner: CaseRunner, name: str, value: Any) -> Any:
    """What comes of a value of an option of ED."""
    match name:
        case "batch":
            return await find_calls(runner, {"modules": {"ed": {"batch": value}}})
        case "concurrency":
            return await find_at_once(runner, {"modules": {"ed": {"batch": 1, "concurrency": value}}})
        case "base_url":
            value = runner.oss.url(value)
    beside = OF_A_MODULE[name]
    return await find_module(runner, {**beside, "ed": {**beside.get("ed", {}), name: value}})


def test_every_option_has_a_way_to_see_it() -> None:
    """A new option needs a case."""
    assert set(OF_CYCLES) == set(CYCLE_OPTION_CASES)
    assert set(OF_A_MODULE) | {"batch", "concurrency"} == set(MODULE_OPTION_CASES)
