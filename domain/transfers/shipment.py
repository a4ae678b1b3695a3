"""One shard on its way: what each target's state becomes by what GSE says, by the clock, and by who cancels.

A target moves forward only: it waits, is sent in a GSE task, perhaps again in another, and ends once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from domain.transfers.gse import Agent, Key, Record, Results, Verdict
from domain.transfers.models import End, Reason, State

RETRY_PAUSE_MAX_SECONDS = 60.0
PROGRESS_STEP = 5
"""Per cent by which a target must have come on before that is written down."""
SILENT_ANSWERS_MIN = 3
"""So many answers without a word of a target make a silence; a single one may be an accident."""
REFUSALS_MAX = 5
"""So many times GSE may say that it does not know a task of ours; then the task is lost."""


class Sending(BaseModel):
    """One GSE task: who sends, and under which id; none where nobody knows whether it began."""

    number: int
    source_agent_id: str
    source_container_id: str
    task_id: str | None = None
    journal_key: str = ""
    """Under which the journal of the source's host has the id from the moment in which GSE told it."""
    fetched_at: float | None = None
    """When the source's host had the file, in seconds since 1970."""
    sent_at: float | None = None
    """When GSE took it."""
    uploaded_at: float | None = None
    """When GSE was first heard to have the file from the source."""
    broken: bool = False
    """Whether nothing more is to be hoped from it: what it has not brought is sent again."""

    @property
    def source(self) -> Agent:
        """Who sends."""
        return Agent(self.source_agent_id, self.source_container_id)


@dataclass(slots=True)
class Item:
    """One target of the shard."""

    key: int
    agent_id: str
    container_id: str
    state: State = State.PENDING
    sending: int = 0
    """The number of the GSE task that it is in, or was in last."""
    failures: int = 0
    """How many GSE tasks have failed it so far."""
    failed_in: int = 0
    """The last one that did."""
    code: int | None = None
    reason: Reason | None = None
    message: str = ""
    failed_code: int | None = None
    failed_message: str = ""
    """What GSE said when it last failed: it counts if the time is over before anything better is known."""
    progress: int = 0
    speed: int = 0
    due_at: float | None = 0.0
    """When it is to be sent, or sent again; None while it is under way."""
    is_cancelling: bool = False
    """Whether GSE was asked to give it up, and has not said that it did."""
    silent_since: float | None = None
    """Since when GSE answers without a word of it."""
    silent_answers: int = 0

    @property
    def place(self) -> Key:
        """What GSE's records know it by."""
        return self.agent_id, self.container_id


CANCELLED = "It was cancelled before it had arrived."
CANCELLED_LATE = (
    "It was cancelled. GSE was asked to give it up and has not said that it did, so that it may still arrive."
)
CANCELLED_UNHEARD = "It was cancelled. No host of ours was left to ask GSE to give it up, so that it may still arrive."
CANCELLED_UNSURE = (
    "It was cancelled. GSE was asked to send it and never said whether it began to, so that it may still arrive."
)
LATE = (
    "GSE had not told that it arrived when the job's time was over; it may still do so. "
    "See whether the agent runs, then ask again."
)
LOST_TASK = "GSE began to send it and then did not know its own task any more, so that it may have arrived."
NEVER_TOLD = (
    "GSE took it and then answered without a readable word of this target, so that nobody knows whether it arrived. "
    "Look on the host, or send it again: the same file goes to the same place."
)


@dataclass(frozen=True, slots=True)
class Rules:
    """How patient a shipment is."""

    retries: int
    retry_pause_seconds: float
    silence_seconds: float = 60.0
    """How long GSE may answer without a word of a target."""


