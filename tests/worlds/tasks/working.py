"""Working: plain workers over HTTP, which hold tasks, take a while, and say what became of them, if they still can."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.worlds import dice
from tests.worlds.tasks.asking import ApiCaller, ApiResponse, Json
from tests.worlds.tasks.seen import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCESS,
    CreatedTask,
    HeldLease,
    HoldAttempt,
    ObservedStatus,
    SentResult,
    TaskObservations,
)
from tests.worlds.tasks.world import LAST_STAGE, LEASE_SECONDS, TaskFate, TaskWorld

WAIT_SECONDS = 1.0
POLL_SECONDS = 0.2
IN_HAND_MAX = 8
SKEW_SECONDS = 120.0
NEXT = "-next"
TOO_LATE, MISSING = 8041, 8035
_ORIGINAL = {"status": "task_status", "task_stage": "stage", "task_content": "context"}
_FLAWS = {
    TaskFate.IS_LATE: "slow_worker",
    TaskFate.BEATS_LATE: "beats_late",
    TaskFate.CLOCK_BEHIND: "clock_behind",
    TaskFate.ENDS_WITH_LEASE: "ends_with_its_lease",
    TaskFate.CLOCK_AHEAD: "clock_ahead",
}


@dataclass
class Attempts:
    """The next attempt of each task, shared by all workers."""

    world: TaskWorld
    type: str
    counted: Counter[str] = field(default_factory=Counter)

    def begin(self, user_id: str) -> tuple[int, int, TaskFate]:
        """Return the number of the task, that of the attempt, and what becomes of it."""
        attempt = self.counted[user_id]
        self.counted[user_id] += 1
        number = self.number(user_id)
        fate = TaskFate.GOES_WELL if user_id.endswith(NEXT) else self.world.fate(number, attempt)
        return number, attempt, fate

    def number(self, user_id: str) -> int:
        """Return the number of the wish that a task comes from."""
        return int(user_id.removesuffix(NEXT).rpartition("/")[2])

    def next_stage(self, held: HeldLease) -> str | None:
        """Return the stage that follows; None after the last."""
        has_two = self.world.options["stages"] == "two"
        return LAST_STAGE if has_two and held.stage != LAST_STAGE else None


@dataclass
class Worker:
    """A plain worker."""

    number: int
    attempts: Attempts
    asker: ApiCaller
    seen: TaskObservations
    fired: set[str]
    done: asyncio.Event
    in_hand: set[asyncio.Task[None]] = field(default_factory=set)
    turn: int = 0

    @property
    def world(self) -> TaskWorld:
        """Where it works."""
        return self.attempts.world

    async def run(self) -> None:
        """Hold and do tasks until all are done; then return held ones to the queue."""
        try:
            while not self.done.is_set():
                if len(self.in_hand) >= IN_HAND_MAX:
                    await asyncio.wait(self.in_hand, return_when=asyncio.FIRST_COMPLETED)
                for held in await self._hold():
                    doing = asyncio.create_task(self._do(held))
                    self.in_hand.add(doing)
                    doing.add_done_callback(self.in_hand.discard)
            if self.in_hand:
                await asyncio.gather(*self.in_hand)
        finally:
            for doing in self.in_hand:
                doing.cancel()

    async def _hold(self) -> list[HeldLease]:
        options = self.world.options
        limit = 0 if options["limit"] == "all" else int(options["limit"])
        body: Json = {"task_type": self.attempts.type} | ({"limit": limit} if limit else {})
        if options["wait"] == "waits":
            body["wait"] = WAIT_SECONDS
        self.turn += 1
        sent_at = time.time()
        if self.world.has("hold_lost") and dice.share(self.world.seed, "hold", self.number, self.turn) < 0.3:
            await self.asker.break_off("POST", options["hold"], json=body)
            self.fired.add("hold_lost")
            answer = None
        else:
            answer = await self.asker.ask("POST", options["hold"], json=body)
        received_at = time.time()
        if answer is None:
            self.seen.asked.append(HoldAttempt(sent_at, received_at, limit, (), is_lost=True))
            await asyncio.sleep(POLL_SECONDS)
            return []
        if answer["code"]:
            self.seen.refusals.append(f"hold: {answer['msg']}")
            return []
        tasks = [read_holding(task, sent_at, received_at) for task in answer["task_list"]]
        note_hold(self.seen, tasks, sent_at, received_at, limit, {task["task_type"] for task in answer["task_list"]})
        if not tasks and options["wait"] == "polls":
            await asyncio.sleep(POLL_SECONDS)
        return tasks

    async def _do(self, held: HeldLease) -> None:
        number, attempt, fate = self.attempts.begin(held.user_id)
        await asyncio.sleep(self.asker.random.uniform(0, 0.03))
        if fate is TaskFate.DIES:
            self.fired |= {"worker_dies", "workers_die_always"} & {*self.world.flaw_names}
            return
        if fate is TaskFate.CLOCK_AHEAD:
            assert time.time() + SKEW_SECONDS > held.lease_end
            self.fired.add(_FLAWS[fate])
            return
        await self._work(held, fate)
        if time.time() > held.lease_end or fate is TaskFate.ENDS_WITH_LEASE:
            self.fired |= {_FLAWS[fate]} if fate in _FLAWS else set()
        await self._report(held, fate, number)
        if attempt == 0 and self.world.is_struck("stale_report", number):
            await self._report_again(held)

    async def _work(self, held: HeldLease, fate: TaskFate) -> None:
        """Take as long as the fate says."""
        match fate:
            case TaskFate.IS_LATE | TaskFate.CLOCK_BEHIND:
                await asyncio.sleep(LEASE_SECONDS * self.asker.random.uniform(1.2, 2.4))
            case TaskFate.BEATS_LATE:
                await self._beat(held)
                await asyncio.sleep(LEASE_SECONDS * self.asker.random.uniform(1.2, 2.0))
                await self._beat(held)
            case TaskFate.ENDS_WITH_LEASE:
                left = held.lease_end - time.time() + self.asker.random.uniform(-0.06, 0.06)
                await asyncio.sleep(max(0.0, left))
            case _:
                pass

    async def _report(self, held: HeldLease, fate: TaskFate, number: int) -> None:
        if fate is TaskFate.FAILS:
            log = f"attempt {held.crt_retry_num + 1} failed"
            await self.say(held, PENDING, crt_retry_num=held.crt_retry_num + 1, schedule_log=log)
            self.fired |= {"fails_often", "delayed_retry_first", "fails_to_the_end"} & {*self.world.flaw_names}
            return
        if fate is TaskFate.FAILS_FOR_GOOD:
            await self.say(held, FAILED, schedule_log="no retry can help")
            return
        if fate is TaskFate.IS_KEPT:
            await self.say(held, RUNNING)
        stage = self.attempts.next_stage(held)
        if stage is not None:
            text = f"{held.text[:16_000]}+"
            await self.say(held, PENDING, task_stage=stage, task_content=text)
            return
        if self.world.is_struck("daisy_chain", number) and not held.user_id.endswith(NEXT):
            await self._create_next(held, number)
        await self.say(held, SUCCESS)

    async def _create_next(self, held: HeldLease, number: int) -> None:
        """Create the task's successor; an earlier worker may have created it."""
        name = f"{self.attempts.type}-{number}{NEXT}"
        new = {"task_type": self.attempts.type, "task_id": name, "user_id": held.user_id + NEXT, "task_content": name}
        answer = await self.asker.insist("POST", "create_task", json={"task_data": new})
        self.fired.add("daisy_chain")
        note_created(self.seen, number, name, held.user_id + NEXT, name, answer, answer.body)

    async def _report_again(self, held: HeldLease) -> None:
        """Say that it was a success when others may have the task: under older leases, this one among them."""
        await asyncio.sleep(LEASE_SECONDS * 0.3)
        for lease in (held.lease - 1, held.lease):
            if lease > 0:
                await self.say(held, SUCCESS, lease=lease, is_plain=True)
        self.fired.add("stale_report")

    async def say(
        self, held: HeldLease, status: int, *, lease: int | None = None, is_plain: bool = False, **fields: Any
    ) -> None:
        """Say what became of a task, until that is answered.

        Args:
            held: The task.
            status: What became of it.
            lease: Another one than that under which it was held.
            is_plain: Whether nothing goes wrong with this word.
            fields: What else is said.
        """
        options, number = self.world.options, self.attempts.number(held.user_id)
        said = {"task_id": held.task_id, "status": status, **fields}
        if options["words"] == "original":
            said = {_ORIGINAL.get(name, name): value for name, value in said.items()}
        if options["lease"] != "without" or lease is not None:
            said["lease"] = held.lease if lease is None else lease
        body = {"task_data": said} if options["set"] == "single" else {"task_list": [said]}
        route = "set_task" if options["set"] == "single" else "set_tasks"
        loses = not is_plain and self.world.is_struck("report_lost", number)
        again = 1 + (not is_plain and self.world.is_struck("report_twice", number))
        for _ in range(again):
            answer = await self.asker.insist("POST", route, loses=loses, json=body)
            self.fired |= ({"report_lost"} if loses and answer.lost else set()) | (
                {"report_twice"} if again > 1 else set()
            )
            note_saying(
                self.seen, held, status, answer.code, answer.sent_at, answer.at,
                lost=answer.lost, lease=lease, is_leased="lease" in said, **fields,
            )  # fmt: skip
        if self.world.is_struck("read_at_once", number) and status in (SUCCESS, FAILED) and answer.code == 0:
            await self._read(held, status)

    async def _read(self, held: HeldLease, status: int) -> None:
        asked_at = time.time()
        answer = await self.asker.insist("GET", "get_task", params={"task_id": held.task_id})
        found = answer.body.get("task_data")
        self.seen.glimpses.append(ObservedStatus(held.task_id, status, asked_at, found["status"] if found else None))
        self.fired.add("read_at_once")

    async def _beat(self, held: HeldLease) -> None:
        body = {"task_list": [{"task_id": held.task_id, "lease": held.lease}]}
        answer = await self.asker.insist("POST", "heartbeat_tasks", json=body)
        note_saying(self.seen, held, RUNNING, answer.code, answer.sent_at, answer.at, lost=answer.lost, is_beat=True)


