"""Replaying: what a task's history makes of it in plain Python, over all that may have happened unseen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tests.worlds.tasks.seen import (
    CANCELLED,
    FAILED,
    PENDING,
    RUNNING,
    SUCCESS,
    CreatedTask,
    FinalTask,
    HeldLease,
    OperatorAction,
    SentResult,
)

SLACK_MS = 30
FOR_EVER_MS = 1 << 60
UNSEEN_MAX = 4


class Rules(Protocol):
    """The type at some time."""

    @property
    def max_retry_num(self) -> int:
        """How often a task is retried."""

    @property
    def max_retry_interval(self) -> int:
        """How long it waits at most, or, negative, each time."""

    @property
    def retry_interval(self) -> int:
        """How long it waits first, where pauses double."""


@dataclass(frozen=True, slots=True)
class ReplayedTask:
    """A task between two holdings, or in the end."""

    status: int
    retries: int
    stage: str
    text: str
    log: str
    earliest_ms: float
    """Its place in the queue lies between."""
    latest_ms: float
    is_foreign: bool = False
    """Whether a caller without a lease was accepted as the holder."""


@dataclass(frozen=True)
class History:
    """All that is known of one task."""

    task_id: str
    created: CreatedTask
    holdings: Sequence[HeldLease]
    """In the order of their leases."""
    sayings: Sequence[SentResult]
    """But for heartbeats."""
    acts: Sequence[OperatorAction]
    ended: FinalTask
    rules: Sequence[Rules]
    """Those that were in force at some time."""
    unseen: int
    """How many holds with a lost response may have got it."""


@dataclass(frozen=True)
class Explanation:
    """Whether a history makes what was seen."""

    why_not: str = ""
    is_foreign: bool = False
    """Whether only by a word without a lease that hit another holder."""


def explain(history: History) -> Explanation:
    """Say whether a task's holdings and its end follow from what was done to it."""
    states = {_begin(history)}
    for held in history.holdings:
        reached = _with_unseen(states, history)
        matched = {state for state in reached if state.status == PENDING and _is_held_so(state, held)}
        if not matched:
            return Explanation(
                f"{_name(history)} was given out as {_describe_all(held)}, its history makes {_describe_all(*reached)}"
            )
        states = {after for state in matched for after in _list_ends(state, held, history)}
    reached = _with_unseen(states, history)
    matched = {state for state in reached if state.status != PENDING and _is_ended_so(state, history.ended)}
    if not matched:
        return Explanation(
            f"{_name(history)} ended as {_describe_all(history.ended)}, its history makes {_describe_all(*reached)}"
        )
    return Explanation(is_foreign=all(state.is_foreign for state in matched))


def _begin(history: History) -> ReplayedTask:
    created = history.created
    ahead = created.priority * 1_000
    earliest, latest = (max(at, created.start) * 1_000 - ahead for at in (created.sent_at, created.answered_at))
    if history.task_id != created.task_id:
        # No caller got the id of this one: it had disconnected, and created another without a `task_id`.
        latest = FOR_EVER_MS
    return ReplayedTask(PENDING, 0, created.stage, created.text, "", earliest, latest)


def _with_unseen(states: Iterable[ReplayedTask], history: History) -> set[ReplayedTask]:
    """Add what holds make of it whose answers were lost: it is taken back, or, its caller having gone, put back.

    Or meanwhile a worker that held it before says, without a lease, what became of it.
    """
    reached, fresh = set(states), set(states)
    if _is_cancelled(history):
        reached |= {replace(state, status=CANCELLED) for state in fresh if state.status == PENDING}
    for _ in range(min(history.unseen, UNSEEN_MAX)):
        fresh = {
            after
            for state in fresh
            if state.status == PENDING
            for after in (
                *_list_failures(state, history.rules, 0, FOR_EVER_MS),
                _anywhere(state),
                *_list_late_words(state, history),
            )
        }
        reached |= fresh
    return reached


def _list_late_words(state: ReplayedTask, history: History) -> Iterator[ReplayedTask]:
    for said in history.sayings:
        if not said.is_leased and said.is_taken and said.status != RUNNING:
            yield from (replace(after, is_foreign=True) for after in _apply(state, said, history))


def _anywhere(state: ReplayedTask) -> ReplayedTask:
    return replace(state, earliest_ms=-FOR_EVER_MS, latest_ms=FOR_EVER_MS)


