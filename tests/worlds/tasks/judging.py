"""Judging: what was seen of a world, held against what its own history makes of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tests.worlds.tasks.replaying import Explanation, History, explain
from tests.worlds.tasks.seen import (
    CANCELLED,
    FAILED,
    FINAL,
    RUNNING,
    CreatedTask,
    FinalTask,
    HeldLease,
    HoldAttempt,
    OperatorAction,
    SentResult,
    TaskObservations,
)
from tests.worlds.tasks.world import TaskWorld
from tests.worlds.verdict import Ending, Verdict

SLACK_SECONDS = 0.03
"""Clocks are one here, and read at different moments."""
VAIN_SECONDS = 3.0
"""A task that has been due for this time is found, whichever process is asked."""
WAITED = "waited in vain"


def judge_world(world: TaskWorld, seen: TaskObservations) -> Verdict:
    """Say how a world ended: as its worst part did."""
    if seen.late:
        return Verdict(Ending.LATE, seen.late, seen.fired)
    judging = _TaskJudge(world, seen)
    for ending, found in (
        (Ending.SILENT, judging.list_differences()),
        (Ending.NEEDLESS, judging.list_needless_refusals()),
    ):
        if why := "; ".join(found):
            return Verdict(ending, why, seen.fired)
    if foreign := [task_id for task_id, each in judging.explanations.items() if each.is_foreign]:
        return Verdict(Ending.INVISIBLE, f"{foreign} were ended by a word without a lease", seen.fired)
    if world.flaws and not seen.fired:
        return Verdict(Ending.UNKNOWN, "", seen.fired)
    failed = sum(each.status == FAILED for each in seen.ended)
    return Verdict(Ending.FAILED if failed else Ending.EQUAL, f"{failed} tasks failed" if failed else "", seen.fired)


@dataclass(frozen=True)
class _TaskJudge:
    world: TaskWorld
    seen: TaskObservations

    @cached_property
    def _holdings(self) -> Mapping[str, list[HeldLease]]:
        found: dict[str, list[HeldLease]] = defaultdict(list)
        for each in sorted(self.seen.holdings, key=lambda each: each.lease):
            found[each.task_id].append(each)
        return found

    @cached_property
    def _sayings(self) -> Mapping[str, list[SentResult]]:
        found: dict[str, list[SentResult]] = defaultdict(list)
        for each in sorted(self.seen.sayings, key=lambda each: each.sent_at):
            found[each.task_id].append(each)
        return found

    @cached_property
    def _acts(self) -> Mapping[str, list[OperatorAction]]:
        found: dict[str, list[OperatorAction]] = defaultdict(list)
        for each in self.seen.acts:
            found[each.task_id].append(each)
        return found

    @cached_property
    def _created(self) -> Mapping[str, CreatedTask]:
        """By user id, which each wish has of its own, and by the ids that were answered."""
        good = [each for each in reversed(self.seen.created) if each.code == 0]
        return {each.user_id: each for each in good if each.wish >= 0} | {each.task_id: each for each in good}

    def _create_of(self, ended: FinalTask) -> CreatedTask | None:
        return self._created.get(ended.task_id) or self._created.get(ended.user_id)

    @cached_property
    def explanations(self) -> Mapping[str, Explanation]:
        """What is to be said of each task that is there in the end."""
        unseen = sum(each.is_lost for each in self.seen.asked)
        rules = tuple(dict.fromkeys((self.world.rules, self.world.later_rules)))
        return {
            ended.task_id: explain(
                History(
                    task_id=ended.task_id,
                    created=created,
                    holdings=self._holdings.get(ended.task_id, []),
                    sayings=[each for each in self._sayings.get(ended.task_id, []) if not each.is_beat],
                    acts=self._acts.get(ended.task_id, []),
                    ended=ended,
                    rules=rules,
                    unseen=unseen,
                )
            )
            for ended in self.seen.ended
            if (created := self._create_of(ended)) is not None
        }

    def list_differences(self) -> Iterator[str]:
        """List what must not have happened."""
        yield from self.seen.crossed
        yield from self._compare_with_created()
        yield from (each.why_not for each in self.explanations.values() if each.why_not)
        for task_id, holdings in self._holdings.items():
            yield from self._list_held_twice(task_id, holdings)
        yield from self._list_wrong_holders()
        yield from self._list_after_cancels()
        yield from self._list_while_paused()
        yield from self._check_holds()
        yield from self._check_counts()
        for glimpse in self.seen.glimpses:
            if glimpse.status != glimpse.after_status:
                yield f"{glimpse.task_id} was answered as {glimpse.after_status} and then read as {glimpse.status}"
        if self.seen.is_calm and not any(each.is_lost for each in self.seen.asked):
            yield from self._list_out_of_order()
            yield from self._list_waits_in_vain()

    def _compare_with_created(self) -> Iterator[str]:
        listed = Counter(each.task_id for each in self.seen.ended)
        yield from (f"{task_id} is listed {count} times" for task_id, count in listed.items() if count > 1)
        for each in self.seen.created:
            if each.code == 0 and each.task_id not in listed:
                yield f"{each.name or each.user_id} was answered as {each.task_id} and is not found"
        of_names: dict[str, set[str]] = defaultdict(set)
        for each in self.seen.created:
            if each.code == 0 and each.name:
                of_names[each.name].add(each.task_id)
        yield from (f"{name} was answered as {sorted(ids)}" for name, ids in of_names.items() if len(ids) > 1)
        by_user = Counter(each.user_id for each in self.seen.ended)
        for user_id, count in by_user.items():
            asked = [each for each in self.seen.created if each.user_id == user_id and each.code == 0]
            names = {each.name for each in asked if each.name}
            most = len(names) + sum(1 + each.lost for each in asked if not each.name)
            if count > most:
                yield f"{user_id} asked for {most} tasks at most, {count} are there"
        for ended in self.seen.ended:
            created = self._create_of(ended)
            if created is not None and created.priority != ended.priority:
                yield f"{ended.task_id} has priority {ended.priority}, asked for was {created.priority}"

    def _list_held_twice(self, task_id: str, holdings: Sequence[HeldLease]) -> Iterator[str]:
        """List what was given out before the holding before was over or given up."""
        for before, after in pairwise(holdings):
            if before.lease == after.lease:
                yield f"{task_id} was given out twice under lease {after.lease}"
            end = min(self._lease_end(before), self._given_up_at(before))
            if after.received_at < end - SLACK_SECONDS:
                early = end - after.received_at
                leases = f"lease {after.lease} {early:.3f} s before lease {before.lease} ended"
                yield f"{task_id} was given out under {leases}"

    def _lease_end(self, held: HeldLease) -> float:
        """When it is over at the earliest: words that were taken have begun it anew."""
        seconds = min(self.world.rules.max_processing_time, self.world.later_rules.max_processing_time)
        renewed = [
            each.sent_at + seconds
            for each in self._sayings.get(held.task_id, [])
            if each.lease == held.lease and each.status == RUNNING and each.is_taken and each.is_leased
        ]
        return max([held.lease_end, *renewed])

    def _given_up_at(self, held: HeldLease) -> float:
        words = [
            each.sent_at
            for each in self._sayings.get(held.task_id, [])
            if each.status != RUNNING
            and (each.is_taken or each.lost)
            and (each.lease == held.lease or not each.is_leased)
        ]
        acts = [act.sent_at for act in self._acts.get(held.task_id, []) if act.code == 0 or act.lost]
        return min([*words, *acts], default=float("inf"))

    def _list_wrong_holders(self) -> Iterator[str]:
        """List results that were accepted while another worker held the task, and different results of one lease."""
        for said in self.seen.sayings:
            if not (said.is_taken and said.is_leased):
                continue
            later = [each for each in self._holdings.get(said.task_id, []) if each.lease > said.lease]
            if any(each.received_at < said.sent_at for each in later):
                yield f"a word for {said.task_id} under lease {said.lease} was taken, it was held under a later one"
        for task_id, sayings in self._sayings.items():
            words: dict[int, set[tuple[object, ...]]] = defaultdict(set)
            for each in sayings:
                if each.is_taken and each.is_leased and each.status != RUNNING:
                    words[each.lease].add((each.status, each.failed, each.stage, each.text))
            yield from (
                f"{task_id} under lease {lease} was taken as {sorted(map(str, said))}"
                for lease, said in words.items()
                if len(said) > 1
            )

    def _list_after_cancels(self) -> Iterator[str]:
        for act in self.seen.acts:
            if act.kind != "cancel" or act.code:
                continue
            if any(each.sent_at > act.answered_at for each in self._holdings.get(act.task_id, [])):
                yield f"{act.task_id} was given out after it was cancelled"
            if any(
                each.is_taken and not each.lost and each.sent_at > act.answered_at
                for each in self._sayings.get(act.task_id, [])
            ):
                yield f"a word for {act.task_id} was taken after it was cancelled"

    @cached_property
    def _pauses(self) -> list[tuple[float, float]]:
        """When the type was paused for sure."""
        began = [act.answered_at for act in self.seen.acts if act.kind == "pause" and not act.code]
        ended = [act.sent_at for act in self.seen.acts if act.kind == "resume"]
        return list(zip(began, ended, strict=False))

    def _list_while_paused(self) -> Iterator[str]:
        for began, ended in self._pauses:
            for asked in self.seen.asked:
                if asked.tasks and asked.sent_at > began and asked.received_at < ended:
                    yield f"{asked.tasks} were given out while the type was paused"

    def _check_holds(self) -> Iterator[str]:
        rules = (self.world.rules, self.world.later_rules)
        most, least_seconds = (
            max(each.schedule_limit for each in rules),
            min(each.max_processing_time for each in rules),
        )
        most_seconds = max(each.max_processing_time for each in rules)
        for asked in self.seen.asked:
            if len(asked.tasks) > min(asked.limit or most, most):
                yield f"a hold for {asked.limit or 'all'} brought {len(asked.tasks)} tasks"
        for held in self.seen.holdings:
            if held.order_time_ms / 1_000 > held.received_at + SLACK_SECONDS:
                yield f"{held.task_id} was given out {held.order_time_ms / 1_000 - held.received_at:.3f} s too early"
            created = self._created.get(held.task_id)
            if created is not None and created.start > held.received_at + SLACK_SECONDS:
                yield f"{held.task_id} was given out {created.start - held.received_at:.3f} s before its start"
            if not held.sent_at + least_seconds - SLACK_SECONDS <= held.lease_end:
                yield f"lease {held.lease} of {held.task_id} is too short"
            if held.lease_end > held.received_at + most_seconds + SLACK_SECONDS:
                yield f"lease {held.lease} of {held.task_id} is too long"

    def _check_counts(self) -> Iterator[str]:
        by_status = Counter(each.status for each in self.seen.ended)
        true = {"task_count": len(self.seen.ended), "success": by_status[3], "failed": by_status[4]}
        true["cancelled"] = by_status[CANCELLED]
        reported = {name: self.seen.counts.get(name) for name in true}
        if reported != true:
            yield f"the counts are {reported}, the list has {true}"
        yield from (f"{each.task_id} stands at {each.status}" for each in self.seen.ended if each.status not in FINAL)

    def _due_at(self, held: HeldLease) -> float:
        """Since when it was due for sure before it was given out."""
        created = [max(each.answered_at, each.start) for each in self.seen.created if each.task_id == held.task_id]
        created = created or [float("inf")]
        words = [
            each.answered_at
            for each in self._sayings.get(held.task_id, [])
            if not each.is_beat and (each.is_taken or each.lost) and each.sent_at < held.received_at
        ]
        acts = [act.answered_at for act in self._acts.get(held.task_id, []) if act.sent_at < held.received_at]
        return max([held.order_time_ms / 1_000, *created, *words, *acts])

    def _list_out_of_order(self) -> Iterator[str]:
        """List tasks that were given out before another of their lane that was due, and earlier in the queue."""
        lanes: dict[str, list[tuple[HeldLease, float]]] = defaultdict(list)
        for held in self.seen.holdings:
            lanes[held.task_id.rpartition("_")[2]].append((held, self._due_at(held)))
        for holdings in lanes.values():
            for first, _ in holdings:
                for other, due_at in holdings:
                    is_before = other.order_time_ms < first.order_time_ms and due_at < first.sent_at
                    if is_before and other.sent_at > first.received_at:
                        ahead = first.order_time_ms - other.order_time_ms
                        yield f"{first.task_id} was given out before {other.task_id}, {ahead} ms ahead of it"
                        return

    def _list_waits_in_vain(self) -> Iterator[str]:
        empty = [each for each in self.seen.asked if not each.tasks and not self._is_paused(each)]
        for held in self.seen.holdings:
            due_at = self._due_at(held) + VAIN_SECONDS
            for asked in empty:
                if asked.sent_at > due_at and asked.received_at < held.sent_at:
                    yield f"a hold {WAITED}: {held.task_id} was due for {asked.sent_at - due_at + VAIN_SECONDS:.1f} s"
                    return

    def _is_paused(self, asked: HoldAttempt) -> bool:
        return any(began - 1 < asked.received_at and asked.sent_at < ended + 1 for began, ended in self._pauses)

    def list_needless_refusals(self) -> Iterator[str]:
        """List what was refused although it was its holder's word, in time."""
        yield from self.seen.refusals
        for said in self.seen.sayings:
            if not said.is_taken and not self._is_rightly_late(said):
                yield f"{said} was refused"

    def _is_rightly_late(self, said: SentResult) -> bool:
        held = next((each for each in self._holdings.get(said.task_id, []) if each.lease == said.lease), None)
        if held is None or said.answered_at > self._lease_end(held) - SLACK_SECONDS:
            return True
        acts = self._acts.get(said.task_id, [])
        if any(act.sent_at < said.answered_at and (act.code == 0 or act.lost) for act in acts):
            return True
        others = [each for each in self._sayings[said.task_id] if each is not said and each.status != RUNNING]
        earlier = [each for each in others if each.sent_at < said.answered_at and (each.is_taken or each.lost)]
        if any(each.lease == said.lease and _differs(each, said) for each in earlier):
            return True
        # A repeated result is accepted each time, until another worker holds the task.
        later = [each for each in self._holdings[said.task_id] if each.lease > said.lease]
        is_given_up = bool(said.lost or earlier)
        taken = [each.sent_at for each in later] + [each.sent_at for each in self.seen.asked if each.is_lost]
        is_taken_again = any(sent_at < said.answered_at for sent_at in taken)
        return (is_given_up and is_taken_again) or any(not each.is_leased for each in earlier)


def _differs(one: SentResult, other: SentResult) -> bool:
    return (one.status, one.failed, one.stage, one.text) != (other.status, other.failed, other.stage, other.text)
