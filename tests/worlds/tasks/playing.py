"""Playing: callers, workers and operators of a world at one queue, until all that was asked for has ended."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from domain.quotas import QuotaLimits
from infra.settings import Settings
from tests.support.api import running_api
from tests.support.tasks import SIGNED, running_tasks
from tests.worlds import dice
from tests.worlds.tasks.asking import ApiCaller, ApiResponse, Json
from tests.worlds.tasks.flaws import TaskFlawGroup
from tests.worlds.tasks.judging import judge_world
from tests.worlds.tasks.library import NotedTasks, run_library_worker
from tests.worlds.tasks.seen import FINAL, CreatedTask, FinalTask, OperatorAction, TaskObservations
from tests.worlds.tasks.working import Attempts, Worker, note_created
from tests.worlds.tasks.world import LANE_TASKS, PlannedTask, TaskWorld
from tests.worlds.verdict import Verdict

BOUND_SECONDS = 180.0
"""Also on a busy machine; what never ends is stopped here."""
LOOK_SECONDS = 0.5
LIST_MAX = 2_000
REFUSED_TEXTS = ("x" * 16_385, "a NUL \x00", "half a pair \ud83d")
INVALID, UNKNOWN_TYPE, DIFFERS = 8020, 8045, 8037
PAUSED_SECONDS = 1.5


@dataclass
class TaskWorldPlay:
    """One playing of a world."""

    world: TaskWorld
    type: str
    asker: ApiCaller
    addresses: Sequence[str]
    seen: TaskObservations
    fired: set[str] = field(default_factory=set)
    began_at: float = field(default_factory=time.time)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    ids: dict[int, str] = field(default_factory=dict)
    """By wish, once its task has an id."""
    id_known: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))

    async def run(self) -> Verdict:
        """Register, create, work and act until all is done; then look and judge."""
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                await self._register(self.world.rules)
                await self._play()
                await self._see()
        except TimeoutError:
            ended = {each.task_id for each in self.seen.sayings if each.is_taken and each.status in FINAL}
            left = [each for each in self.seen.created if each.task_id not in ended]
            self.seen.late = f"not in {BOUND_SECONDS:g} s: {left[:5]}"
        self.fired |= self._list_visible_flaws()
        self.seen.fired = frozenset(self.fired & {*self.world.flaw_names})
        return judge_world(self.world, self.seen)

    async def _play(self) -> None:
        attempts = Attempts(self.world, self.type)
        async with asyncio.TaskGroup() as people:
            workers = [
                Worker(number, attempts, self.asker, self.seen, self.fired, self.done)
                for number in range(self.world.workers)
            ]
            for worker in workers:
                people.create_task(worker.run())
            if self.world.options["worker"] == "library too":
                people.create_task(self._run_library(attempts))
            async with asyncio.TaskGroup() as makers:
                makers.create_task(self._create_all())
                makers.create_task(self._operate())
            await self._wait_for_the_end(workers)
            self.done.set()

    async def _run_library(self, attempts: Attempts) -> None:
        async with NotedTasks(
            self.addresses[self.world.seed % len(self.addresses)], self.asker.key, self.seen
        ) as tasks:
            assert isinstance(tasks, NotedTasks)
            await run_library_worker(tasks, attempts, self.done)

    async def _register(self, rules: Any) -> ApiResponse:
        config = {
            "task_type": self.type,
            "schedule_limit": rules.schedule_limit,
            "max_retry_num": rules.max_retry_num,
            "max_retry_interval": rules.max_retry_interval,
            "max_processing_time": rules.max_processing_time,
            "retry_interval": rules.retry_interval,
            "lease_required": rules.lease_required,
        }
        return await self.asker.insist("POST", "register_task_type", json={"task_type_data": config})

    async def _create_all(self) -> None:
        by_delay: dict[float, list[PlannedTask]] = defaultdict(list)
        for wish in self.world.wishes:
            by_delay[wish.delay_seconds].append(wish)
        await asyncio.gather(*(self._create_later(delay, wishes) for delay, wishes in by_delay.items()))
        if self.world.has("text_refused"):
            data = self._new(self.world.wishes[0], "refused") | {
                "task_content": REFUSED_TEXTS[self.world.seed % len(REFUSED_TEXTS)]
            }
            await self._expect("text_refused", INVALID, "create_task", {"task_data": data})
        if self.world.has("unknown_type"):
            data = self._new(self.world.wishes[0], "") | {"task_type": f"{self.type}-none"}
            await self._expect("unknown_type", UNKNOWN_TYPE, "create_task", {"task_data": data})
            await self._expect("unknown_type", UNKNOWN_TYPE, "hold_tasks", {"task_type": f"{self.type}-none"})

    async def _expect(self, flaw: str, code: int, route: str, body: Json) -> None:
        answer = await self.asker.insist("POST", route, json=body)
        if answer.body["code"] == code:
            self.fired.add(flaw)
        else:
            self.seen.crossed.append(f"{route}, which is {flaw}, was answered {answer.body}")

    def _new(self, wish: PlannedTask, name: str) -> Json:
        text, priority = ("task_content", "task_priority")
        if self.world.options["words"] == "original":
            text, priority = ("context", "priority")
        new: Json = {
            "task_type": self.type,
            "user_id": f"{self.type}/{wish.number}",
            text: self.world.text(wish.number),
        }
        new |= {priority: wish.priority} | ({"task_id": name} if name else {})
        if (start := self._start(wish)) is not None:
            new["start_time"] = datetime.fromtimestamp(start, UTC).isoformat()
        return new

    def _start(self, wish: PlannedTask) -> float | None:
        """Return when a task may begin, the same whenever it is asked."""
        seconds = self.world.start_seconds(wish.number)
        return None if seconds is None else round(self.began_at + wish.delay_seconds + seconds, 3)

    def _name(self, wish: PlannedTask) -> str:
        return f"{self.type}-{wish.number}" if self.world.options["name"] == "own" else ""

    async def _create_later(self, delay: float, wishes: Sequence[PlannedTask]) -> None:
        await asyncio.sleep(delay)
        if self.world.options["create"] == "batch":
            await self._create(wishes)
        else:
            await asyncio.gather(*(self._create([wish]) for wish in wishes))

    async def _create(self, wishes: Sequence[PlannedTask]) -> None:
        new = [self._new(wish, self._name(wish)) for wish in wishes]
        is_batch = self.world.options["create"] == "batch"
        route, body = ("create_tasks", {"task_list": new}) if is_batch else ("create_task", {"task_data": new[0]})
        loses = any(
            self.world.is_struck(flaw, wish.number)
            for flaw in ("create_lost", "create_lost_without_name")
            for wish in wishes
        )
        answer = await self.asker.insist("POST", route, loses=loses, json=body)
        if loses and answer.lost:
            self.fired |= {"create_lost", "create_lost_without_name"}
        results = answer.body.get("results") or [answer.body] * len(wishes)
        for wish, result in zip(wishes, results, strict=True):
            self._note(wish, answer, result)
        for wish in wishes:
            await self._ask_again(wish)

    def _note(self, wish: PlannedTask, answer: ApiResponse, result: Json) -> None:
        text, user_id = self.world.text(wish.number), f"{self.type}/{wish.number}"
        start = self._start(wish) or 0.0
        note_created(self.seen, wish.number, self._name(wish), user_id, text, answer, result, wish.priority, start)
        if start > answer.at:
            self.fired.add("starts_later")
        if result["code"]:
            self.seen.refusals.append(f"create of {wish}: {result}")
        else:
            self.ids[wish.number] = result["task_id"]
        self.id_known[wish.number].set()

    async def _ask_again(self, wish: PlannedTask) -> None:
        """Ask for what was asked for already, with another content."""
        if not self.world.is_struck("create_differs", wish.number):
            return
        changed = self._new(wish, self._name(wish)) | {"task_content": "something else"}
        changed.pop("context", None)
        await self._expect("create_differs", DIFFERS, "create_task", {"task_data": changed})

    async def _operate(self) -> None:
        flaw = self.world.group(TaskFlawGroup.OPERATORS)
        if flaw is None:
            return
        match flaw.name:
            case "cancelled" | "put_back":
                struck = [wish.number for wish in self.world.wishes if self.world.is_struck(flaw.name, wish.number)]
                await asyncio.gather(*(self._act_on(flaw.name, number) for number in struck))
            case "paused":
                await asyncio.sleep(0.3)
                await self._act("pause", "pause_task_type", {"task_type": self.type, **SIGNED})
                await asyncio.sleep(PAUSED_SECONDS)
                await self._act("resume", "resume_task_type", {"task_type": self.type, **SIGNED})
            case _:
                await asyncio.sleep(0.2 + flaw.share)
                await self._register(self.world.later_rules)
                self.fired.add("config_changed")

    async def _act_on(self, name: str, number: int) -> None:
        await self.id_known[number].wait()
        await asyncio.sleep(dice.pick((0.0, 0.03, 0.1, 0.5, 1.3), self.world.seed, "act", number))
        task_id = self.ids.get(number, "")
        if name == "cancelled":
            await self._act("cancel", "cancel_task", {"task_id": task_id}, task_id)
            return
        for _ in range(5):
            if await self._act("put_back", "put_back_tasks", {"task_list": [{"task_id": task_id}]}, task_id) == 0:
                return
            await asyncio.sleep(0.02)

    async def _act(self, kind: str, route: str, body: Json, task_id: str = "") -> int:
        answer = await self.asker.insist("POST", route, json=body)
        [result] = answer.body.get("results") or [answer.body]
        if (reported := result.get("task_id") or task_id) != task_id:
            # It had ended: what was put back is a new task that is the same.
            await self._note_again(task_id, reported, answer)
            return 0
        self.seen.acts.append(OperatorAction(kind, answer.sent_at, answer.at, answer.code, task_id, answer.lost))
        if answer.code == 0:
            self.fired.add({"cancel": "cancelled", "resume": "paused"}.get(kind, kind))
        return answer.code

    async def _note_again(self, task_id: str, reported: str, answer: ApiResponse) -> None:
        task = (await self.asker.insist("GET", "get_task", params={"task_id": task_id})).body["task_data"]
        self.seen.created.append(
            CreatedTask(
                wish=-1,
                name=f"again {task_id}",
                user_id=task["user_id"],
                sent_at=answer.sent_at,
                answered_at=answer.at,
                code=0,
                task_id=reported,
                text=task["task_content"],
                stage=task["stage"],
                priority=task["task_priority"],
            )
        )

    async def _wait_for_the_end(self, workers: Sequence[Worker]) -> None:
        """Return when no task is left to do, and none is in work that may yet create another."""
        while True:
            if not any(worker.in_hand for worker in workers):
                answer = await self.asker.insist("GET", "get_task_counts_by_type", params={"task_type": self.type})
                is_over = not answer.body["pending"] + answer.body["running"]
                if is_over and not any(worker.in_hand for worker in workers):
                    return
            await asyncio.sleep(LOOK_SECONDS)

    async def _list(self) -> list[Json]:
        params = {"task_type": self.type, "limit": str(LIST_MAX)}
        tasks: list[Json] = (await self.asker.insist("GET", "get_task_list", params=params)).body["task_list"]
        return tasks

    async def _see(self) -> None:
        """Look at all tasks, at some of them one by one, and at the counts."""
        tasks = await self._list()
        for task in tasks[:: 1 + len(tasks) // 5]:
            found = (await self.asker.insist("GET", "get_task", params={"task_id": task["task_id"]})).body["task_data"]
            differs = {name: (value, found.get(name)) for name, value in task.items() if found.get(name) != value}
            if differs:
                self.seen.crossed.append(f"{task['task_id']} differs from the list: {differs}")
        self.seen.ended = [_read_ended(task) for task in tasks]
        params = {"task_type": self.type}
        self.seen.counts = (await self.asker.insist("GET", "get_task_counts_by_type", params=params)).body

    def _list_visible_flaws(self) -> set[str]:
        """List flaws that are shown by what was asked for."""
        shown = {"burst", "odd_texts"} if self.seen.created else set()
        if len({each.priority for each in self.seen.created}) > 1:
            shown.add("steady_priority")
        return shown


def _read_ended(task: Json) -> FinalTask:
    return FinalTask(
        task_id=task["task_id"],
        user_id=task["user_id"],
        status=task["status"],
        priority=task["task_priority"],
        crt_retry_num=task["crt_retry_num"],
        stage=task["stage"],
        text=task["task_content"],
        log=task["schedule_log"],
    )


@dataclass
class TaskStage:
    """Where worlds are played: API processes, a worker, and a project."""

    addresses: Sequence[str]
    key: str
    session: aiohttp.ClientSession
    is_calm: bool = True
    """Whether nothing is killed meanwhile."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def play(self, world: TaskWorld) -> Verdict:
        """Play a world, and say what to think of what came out."""
        asker = ApiCaller(self.addresses, self.key, self.session, dice.stream(world.seed, "asking"))
        type_ = f"world_{next(self.numbers)}"
        return await TaskWorldPlay(world, type_, asker, self.addresses, TaskObservations(is_calm=self.is_calm)).run()


@asynccontextmanager
async def running_stage(settings: Settings) -> AsyncIterator[TaskStage]:
    """Two API processes' worth of API, a worker, and lanes that are small in proportion to worlds."""
    # Each world has a type of its own: the quota is never reached.
    settings = settings.model_copy(update={"quotas": QuotaLimits(task_types=100_000)})
    async with (
        running_tasks(settings, lane_max_tasks=LANE_TASKS) as tasks,
        running_api(tasks.api_client.settings) as other,
        aiohttp.ClientSession() as session,
    ):
        yield TaskStage((tasks.api_client.address, other.address), tasks.key, session)
