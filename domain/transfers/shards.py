"""The progress of one shard: how the state of each target follows from GSE's results, the time and cancellations.

A target moves forward only: it waits, is sent by a GSE task, perhaps again by another one, and ends once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from domain.transfers import models
from domain.transfers.gse import AgentKey, FailedGseCalls, GseAgentWithUser, GseProgress, GseRecordsByAgent, GseVerdict
from domain.transfers.models import FailureReason, TargetEndAndReason, TransferState

RETRY_PAUSE_MAX_SECONDS = 60.0
PROGRESS_STEP = 5
"""Progress is saved when it has grown by this many per cent."""
SILENT_ANSWERS_MIN = 3
"""Answers without a record of a target before the target counts as silent; a single one may be an accident."""
REFUSALS_MIN = 5
"""Answers that a GSE task is unknown before the task counts as lost."""


class GseTask(BaseModel):
    """One GSE task that sends the file to targets of the shard."""

    number: int
    source_agent_id: str
    source_container_id: str
    task_id: str | None = None
    """GSE's id; None if it is not known whether the task began."""
    journal_key: str = ""
    """The key under which the journal on the source's host has the id as soon as GSE has answered."""
    fetched_at: float | None = None
    """When the source's host had the file, in seconds since 1970."""
    sent_at: float | None = None
    """When GSE accepted the task."""
    uploaded_at: float | None = None
    """When GSE first reported that it has the file from the source."""
    broken: bool = False
    """Whether the task is given up: targets that it has not served are sent again."""

    @property
    def source(self) -> GseAgentWithUser:
        """The agent that sends the file."""
        return GseAgentWithUser(self.source_agent_id, self.source_container_id)


@dataclass(slots=True)
class ShardTarget:
    """One target of the shard."""

    key: int
    agent_id: str
    container_id: str
    state: TransferState = TransferState.PENDING
    task_number: int = 0
    """The number of the GSE task that sends to it, or did so last; 0 if GSE was never asked to."""
    failures: int = 0
    """How many GSE tasks have failed for it."""
    failed_in: int = 0
    """The number of the last task that failed for it."""
    code: int | None = None
    reason: FailureReason | None = None
    message: str = ""
    failed_code: int | None = None
    failed_message: str = ""
    """GSE's message at the last failure; it is reported if the time is over before anything better is known."""
    progress: int = 0
    speed: int = 0
    due_at: float | None = 0.0
    """When it is to be sent, or sent again; None while a GSE task sends to it."""
    is_cancelling: bool = False
    """Whether GSE was asked to terminate the transfer, and has not confirmed it."""
    silent_since: float | None = None
    """Since when GSE answers without a record of it."""
    silent_answers: int = 0

    @property
    def agent_key(self) -> AgentKey:
        """The key of its records in GSE's results."""
        return self.agent_id, self.container_id


@dataclass(frozen=True, slots=True)
class RetryAndSilenceLimits:
    """The limits of retries and waiting."""

    retries: int
    retry_pause_seconds: float
    silence_seconds: float = 60.0
    """How long GSE may answer without a record of a target, or without knowing a task, before that is a failure."""


