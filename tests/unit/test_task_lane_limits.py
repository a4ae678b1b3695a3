"""What leaves a lane stays below the engine's limits, whatever comes in; and nothing that comes in makes it raise."""

from __future__ import annotations

import itertools
import json
import tracemalloc
import uuid
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from domain.tasks.activity_models import LaneSnapshot
from domain.tasks.lane import Lane
from domain.tasks.messages import (
    BATCH_MAX_BYTES,
    BATCH_MAX_OPERATIONS,
    HOLD_LIMIT_MAX,
    REF_CHARACTERS,
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    LaneBatch,
    LaneBatchReply,
    OperationCode,
    SetOperation,
    TaskFlags,
    TaskLookup,
    TaskSearch,
    TaskTypeRules,
)
from tests.support.selecting import combine_and_mark_long_except

MEGABYTE = 1_000_000
START = 1_767_225_600_000
# What JSON writes with one, two, three, four and six bytes.
WIDTHS = {"ascii": "a", "quotes": '"', "chinese": "中", "astral": "\U0001f4e6", "control": "\x01"}
LENGTHS = (0, 17, 512)
REF = "r" * REF_CHARACTERS

encode = msgspec.json.encode


def keys(count: int) -> list[str]:
    """Of tasks to be."""
    return [uuid.uuid4().hex for _ in range(count)]


