"""Load of tasks: created, held and set by workers outside."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from tests.cluster.record import Verdict
from tests.cluster.work import PAUSE_SECONDS, Json, Work, ask_until_answered
from tests.support import task_checker
from tests.support.caller import Caller
from tests.support.task_checker import FINAL, GrantedLease, ReportedResult, TaskNotes

TYPE = "lab"
LEASE_SECONDS = 20
PAGE_TASKS = 100


class TaskLoad:
    """Tasks created, held and set by workers outside; each must end once, and have one holder at a time."""

    name = "tasks"

    def __init__(self, caller: Caller) -> None:
        self.work = Work()
        self._caller = caller
        self._notes = TaskNotes()

    async def run(self, over: asyncio.Event) -> None:
        """See Load."""
        config = {
            "task_type": TYPE,
            "max_processing_time": LEASE_SECONDS,
            "max_retry_num": 1_000,
            "max_retry_interval": 1,
        }
        await self._insist("POST", "register_task_type", json={"task_type_data": config})
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self._hold_and_set(done))
            await self._create(over)
            await ask_until_answered(self._is_nothing_left)
            done.set()

    async def check(self) -> Verdict:
        """See Load."""
        self._notes.found = [(task["task_id"], task["status"]) async for task in self._list_all_tasks()]
        counted = await self._insist("GET", "get_task_counts_by_type", params={"task_type": TYPE})
        names = ("task_count", "pending", "running", "success", "failed")
        self._notes.counted = {name: counted[name] for name in names}
        lost = len(set(self._notes.created.values()) - dict(self._notes.found).keys())
        wrong = task_checker.list_violations(self._notes)
        return Verdict(len(self._notes.created), lost, len(wrong) - lost, tuple(wrong))

    async def _list_all_tasks(self) -> AsyncIterator[Json]:
        """Yield every task; `get_task_list` has the newest 2,000 only."""
        cursor = ""
        while True:
            query = {"task_type": TYPE, "limit": PAGE_TASKS, "cursor": cursor}
            page = await self._insist("GET", "browse_tasks", params=query)
            for task in page["task_list"]:
                yield task
            if not (cursor := page["next_cursor"]):
                return

    async def _create(self, over: asyncio.Event) -> None:
        for number in itertools.count():
            if over.is_set():
                return
            name = f"task-{number}"
            self.work.begin(name)
            data = {"task_type": TYPE, "task_id": name, "user_id": "lab", "task_content": name}
            answer = await self._insist("POST", "create_task", json={"task_data": data})
            self._notes.created[name] = answer["task_id"]
            await asyncio.sleep(PAUSE_SECONDS)

    async def _hold_and_set(self, done: asyncio.Event) -> None:
        while not done.is_set():
            held = await self._ask("POST", "hold_tasks", json={"task_type": TYPE, "limit": 3, "wait": 1})
            received_at = time.time()
            if held is None:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            for task in held["task_list"]:
                lease = GrantedLease(task["task_id"], task["lease"], received_at, task["lease_end"])
                self._notes.holdings.append(lease)
                await self._set(task)

    async def _set(self, task: Json) -> None:
        said = {"task_id": task["task_id"], "lease": task["lease"], "status": FINAL[0]}
        sent_at = time.time()
        answer = await self._insist("POST", "set_task", json={"task_data": said})
        taken = answer["code"] == 0
        self._notes.sayings.append(ReportedResult(task["task_id"], task["lease"], FINAL[0], sent_at, taken))
        self.work.end(task["task_content"])

    async def _is_nothing_left(self) -> Json:
        counts = await self._insist("GET", "get_task_counts_by_type", params={"task_type": TYPE})
        return counts if not counts["pending"] + counts["running"] else {}

    async def _insist(self, method: str, route: str, **options: Any) -> Json:
        async def ask() -> Json | None:
            return await self._ask(method, route, **options)

        return await ask_until_answered(ask)

    async def _ask(self, method: str, route: str, **options: Any) -> Json | None:
        """Return the answer; None where there is none, or a component is down."""
        try:
            async with self._caller.session.request(method, f"/v1/{route}", **options) as answer:
                body: Json = await answer.json(content_type=None)
        except (aiohttp.ClientError, ConnectionError, TimeoutError, ValueError):
            return None
        if answer.status >= 500 or body["code"] == 8036:
            return None
        assert answer.status == 200, body
        return body