@dataclass
class ShardProgress:
    """The targets of a shard, and the GSE tasks that send to them."""

    targets: Sequence[ShardTarget]
    limits: RetryAndSilenceLimits
    tasks: dict[int, GseTask] = field(default_factory=dict)
    has_unsaved_tasks: bool = False
    """Whether a time of a GSE task, or the trouble with GSE, is not saved yet."""
    trouble: FailedGseCalls | None = None
    """The calls to GSE that failed last, until it does what was asked."""
    _changed: dict[int, ShardTarget] = field(default_factory=dict)
    _refusals: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By task number: how often in a row GSE did not know the task, and since when."""
    _begin_errors: dict[int, str] = field(default_factory=dict)
    """By target key: why GSE did not begin to send, the last time it was asked to."""
    _numbers_before: dict[int, int] = field(default_factory=dict)
    """By target key: the number of the GSE task before the last one."""
    _query_errors: dict[int, str] = field(default_factory=dict)
    """By task number: why GSE could not be asked for results, the last time."""

    def __post_init__(self) -> None:
        # Of a worker that was lost only what it saved is known. Where no id of a GSE task was saved, or the task was
        # given up, nothing would ever be reported of its targets: they are sent again.
        for target in self.unfinished:
            task = self.tasks.get(target.task_number)
            target.due_at = None if task and task.task_id and not task.broken else 0.0

    @property
    def unfinished(self) -> list[ShardTarget]:
        """The targets that have not ended."""
        return [target for target in self.targets if not target.state.is_final]

    @property
    def active_tasks(self) -> list[GseTask]:
        """The GSE tasks with a known id that have unfinished targets."""
        used = {target.task_number for target in self.unfinished}
        return [task for task in self.tasks.values() if task.number in used and task.task_id]

    @property
    def unconfirmed_tasks(self) -> list[GseTask]:
        """The GSE tasks with unfinished targets of which no id was saved."""
        used = {target.task_number for target in self.unfinished}
        return [task for task in self.tasks.values() if task.number in used and task.task_id is None]

    def count_succeeded(self) -> int:
        """Return how many targets have the file."""
        return sum(target.state is TransferState.SUCCESS for target in self.targets)

    def list_unfinished_of_task(self, task: GseTask) -> list[ShardTarget]:
        """Return the targets that a GSE task still has to serve."""
        return [target for target in self.unfinished if target.task_number == task.number]

    def list_due_targets(self, now: float) -> list[ShardTarget]:
        """Return the targets that are to be sent now."""
        return [target for target in self.unfinished if target.due_at is not None and target.due_at <= now]

    def assign_new_task(
        self,
        targets: Iterable[ShardTarget],
        source: GseAgentWithUser,
        journal_key: str = "",
        fetched_at: float | None = None,
    ) -> GseTask:
        """Assign targets to a new GSE task, before GSE is asked for it."""
        # The number of a removed task is not used again: records of it may still come.
        number = 1 + max(max(self.tasks, default=0), max((target.task_number for target in self.targets), default=0))
        task = GseTask(
            number=number,
            source_agent_id=source.agent_id,
            source_container_id=source.container_id,
            journal_key=journal_key,
            fetched_at=fetched_at,
        )
        self.tasks[number] = task
        targets = list(targets)
        if self.trouble and any(target.task_number == self.trouble.task_number for target in targets):
            self.trouble = self.trouble.model_copy(update={"task_number": number})
        for target in targets:
            self._numbers_before[target.key] = target.task_number
            target.state, target.task_number, target.due_at = TransferState.RUNNING, number, None
            target.progress, target.speed = 0, 0
            target.silent_since, target.silent_answers = None, 0
            self._mark_changed(target)
        return task

    def set_id_of_accepted_task(self, task: GseTask, task_id: str, now: float | None = None) -> None:
        """Note the id of a task that GSE accepted."""
        for target in self.list_unfinished_of_task(task):
            self._begin_errors.pop(target.key, None)
        self._clear_trouble_of_task(task)
        self.tasks[task.number] = task.model_copy(update={"task_id": task_id, "sent_at": now})

    def set_id_of_recovered_task_and_unschedule(self, task: GseTask, task_id: str, answered_at: float) -> None:
        """Note the id of a task that GSE accepted from a process that died before it saved the id."""
        self.set_id_of_accepted_task(task, task_id, answered_at)
        for target in self.list_unfinished_of_task(task):
            target.due_at = None

    def remove_unaccepted_task_and_reschedule(self, task: GseTask, again_at: float, error: str = "") -> None:
        """Remove a task that GSE did not accept, or may not have accepted; its targets are due again at a time."""
        del self.tasks[task.number]
        for target in self.list_unfinished_of_task(task):
            target.due_at = again_at
            self._begin_errors[target.key] = error
        self._record_gse_trouble(task, error, again_at)

    def remove_task_without_request_and_reschedule(self, task: GseTask, again_at: float) -> None:
        """Remove a task as if it had not been assigned; its targets are due again at a time."""
        del self.tasks[task.number]
        for target in self.list_unfinished_of_task(task):
            target.task_number, target.due_at = self._numbers_before[target.key], again_at
            self._mark_changed(target)

    def apply_results(self, task: GseTask, results: GseRecordsByAgent, now: float) -> None:
        """Apply what GSE reports of a task; records of other targets are ignored."""
        self._refusals.pop(task.number, None)
        self._query_errors.pop(task.number, None)
        self._clear_trouble_of_task(task)
        for target in self.list_unfinished_of_task(task):
            record = results.downloads.get(target.agent_key)
            if record is not None:
                target.silent_since, target.silent_answers = None, 0
                self._apply_gse_record(target, record, now, only_success=task.broken)
            elif not task.broken:
                self._note_missing_record_and_fail_if_lasting(target, now)
        upload = results.upload
        if upload is not None and upload.verdict is GseVerdict.SUCCESS and task.uploaded_at is None:
            self.tasks[task.number] = task.model_copy(update={"uploaded_at": now})
            self.has_unsaved_tasks = True
        if upload is not None and upload.verdict in (GseVerdict.FATAL, GseVerdict.RETRYABLE) and not task.broken:
            message = f"The source could not send: {upload.message}"
            self._fail_targets_of_task(
                task, FailureReason.UPLOAD_FAILED, message, now, code=upload.error_code, upload=upload
            )

    def fail_task_if_unknown_for_long(self, task: GseTask, message: str, now: float, code: int | None = None) -> None:
        """Note that GSE does not know a task; if it says so repeatedly for a while, fail the task's targets."""
        times, since = self._refusals.get(task.number, (0, now))
        self._refusals[task.number] = times + 1, since
        is_lost = times + 1 >= REFUSALS_MIN and now - since >= self.limits.silence_seconds
        if is_lost and not task.broken:
            self._fail_targets_of_task(task, FailureReason.GSE_REFUSED, f"{models.LOST_TASK} {message}", now, code=code)

    def did_gse_repeatedly_deny_task(self, task: GseTask) -> bool:
        """Return whether GSE did not know a task the last times that it was asked."""
        return self._refusals.get(task.number, (0, 0.0))[0] >= REFUSALS_MIN

    def record_query_error(self, task: GseTask, error: str, again_at: float = 0.0) -> None:
        """Note why GSE could not be asked about a task, and by when it is asked again; no target changes."""
        self._query_errors[task.number] = error
        self._record_gse_trouble(task, error, again_at)

    def mark_targets_as_being_terminated(self, targets: Iterable[ShardTarget]) -> None:
        """Mark targets that GSE is asked to terminate; each ends when GSE reports how, or at the deadline."""
        for target in targets:
            target.is_cancelling = True

    def end_unsent_targets_as_cancelled(self, targets: Iterable[ShardTarget]) -> None:
        """End cancelled targets that no known GSE task sends to."""
        for target in targets:
            # The same if it was never sent (both are 0), or if GSE has reported that the last try failed.
            is_certain = target.failed_in == target.task_number and models.LOST_TASK not in target.failed_message
            message = models.CANCELLED if is_certain else self._explain_unconfirmed_cancellation(target)
            self._end_target(target, TransferState.FAILED, FailureReason.CANCELLED, target.code, message)

    def end_unfinished_at_deadline(self) -> None:
        """End all unfinished targets by what is known of each, because the job's time is over."""
        for target in self.unfinished:
            if target.is_cancelling:
                message = self._explain_unconfirmed_cancellation(target)
                self._end_target(target, TransferState.FAILED, FailureReason.CANCELLED, target.code, message)
            elif target.failed_message:
                message = f"{models.LATE} The last try had failed: {target.failed_message}"
                self._end_target(target, TransferState.TIMEOUT, FailureReason.DEADLINE, target.failed_code, message)
            elif target.silent_answers >= SILENT_ANSWERS_MIN:
                self._end_target(
                    target, TransferState.FAILED, FailureReason.NEVER_REPORTED, None, models.NEVER_REPORTED
                )
            elif not target.task_number:
                self._end_target(target, TransferState.TIMEOUT, FailureReason.DEADLINE, None, models.NOT_ASKED)
            else:
                error = self._begin_errors.get(target.key) or self._query_errors.get(target.task_number)
                message = f"{models.LATE} The last call to GSE failed: {error}" if error else models.LATE
                self._end_target(target, TransferState.TIMEOUT, FailureReason.DEADLINE, target.code, message)

    def make_targets_due_of_task_without_source(self, task: GseTask, now: float) -> None:
        """Give up a task whose source is gone; its targets are sent again, without counting a failure."""
        self.tasks[task.number] = task.model_copy(update={"broken": True})
        for target in self.list_unfinished_of_task(task):
            target.due_at = now

    def end_targets_not_ended_yet(self, targets: Iterable[ShardTarget], outcome: TargetEndAndReason) -> None:
        """End the targets that have not ended."""
        for target in targets:
            if not target.state.is_final:
                self._end_target(target, outcome.state, outcome.reason, outcome.code, outcome.message)

    def mark_targets_as_changed(self, targets: Iterable[ShardTarget]) -> None:
        """Have targets saved again, because it is not known whether they were."""
        for target in targets:
            self._mark_changed(target)

    def list_and_clear_changed_targets(self) -> list[ShardTarget]:
        """Return the targets that changed since the last call."""
        changed = list(self._changed.values())
        self._changed.clear()
        return changed

    def _apply_gse_record(self, target: ShardTarget, record: GseProgress, now: float, *, only_success: bool) -> None:
        if record.verdict is GseVerdict.SUCCESS:
            target.progress, target.speed = 100, record.speed
            self._end_target(target, TransferState.SUCCESS, None, record.error_code, record.message)
        elif only_success:
            return
        elif target.is_cancelling and record.verdict is not GseVerdict.RUNNING:
            self._end_target(target, TransferState.FAILED, FailureReason.CANCELLED, record.error_code, models.CANCELLED)
        elif record.verdict is GseVerdict.RUNNING:
            self._update_running_target(target, record)
        elif record.verdict is GseVerdict.RETRYABLE:
            self._fail_attempt_of_target(target, FailureReason.GSE_CODE, record.error_code, record.message, now)
        else:
            self._end_target(target, TransferState.FAILED, FailureReason.GSE_CODE, record.error_code, record.message)

    def _note_missing_record_and_fail_if_lasting(self, target: ShardTarget, now: float) -> None:
        """Note an answer of GSE without a record of the target; end the target if that lasts too long."""
        since = target.silent_since = now if target.silent_since is None else target.silent_since
        target.silent_answers += 1
        if target.silent_answers >= SILENT_ANSWERS_MIN and now - since >= self.limits.silence_seconds:
            if target.is_cancelling:
                self._end_target(target, TransferState.FAILED, FailureReason.CANCELLED, None, models.CANCELLED_LATE)
            else:
                self._end_target(
                    target, TransferState.FAILED, FailureReason.NEVER_REPORTED, None, models.NEVER_REPORTED
                )

    def _update_running_target(self, target: ShardTarget, record: GseProgress) -> None:
        # A target that had failed may run again, because GSE retries on its own.
        target.due_at = None
        progress = max(target.progress, record.progress)
        if target.code != record.error_code or progress >= target.progress + PROGRESS_STEP:
            target.code, target.message = record.error_code, record.message
            target.progress, target.speed = progress, record.speed
            self._mark_changed(target)

    def _fail_attempt_of_target(
        self, target: ShardTarget, reason: FailureReason, code: int | None, message: str, now: float
    ) -> None:
        """Count a failure that another GSE task may repair, once a task however often it is reported."""
        if target.failed_in != target.task_number:
            target.failures, target.failed_in = target.failures + 1, target.task_number
        target.failed_code, target.failed_message = code, message
        if target.is_cancelling:
            may_arrive = models.LOST_TASK in message
            said = self._explain_unconfirmed_cancellation(target) if may_arrive else models.CANCELLED
            self._end_target(target, TransferState.FAILED, FailureReason.CANCELLED, code, said)
        elif target.failures > self.limits.retries:
            self._end_target(target, TransferState.FAILED, reason, code, message)
        elif target.due_at is None:
            pause = self.limits.retry_pause_seconds * 2 ** min(30, target.failures - 1)
            target.due_at = now + min(RETRY_PAUSE_MAX_SECONDS, pause)
            target.code, target.message = code, message
            self._mark_changed(target)

    def _fail_targets_of_task(
        self,
        task: GseTask,
        reason: FailureReason,
        message: str,
        now: float,
        *,
        code: int | None = None,
        upload: GseProgress | None = None,
    ) -> None:
        self.tasks[task.number] = task.model_copy(update={"broken": True})
        for target in self.list_unfinished_of_task(task):
            if upload is not None and upload.verdict is GseVerdict.FATAL and not target.is_cancelling:
                self._end_target(target, TransferState.FAILED, reason, code, message)
            else:
                self._fail_attempt_of_target(target, reason, code, message, now)

    def _explain_unconfirmed_cancellation(self, target: ShardTarget) -> str:
        if not target.task_number:
            return models.CANCELLED
        task = self.tasks.get(target.task_number)
        return models.CANCELLED_LATE if task and task.task_id else models.CANCELLED_UNSURE

    def _record_gse_trouble(self, task: GseTask, answer: str, again_at: float) -> None:
        tries = self.trouble.tries + 1 if self.trouble else 1
        self.trouble = FailedGseCalls(task_number=task.number, answer=answer, tries=tries, again_at=again_at)
        self.has_unsaved_tasks = True

    def _clear_trouble_of_task(self, task: GseTask) -> None:
        if self.trouble and self.trouble.task_number == task.number:
            self.trouble, self.has_unsaved_tasks = None, True

    def _end_target(
        self, target: ShardTarget, state: TransferState, reason: FailureReason | None, code: int | None, message: str
    ) -> None:
        target.state, target.reason, target.code, target.message = state, reason, code, message
        target.due_at = None
        self._mark_changed(target)

    def _mark_changed(self, target: ShardTarget) -> None:
        self._changed[target.key] = target