def groups(sender: str, operations: str, each: list[Any]) -> list[LaneBatch]:
    """Operations in groups that an API process would send."""
    made, numbers = [], itertools.count(1)
    while each:
        size = max(1, min(BATCH_MAX_OPERATIONS, BATCH_MAX_BYTES // max(len(encode(one)) + 1 for one in each[:1_000])))
        made.append(msgspec.structs.replace(LaneBatch(sender, next(numbers)), **{operations: each[:size]}))
        each = each[size:]
    return made


def fill_lane(lane: Lane, letter: str, length: int) -> list[str]:
    """A lane that takes no more; the keys of its tasks."""
    new = [CreateOperation(key, letter * 8, letter * length) for key in keys(20_000 // (1 + length // 50))]
    codes = "".join(lane.apply_batch(group, START).creates for group in groups("creator", "creates", new))
    assert lane.state.is_full
    return [task.key for task, code in zip(new, codes, strict=True) if code == OperationCode.OK]


@pytest.mark.parametrize(
    ("length", "width"), combine_and_mark_long_except(LENGTHS, WIDTHS, often=[*itertools.product(LENGTHS, WIDTHS)][::2])
)
def test_a_lane_at_its_limits_can_be_carried_on(length: int, width: str) -> None:
    """Full of tasks that are held and have the longest logs that it accepts, asked by more than it remembers."""
    letter = WIDTHS[width]
    lane = Lane(TaskTypeRules(lane_max_tasks=10**9, schedule_limit=HOLD_LIMIT_MAX))
    created = fill_lane(lane, letter, length)
    for moment in range(1, 100):
        lane.apply_batch(
            LaneBatch("holder", moment, holds=[HoldOperation(HOLD_LIMIT_MAX)] * BATCH_MAX_OPERATIONS), START + moment
        )
    assert lane.state.build_head().running == len(created)

    settings = [SetOperation(key, 2, stage="s" * 32, log=letter * 512) for key in created]
    codes = "".join(lane.apply_batch(group, START + 200).sets for group in groups("setter", "sets", settings))
    by_reference = [
        SetOperation(key, 2, stage="s" * 32, log=REF, content=REF, flags=int(TaskFlags.LOG | TaskFlags.CONTENT))
        for key, code in zip(created, codes, strict=True)
        if code == OperationCode.NO_ROOM
    ]
    late = "".join(lane.apply_batch(group, START + 201).sets for group in groups("late", "sets", by_reference))
    for number in range(100):
        lane.apply_batch(
            LaneBatch(f"{number:032}", 1, heartbeats=[HeartbeatOperation(created[0])] * BATCH_MAX_OPERATIONS),
            START + 300,
        )

    assert set(codes) <= {OperationCode.OK, OperationCode.NO_ROOM}
    assert set(late) <= {OperationCode.OK}
    assert len(encode(lane.build_snapshot())) <= MEGABYTE


def test_the_room_that_tasks_leave_is_used() -> None:
    """A lane whose tasks are archived has space for texts again, though not for tasks."""
    lane = Lane(TaskTypeRules(lane_max_tasks=10**9, schedule_limit=HOLD_LIMIT_MAX))
    fill_lane(lane, "a", 512)
    first, *others = lane.apply_batch(LaneBatch("holder", 1, holds=[HoldOperation(HOLD_LIMIT_MAX)]), START + 1).holds[0]
    long = SetOperation(first.key, 2, log="x" * 512)
    fills = [SetOperation(task.key, 2, log="x" * 512) for task in others]
    for group in groups("filler", "sets", fills):
        lane.apply_batch(group, START + 2)
    assert lane.apply_batch(LaneBatch("setter", 1, sets=[long]), START + 3).sets == OperationCode.NO_ROOM

    lane.apply_batch(LaneBatch("setter", 2, sets=[SetOperation(task.key, 3) for task in others[:10]]), START + 4)
    lane.state.remove_archived([task.key for task in others[:10]])

    assert lane.apply_batch(LaneBatch("setter", 3, sets=[long]), START + 5).sets == OperationCode.OK


@pytest.mark.parametrize("letter", WIDTHS.values(), ids=WIDTHS)
def test_answers_fit_their_message(letter: str) -> None:
    """A hold gets less than it asks for, later ones and reads go unanswered; asked again, they get the rest."""
    lane = Lane(TaskTypeRules(lane_max_tasks=10**9, schedule_limit=HOLD_LIMIT_MAX))
    created = fill_lane(lane, letter, 512)
    created += [created[0]] * (1_000 - len(created))
    given = 0
    for moment in range(1, 20):
        reply = lane.apply_batch(
            LaneBatch("one", moment, holds=[HoldOperation(HOLD_LIMIT_MAX)] * 9, reads=created[:1_000]), START + moment
        )
        other = lane.apply_batch(LaneBatch("two", moment, reads=created[:1_000]), START + moment)
        assert len(encode(reply)) + len(encode(other)) <= MEGABYTE
        assert len(reply.reads) + len(other.reads) < 2_000
        given += sum(map(len, reply.holds))

    assert given == lane.state.build_head().running == lane.state.build_head().held
    assert lane.state.build_head().pending == 0
    assert len(encode(lane.find_tasks(TaskLookup(created * 2)))) <= MEGABYTE
    assert len(encode(lane.search_tasks(TaskSearch()))) <= MEGABYTE


def test_a_batch_for_the_archive_fits_its_message() -> None:
    """Tasks of seven kilobytes each go in several."""
    lane = Lane(TaskTypeRules(schedule_limit=HOLD_LIMIT_MAX))
    created = fill_lane(lane, "\x01", 512)
    for group in groups("canceller", "cancels", created):
        lane.apply_batch(group, START)
    batch = lane.state.list_ended(500, 300_000)

    assert len(encode(batch)) <= 300_000
    assert 0 < len(batch) < len(created)


def through(lane: Lane, count: int, refs: TaskFlags) -> tuple[list[str], str]:
    """Create tasks, end them and archive them; return their keys and the codes of their creates."""
    wanted = keys(count)
    numbers = itertools.count(lane.state.build_head().number + 1)

    def act(**operations: Any) -> LaneBatchReply:
        number = next(numbers)
        return lane.apply_batch(LaneBatch("all", number, **operations), START + number)

    codes = act(creates=[CreateOperation(key, "user", "", flags=refs) for key in wanted]).creates
    act(holds=[HoldOperation(count)])
    act(sets=[SetOperation(key, 3) for key in wanted])
    lane.state.remove_archived(wanted)
    return wanted, codes


def test_a_lane_remembers_tasks_whose_ids_were_chosen_and_no_others() -> None:
    """They may come again after they are archived, and after the lane was carried on."""
    lane = Lane(TaskTypeRules(schedule_limit=HOLD_LIMIT_MAX))
    [[chosen], _], [[ours], _] = through(lane, 1, TaskFlags.KEYED), through(lane, 1, TaskFlags.NONE)
    carried = msgspec.json.decode(encode(lane.build_snapshot()), type=LaneSnapshot)
    assert carried.archived_keys == [chosen]
    lane = Lane(lane.state.rules, carried)
    again = [CreateOperation(chosen, "user", "", flags=TaskFlags.KEYED), CreateOperation(ours, "user", "")]
    assert (
        lane.apply_batch(LaneBatch("again", 1, creates=again), START).creates == OperationCode.SAME + OperationCode.OK
    )


def test_what_a_lane_remembers_fills_it_before_it_is_too_much() -> None:
    """However few of its tasks are there at a time."""
    lane = Lane(TaskTypeRules(schedule_limit=HOLD_LIMIT_MAX, lane_max_tasks=1_000_000))
    created = 0
    while not lane.state.is_full:
        _, codes = through(lane, BATCH_MAX_OPERATIONS, TaskFlags.KEYED)
        created += codes.count(OperationCode.OK)
    carried = lane.build_snapshot()
    assert len(carried.archived_keys) == created > 15_000
    assert len(encode(carried)) < MEGABYTE
    assert lane.state.build_head().fill_percent == 100


def test_thousands_of_beats_leave_nothing_behind() -> None:
    """A lease that was extended is forgotten long before it would have ended."""
    lane = Lane(TaskTypeRules(max_processing_time=86_400))
    [key] = keys(1)
    lane.apply_batch(
        LaneBatch("creator", 1, creates=[CreateOperation(key, "user", "")], holds=[HoldOperation(1)]), START
    )
    beats = [HeartbeatOperation(key), HeartbeatOperation(key, None, 100_000)] * 500
    tracemalloc.start()
    for number in range(1, 31):
        lane.apply_batch(LaneBatch("worker", number, heartbeats=beats), START + number)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert grown < 500_000


odd_numbers = st.sampled_from([-1, 2_001, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**30, -(2**63)])
odd_texts = st.sampled_from(["\0", '"' * 512, "x" * 513, "\ud800", "\\"])
odd = st.one_of(odd_numbers, odd_texts, st.none(), st.booleans(), st.floats(), st.just([]))
some_keys = st.sampled_from([f"{number:032x}" for number in range(4)])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
small = st.integers(0, 2_000)
statuses = st.integers(0, 4)


def maybe(field: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A field that may be absent."""
    return st.none() | field


def arrays(*fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Structs on the wire; one in many has something odd in it, or too much."""
    right = st.tuples(*fields)
    wrong = st.tuples(*(st.one_of(field, odd) for field in fields), odd)
    return st.lists(st.integers(0, 30).flatmap(lambda number: right if number else wrong), max_size=4)


rules = st.fixed_dictionaries(
    {"version": small},
    optional={
        "schedule_limit": small,
        "max_retry_num": st.integers(-5, 5),
        "max_retry_interval": st.integers(-5, 5) | odd_numbers,
        "max_processing_time": small | odd_numbers,
        "paused": st.booleans(),
    },
)
wire = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(1, 2**53),
    arrays(some_keys, texts, texts, st.sampled_from([0, 1, 31_104_000]), st.just("s"), st.integers(0, 2**63)),
    arrays(small, st.sampled_from([0, 1, 604_800])),
    arrays(
        *(some_keys, statuses, maybe(st.integers(0, 9) | st.just(2**53)), maybe(small)),
        *(maybe(st.just("s")), maybe(texts), maybe(texts), small, st.booleans()),
    ),
    arrays(some_keys, maybe(small), small),
    st.lists(some_keys, max_size=3),
    st.lists(some_keys, max_size=3),
    maybe(rules),
)


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), calls=st.lists(wire, min_size=1, max_size=6))
@example(
    seed=0, calls=[["a", 2**53, [["0" * 32, "u", "", 31_104_000, "", 2**63 - 1]], [[2_000, 604_800]], [], [], [], []]]
)
def test_what_can_be_decoded_can_be_done(seed: int, calls: list[Any]) -> None:
    """A handler that raises comes back for ever, so each group is refused as a whole, before it, or answered."""
    lane, random, now = Lane(TaskTypeRules()), Random(seed), START
    last: dict[str, int] = {}
    for call in calls:
        try:
            group = msgspec.json.decode(json.dumps(call), type=LaneBatch)
        except msgspec.MsgspecError:
            continue
        now += random.choice([0, 1, 40_000])
        reply = msgspec.json.decode(encode(lane.apply_batch(group, now)), type=LaneBatchReply)
        lane = Lane(lane.state.rules, msgspec.json.decode(encode(lane.build_snapshot()), type=LaneSnapshot))
        if group.number > last.get(group.sender, 0):
            last[group.sender] = group.number
            assert len(reply.creates) == len(group.creates)
            assert len(reply.sets) == len(group.sets)
