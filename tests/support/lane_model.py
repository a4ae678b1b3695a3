"""A lane in plain Python, as the rules of tasks tell it: a list that is sorted whenever someone asks for the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.tasks.attempts import Attempt, Outcome
from domain.tasks.messages import Code, NewTask, Rules, Setting, Status

FINAL = (Status.SUCCESS, Status.FAILED, Status.CANCELLED)


@dataclass
class ModelTask:
    """One task, and its place among those of the same moment."""

    new: NewTask
    order_time: int
    coming: int
    status: int = Status.PENDING
    retries: int = 0
    lease: int = 0
    lease_end: int = 0
    stage: str = ""
    content: str = ""
    log: str = ""
    was_touched: bool = False
    held_time: int = 0
    attempts: list[Attempt] = field(default_factory=list)


@dataclass
class LaneModel:
    """What a lane should be."""

    rules: Rules
    now: int
    tasks: dict[str, ModelTask] = field(default_factory=dict)
    archived: dict[str, int] = field(default_factory=dict)
    leases: int = 0
    comings: int = 0

    def tick(self, milliseconds: int) -> None:
        """Time passes, and leases end."""
        self.now += milliseconds
        for task in sorted(self.of(Status.RUNNING), key=lambda task: (task.lease_end, task.lease)):
            if task.lease_end <= self.now:
                self.leases += 1
                task.lease = self.leases
                self.fail(task, task.retries + 1, Outcome.TIMED_OUT)

    def of(self, *statuses: int) -> list[ModelTask]:
        """The live tasks that stand like this."""
        return [task for task in self.tasks.values() if task.status in statuses]

    def due(self) -> list[ModelTask]:
        """Whom a hold would get, in order."""
        ready = [task for task in self.of(Status.PENDING) if task.order_time <= self.now]
        return sorted(ready, key=lambda task: (task.order_time, task.coming))

    def create(self, new: NewTask) -> str:
        """A task more; a key that is known is the same task."""
        if (known := self.tasks.get(new.key)) is not None:
            same = known.new.user_id == new.user_id and known.new.priority == new.priority
            same = same and (known.was_touched or known.new.content == new.content)
            return Code.SAME if same else Code.CONFLICT
        if len(self.tasks) + len(self.archived) >= self.rules.lane_max_tasks:
            return Code.FULL
        task = ModelTask(new, 0, 0, stage=new.stage, content=new.content)
        self.tasks[new.key] = task
        self.queue(task, self.now - new.priority * 1_000)
        return Code.OK

    def queue(self, task: ModelTask, order_time: int) -> None:
        """Behind all who stand at the same moment."""
        self.comings += 1
        task.status, task.order_time, task.coming = Status.PENDING, order_time, self.comings

    def hold(self, limit: int, seconds: int) -> list[ModelTask]:
        """The first so many, each under a lease of its own."""
        if self.rules.paused:
            return []
        given = self.due()[: min(limit or self.rules.schedule_limit, self.rules.schedule_limit)]
        for task in given:
            self.leases += 1
            task.status, task.lease, task.was_touched = Status.RUNNING, self.leases, True
            task.held_time = self.now
            task.lease_end = self.now + 1_000 * (seconds or self.rules.max_processing_time)
        return given

    def fail(self, task: ModelTask, retries: int, outcome: Outcome = Outcome.FAILED) -> None:
        """N retries are N + 1 attempts; delays double up to a longest, or are all the same."""
        if retries > self.rules.max_retry_num:
            task.status = Status.FAILED
            return
        longest = self.rules.max_retry_interval
        seconds = -longest if longest < 0 else min(2 ** min(retries - 1, 40), longest)
        task.retries = retries
        task.attempts.append(Attempt(task.held_time, self.now, outcome))
        self.queue(task, self.now + 1_000 * seconds)

    def set(self, setting: Setting) -> str:
        """What a worker says; only of what it holds."""
        task = self.tasks.get(setting.key)
        if task is None:
            return Code.MISSING
        said = {"stage": setting.stage, "content": setting.content, "log": setting.log}
        said = {name: value for name, value in said.items() if value is not None}
        if task.status != Status.RUNNING:
            is_theirs = setting.lease == task.lease if setting.lease else task.status in FINAL and setting.lease is None
            nothing_new = all(getattr(task, name) == value for name, value in said.items())
            if is_theirs and nothing_new and setting.status == task.status:
                return Code.SAME
            return Code.FINAL if task.status in FINAL else Code.STALE
        if setting.lease not in (None, task.lease):
            return Code.STALE
        outcome = Outcome.PUT_BACK if setting.stage in (None, task.stage) else Outcome.NEXT_STAGE
        for name, value in said.items():
            setattr(task, name, value)
        self._settle(task, setting, outcome)
        return Code.OK

    def _settle(self, task: ModelTask, setting: Setting, outcome: Outcome) -> None:
        told = task.retries if setting.crt_retry_num is None else setting.crt_retry_num
        if setting.status == Status.PENDING and (setting.failed or told > task.retries):
            self.fail(task, max(told, task.retries + 1))
            return
        task.retries = told
        if setting.status == Status.PENDING:
            task.attempts.append(Attempt(task.held_time, self.now, outcome))
            self.queue(task, self.now - task.new.priority * 1_000)
        elif setting.status in FINAL:
            task.status = setting.status
        else:
            task.lease_end = max(task.lease_end, self.now + 1_000 * self.rules.max_processing_time)

    def beat(self, key: str, lease: int | None, seconds: int) -> str:
        """A lease begins anew."""
        task = self.tasks.get(key)
        if task is None:
            return Code.MISSING
        if task.status in FINAL:
            return Code.FINAL
        if task.status == Status.PENDING or lease not in (None, task.lease):
            return Code.STALE
        anew = self.now + 1_000 * (seconds or self.rules.max_processing_time)
        task.lease_end = anew if seconds else max(anew, task.lease_end)
        return Code.OK

    def cancel(self, key: str) -> str:
        """Nobody wants it any more."""
        task = self.tasks.get(key)
        if task is None:
            return Code.MISSING
        if task.status in FINAL:
            return Code.SAME if task.status == Status.CANCELLED else Code.FINAL
        task.status = Status.CANCELLED
        return Code.OK

    def archive(self, keys: list[str]) -> None:
        """They are written down, and no longer here."""
        for key in keys:
            self.archived[key] = self.tasks.pop(key).status