def read_holding(task: Json, sent_at: float, received_at: float) -> HeldLease:
    """Return a task of a hold's answer."""
    return HeldLease(
        task_id=task["task_id"],
        lease=task["lease"],
        sent_at=sent_at,
        received_at=received_at,
        lease_end=task["lease_end"],
        order_time_ms=task["order_time_ms"] if "order_time_ms" in task else round(task["order_time"] * 1_000),
        crt_retry_num=task["crt_retry_num"],
        stage=task["stage"],
        text=task["task_content"],
        log=task["schedule_log"],
        user_id=task["user_id"],
        priority=task["task_priority"],
    )


def note_hold(
    seen: TaskObservations, tasks: list[HeldLease], sent_at: float, received_at: float, limit: int, types: set[str]
) -> None:
    """Keep what a hold brought."""
    seen.asked.append(HoldAttempt(sent_at, received_at, limit, [each.task_id for each in tasks]))
    seen.holdings += tasks
    if len(types) > 1 or any(each.user_id.rpartition("/")[0] not in types for each in tasks):
        seen.crossed.append(f"a hold brought tasks of {types}: {[each.user_id for each in tasks]}")


def note_saying(
    seen: TaskObservations,
    held: HeldLease,
    status: int,
    code: int,
    sent_at: float,
    answered_at: float,
    *,
    lost: int = 0,
    lease: int | None = None,
    is_leased: bool = True,
    is_beat: bool = False,
    crt_retry_num: int | None = None,
    task_stage: str | None = None,
    task_content: str | None = None,
    schedule_log: str | None = None,
) -> None:
    """Keep what a worker said, and what it was answered."""
    if code not in (0, TOO_LATE, MISSING):
        seen.refusals.append(f"set of {held.task_id} as {status}: {code}")
    seen.sayings.append(
        SentResult(
            task_id=held.task_id,
            lease=held.lease if lease is None else lease,
            status=status,
            sent_at=sent_at,
            answered_at=answered_at,
            code=code,
            crt_retry_num=crt_retry_num,
            stage=task_stage,
            text=task_content,
            log=schedule_log,
            lost=lost,
            is_leased=is_leased,
            is_beat=is_beat,
        )
    )


def note_created(
    seen: TaskObservations,
    wish: int,
    name: str,
    user_id: str,
    text: str,
    answer: ApiResponse,
    result: Json,
    priority: int = 0,
    start: float = 0.0,
) -> None:
    """Keep a create, and what it was answered."""
    seen.created.append(
        CreatedTask(
            wish=wish,
            name=name,
            user_id=user_id,
            sent_at=answer.sent_at,
            answered_at=answer.at,
            code=result["code"],
            task_id=result.get("task_id", ""),
            text=text,
            lost=answer.lost,
            priority=priority,
            start=start,
        )
    )
