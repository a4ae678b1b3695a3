"""Addresses in the demo: 5,000 changes into four modules, one of which is down for a while; all tables are compared."""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from demo.part import Demo, Show, WrongOutcome
from dev.stand_ins import PUBSUB_PROJECT
from haulage.addresses import Addresses, Comparison, Module, Topic

CREATES: Final = 4_000
SWAPS: Final = 500
UPDATES: Final = 300
DELETES: Final = 200
TOTAL: Final = CREATES + SWAPS + UPDATES + DELETES
DOWN: Final = Module.WFM
DOWN_SECONDS: Final = 3.0
OPTIONS: Final = {"pause_seconds": 1, "modules": {module.value: {"breaker_seconds": 1} for module in Module}}
"""Cycles follow each other sooner than by default, so that the demo waits less."""
PUBLISH_MAX: Final = 1_000
RECEIVE_SECONDS: Final = 60.0
UPRNS: Final = 10**9
"""A part takes its UPRNs out of so many, so that two parts on one installation do not meet."""

Change: TypeAlias = dict[str, Any]
Live: TypeAlias = dict[int, tuple[int, Change]]
"""The id and the record of the address of each UPRN."""


@dataclass
class AddressesPart:
    """Changes of addresses, published in two rounds."""

    system: str = "addresses"
    first: int = field(default_factory=lambda: UPRNS + secrets.randbelow(UPRNS) * TOTAL)
    """The first UPRN."""
    _acknowledged: int = 0

    async def prepare(self, demo: Demo) -> None:
        """Shorten the pauses of cycles."""
        body = {"who": "demo", "reason": "the demo waits less", "options": OPTIONS}
        headers = {"Authorization": f"Bearer {demo.admin_key}"}
        async with demo.session.patch(f"{demo.api}/v1/addresses/config", json=body, headers=headers) as response:
            response.raise_for_status()
        self._acknowledged = await _count_acknowledged(demo)

    async def run(self, demo: Demo, show: Show) -> str:
        """Publish addresses, then swaps, updates and deletes of them; compare the modules at the end."""
        await _set_rules(demo, [{"action": "reset", "modules": [DOWN]}])
        async with Addresses(demo.api, demo.admin_key, who="demo") as addresses:
            creates, changes = list(self._list_creates()), list(self._list_changes())
            await asyncio.gather(self._apply(demo, addresses, creates, 0, show), _end_outage(demo, addresses))
            await self._apply(demo, addresses, changes, len(creates), show)
            comparison = await addresses.compare()
        await _save_workbook(demo, comparison)
        return f"applied {TOTAL:,} changes in four modules, {DOWN} of which was down for {DOWN_SECONDS:.0f} s"

    async def check(self, demo: Demo) -> str:
        """Compare the tables of each module with what plain Python makes of the changes."""
        expected = self._compute_expected()
        for module in Module:
            found = await self._load_live(demo, module)
            wrong = [uprn for uprn in expected.keys() | found.keys() if expected.get(uprn) != found.get(uprn)]
            if wrong:
                uprn = min(wrong)
                raise WrongOutcome(
                    f"{module} differs in {len(wrong):,} UPRNs. The first is {uprn}: it has {found.get(uprn)}, not "
                    f"{expected.get(uprn)}."
                )
        return f"every record of {len(expected):,} addresses in each module"

    def _list_creates(self) -> Iterator[tuple[Topic, Change]]:
        for number in range(CREATES):
            yield Topic.CREATE_UPDATE, self._build_address(number, version=1)

    def _list_changes(self) -> Iterator[tuple[Topic, Change]]:
        """Yield changes of different addresses, whose order does not matter."""
        for number in range(0, 2 * SWAPS, 2):
            yield Topic.SWAP, {"uprn_1": self.first + number, "uprn_2": self.first + number + 1}
        for number in range(2 * SWAPS, 2 * SWAPS + UPDATES):
            yield Topic.CREATE_UPDATE, self._build_address(number, version=2)
        for number in range(2 * SWAPS + UPDATES, 2 * SWAPS + UPDATES + DELETES):
            yield Topic.DELETE, {"uprn": self.first + number}

    def _build_address(self, number: int, *, version: int) -> Change:
        uprn = self.first + number
        return {"uprn": uprn, "address_id": uprn, "record": {"street": f"{number} Main Street", "version": version}}

    def _compute_expected(self) -> Live:
        live: Live = {}
        for topic, change in (*self._list_creates(), *self._list_changes()):
            match topic:
                case Topic.CREATE_UPDATE:
                    live[change["uprn"]] = change["address_id"], change["record"]
                case Topic.SWAP:
                    one, other = change["uprn_1"], change["uprn_2"]
                    live[one], live[other] = live[other], live[one]
                case Topic.DELETE:
                    del live[change["uprn"]]
        return live

    async def _apply(
        self, demo: Demo, addresses: Addresses, changes: Sequence[tuple[Topic, Change]], before: int, show: Show
    ) -> None:
        """Publish changes, and wait until cycles have nothing left to do."""
        for topic in Topic:
            await _publish(demo, topic, [change for each, change in changes if each is topic])
        self._acknowledged += len(changes)
        async with asyncio.timeout(RECEIVE_SECONDS):
            while await _count_acknowledged(demo) < self._acknowledged:
                show(before, TOTAL, f"{before:,} of {TOTAL:,} changes, receiving more")
                await asyncio.sleep(0.2)
        async for figures in addresses.watch():
            done = max(before, before + len(changes) - figures.unfinished)
            show(done, TOTAL, f"{done:,} of {TOTAL:,} changes")

    async def _load_live(self, demo: Demo, module: Module) -> Live:
        states = await demo.call_stand_in("modules", "GET", f"/_sim/{module}/states")
        own = range(self.first, self.first + TOTAL)
        return {each["uprn"]: (each["address_id"], each["record"]) for each in states if each["uprn"] in own}


