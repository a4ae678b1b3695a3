"""A lane in plain Python by the rules of tasks: a list that is sorted for each hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.tasks.attempts import NonFinalAttemptOutcome, NonFinalTaskAttempt
from domain.tasks.messages import CreateOperation, OperationCode, SetOperation, TaskStatus, TaskTypeRules

FINAL = (TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.CANCELLED)


@dataclass
class ModelTask:
    """One task, and its place among those of the same moment."""

    new: CreateOperation
    order_time: int
    coming: int
    status: int = TaskStatus.PENDING
    retries: int = 0
    lease: int = 0
    lease_end: int = 0
    stage: str = ""
    content: str = ""
    log: str = ""
    was_touched: bool = False
    held_time: int = 0
    attempts: list[NonFinalTaskAttempt] = field(default_factory=list)


@dataclass
class LaneModel:
    """What a lane should be."""

    rules: TaskTypeRules
    now: int
    tasks: dict[str, ModelTask] = field(default_factory=dict)
    archived: dict[str, int] = field(default_factory=dict)
    leases: int = 0
    comings: int = 0

    def tick(self, milliseconds: int) -> None:
        """Time passes, and leases end."""
        self.now += milliseconds
        for task in sorted(self.of(TaskStatus.RUNNING), key=lambda task: (task.lease_end, task.lease)):
            if task.lease_end <= self.now:
                self.leases += 1
                task.lease = self.leases
                self.fail(task, task.retries + 1, NonFinalAttemptOutcome.TIMED_OUT)

    def of(self, *statuses: int) -> list[ModelTask]:
        """Return the live tasks with one of these statuses."""
        return [task for task in self.tasks.values() if task.status in statuses]

    def due(self) -> list[ModelTask]:
        """Whom a hold would get, in order."""
        ready = [task for task in self.of(TaskStatus.PENDING) if task.order_time <= self.now]
        return sorted(ready, key=lambda task: (task.order_time, task.coming))

    def create(self, new: CreateOperation) -> str:
        """A task more; a key that is known is the same task."""
        if (known := self.tasks.get(new.key)) is not None:
            same = known.new.user_id == new.user_id and known.new.priority == new.priority
            same = same and (known.was_touched or known.new.content == new.content)
            return OperationCode.SAME if same else OperationCode.CONFLICT
        if len(self.tasks) + len(self.archived) >= self.rules.lane_max_tasks:
            return OperationCode.FULL
        task = ModelTask(new, 0, 0, stage=new.stage, content=new.content)
        self.tasks[new.key] = task
        self.queue(task, self.now - new.priority * 1_000)
        return OperationCode.OK

    def queue(self, task: ModelTask, order_time: int) -> None:
        """Queue a task behind those of the same time."""
        self.comings += 1
        task.status, task.order_time, task.coming = TaskStatus.PENDING, order_time, self.comings

    def hold(self, limit: int, seconds: int) -> list[ModelTask]:
        """Hold the first tasks, each under a lease of its own."""
        if self.rules.paused:
            return []
        given = self.due()[: min(limit or self.rules.schedule_limit, self.rules.schedule_limit)]
        for task in given:
            self.leases += 1
            task.status, task.lease, task.was_touched = TaskStatus.RUNNING, self.leases, True
            task.held_time = self.now
            task.lease_end = self.now + 1_000 * (seconds or self.rules.max_processing_time)
        return given

    def fail(
        self, task: ModelTask, retries: int, outcome: NonFinalAttemptOutcome = NonFinalAttemptOutcome.FAILED
    ) -> None:
        """N retries are N + 1 attempts; delays double up to a longest, or are all the same."""
        if retries > self.rules.max_retry_num:
            task.status = TaskStatus.FAILED
            return
        longest = self.rules.max_retry_interval
        seconds = -longest if longest < 0 else min(2 ** min(retries - 1, 40), longest)
        task.retries = retries
        task.attempts.append(NonFinalTaskAttempt(task.held_time, self.now, outcome))
        self.queue(task, self.now + 1_000 * seconds)

    def set(self, setting: SetOperation) -> str:
        """What a worker says; only of what it holds."""
        task = self.tasks.get(setting.key)
        if task is None:
            return OperationCode.MISSING
        said = {"stage": setting.stage, "content": setting.content, "log": setting.log}
        said = {name: value for name, value in said.items() if value is not None}
        if task.status != TaskStatus.RUNNING:
            is_theirs = setting.lease == task.lease if setting.lease else task.status in FINAL and setting.lease is None
            nothing_new = all(getattr(task, name) == value for name, value in said.items())
            if is_theirs and nothing_new and setting.status == task.status:
                return OperationCode.SAME
            return OperationCode.FINAL if task.status in FINAL else OperationCode.STALE
        if setting.lease not in (None, task.lease):
            return OperationCode.STALE
        outcome = (
            NonFinalAttemptOutcome.PUT_BACK
            if setting.stage in (None, task.stage)
            else NonFinalAttemptOutcome.NEXT_STAGE
        )
        for name, value in said.items():
            setattr(task, name, value)
        self._settle(task, setting, outcome)
        return OperationCode.OK

    def _settle(self, task: ModelTask, setting: SetOperation, outcome: NonFinalAttemptOutcome) -> None:
        told = task.retries if setting.crt_retry_num is None else setting.crt_retry_num
        if setting.status == TaskStatus.PENDING and (setting.failed or told > task.retries):
            self.fail(task, max(told, task.retries + 1))
            return
        task.retries = told
        if setting.status == TaskStatus.PENDING:
            task.attempts.append(NonFinalTaskAttempt(task.held_time, self.now, outcome))
            self.queue(task, self.now - task.new.priority * 1_000)
        elif setting.status in FINAL:
            task.status = setting.status
        else:
            task.lease_end = max(task.lease_end, self.now + 1_000 * self.rules.max_processing_time)

    def beat(self, key: str, lease: int | None, seconds: int) -> str:
        """A lease begins anew."""
        task = self.tasks.get(key)
        if task is None:
            return OperationCode.MISSING
        if task.status in FINAL:
            return OperationCode.FINAL
        if task.status == TaskStatus.PENDING or lease not in (None, task.lease):
            return OperationCode.STALE
        anew = self.now + 1_000 * (seconds or self.rules.max_processing_time)
        task.lease_end = anew if seconds else max(anew, task.lease_end)
        return OperationCode.OK

    def cancel(self, key: str) -> str:
        """Cancel a task."""
        task = self.tasks.get(key)
        if task is None:
            return OperationCode.MISSING
        if task.status in FINAL:
            return OperationCode.SAME if task.status == TaskStatus.CANCELLED else OperationCode.FINAL
        task.status = TaskStatus.CANCELLED
        return OperationCode.OK

    def archive(self, keys: list[str]) -> None:
        """They are written down, and no longer here."""
        for key in keys:
            self.archived[key] = self.tasks.pop(key).status
