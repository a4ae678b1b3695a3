"""Load of all five systems, small and steady, each with what must be true of it in the end."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import asyncpg

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.objects import ObjectStore
from sims.gse.tasks import FileSpot
from sims.platforms.scenario import Changes, PlatformScenario
from tests.cluster.record import Verdict
from tests.cluster.task_load import TaskLoad
from tests.cluster.work import PAUSE_SECONDS, Json, Load, Work, ask_until_answered
from tests.support.address_log import AddressLog
from tests.support.caller import Caller
from tests.support.deployment import PUSH_SECRET, Deployment
from tests.support.downloads import expected_rows, parse_csv
from tests.support.order_fleet import Fleet
from tests.support.orders import count_findings
from tests.support.transfers import CONTENT, FOLDER, sha256

ROWS, PAGE_ROWS, PAGE_MS = 1_000, 100, 200
TARGETS = 4
UPRNS = range(1_000, 1_040)
PLATFORM = "lab"
HISTORY_SECONDS = 300
LATE_SECONDS = 12
"""The platform's orders count as in once they are older than this."""


class DownloadLoad:
    """Exports, one after the other; each file must have every row, once, in order."""

    name = "downloads"

    def __init__(self, deployment: Deployment, caller: Caller) -> None:
        self.work = Work()
        self._deployment = deployment
        self._caller = caller
        self._lost = self._doubled = 0
        self._notes: list[str] = []
        self._accepted = 0

    async def run(self, over: asyncio.Event) -> None:
        """See Load."""
        for seed in itertools.count(1):
            if over.is_set():
                return
            url = f"{self._deployment.source}/rows?rows={ROWS}&seed={seed}&delay_ms={PAGE_MS}"
            self.work.begin(str(seed))
            task_id = await self._caller.start(url, page_size=PAGE_ROWS)
            self._accepted += 1
            status = await self._caller.wait_for_end(task_id)
            if status["state"] == "succeeded":
                self._compare(task_id, parse_csv(await self._caller.file(task_id)), seed)
            else:
                self._lost += 1
                self._notes.append(f"{task_id} ended as {status['state']}: {status.get('error')}")
            self.work.end(str(seed))
            await asyncio.sleep(PAUSE_SECONDS)

    async def check(self) -> Verdict:
        """See Load."""
        return Verdict(self._accepted, self._lost, self._doubled, tuple(self._notes))

    def _compare(self, task_id: str, rows: list[list[str]], seed: int) -> None:
        expected = expected_rows(seed, range(ROWS))
        if rows == expected:
            return
        self._notes.append(f"{task_id} has {len(rows)} rows instead of {len(expected)}, or others")
        self._lost += any(row not in rows for row in expected)
        self._doubled += len(rows) > len({row[0] for row in rows})


class TransferLoad:
    """A file to a few new hosts, again and again; each host must get it."""

    name = "transfers"

    def __init__(self, deployment: Deployment, caller: Caller) -> None:
        self.work = Work()
        self._deployment = deployment
        self._caller = caller
        self._ends: dict[str, Json] = {}

    async def run(self, over: asyncio.Event) -> None:
        """See Load."""
        store = ObjectStore(self._deployment.settings.objects)
        await store.put(f"transfers/2/{sha256(CONTENT)}", CONTENT)
        await store.close()
        for turn in itertools.count():
            if over.is_set():
                return
            self.work.begin(str(turn))
            agents = [f"host-{turn}-{number}" for number in range(TARGETS)]
            task_ids = await self._join(agents)
            for agent, task_id in zip(agents, task_ids, strict=True):
                self._ends[agent] = await self._wait_for_end(task_id)
            self.work.end(str(turn))
            await asyncio.sleep(PAUSE_SECONDS)

    async def check(self) -> Verdict:
        """See Load."""
        failed = {agent: end for agent, end in self._ends.items() if end["status"] != "Success"}
        missing = [agent for agent in self._ends if not self._has_file(agent)]
        notes = [
            f"{agent} ended as {end['status']}: {end.get('reason')} {end.get('message')}"
            for agent, end in failed.items()
        ]
        sent_again = sum(count > 1 for spot, count in self._deployment.world.sends.items() if spot.agent in self._ends)
        if sent_again:
            notes.append(f"{sent_again} of {len(self._ends)} targets were sent the same file again, as documented")
        return Verdict(len(self._ends), len({*failed, *missing}), 0, tuple(notes))

    async def _join(self, agents: list[str]) -> list[str]:
        body = {
            "biz_id": 2,
            "app_id": 7,
            "file_path": "/etc/app.conf",
            "file_name": "app.conf",
            "signature": sha256(CONTENT),
            "target_user": "root",
            "target_file_dir": FOLDER,
            "targets": [{"target_agent_id": agent} for agent in agents],
        }
        answer = await self._caller.call("POST", "/v1/transfers:batch", 202, json=body)
        return [task["task_id"] for task in (await answer.json())["tasks"]]

    async def _wait_for_end(self, task_id: str) -> Json:
        async def look() -> Json:
            answer = await self._caller.call("GET", f"/v1/transfers/{quote(task_id)}", 200)
            shown: Json = await answer.json()
            return shown if shown["status"] in ("Success", "Failed", "Timeout") else {}

        return await ask_until_answered(look)

    def _has_file(self, agent: str) -> bool:
        path = self._deployment.disks.path(FileSpot(agent, "", FOLDER, sha256(CONTENT)))
        return path.exists() and path.read_bytes() == CONTENT


