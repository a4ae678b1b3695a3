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

from domain.tasks.carrying import Carried
from domain.tasks.lane import Lane
from domain.tasks.messages import (
    GROUP_MAX_BYTES,
    GROUP_MAX_OPERATIONS,
    HOLD_LIMIT_MAX,
    REF_CHARACTERS,
    Beat,
    Code,
    Group,
    GroupReply,
    Hold,
    Look,
    NewTask,
    Refs,
    Rules,
    Search,
    Setting,
)

MEGABYTE = 1_000_000
START = 1_767_225_600_000
# What JSON writes with one, two, three, four and six bytes.
WIDTHS = {"ascii": "a", "quotes": '"', "chinese": "中", "astral": "\U0001f4e6", "control": "\x01"}
REF = "r" * REF_CHARACTERS

encode = msgspec.json.encode


def keys(count: int) -> list[str]:
    """Of tasks to be."""
    return [uuid.uuid4().hex for _ in range(count)]


def groups(sender: str, operations: str, each: list[Any]) -> list[Group]:
    """Operations in groups that an API process would send."""
    made, numbers = [], itertools.count(1)
    while each:
        size = max(1, min(GROUP_MAX_OPERATIONS, GROUP_MAX_BYTES // max(len(encode(one)) + 1 for one in each[:1_000])))
        made.append(msgspec.structs.replace(Group(sender, next(numbers)), **{operations: each[:size]}))
        each = each[size:]
    return made


def filled(lane: Lane, letter: str, length: int) -> list[str]:
    """A lane that takes no more; the keys of its tasks."""
    new = [NewTask(key, letter * 8, letter * length) for key in keys(20_000 // (1 + length // 50))]
    codes = "".join(lane.act(group, START).creates for group in groups("creator", "creates", new))
    assert lane.book.is_full
    return [task.key for task, code in zip(new, codes, strict=True) if code == Code.OK]


@pytest.mark.parametrize("letter", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("length", [0, 17, 512])
def test_a_lane_at_its_limits_can_be_carried_on(letter: str, length: int) -> None:
    """Full of tasks that are held and have the longest logs that it accepts, asked by more than it remembers."""
    lane = Lane(Rules(lane_max_tasks=10**9, schedule_limit=HOLD_LIMIT_MAX))
    created = filled(lane, letter, length)
    for moment in range(1, 100):
        lane.act(Group("holder", moment, holds=[Hold(HOLD_LIMIT_MAX)] * GROUP_MAX_OPERATIONS), START + moment)
    assert lane.book.head().running == len(created)

    settings = [Setting(key, 2, stage="s" * 32, log=letter * 512) for key in created]
    codes = "".join(lane.act(group, START + 200).sets for group in groups("setter", "sets", settings))
    by_reference = [
        Setting(key, 2, stage="s" * 32, log=REF, content=REF, refs=int(Refs.LOG | Refs.CONTENT))
        for key, code in zip(created, codes, strict=True)
        if code == Code.NO_ROOM
    ]
    late = "".join(lane.act(group, START + 201).sets for group in groups("late", "sets", by_reference))
    for number in range(100):
        lane.act(Group(f"{number:032}", 1, beats=[Beat(created[0])] * GROUP_MAX_OPERATIONS), START + 300)

    assert set(codes) <= {Code.OK, Code.NO_ROOM}
    assert set(late) <= {Code.OK}
    assert len(encode(lane.carry())) <= MEGABYTE


def test_the_room_that_tasks_leave_is_used() -> None:
    """A lane whose tasks are archived has room for texts again, though not for tasks."""
    lane = Lane(Rules(lane_max_tasks=10**9, schedule_limit=HOLD_LIMIT_MAX))
    filled(lane, "a", 512)
    first, *others = lane.act(Group("holder", 1, holds=[Hold(HOLD_LIMIT_MAX)]), START + 1).holds[0]
    long = Setting(first.key, 2, log="x" * 512)
    fills = [Setting(task.key, 2, log="x" * 512) for task in others]
    for group in groups("filler", "sets", fills):
        lane.act(group, START + 2)
    assert lane.act(Group("setter", 1, sets=[long]), START + 3).sets == Code.NO_ROOM

    lane.act(Group("setter", 2, sets=[Setting(task.key, 3) for task in others[:10]]), START + 4)
    lane.book.drop([task.key for task in others[:10]])

    assert lane.act(Group("setter", 3, sets=[long]), START + 5).sets == Code.OK


@pytest.mark.parametrize("letter", WIDTHS.values(), ids=WIDTHS)
def test_answers_fit_their_message(letter: str) -> None:
    """A hold gets less than it asks for, later ones and reads go unanswered; asked again, they get the rest."""
    lane = Lane(Rules(lane_max_tasks=10**9, schedule_limit=HOLD_LIMIT_MAX))
    created = filled(lane, letter, 512)
    created += [created[0]] * (1_000 - len(created))
    given = 0
    for moment in range(1, 20):
        reply = lane.act(Group("one", moment, holds=[Hold(HOLD_LIMIT_MAX)] * 9, reads=created[:1_000]), START + moment)
        other = lane.act(Group("two", moment, reads=created[:1_000]), START + moment)
        assert len(encode(reply)) + len(encode(other)) <= MEGABYTE
        assert len(reply.reads) + len(other.reads) < 2_000
        given += sum(map(len, reply.holds))

    assert given == lane.book.head().running == lane.book.head().held
    assert lane.book.head().pending == 0
    assert len(encode(lane.look(Look(created * 2)))) <= MEGABYTE
    assert len(encode(lane.search(Search()))) <= MEGABYTE


def test_a_batch_for_the_archive_fits_its_message() -> None:
    """Tasks of seven kilobytes each go in several."""
    lane = Lane(Rules(schedule_limit=HOLD_LIMIT_MAX))
    created = filled(lane, "\x01", 512)
    for group in groups("canceller", "cancels", created):
        lane.act(group, START)
    batch = lane.book.to_archive(500, 300_000)

    assert len(encode(batch)) <= 300_000
    assert 0 < len(batch) < len(created)


def through(lane: Lane, count: int, refs: Refs) -> tuple[list[str], str]:
    """So many tasks, or as many as it takes, from their creation to the archive; their keys and what became of them."""
    wanted = keys(count)
    numbers = itertools.count(lane.book.head().number + 1)

    def act(**operations: Any) -> GroupReply:
        number = next(numbers)
        return lane.act(Group("all", number, **operations), START + number)

    codes = act(creates=[NewTask(key, "user", "", refs=refs) for key in wanted]).creates
    act(holds=[Hold(count)])
    act(sets=[Setting(key, 3) for key in wanted])
    lane.book.drop(wanted)
    return wanted, codes


def test_a_lane_remembers_tasks_whose_ids_were_chosen_and_no_others() -> None:
    """They may come again after they are archived, and after the lane was carried on."""
    lane = Lane(Rules(schedule_limit=HOLD_LIMIT_MAX))
    [[chosen], _], [[ours], _] = through(lane, 1, Refs.KEYED), through(lane, 1, Refs.NONE)
    carried = msgspec.json.decode(encode(lane.carry()), type=Carried)
    assert carried.gone == [chosen]
    lane = Lane(lane.book.rules, carried)
    again = [NewTask(chosen, "user", "", refs=Refs.KEYED), NewTask(ours, "user", "")]
    assert lane.act(Group("again", 1, creates=again), START).creates == Code.SAME + Code.OK


def test_what_a_lane_remembers_fills_it_before_it_is_too_much() -> None:
    """However few of its tasks are there at a time."""
    lane = Lane(Rules(schedule_limit=HOLD_LIMIT_MAX, lane_max_tasks=1_000_000))
    created = 0
    while not lane.book.is_full:
        _, codes = through(lane, GROUP_MAX_OPERATIONS, Refs.KEYED)
        created += codes.count(Code.OK)
    carried = lane.carry()
    assert len(carried.gone) == created > 15_000
    assert len(encode(carried)) < MEGABYTE
    assert lane.book.head().share == 100


def test_thousands_of_beats_leave_nothing_behind() -> None:
    """A lease that was extended is forgotten long before it would have ended."""
    lane = Lane(Rules(max_processing_time=86_400))
    [key] = keys(1)
    lane.act(Group("creator", 1, creates=[NewTask(key, "user", "")], holds=[Hold(1)]), START)
    beats = [Beat(key), Beat(key, None, 100_000)] * 500
    tracemalloc.start()
    for number in range(1, 31):
        lane.act(Group("worker", number, beats=beats), START + number)
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
    lane, random, now = Lane(Rules()), Random(seed), START
    last: dict[str, int] = {}
    for call in calls:
        try:
            group = msgspec.json.decode(json.dumps(call), type=Group)
        except msgspec.MsgspecError:
            continue
        now += random.choice([0, 1, 40_000])
        reply = msgspec.json.decode(encode(lane.act(group, now)), type=GroupReply)
        lane = Lane(lane.book.rules, msgspec.json.decode(encode(lane.carry()), type=Carried))
        if group.number > last.get(group.sender, 0):
            last[group.sender] = group.number
            assert len(reply.creates) == len(group.creates)
            assert len(reply.sets) == len(group.sets)