@dataclass
class Shipment:
    """The targets of a shard, and the GSE tasks that carry them."""

    items: Sequence[Item]
    rules: Rules
    sendings: dict[int, Sending] = field(default_factory=dict)
    has_new_times: bool = False
    """Whether a GSE task has a time that is not written down yet."""
    _changed: dict[int, Item] = field(default_factory=dict)
    _refusals: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Of each GSE task that GSE does not know: how often it said so in a row, and since when."""
    _unbegun: dict[int, str] = field(default_factory=dict)
    """Of each target, by its key, that GSE did not begin to send when it was asked last: why."""
    _unheard: dict[int, str] = field(default_factory=dict)
    """Of each GSE task that could not be asked about at last: why."""

    def __post_init__(self) -> None:
        """Go on from what was written down: what is in a GSE task that nobody knows has to be sent again."""
        for item in self.unfinished:
            sending = self.sendings.get(item.sending)
            item.due_at = None if sending and sending.task_id and not sending.broken else 0.0

    @property
    def unfinished(self) -> list[Item]:
        """The targets that have not ended."""
        return [item for item in self.items if not item.state.final]

    @property
    def live(self) -> list[Sending]:
        """The GSE tasks that are worth asking about."""
        wanted = {item.sending for item in self.unfinished}
        return [sending for sending in self.sendings.values() if sending.number in wanted and sending.task_id]

    @property
    def unsettled(self) -> list[Sending]:
        """The GSE tasks that were asked for, and nothing is written down of what came of it."""
        wanted = {item.sending for item in self.unfinished}
        return [each for each in self.sendings.values() if each.number in wanted and each.task_id is None]

    def unfinished_in(self, sending: Sending) -> list[Item]:
        """The targets that this GSE task still has to bring."""
        return [item for item in self.unfinished if item.sending == sending.number]

    def due(self, now: float) -> list[Item]:
        """The targets whose time to be sent has come."""
        return [item for item in self.unfinished if item.due_at is not None and item.due_at <= now]

    def begin(
        self, items: Iterable[Item], source: Agent, journal_key: str = "", fetched_at: float | None = None
    ) -> Sending:
        """Put targets into a new GSE task, which is about to be asked for."""
        # One that GSE did not take, or not for sure, is forgotten; its number is not given to another one.
        number = 1 + max(max(self.sendings, default=0), max((item.sending for item in self.items), default=0))
        sending = Sending(
            number=number,
            source_agent_id=source.agent_id,
            source_container_id=source.container_id,
            journal_key=journal_key,
            fetched_at=fetched_at,
        )
        self.sendings[number] = sending
        for item in items:
            item.state, item.sending, item.due_at, item.progress, item.speed = State.RUNNING, number, None, 0, 0
            item.silent_since, item.silent_answers = None, 0
            self._note(item)
        return sending

    def began(self, sending: Sending, task_id: str, now: float | None = None) -> None:
        """GSE took it."""
        for item in self.unfinished_in(sending):
            self._unbegun.pop(item.key, None)
        self.sendings[sending.number] = sending.model_copy(update={"task_id": task_id, "sent_at": now})

    def recover(self, sending: Sending, task_id: str, told_at: float) -> None:
        """GSE took it and said so to a process that died before this was written down: its targets are under way."""
        self.began(sending, task_id, told_at)
        for item in self.unfinished_in(sending):
            item.due_at = None

    def began_not(self, sending: Sending, again_at: float, why: str = "") -> None:
        """GSE did not take it, or nobody knows: its targets wait until then."""
        del self.sendings[sending.number]
        for item in self.unfinished_in(sending):
            item.due_at = again_at
            self._unbegun[item.key] = why

    def take(self, sending: Sending, results: Results, now: float) -> None:
        """Learn what GSE says of one of its tasks. Records of targets that are not ours are none of our business."""
        self._refusals.pop(sending.number, None)
        self._unheard.pop(sending.number, None)
        for item in self.unfinished_in(sending):
            record = results.downloads.get(item.place)
            if record is not None:
                item.silent_since, item.silent_answers = None, 0
                self._learn(item, record, now, only_success=sending.broken)
            elif not sending.broken:
                self._hear_nothing(item, now)
        upload = results.upload
        if upload is not None and upload.verdict is Verdict.SUCCESS and sending.uploaded_at is None:
            self.sendings[sending.number] = sending.model_copy(update={"uploaded_at": now})
            self.has_new_times = True
        if upload is not None and upload.verdict in (Verdict.FATAL, Verdict.RETRYABLE) and not sending.broken:
            message = f"The source could not send: {upload.message}"
            self._fail_all(sending, Reason.UPLOAD_FAILED, message, now, code=upload.error_code, upload=upload)

    def refused(self, sending: Sending, message: str, now: float, code: int | None = None) -> None:
        """GSE does not know this task, or says so; when it keeps saying so for a while, the task is lost."""
        times, since = self._refusals.get(sending.number, (0, now))
        self._refusals[sending.number] = times + 1, since
        is_lost = times + 1 >= REFUSALS_MAX and now - since >= self.rules.silence_seconds
        if is_lost and not sending.broken:
            self._fail_all(sending, Reason.GSE_REFUSED, f"{LOST_TASK} {message}", now, code=code)

    def unheard(self, sending: Sending, why: str) -> None:
        """GSE cannot be asked about this task right now: nothing is said of its targets."""
        self._unheard[sending.number] = why

    def cancel(self, items: Iterable[Item]) -> None:
        """GSE was asked to give these up: each ends when GSE says how, or with the job's time."""
        for item in items:
            item.is_cancelling = True

    def drop(self, items: Iterable[Item]) -> None:
        """End what was cancelled and is in no GSE task that we know."""
        for item in items:
            known = self.sendings.get(item.sending)
            is_unsure = item.sending > 0 and (known is None or known.task_id is None)
            message = CANCELLED_UNSURE if is_unsure else CANCELLED
            self._end(item, State.FAILED, Reason.CANCELLED, item.code, message)

    def end_late(self) -> None:
        """The job's time is over: what was last known of each target is how it ends."""
        for item in self.unfinished:
            if item.is_cancelling:
                self._end(item, State.FAILED, Reason.CANCELLED, item.code, CANCELLED_LATE)
            elif item.failed_message:
                message = f"{LATE} The last try had failed: {item.failed_message}"
                self._end(item, State.TIMEOUT, Reason.DEADLINE, item.failed_code, message)
            elif item.silent_answers >= SILENT_ANSWERS_MIN:
                self._end(item, State.FAILED, Reason.NEVER_TOLD, None, NEVER_TOLD)
            else:
                why = self._unbegun.get(item.key) or self._unheard.get(item.sending)
                message = f"{LATE} At last GSE could not be asked: {why}" if why else LATE
                self._end(item, State.TIMEOUT, Reason.DEADLINE, item.code, message)

    def strand(self, sending: Sending, now: float) -> None:
        """Give a GSE task up whose source is gone; its targets are not to blame."""
        self._break(sending)
        for item in self.unfinished_in(sending):
            item.due_at = now

    def end(self, items: Iterable[Item], end: End) -> None:
        """End targets that have not ended."""
        for item in items:
            if not item.state.final:
                self._end(item, end.state, end.reason, end.code, end.message)

    def changes(self) -> list[Item]:
        """The targets that have changed since this was asked last."""
        changed = list(self._changed.values())
        self._changed.clear()
        return changed

    def _learn(self, item: Item, record: Record, now: float, *, only_success: bool) -> None:
        if record.verdict is Verdict.SUCCESS:
            item.progress, item.speed = 100, record.speed
            self._end(item, State.SUCCESS, None, record.error_code, record.message)
        elif only_success:
            return
        elif item.is_cancelling and record.verdict is not Verdict.RUNNING:
            self._end(item, State.FAILED, Reason.CANCELLED, record.error_code, CANCELLED)
        elif record.verdict is Verdict.RUNNING:
            self._go_on(item, record)
        elif record.verdict is Verdict.RETRYABLE:
            self._fail(item, Reason.GSE_CODE, record.error_code, record.message, now)
        else:
            self._end(item, State.FAILED, Reason.GSE_CODE, record.error_code, record.message)

    def _hear_nothing(self, item: Item, now: float) -> None:
        """GSE answers, and not a word of this target."""
        since = item.silent_since = now if item.silent_since is None else item.silent_since
        item.silent_answers += 1
        if item.silent_answers >= SILENT_ANSWERS_MIN and now - since >= self.rules.silence_seconds:
            if item.is_cancelling:
                self._end(item, State.FAILED, Reason.CANCELLED, None, CANCELLED_LATE)
            else:
                self._end(item, State.FAILED, Reason.NEVER_TOLD, None, NEVER_TOLD)

    def _go_on(self, item: Item, record: Record) -> None:
        """It runs; also one that had failed in between, which GSE itself then tries again."""
        item.due_at = None
        progress = max(item.progress, record.progress)
        if item.code != record.error_code or progress >= item.progress + PROGRESS_STEP:
            item.code, item.message = record.error_code, record.message
            item.progress, item.speed = progress, record.speed
            self._note(item)

    def _fail(self, item: Item, reason: Reason, code: int | None, message: str, now: float) -> None:
        """A failure that another GSE task may mend; each task fails a target once, however often it is asked."""
        if item.failed_in != item.sending:
            item.failures, item.failed_in = item.failures + 1, item.sending
        item.failed_code, item.failed_message = code, message
        if item.is_cancelling:
            self._end(item, State.FAILED, Reason.CANCELLED, code, CANCELLED)
        elif item.failures > self.rules.retries:
            self._end(item, State.FAILED, reason, code, message)
        elif item.due_at is None:
            pause = self.rules.retry_pause_seconds * 2 ** (item.failures - 1)
            item.due_at = now + min(RETRY_PAUSE_MAX_SECONDS, pause)
            item.code, item.message = code, message
            self._note(item)

    def _fail_all(
        self,
        sending: Sending,
        reason: Reason,
        message: str,
        now: float,
        *,
        code: int | None = None,
        upload: Record | None = None,
    ) -> None:
        self._break(sending)
        for item in self.unfinished_in(sending):
            if upload is not None and upload.verdict is Verdict.FATAL and not item.is_cancelling:
                self._end(item, State.FAILED, reason, code, message)
            else:
                self._fail(item, reason, code, message, now)

    def _break(self, sending: Sending) -> None:
        self.sendings[sending.number] = sending.model_copy(update={"broken": True})

    def _end(self, item: Item, state: State, reason: Reason | None, code: int | None, message: str) -> None:
        item.state, item.reason, item.code, item.message, item.due_at = state, reason, code, message, None
        self._note(item)

    def _note(self, item: Item) -> None:
        self._changed[item.key] = item


def by_sending(items: Collection[Item], sendings: Mapping[int, Sending]) -> list[tuple[Sending, list[Item]]]:
    """The GSE tasks that items are in, and which; those that are in none, or in one without an id, are left out."""
    found: dict[int, list[Item]] = {}
    for item in items:
        found.setdefault(item.sending, []).append(item)
    return [
        (sendings[number], some) for number, some in found.items() if number in sendings and sendings[number].task_id
    ]