class OrderLoad:
    """A platform whose orders change all the time; its ledger and our copies must be the same."""

    name = "orders"

    def __init__(self, deployment: Deployment, caller: Caller) -> None:
        self.work = Work()
        self._deployment = deployment
        self._caller = caller
        self._fleet = Fleet(deployment, caller.project_id)

    async def run(self, over: asyncio.Event) -> None:
        """See Load."""
        changes = Changes(per_second=1.0, created_share=0.5)
        scenario = PlatformScenario(orders=200, span_seconds=HISTORY_SECONDS, skew_seconds=0, changes=changes)
        started = (datetime.now(UTC) - timedelta(seconds=HISTORY_SECONDS)).isoformat()
        options: Json = {"interval": 10, "settle_lag": 5, "starttime": started}
        platform = await self._fleet.begin(PLATFORM, scenario, **options)
        while not over.is_set():
            asked = time.time() - LATE_SECONDS
            name = f"{asked:.3f}"
            self.work.begin(name)
            while not over.is_set() and await self._read_complete_to() < asked:
                await self._deployment.as_admin("POST", f"/v1/platforms/{PLATFORM}/trigger")
                await asyncio.sleep(1.0)
            self.work.end(name)
            await asyncio.sleep(PAUSE_SECONDS)
        platform.market.freeze()
        platform.market.clock.advance(1_000)
        await self._deployment.as_admin("POST", f"/v1/platforms/{PLATFORM}/trigger")
        await self._fleet.complete(PLATFORM)

    async def check(self) -> Verdict:
        """See Load."""
        findings = await self._fleet.findings(PLATFORM)
        wrong = count_findings(findings)
        known = len(self._deployment.platforms.by_number[PLATFORM].ledger()["ids"])
        notes = (str(wrong),) if any(wrong.values()) else ()
        return Verdict(known, wrong["lost"] + wrong["stale"], wrong["duplicated"] + wrong["invented"], notes)

    async def _read_complete_to(self) -> float:
        shown = await self._deployment.as_admin("GET", f"/v1/platforms/{PLATFORM}")
        return datetime.fromisoformat(shown["complete_to"]).timestamp() if shown.get("complete_to") else 0.0


class AddressLoad:
    """Changes of some addresses; each must take effect once, in the order of receipt, in all modules alike."""

    name = "addresses"

    def __init__(self, deployment: Deployment, caller: Caller, seed: int) -> None:
        self.work = Work()
        self._caller = caller
        self._log = AddressLog(deployment, UPRNS)
        self._chance = random.Random(seed)
        self._pushed: list[str] = []

    async def run(self, over: asyncio.Event) -> None:
        """See Load."""
        await self._log.resume()
        watching = asyncio.create_task(self._watch())
        try:
            for number in itertools.count():
                if over.is_set():
                    break
                name = f"lab-{number}"
                self.work.begin(name)
                await self._push(name, *self._draw(number))
                self._pushed.append(name)
                await asyncio.sleep(PAUSE_SECONDS)
            await self._log.settle()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def check(self) -> Verdict:
        """See Load."""
        rows = await self._log.settle()
        logged = [row["msg_no"] for row in rows.values()]
        needed = {str(id_) for id_, row in rows.items() if row["superseded_by"] is None}
        lost, doubled, notes = len(set(self._pushed) - set(logged)), len(logged) - len(set(logged)), list[str]()
        for module in Module:
            applied = self._log.list_applied(module, rows)
            lost += len(needed - set(applied))
            doubled += len(applied) - len(set(applied))
            if self._log.states(module) != self._log.compute_expected(applied, rows):
                notes.append(f"{module} has other addresses than its own order of changes makes")
            if self._log.states(module) != self._log.states(Module.ED):
                notes.append(f"{module} differs from {Module.ED}")
        return Verdict(len(self._pushed), lost + len(notes), doubled, tuple(notes))

    async def _push(self, name: str, topic: Topic, payload: Json) -> None:
        """Push a message until it is taken, as Pub/Sub does."""
        data = base64.b64encode(json.dumps(payload).encode()).decode()
        body = {"message": {"messageId": name, "data": data}, "subscription": "projects/p/subscriptions/s"}
        await self._caller.call("POST", f"/v1/addresses/events/{topic}?token={PUSH_SECRET}", 204, json=body)

    async def _watch(self) -> None:
        """Note which messages are done."""
        while True:
            await asyncio.sleep(1.0)
            try:
                rows = await self._log.rows()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                continue
            done = {row["msg_no"] for row in rows.values() if row["proc_flag"] == "Y"}
            for name in [name for name in self.work.open if name in done]:
                self.work.end(name)

    def _draw(self, number: int) -> tuple[Topic, Json]:
        half = len(UPRNS) // 2
        if number >= len(UPRNS) and self._chance.random() < 0.2:
            one, other = self._chance.sample(UPRNS[:half], 2)
            return Topic.SWAP, {"uprn_1": one, "uprn_2": other}
        uprn = UPRNS[number] if number < len(UPRNS) else self._chance.choice(UPRNS)
        return Topic.CREATE_UPDATE, {"uprn": uprn, "address_id": 1_000_000 + uprn, "record": {"n": number}}


def build_loads(deployment: Deployment, caller: Caller, seed: int) -> list[Load]:
    """Return the load of every system."""
    return [
        DownloadLoad(deployment, caller),
        TransferLoad(deployment, caller),
        OrderLoad(deployment, caller),
        AddressLoad(deployment, caller, seed),
        TaskLoad(caller),
    ]
