"""Run a world: deliver its messages round by round, and judge the outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import SecretStr

from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from infra.settings import Settings
from sims.oss.scenario import MODULES
from sims.oss.server import running_oss
from tests.support.addresses import SIGNED, Addresses, running_addresses
from tests.worlds.addresses import deletes, options
from tests.worlds.addresses.delivery import SECRET, Delivery
from tests.worlds.addresses.drift import compare_modules
from tests.worlds.addresses.fired_flaws import list_fired
from tests.worlds.addresses.flaws import Group
from tests.worlds.addresses.judge import judge_world
from tests.worlds.addresses.log_reader import PAGE, LogReader, list_messages
from tests.worlds.addresses.modules import ModuleFault, OperationFault, OssOfWorlds
from tests.worlds.addresses.observation import QUEUEING, MessageReport, Observation, is_at_rest
from tests.worlds.addresses.publications import REFUSED, Names, Publication
from tests.worlds.addresses.world import Operator, World
from tests.worlds.verdict import Verdict

BOUND_SECONDS = 90.0
CLEAR_MAX = 20


@dataclass
class WorldRun:
    """One run of a world."""

    names: Names
    addresses: Addresses
    oss: OssOfWorlds
    log: LogReader
    delivery: Delivery
    operation_fault: OperationFault | None = None
    module_fault: ModuleFault | None = None
    lost: set[int] = field(default_factory=set)
    """UPRNs whose addresses a module lost, as no operation would."""
    forgotten: set[int] = field(default_factory=set)
    """Of these: those that it lacks when modules are compared; the others came again before."""
    found: set[int] = field(default_factory=set)
    """Of these: those that the comparison found."""
    again: set[str] = field(default_factory=set)
    """Numbers of messages that were delivered again when others had come after them."""
    archived: set[str] = field(default_factory=set)
    """Of these: those that the log had moved to its history."""

    async def run(self) -> Verdict:
        """Publish, wait, mend, act, and judge."""
        began = datetime.now(UTC)
        self.log.start_times.append(began)
        observation = Observation()
        self.operation_fault = self.oss.start_operation_fault(self.names)
        deletes.begin_orders(self.names, self.oss)
        try:
            try:
                async with asyncio.timeout(BOUND_SECONDS):
                    await self._publish()
                    await self._settle()
                    self._mend()
                    await self._operate()
                    await self._settle()
                    await self._deliver_again()
                    await self._restore()
                    await self._settle()
                    await deletes.end_orders(self.names, self.oss, self.addresses)
            except TimeoutError:
                left = [each for each in self.log.reports.values() if each.number in self._numbers]
                observation.late = f"not in {BOUND_SECONDS:g} s: {left}"
            else:
                await self._observe(observation)
            self._mend()
            await self._clear()
        finally:
            self.log.start_times.remove(began)
        observation.fired = list_fired(self, observation)
        return judge_world(self.names, observation)

    def _mend(self) -> None:
        self.oss.end_operation_fault(self.operation_fault)
        self.oss.end_module_fault(self.module_fault)

    @property
    def _numbers(self) -> frozenset[str]:
        return frozenset(each.number for each in self.names.accepted)

    async def _publish(self) -> None:
        module_fault = self.names.world.group(Group.MODULE_FAULTS)
        for number, part in enumerate(self.names.rounds):
            if module_fault is not None and number == min(1, len(self.names.rounds) - 1):
                self.module_fault = self.oss.start_module_fault(module_fault)
            for each in part:
                await self._lose(each)
                await self.delivery.deliver(each)
            if self.names.world.rounds[number].waits:
                await self._settle()
            if number and self.names.world.has("acks_lost"):
                earlier = [each for before in self.names.rounds[:number] for each in before]
                await self._repeat(earlier)
                await self.delivery.deliver_at_once(earlier)

    async def _lose(self, each: Publication) -> None:
        """Let a module lose an address that comes again later."""
        if each.loses is None:
            return
        module, uprn = each.loses
        state = self.oss.modules[module].live().get(uprn)
        is_cured = any(uprn in _uprns(other) for other in self.names.rounds[-1] if other.topic == Topic.CREATE_UPDATE)
        if state is not None and is_cured:
            self.oss.modules[module].forget([state.address_id])
            self.lost.add(uprn)

    async def _deliver_again(self) -> None:
        """Deliver what came before once more, as Pub/Sub and publishers do long after."""
        world, everything = self.names.world, [each for part in self.names.rounds for each in part]
        if world.has("again_from_history", "replayed"):
            wanted = everything if world.has("replayed") else self.names.rounds[0]
            await self._repeat(wanted)
            for each in wanted:
                if each.poison not in REFUSED:
                    await self.delivery.push(each)
        if world.has("snapshot_after_changes"):
            for each in self.names.list_snapshot():
                await self.delivery.push(each)

    async def _repeat(self, messages: list[Publication]) -> None:
        """Note which messages are about to come again, and which of them only the history has."""
        reports = await self.log.read_next()
        numbers = {each.number for each in messages if each.is_accepted}
        self.again |= numbers
        self.archived |= numbers - reports.keys()

    async def _restore(self) -> None:
        """Let a module go back behind what it has acknowledged, find that, and send what it lost again."""
        flaw = self.names.world.group(Group.OPERATIONS)
        reports = await self.log.read_next()
        if flaw is None or flaw.name != "module_forgets":
            return
        busy = {uprn for number, each in reports.items() if number in self._numbers for uprn in each.uprns}
        module = self.oss.modules[MODULES[flaw.dial % len(MODULES)]]
        live = {uprn: state for uprn, state in module.live().items() if uprn in self.names.uprns}
        at_rest = [state.address_id for uprn, state in live.items() if uprn not in busy]
        if not at_rest:
            return
        address_id = at_rest[0]
        gone = {uprn: state for uprn, state in live.items() if state.address_id == address_id}
        if busy & gone.keys():
            return
        module.forget([address_id])
        self.forgotten |= set(gone)
        self.lost |= set(gone)
        _, different = await compare_modules(self.addresses)
        self.found |= self.forgotten & different
        again = []
        for uprn, state in gone.items():
            content = {"uprn": uprn, "address_id": state.address_id, "record": dict(state.record)}
            number = f"w{self.names.place}-sent-again-{uprn}"
            again.append(Publication(Topic.CREATE_UPDATE, number, json.dumps(content).encode()))
        self.names.rounds.append(again)
        for each in again:
            await self.delivery.push(each)

    async def _settle(self) -> None:
        """Wait until no message changes any more: what queues has been looked at again, and queues still."""
        before: Mapping[int, MessageReport] | None = None
        while True:
            reports = {each.id: each for each in (await self.log.read_next()).values() if each.number in self._numbers}
            if not is_at_rest(reports):
                before = None
            elif all(each.state not in QUEUEING for each in reports.values()):
                return
            elif before is None or set(before) != set(reports):
                before = reports
            elif all(
                each.state not in QUEUEING or each.cycle_id != before[id_].cycle_id for id_, each in reports.items()
            ):
                return

    async def _operate(self) -> None:
        reports = [each for each in (await self.log.read_next()).values() if each.number in self._numbers]
        ids = sorted(each.id for each in reports if each.state is MessageState.GIVEN_UP)
        match self.names.world.operator:
            case Operator.RETRY if ids:
                reply = await self.addresses.ask("POST", "messages:retry", json={**SIGNED, "ids": ids})
                assert reply.status == 200, reply.body
            case Operator.CHAIN:
                for id_ in ids:
                    reply = await self.addresses.ask("POST", f"messages/{id_}/retry-chain", json=SIGNED)
                    assert reply.status in (200, 409), reply.body
            case Operator.SKIP if ids:
                reply = await self.addresses.ask("POST", "messages:skip", json={**SIGNED, "ids": ids})
                assert reply.status == 200, reply.body

    async def _observe(self, observation: Observation) -> None:
        reports: list[MessageReport] = []
        uprns = sorted({uprn for each in self.names.accepted for uprn in _uprns(each)})
        for history in ("false", "true"):
            lists = await asyncio.gather(
                *(list_messages(self.addresses, uprn=str(uprn), history=history) for uprn in uprns)
            )
            reports += {each.id: each for found in lists for each in found}.values()
        observation.reports = sorted(reports, key=lambda each: each.id)
        ids = {each.id for each in reports}
        names = set(map(str, ids))
        observation.skipped = await self._list_skipped(observation)
        observation.applied = {
            module: [int(op_id) for op_id in self.oss.modules[module].list_applied() if op_id in names]
            for module in Module
        }
        observation.sent = {
            module: frozenset(
                int(op_id) for call in self.oss.modules[module].calls for op_id in call.op_ids if op_id.isdigit()
            )
            & ids
            for module in Module
        }
        observation.live = {
            module: {
                uprn: (each.address_id, each.record)
                for uprn, each in self.oss.modules[module].live().items()
                if uprn in self.names.uprns
            }
            for module in Module
        }
        if self.operation_fault is not None:
            tries = self.names.world.tries
            observation.hit = frozenset(
                int(op_id) for op_id, hits in self.operation_fault.hits.items() if hits >= tries
            )
        observation.lost, observation.forgotten, observation.found = map(
            frozenset, (self.lost, self.forgotten, self.found)
        )
        observation.kept = deletes.list_kept(self.names, self.oss)
        observation.listed = frozenset(await deletes.list_deletes(self.names, self.addresses))
        observation.retried = self.names.world.operator in (Operator.RETRY, Operator.CHAIN)
        observation.refused = await self._list_refused()

    async def _list_skipped(self, observation: Observation) -> frozenset[int]:
        """List what the audit says was skipped."""
        if self.names.world.operator is not Operator.SKIP:
            return frozenset()
        replies = await asyncio.gather(
            *(self.addresses.ask("GET", f"messages/{each.id}") for each in observation.reports)
        )
        return frozenset(
            reply.body["message_id"]
            for reply in replies
            if any(act["action"] == "skip" for act in reply.body["actions"])
        )

    async def _list_refused(self) -> list[str]:
        prefix = f"w{self.names.place}-"
        reply = await self.addresses.ask("GET", "quarantine", params={"limit": str(PAGE)})
        return [each["msg_no"] for each in reply.body["items"] if each["msg_no"].startswith(prefix)]

    async def _clear(self) -> None:
        """Leave nothing behind that cycles would look at for ever; what a cycle has is asked for again."""
        body = {**SIGNED, "though_touched": True}
        for _ in range(CLEAR_MAX):
            reports = await self.log.read_next()
            left = [each for each in reports.values() if each.number in self._numbers and not each.is_done]
            if not left:
                return
            await asyncio.gather(*(self.addresses.ask("POST", f"messages/{each.id}/skip", json=body) for each in left))


def _uprns(each: Publication) -> list[int]:
    return [each.content[name] for name in ("uprn", "uprn_1", "uprn_2") if name in each.content]


@dataclass
class SharedStack:
    """What all worlds share: one API, one worker, one log and four modules."""

    addresses: Addresses
    oss: OssOfWorlds
    log: LogReader
    world_count: int = 0
    _running: int = 0
    _options: Mapping[str, str] = field(default_factory=dict)
    """Those that are in force."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run_world(self, world: World) -> Verdict:
        """Run a world and return the verdict."""
        async with self._under(world.options):
            self.world_count += 1
            names = Names(world, self.world_count)
            return await WorldRun(names, self.addresses, self.oss, self.log, Delivery(names, self.addresses)).run()

    async def count_drift(self) -> tuple[int, int]:
        """Return how many UPRNs differ by the product's comparison, and by the modules' tables."""
        reports, _ = await compare_modules(self.addresses)
        states = [self.addresses.states(module) for module in Module]
        uprns = {uprn for live in states for uprn in live}
        return reports, sum(any(live.get(uprn) != states[0].get(uprn) for live in states) for uprn in uprns)

    @asynccontextmanager
    async def _under(self, wanted: Mapping[str, str]) -> AsyncIterator[None]:
        """Have options in force: worlds with others wait until none is played any more."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._running or self._options == wanted)
            if self._options != wanted:
                body = {**SIGNED, "options": options.make_config(wanted)}
                reply = await self.addresses.ask("PUT", "config", json=body)
                assert reply.status == 200, reply.body
                self._options = wanted
            self._running += 1
        try:
            yield
        finally:
            async with self._changed:
                self._running -= 1
                self._changed.notify_all()


@asynccontextmanager
async def running_stack(settings: Settings) -> AsyncIterator[SharedStack]:
    """API, worker and modules, with times that are small in the same proportion."""
    folder = settings.data_dir
    async with running_oss(folder, kind=OssOfWorlds) as oss:
        assert isinstance(oss, OssOfWorlds)
        push = settings.addresses.push.model_copy(update={"secret": SecretStr(SECRET)})
        async with running_addresses(settings, folder, modules=oss, push=push) as addresses:
            await addresses.resume()
            log = LogReader(addresses)
            watching = asyncio.create_task(log.read_repeatedly())
            try:
                yield SharedStack(addresses, oss, log)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