async def _publish(demo: Demo, topic: Topic, changes: Sequence[Change]) -> None:
    for at in range(0, len(changes), PUBLISH_MAX):
        batch = [{"data": b64encode(json.dumps(each).encode()).decode()} for each in changes[at : at + PUBLISH_MAX]]
        path = f"/v1/projects/{PUBSUB_PROJECT}/topics/{topic}:publish"
        await demo.call_stand_in("pubsub", "POST", path, json={"messages": batch})


async def _count_acknowledged(demo: Demo) -> int:
    stats = await demo.call_stand_in("pubsub", "GET", "/_sim/stats")
    return sum(each["acked"] for each in stats.values())


async def _set_rules(demo: Demo, rules: Sequence[Mapping[str, object]]) -> None:
    await demo.call_stand_in("modules", "PUT", "/_sim/scenario", data=json.dumps({"rules": rules}))


async def _end_outage(demo: Demo, addresses: Addresses) -> None:
    """Let the module work again, some seconds after messages failed there."""
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            while not any(  # noqa: ASYNC110 (the installation is another process)
                each.failed_in[DOWN] for each in (await addresses.get_unfinished_counts()).messages
            ):
                await asyncio.sleep(0.2)
            await asyncio.sleep(DOWN_SECONDS)
    except TimeoutError:
        raise WrongOutcome(f"No message failed in {DOWN}, although it was down.") from None
    finally:
        await _set_rules(demo, [])


async def _save_workbook(demo: Demo, comparison: Comparison) -> None:
    """Leave the comparison of the modules beside the other files of the demo."""
    if comparison.found is None:
        raise WrongOutcome(
            f"The comparison of the modules failed: {comparison.fault.sentence if comparison.fault else ''}"
        )
    async with demo.session.get(comparison.found.url) as response:
        response.raise_for_status()
        (demo.folder / f"comparison-{comparison.comparison_id}.xlsx").write_bytes(await response.read())
