"""Playing: a world's messages are delivered, round by round, and what comes of them is judged."""

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
from tests.worlds.addresses.delivering import SECRET, Delivery
from tests.worlds.addresses.drift import compare_modules
from tests.worlds.addresses.firing import list_fired
from tests.worlds.addresses.flaws import Group
from tests.worlds.addresses.judging import judge_world
from tests.worlds.addresses.log import PAGE, Log, list_messages
from tests.worlds.addresses.modules import Curse, OssOfWorlds, Weather
from tests.worlds.addresses.naming import REFUSED, Names, Published
from tests.worlds.addresses.seen import QUEUEING, Seen, Told, rests
from tests.worlds.addresses.world import Operator, World
from tests.worlds.verdict import Verdict

BOUND_SECONDS = 90.0
CLEAR_MAX = 20


@dataclass
class Play:
    """One playing of a world."""

    names: Names
    addresses: Addresses
    oss: OssOfWorlds
    log: Log
    delivery: Delivery
    curse: Curse | None = None
    weather: Weather | None = None
    lost: set[int] = field(default_factory=set)
    """UPRNs whose addresses a module lost, as no operation would."""
    forgotten: set[int] = field(default_factory=set)
    """Of these: those that it lacks when modules are compared; the others came again before."""
    found: set[int] = field(default_factory=set)
    """Of these: those that the comparison told."""
    again: set[str] = field(default_factory=set)
    """Numbers of messages that were delivered again when others had come after them."""
    archived: set[str] = field(default_factory=set)
    """Of these: those that the log had moved to its history."""

    async def run(self) -> Verdict:
        """Publish, wait, mend, act, and judge."""
        began = datetime.now(UTC)
        self.log.begun.append(began)
        seen = Seen()
        self.curse = self.oss.curse(self.names)
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
                left = [each for each in self.log.told.values() if each.number in self._numbers]
                seen.late = f"not in {BOUND_SECONDS:g} s: {left}"
            else:
                await self._see(seen)
            self._mend()
            await self._clear()
        finally:
            self.log.begun.remove(began)
        seen.fired = list_fired(self, seen)
        return judge_world(self.names, seen)

    def _mend(self) -> None:
        self.oss.mend(self.curse)
        self.oss.clear_up(self.weather)

    @property
    def _numbers(self) -> frozenset[str]:
        return frozenset(each.number for each in self.names.accepted)

    async def _publish(self) -> None:
        weather = self.names.world.group(Group.WEATHER)
        for number, part in enumerate(self.names.rounds):
            if weather is not None and number == min(1, len(self.names.rounds) - 1):
                self.weather = self.oss.change_weather(weather)
            for each in part:
                await self._lose(each)
                await self.delivery.deliver(each)
            if self.names.world.rounds[number].waits:
                await self._settle()
            if number and self.names.world.has("acks_lost"):
                earlier = [each for before in self.names.rounds[:number] for each in before]
                await self._repeat(earlier)
                await self.delivery.deliver_at_once(earlier)

    async def _lose(self, each: Published) -> None:
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

    async def _repeat(self, messages: list[Published]) -> None:
        """Note which messages are about to come again, and which of them only the history has."""
        told = await self.log.look()
        numbers = {each.number for each in messages if each.is_accepted}
        self.again |= numbers
        self.archived |= numbers - told.keys()

    async def _restore(self) -> None:
        """Let a module go back behind what it has acknowledged, find that, and send what it lost again."""
        flaw = self.names.world.group(Group.OPERATIONS)
        told = await self.log.look()
        if flaw is None or flaw.name != "module_forgets":
            return
        busy = {uprn for number, each in told.items() if number in self._numbers for uprn in each.uprns}
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
            said = {"uprn": uprn, "address_id": state.address_id, "record": dict(state.record)}
            number = f"w{self.names.place}-sent-again-{uprn}"
            again.append(Published(Topic.CREATE_UPDATE, number, json.dumps(said).encode()))
        self.names.rounds.append(again)
        for each in again:
            await self.delivery.push(each)

    async def _settle(self) -> None:
        """Wait until no message changes any more: what queues has been looked at again, and queues still."""
        before: Mapping[int, Told] | None = None
        while True:
            told = {each.id: each for each in (await self.log.look()).values() if each.number in self._numbers}
            if not rests(told):
                before = None
            elif all(each.state not in QUEUEING for each in told.values()):
                return
            elif before is None or set(before) != set(told):
                before = told
            elif all(each.state not in QUEUEING or each.cycle_id != before[id_].cycle_id for id_, each in told.items()):
                return

    async def _operate(self) -> None:
        told = [each for each in (await self.log.look()).values() if each.number in self._numbers]
        ids = sorted(each.id for each in told if each.state is MessageState.GIVEN_UP)
        match self.names.world.operator:
            case Operator.RETRY if ids:
                reply = await self.addresses.ask("POST", "messages/retry", json={**SIGNED, "ids": ids})
                assert reply.status == 200, reply.body
            case Operator.CHAIN:
                for id_ in ids:
                    reply = await self.addresses.ask("POST", f"messages/{id_}/retry-chain", json=SIGNED)
                    assert reply.status in (200, 409), reply.body
            case Operator.SKIP if ids:
                reply = await self.addresses.ask("POST", "messages/skip", json={**SIGNED, "ids": ids})
                assert reply.status == 200, reply.body

    async def _see(self, seen: Seen) -> None:
        told: list[Told] = []
        uprns = sorted({uprn for each in self.names.accepted for uprn in _uprns(each)})
        for history in ("false", "true"):
            lists = await asyncio.gather(
                *(list_messages(self.addresses, uprn=str(uprn), history=history) for uprn in uprns)
            )
            told += {each.id: each for found in lists for each in found}.values()
        seen.told = sorted(told, key=lambda each: each.id)
        ids = {each.id for each in told}
        names = set(map(str, ids))
        seen.skipped = await self._list_skipped(seen)
        seen.applied = {
            module: [int(op_id) for op_id in self.oss.modules[module].list_applied() if op_id in names]
            for module in Module
        }
        seen.sent = {
            module: frozenset(
                int(op_id) for call in self.oss.modules[module].calls for op_id in call.op_ids if op_id.isdigit()
            )
            & ids
            for module in Module
        }
        seen.live = {
            module: {
                uprn: (each.address_id, each.record)
                for uprn, each in self.oss.modules[module].live().items()
                if uprn in self.names.uprns
            }
            for module in Module
        }
        if self.curse is not None:
            tries = self.names.world.tries
            seen.hit = frozenset(int(op_id) for op_id, hits in self.curse.hits.items() if hits >= tries)
        seen.lost, seen.forgotten, seen.found = map(frozenset, (self.lost, self.forgotten, self.found))
        seen.kept = deletes.list_kept(self.names, self.oss)
        seen.listed = frozenset(await deletes.list_deletes(self.names, self.addresses))
        seen.retried = self.names.world.operator in (Operator.RETRY, Operator.CHAIN)
        seen.refused = await self._list_refused()

    async def _list_skipped(self, seen: Seen) -> frozenset[int]:
        """List what the audit says was skipped."""
        if self.names.world.operator is not Operator.SKIP:
            return frozenset()
        replies = await asyncio.gather(*(self.addresses.ask("GET", f"messages/{each.id}") for each in seen.told))
        return frozenset(
            reply.body["id"] for reply in replies if any(act["action"] == "skip" for act in reply.body["actions"])
        )

    async def _list_refused(self) -> list[str]:
        prefix = f"w{self.names.place}-"
        reply = await self.addresses.ask("GET", "quarantine", params={"limit": str(PAGE)})
        return [each["msg_no"] for each in reply.body["items"] if each["msg_no"].startswith(prefix)]

    async def _clear(self) -> None:
        """Leave nothing behind that cycles would look at for ever; what a cycle has is asked for again."""
        body = {**SIGNED, "though_touched": True}
        for _ in range(CLEAR_MAX):
            told = await self.log.look()
            left = [each for each in told.values() if each.number in self._numbers and not each.is_done]
            if not left:
                return
            await asyncio.gather(*(self.addresses.ask("POST", f"messages/{each.id}/skip", json=body) for each in left))