def _is_cancelled(history: History) -> bool:
    return any(act.kind == "cancel" and (act.code == 0 or act.lost) for act in history.acts)


def _list_ends(state: ReplayedTask, held: HeldLease, history: History) -> Iterator[ReplayedTask]:
    """List how an attempt may have come to its end."""
    own = [each for each in history.sayings if each.lease == held.lease and each.status != RUNNING]
    firm = [each for each in own if each.is_taken]
    for said in firm[:1] or [each for each in own if each.lost]:
        yield from _apply(state, said, history)
    if not firm or any(not each.is_leased and each.answered_at > held.lease_end for each in firm):
        yield from _list_failures(state, history.rules, held.lease_end * 1_000, FOR_EVER_MS)
    if _is_cancelled(history):
        yield replace(state, status=CANCELLED)
    for act in history.acts:
        if act.kind == "put_back" and (act.code == 0 or act.lost):
            yield _wait(state, act.sent_at, act.answered_at, history.created.priority)
    for said in history.sayings:
        is_late = said.lease < held.lease and said.answered_at >= held.sent_at
        if is_late and not said.is_leased and said.is_taken and said.status != RUNNING:
            yield from (replace(after, is_foreign=True) for after in _apply(state, said, history))


def _apply(state: ReplayedTask, said: SentResult, history: History) -> Iterator[ReplayedTask]:
    """Do what a worker said."""
    written = replace(
        state,
        stage=state.stage if said.stage is None else said.stage,
        text=state.text if said.text is None else said.text,
        log=state.log if said.log is None else said.log,
    )
    if said.status in (SUCCESS, FAILED):
        yield replace(written, status=said.status)
    elif said.crt_retry_num is not None and said.crt_retry_num > state.retries:
        yield from _list_failures(written, history.rules, said.sent_at * 1_000, said.answered_at * 1_000)
    else:
        yield _wait(written, said.sent_at, said.answered_at, history.created.priority)


def _wait(state: ReplayedTask, earliest: float, latest: float, priority: int) -> ReplayedTask:
    return replace(state, earliest_ms=(earliest - priority) * 1_000, latest_ms=(latest - priority) * 1_000)


def _list_failures(
    state: ReplayedTask, rules: Sequence[Rules], earliest_ms: float, latest_ms: float
) -> Iterator[ReplayedTask]:
    """Fail between two moments, under any of the rules."""
    for each in rules:
        if state.retries >= each.max_retry_num:
            yield replace(state, status=FAILED)
            continue
        pause = pause_seconds(each, state.retries) * 1_000
        yield replace(state, retries=state.retries + 1, earliest_ms=earliest_ms + pause, latest_ms=latest_ms + pause)


def pause_seconds(rules: Rules, retries: int) -> int:
    """Return the delay of a task that fails after this number of retries."""
    longest = rules.max_retry_interval
    return int(-longest if longest < 0 else min(rules.retry_interval * 2**retries, longest))


def _is_held_so(state: ReplayedTask, held: HeldLease) -> bool:
    is_same = (state.retries, state.stage, state.text, state.log) == (
        *(held.crt_retry_num, held.stage),
        *(held.text, held.log),
    )
    return is_same and state.earliest_ms - SLACK_MS <= held.order_time_ms <= state.latest_ms + SLACK_MS


def _is_ended_so(state: ReplayedTask, ended: FinalTask) -> bool:
    made = (state.status, state.retries, state.stage, state.text, state.log)
    return made == (ended.status, ended.crt_retry_num, ended.stage, ended.text, ended.log)


def _name(history: History) -> str:
    return f"{history.task_id} ({history.created.user_id})"


def _describe_all(*things: ReplayedTask | HeldLease | FinalTask) -> str:
    return "; ".join(_describe_one(each) for each in things[:4])


def _describe_one(thing: ReplayedTask | HeldLease | FinalTask) -> str:
    text = f"stage {thing.stage!r}, {len(thing.text)} characters, log {thing.log[:40]!r}"
    match thing:
        case ReplayedTask():
            place = f"{thing.earliest_ms:.0f} to {thing.latest_ms:.0f}"
            return f"[status {thing.status}, {thing.retries} retries, {text}, placed {place}]"
        case HeldLease():
            return f"[lease {thing.lease}, {thing.crt_retry_num} retries, {text}, placed {thing.order_time_ms}]"
        case FinalTask():
            return f"[status {thing.status}, {thing.crt_retry_num} retries, {text}]"
