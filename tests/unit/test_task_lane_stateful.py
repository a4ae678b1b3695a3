"""Whatever is asked of a lane, in whatever order: it is what a plain list that is sorted would be."""

from __future__ import annotations

import uuid
from collections import Counter
from random import Random
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from domain.tasks import attempts
from domain.tasks.activity_models import LaneSnapshot
from domain.tasks.attempts import ATTEMPTS_MAX
from domain.tasks.lane import Lane
from domain.tasks.messages import (
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    LaneBatch,
    LaneBatchReply,
    SetOperation,
    TaskStatus,
    TaskTypeRules,
)
from domain.tasks.state import compute_task_snapshot_bytes
from tests.support.lane_model import LaneModel, ModelTask

START = 1_767_225_600_000
SENDERS = ("one", "two")

seeds = st.integers(0, 2**32)
moments = st.sampled_from([0, 1, 400, 1_000, 1_001, 5_000, 30_000])
texts = st.sampled_from([None, "", "{}", "内容", '"\\\n\x00'])
counts = st.sampled_from([None, None, 0, 1, 2])


class LaneMachine(RuleBasedStateMachine):
    """Two API processes and their workers, a clock, the archive, and a lane that is carried on at any moment."""

    @initialize(
        retries=st.integers(0, 4),
        seconds=st.sampled_from([4, 40]),
        interval=st.sampled_from([10, 2, 0, -3]),
        limit=st.integers(1, 5),
        room=st.sampled_from([3, 30]),
    )
    def begin(self, retries: int, seconds: int, interval: int, limit: int, room: int) -> None:
        rules = TaskTypeRules(
            version=1,
            schedule_limit=limit,
            max_retry_num=retries,
            max_retry_interval=interval,
            max_processing_time=seconds,
            lane_max_tasks=room,
        )
        self.lane, self.model = Lane(rules), LaneModel(rules, START)
        self.clock = START
        self.lane.state.advance_clock(START)
        self.numbers = Counter[str]()
        self.last: dict[str, tuple[LaneBatch, LaneBatchReply]] = {}
        self.known: list[CreateOperation] = []
        self.held: list[tuple[str, int]] = []
        self.version = 1

    def ask(self, sender: str, **operations: Any) -> LaneBatchReply:
        """As it is asked over the wire."""
        self.numbers[sender] += 1
        group = LaneBatch(sender, self.numbers[sender], **operations)
        reply = self.send(group)
        self.last[sender] = group, reply
        return reply

    def send(self, group: LaneBatch) -> LaneBatchReply:
        over_the_wire = msgspec.json.decode(msgspec.json.encode(group), type=LaneBatch)
        reply = msgspec.json.encode(self.lane.apply_batch(over_the_wire, self.clock))
        return msgspec.json.decode(reply, type=LaneBatchReply)

    @rule(sender=st.sampled_from(SENDERS), seed=seeds, count=st.integers(1, 4), priority=st.sampled_from([0, 0, 1, 60]))
    def create(self, sender: str, seed: int, count: int, priority: int) -> None:
        keys = [uuid.UUID(int=Random(seed + n).getrandbits(128)).hex for n in range(count)]
        # A lane keeps no keys of archived tasks but those that callers chose: others are random, and none comes twice.
        fresh = [key for key in keys if key not in self.model.archived]
        new = [CreateOperation(key, "user", key[:3], priority, "first") for key in fresh]
        self.known += new
        expected = "".join(map(self.model.create, new))
        assert self.ask(sender, creates=new).creates == expected

    @rule(sender=st.sampled_from(SENDERS), seed=seeds, content=texts)
    def create_again(self, sender: str, seed: int, content: str | None) -> None:
        if self.known and (known := Random(seed).choice(self.known)).key not in self.model.archived:
            new = known if content is None else msgspec.structs.replace(known, content=content)
            assert self.ask(sender, creates=[new]).creates == self.model.create(new)

    @rule(
        sender=st.sampled_from(SENDERS),
        limits=st.lists(st.integers(0, 7), min_size=1, max_size=3),
        seconds=st.sampled_from([0, 1, 9]),
    )
    def hold(self, sender: str, limits: list[int], seconds: int) -> None:
        expected = [self.model.hold(limit, seconds) for limit in limits]
        holds = self.ask(sender, holds=[HoldOperation(limit, seconds) for limit in limits]).holds
        self.held += [(task.key, task.lease) for tasks in holds for task in tasks]
        assert [[(task.key, task.lease, task.lease_end) for task in tasks] for tasks in holds] == [
            [(task.new.key, task.lease, task.lease_end) for task in tasks] for tasks in expected
        ]
        assert not any(task.attempts for tasks in holds for task in tasks)

    @rule(
        sender=st.sampled_from(SENDERS),
        seed=seeds,
        is_told_whose=st.booleans(),
        retries=counts,
        stage=st.sampled_from([None, "", "next"]),
        failed=st.booleans(),
    )
    def throw_back(self, sender: str, seed: int, is_told_whose: bool, retries: int | None, **said: Any) -> None:
        if running := self.model.of(TaskStatus.RUNNING):
            task = Random(seed).choice(running)
            lease = task.lease if is_told_whose else None
            more = None if retries is None else task.retries + retries
            self.set(sender, SetOperation(task.new.key, TaskStatus.PENDING, lease, more, **said))

    @rule(
        sender=st.sampled_from(SENDERS), seed=seeds, status=st.integers(0, 4), retries=counts, content=texts, log=texts
    )
    def say(self, sender: str, seed: int, status: int, retries: int | None, **said: Any) -> None:
        if running := self.model.of(TaskStatus.RUNNING):
            task = Random(seed).choice(running)
            self.set(sender, SetOperation(task.new.key, status, task.lease, retries, **said))

    @rule(
        sender=st.sampled_from(SENDERS),
        seed=seeds,
        status=st.integers(0, 4),
        off=st.sampled_from([0, 0, 0, 1, None]),
        stage=st.sampled_from([None, None, "next"]),
    )
    def say_what_others_may_have_said(self, sender: str, seed: int, status: int, off: int | None, stage: str) -> None:
        if self.held:
            key, lease = Random(seed).choice(self.held)
            self.set(sender, SetOperation(key, status, None if off is None else lease + off, stage=stage))

    def set(self, sender: str, setting: SetOperation) -> None:
        expected = self.model.set(setting)
        assert self.ask(sender, sets=[setting]).sets == expected

    @rule(sender=st.sampled_from(SENDERS), seed=seeds, off=st.sampled_from([0, 0, 1, None]), seconds=st.integers(0, 9))
    def beat(self, sender: str, seed: int, off: int | None, seconds: int) -> None:
        if (task := self.some(seed)) is not None:
            lease = None if off is None else task.lease + off
            expected = self.model.beat(task.new.key, lease, seconds)
            assert (
                self.ask(sender, heartbeats=[HeartbeatOperation(task.new.key, lease, seconds)]).heartbeats == expected
            )

    @rule(sender=st.sampled_from(SENDERS), seed=seeds)
    def cancel(self, sender: str, seed: int) -> None:
        if self.known:
            key = Random(seed).choice(self.known).key
            expected = self.model.cancel(key)
            assert self.ask(sender, cancels=[key]).cancels == expected

    @rule(sender=st.sampled_from(SENDERS), paused=st.booleans(), interval=st.sampled_from([10, 0, -2]))
    def change_rules(self, sender: str, paused: bool, interval: int) -> None:
        self.version += 1
        rules = msgspec.structs.replace(
            self.model.rules, version=self.version, paused=paused, max_retry_interval=interval
        )
        self.model.rules = rules
        assert self.ask(sender, rules=rules).version == self.version

    @rule(milliseconds=moments)
    def pass_time(self, milliseconds: int) -> None:
        self.model.tick(milliseconds)
        self.clock = self.model.now
        self.lane.state.advance_clock(self.clock)

    @rule(milliseconds=moments)
    def turn_the_clock_back(self, milliseconds: int) -> None:
        self.clock = self.model.now - milliseconds

    @rule(sender=st.sampled_from(SENDERS))
    def repeat_the_last_group(self, sender: str) -> None:
        if sender in self.last:
            group, first = self.last[sender]
            again = self.send(group)
            assert (again.creates, again.sets, again.heartbeats, again.cancels) == (
                *(first.creates, first.sets),
                *(first.heartbeats, first.cancels),
            )
            running = {(task.new.key, task.lease) for task in self.model.of(TaskStatus.RUNNING)}
            assert [[(task.key, task.lease) for task in tasks] for tasks in again.holds] == [
                [(task.key, task.lease) for task in tasks if (task.key, task.lease) in running] for tasks in first.holds
            ]

    @rule(sender=st.sampled_from(SENDERS))
    def send_a_group_too_late(self, sender: str) -> None:
        if self.numbers[sender] > 1:
            late = LaneBatch(
                sender,
                self.numbers[sender] - 1,
                holds=[HoldOperation(5)],
                creates=[CreateOperation("0" * 32, "user", "")],
            )
            reply = self.send(late)
            assert (reply.late, reply.creates, reply.holds) == (True, "", [])

    @rule()
    def carry_on(self) -> None:
        carried = msgspec.json.encode(self.lane.build_snapshot())
        self.lane = Lane(self.lane.state.rules, msgspec.json.decode(carried, type=LaneSnapshot))

    @rule(count=st.integers(1, 5))
    def archive(self, count: int) -> None:
        ended = self.lane.state.list_ended(count, 10_000)
        assert all(task.status == self.model.tasks[task.key].status for task in ended)
        self.model.archive([task.key for task in ended])
        self.lane.state.remove_archived([task.key for task in ended])
        self.lane.state.remove_archived([task.key for task in ended])

    def some(self, seed: int) -> ModelTask | None:
        """A task; a running one if there is one."""
        tasks = self.model.of(TaskStatus.RUNNING) * 3 + list(self.model.tasks.values())
        return Random(seed).choice(tasks) if tasks else None

    @invariant()
    def every_task_is_as_the_model_says(self) -> None:
        assert {
            task.key: (task.status, task.crt_retry_num, task.order_time, task.stage, task.content, task.log)
            for task in self.lane.state.tasks.values()
        } == {
            key: (task.status, task.retries, task.order_time, task.stage, task.content, task.log)
            for key, task in self.model.tasks.items()
        }

    @invariant()
    def every_attempt_that_did_not_end_its_task_is_told(self) -> None:
        for task in self.lane.state.tasks.values():
            told, left_out = attempts.decode_attempts(task)
            expected = self.model.tasks[task.key].attempts
            assert (told, left_out) == (expected[-ATTEMPTS_MAX:], max(0, len(expected) - ATTEMPTS_MAX))

    @invariant()
    def nothing_is_lost_and_the_head_counts_right(self) -> None:
        head, archived = self.lane.state.build_head(), Counter(self.model.archived.values())
        ended = head.success + head.failed + head.cancelled
        assert head.pending + head.running + ended == len(self.model.tasks) + archived.total()
        assert (head.pending, head.running, head.success, head.failed, head.cancelled, head.archived) == (
            len(self.model.of(TaskStatus.PENDING)),
            len(self.model.of(TaskStatus.RUNNING)),
            len(self.model.of(TaskStatus.SUCCESS)) + archived[TaskStatus.SUCCESS],
            len(self.model.of(TaskStatus.FAILED)) + archived[TaskStatus.FAILED],
            len(self.model.of(TaskStatus.CANCELLED)) + archived[TaskStatus.CANCELLED],
            archived.total(),
        )
        pending = [task.order_time for task in self.model.of(TaskStatus.PENDING)]
        running = [task.lease_end for task in self.model.of(TaskStatus.RUNNING)]
        assert (head.next_order_time, head.next_lease_end) == (min(pending, default=None), min(running, default=None))
        assert head.due == len(self.model.due())

    @invariant()
    def the_lane_knows_its_weight(self) -> None:
        tasks = self.lane.state.tasks.values()
        assert self.lane.state.weight == sum(map(compute_task_snapshot_bytes, tasks))
        told = sum(map(attempts.count_attempt_bytes, tasks))
        assert sum(len(msgspec.json.encode(task)) + 1 for task in tasks) <= self.lane.state.weight + told


LaneMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestLane = LaneMachine.TestCase