def _uprns(each: Published) -> list[int]:
    return [each.said[name] for name in ("uprn", "uprn_1", "uprn_2") if name in each.said]


@dataclass
class Stage:
    """Where worlds are played: one API, one worker, one log and four modules for all."""

    addresses: Addresses
    oss: OssOfWorlds
    log: Log
    played: int = 0
    _playing: int = 0
    _options: Mapping[str, str] = field(default_factory=dict)
    """Those that are in force."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def play(self, world: World) -> Verdict:
        """Play a world, and say what to think of what came out."""
        async with self._under(world.options):
            self.played += 1
            names = Names(world, self.played)
            return await Play(names, self.addresses, self.oss, self.log, Delivery(names, self.addresses)).run()

    async def count_drift(self) -> tuple[int, int]:
        """Return how many UPRNs differ by the product's comparison, and by the modules' tables."""
        told, _ = await compare_modules(self.addresses)
        states = [self.addresses.states(module) for module in Module]
        uprns = {uprn for live in states for uprn in live}
        return told, sum(any(live.get(uprn) != states[0].get(uprn) for live in states) for uprn in uprns)

    @asynccontextmanager
    async def _under(self, wanted: Mapping[str, str]) -> AsyncIterator[None]:
        """Have options in force: worlds with others wait until none is played any more."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._playing or self._options == wanted)
            if self._options != wanted:
                body = {**SIGNED, "options": options.make_config(wanted)}
                reply = await self.addresses.ask("PUT", "config", json=body)
                assert reply.status == 200, reply.body
                self._options = wanted
            self._playing += 1
        try:
            yield
        finally:
            async with self._changed:
                self._playing -= 1
                self._changed.notify_all()


@asynccontextmanager
async def running_stage(settings: Settings) -> AsyncIterator[Stage]:
    """API, worker and modules, with times that are small in the same proportion."""
    folder = settings.data_dir
    async with running_oss(folder, kind=OssOfWorlds) as oss:
        assert isinstance(oss, OssOfWorlds)
        push = settings.addresses.push.model_copy(update={"secret": SecretStr(SECRET)})
        async with running_addresses(settings, folder, modules=oss, push=push) as addresses:
            await addresses.resume()
            log = Log(addresses)
            watching = asyncio.create_task(log.watch())
            try:
                yield Stage(addresses, oss, log)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
