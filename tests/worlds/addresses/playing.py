"""Playing: a world's messages are pushed to the API, round by round, and what comes of them is judged."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import SecretStr

from domain.addresses.operations import Module
from domain.addresses.states import State
from infra.settings import Settings
from sims.oss.server import running_oss
from tests.support.addresses import SIGNED, Addresses, running_addresses
from tests.support.waiting import eventually
from tests.worlds.addresses.flaws import LASTING, Group
from tests.worlds.addresses.judging import judge_world
from tests.worlds.addresses.modules import TIMEOUT_SECONDS, TRIES, Curse, OssOfWorlds, Weather
from tests.worlds.addresses.naming import Names, Published
from tests.worlds.addresses.seen import QUEUEING, Seen, Told, rests
from tests.worlds.addresses.world import Operator, World
from tests.worlds.verdict import Verdict

SECRET = "a-secret-of-worlds"
CALLS = {"timeout_seconds": TIMEOUT_SECONDS, "breaker_failures": 5, "breaker_seconds": 0.5}
BOUND_SECONDS = 90.0
LOOK_SECONDS = 0.15
PAGE = 200
CLEAR_MAX = 20
EARLIER = timedelta(seconds=5)
"""Clocks of the database and of this process may differ by less."""
OF_PUBLISHERS = frozenset(
    {"swap_chain", "delivered_twice", "event_repeated", "numbers_reversed", "delete_first", "unreadable"}
)
"""Flaws that go wrong by being published."""


@dataclass
class Log:
    """The log as it is now, read once for all worlds that want to know."""

    addresses: Addresses
    begun: list[datetime] = field(default_factory=list)
    """When the worlds began that are being played."""
    told: Mapping[str, Told] = field(default_factory=dict)
    """By their numbers: messages of those worlds that are not in the history."""
    _read: asyncio.Event = field(default_factory=asyncio.Event)

    async def look(self) -> Mapping[str, Told]:
        """Return what a walk found that began after this moment."""
        await self._read.wait()
        await self._read.wait()
        return self.told

    async def watch(self) -> None:
        """Read it again and again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.begun:
                told = await self._walk(min(self.begun) - EARLIER)
                self.told = {each.number: each for each in told}
            self._read.set()
            self._read = asyncio.Event()

    async def _walk(self, since: datetime) -> list[Told]:
        return await list_messages(self.addresses, created_after=since.isoformat().replace("+00:00", "Z"))


async def list_messages(addresses: Addresses, **wanted: str) -> list[Told]:
    """List messages over all pages."""
    found, cursor = [], None
    while True:
        params = {"limit": str(PAGE), **wanted, **({"cursor": cursor} if cursor else {})}
        reply = await addresses.ask("GET", "messages", params=params)
        assert reply.status == 200, reply.body
        found += [Told.read(each) for each in reply.body["items"]]
        cursor = reply.body["next_cursor"]
        if not cursor:
            return found


@dataclass
class Play:
    """One playing of a world."""

    names: Names
    addresses: Addresses
    oss: OssOfWorlds
    log: Log
    curse: Curse | None = None
    weather: Weather | None = None
    skipped: frozenset[int] = frozenset()
    given_up: int = 0
    """How many were given up before anybody acted."""

    async def run(self) -> Verdict:
        """Publish, wait, mend, act, and judge."""
        began = datetime.now(UTC)
        self.log.begun.append(began)
        seen = Seen()
        self.curse = self.oss.curse(self.names)
        try:
            try:
                async with asyncio.timeout(BOUND_SECONDS):
                    await self._publish()
                    await self._settle()
                    self._mend()
                    await self._operate()
                    await self._settle()
            except TimeoutError:
                left = [each for each in self.log.told.values() if each.number in self._numbers]
                seen.late = f"not in {BOUND_SECONDS:g} s: {left}"
            else:
                await self._see(seen)
            self._mend()
            await self._clear()
        finally:
            self.log.begun.remove(began)
        seen.fired = frozenset(self._list_fired(seen))
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
                for _ in range(each.times):
                    await self._push(each)
            if self.names.world.rounds[number].waits:
                await self._settle()

    async def _push(self, each: Published) -> None:
        message = {"messageId": each.number, "data": b64encode(each.payload).decode()}
        body = json.dumps({"message": message, "subscription": "projects/p/subscriptions/s"}).encode()
        path, headers = f"/v1/addresses/events/{each.topic}", {"Content-Type": "application/json"}
        params = {"token": SECRET}

        async def is_taken() -> bool:
            reply = await self.addresses.api_client.ask(
                "POST", path, data=io.BytesIO(body), headers=headers, params=params
            )
            return reply.status == 204

        await eventually(is_taken)

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
        ids = sorted(each.id for each in told if each.state is State.GIVEN_UP)
        self.given_up = len(ids)
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
        seen.skipped = self.skipped = await self._list_skipped(seen)
        seen.applied = {
            module: [id_ for id_ in map(int, self.oss.modules[module].applied()) if id_ in ids] for module in Module
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
        if self.curse is not None and self.curse.flaw.name in LASTING:
            seen.hit = frozenset(map(int, self.curse.hits))
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

    def _list_fired(self, seen: Seen) -> set[str]:
        """List what went wrong."""
        world = self.names.world
        fired = set(world.flaw_names) & OF_PUBLISHERS
        kinds = {each.kind for each in seen.told}
        if world.has("hopeless_swap") and ("missing" in kinds or self.given_up):
            fired.add("hopeless_swap")
        if world.has("side_comes_later"):
            fired.add("side_comes_later")
        if self.curse is not None and self.curse.hits:
            fired.add(self.curse.flaw.name)
        weather = world.group(Group.WEATHER)
        if weather is not None and self.weather is not None and self.weather.hits:
            fired.add(weather.name)
        return fired

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

    async def play(self, world: World) -> Verdict:
        """Play a world, and say what to think of what came out."""
        self.played += 1
        return await Play(Names(world, self.played), self.addresses, self.oss, self.log).run()

    async def count_drift(self) -> tuple[int, int]:
        """Return how many UPRNs differ by the product's comparison, and by the modules' tables."""
        ordered = await self.addresses.ask("POST", "drift")
        report = ordered.body["report"]

        async def found() -> dict[str, Any] | None:
            answer: dict[str, Any] | None = (await self.addresses.ask("GET", f"drift/{report}")).body["found"]
            return answer

        told = await eventually(found)
        assert told is not None
        states = [self.addresses.states(module) for module in Module]
        uprns = {uprn for live in states for uprn in live}
        return told["different"], sum(any(live.get(uprn) != states[0].get(uprn) for live in states) for uprn in uprns)


@asynccontextmanager
async def running_stage(settings: Settings) -> AsyncIterator[Stage]:
    """API, worker and modules, with times that are small in the same proportion."""
    folder = settings.data_dir
    async with running_oss(folder, kind=OssOfWorlds) as oss:
        assert isinstance(oss, OssOfWorlds)
        push = settings.addresses.push.model_copy(update={"secret": SecretStr(SECRET)})
        async with running_addresses(settings, folder, modules=oss, calls=CALLS, push=push, retries=TRIES) as addresses:
            await addresses.resume()
            log = Log(addresses)
            watching = asyncio.create_task(log.watch())
            try:
                yield Stage(addresses, oss, log)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
