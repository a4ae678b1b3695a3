"""What a cycle takes, what it leaves out, and in which order it applies the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.addresses import ordering
from domain.addresses.ordering import CreateUpdateOrDeleteToCoalesce, SwapMessageUprns, choose_last_write_of_each_uprn

UPRNS = st.integers(1, 6)
PAIRS = st.lists(st.lists(UPRNS, min_size=2, max_size=2, unique=True), max_size=30)
WRITES = st.lists(st.tuples(UPRNS, st.booleans(), st.integers(0, 9)), max_size=30)


@pytest.mark.parametrize(
    ("waiting", "threshold", "reserved", "taken"),
    [
        ([3, 4, 5], 100, 0, [3, 4, 5]),
        ([60, 60, 60], 100, 0, [60, 40, 0]),
        ([200, 1, 1], 100, 0, [100, 0, 0]),
        ([200, 200, 200], 100, 10, [80, 10, 10]),
        ([200, 5, 200], 100, 10, [85, 5, 10]),
        ([5, 200, 200], 100, 10, [5, 85, 10]),
        ([200, 0, 0], 100, 33, [100, 0, 0]),
        ([0, 0, 0], 100, 10, [0, 0, 0]),
    ],
)
def test_a_cycle_is_filled_in_the_order_of_topics(
    waiting: list[int], threshold: int, reserved: int, taken: list[int]
) -> None:
    """A14: swaps first, then createUpdates, then deletes, with a reserved capacity for each."""
    assert ordering.divide_cycle_capacity_among_topics(waiting, threshold, reserved) == taken


def apply_swaps(pairs: Sequence[SwapMessageUprns]) -> list[int]:
    """Who has which UPRN after these swaps, one by one."""
    holders = list(range(7))
    for _, one, other in pairs:
        holders[one], holders[other] = holders[other], holders[one]
    return holders


@given(PAIRS)
def test_groups_of_swaps_do_what_they_do_one_by_one(uprns: list[list[int]]) -> None:
    """No group holds a UPRN twice, and whatever shares one keeps its order."""
    swaps = [SwapMessageUprns(number, *pair) for number, pair in enumerate(uprns)]

    groups = [[swaps[id_] for id_ in group] for group in ordering.group_swaps_without_shared_uprns(swaps)]

    for group in groups:
        assert len({uprn for swap in group for uprn in swap[1:]}) == 2 * len(group)
    assert apply_swaps([swap for group in groups for swap in group]) == apply_swaps(swaps)


@given(st.lists(st.lists(st.integers(), min_size=1, max_size=9), max_size=9), st.integers(1, 7))
def test_steps_keep_the_order_of_groups_and_are_no_longer_than_they_may_be(groups: list[list[int]], size: int) -> None:
    """A group that is too large is cut, never joined to another."""
    steps = ordering.pack_or_split_groups_into_sequential_steps(groups, size)

    assert [id_ for step in steps for part in step for id_ in part] == [id_ for group in groups for id_ in group]
    assert all(0 < len(part) <= size for step in steps for part in step)
    assert all(0 < len(step) <= max(size, ordering.STEP_MIN_MESSAGES) for step in steps)
    most = max(size * ordering.STEP_GROUPS, ordering.STEP_MIN_MESSAGES)
    assert all(sum(map(len, step)) <= most for step in steps)
    assert sum(map(len, steps)) >= len(groups)


@pytest.mark.parametrize(
    ("messages", "lengths"),
    [
        (0, []),
        (1, [[1]]),
        (199, [[199]]),
        (200, [[100], [100]]),
        (628, [[157]] * 4),
        (2_000, [[500]] * 4),
        (2_001, [[251, 250]] * 3 + [[498]]),
        (16_001, [[458] * 6 + [453]] * 4 + [[457] * 6 + [455]]),
    ],
)
def test_independent_messages_are_cut_into_even_steps(messages: int, lengths: list[list[int]]) -> None:
    """As many steps as run at a time, if there is enough for each; more where they would be too long."""
    steps = ordering.split_into_parallel_steps(range(messages), 500, 4)

    assert [list(map(len, step)) for step in steps] == lengths
    assert [id_ for step in steps for group in step for id_ in group] == list(range(messages))


@given(st.integers(0, 3_000), st.integers(1, 500), st.integers(1, 12))
def test_parallel_steps_hold_every_message_once_and_in_order(messages: int, size: int, at_a_time: int) -> None:
    """No more steps than run at a time, unless they would be too long; all but the last are of one length."""
    ids = list(range(7, 7 + messages))
    longest = size * ordering.STEP_GROUPS

    steps = ordering.split_into_parallel_steps(ids, size, at_a_time)

    assert [id_ for step in steps for group in step for id_ in group] == ids
    assert all(0 < len(group) <= size for step in steps for group in step)
    assert all(0 < len(step) <= ordering.STEP_GROUPS for step in steps)
    assert len(steps) <= max(at_a_time, -(-messages // longest))
    assert len({sum(map(len, step)) for step in steps[:-1]}) <= 1
    assert sum(map(len, steps)) <= -(-messages // size) + len(steps)


@given(WRITES, st.integers(1, 7), st.integers(1, 6))
def test_no_two_messages_of_parallel_steps_have_one_address(
    said: list[tuple[int, bool, int]], size: int, at_a_time: int
) -> None:
    """A createUpdate and a delete of one UPRN are in no two phases either: the last of all is the only one sent."""
    last = {uprn: number for number, (uprn, _, _) in enumerate(said)}
    winners = choose_last_write_of_each_uprn(
        [CreateUpdateOrDeleteToCoalesce(id_, said[id_][0]) for id_ in range(len(said))]
    )
    phases = [sorted(id_ for id_ in winners.winners if said[id_][1] is is_delete) for is_delete in (False, True)]

    steps = [step for phase in phases for step in ordering.split_into_parallel_steps(phase, size, at_a_time)]

    sent = [id_ for step in steps for group in step for id_ in group]
    assert sorted(sent) == sorted(last.values())
    assert len({said[id_][0] for id_ in sent}) == len(sent)


@given(PAIRS, st.integers(1, 7))
def test_swaps_of_an_address_keep_their_order_over_steps(uprns: list[list[int]], size: int) -> None:
    """Whichever side they share; and no two that share one are sent together."""
    swaps = [SwapMessageUprns(number, *pair) for number, pair in enumerate(uprns)]

    steps = ordering.pack_or_split_groups_into_sequential_steps(ordering.group_swaps_without_shared_uprns(swaps), size)

    sent = [id_ for step in steps for group in step for id_ in group]
    assert sorted(sent) == list(range(len(swaps)))
    for uprn in {uprn for pair in uprns for uprn in pair}:
        of_uprn = [id_ for id_ in sent if uprn in uprns[id_]]
        assert of_uprn == sorted(of_uprn)
        assert all(sum(uprn in uprns[id_] for id_ in group) <= 1 for step in steps for group in step)


@given(WRITES)
def test_winners_alone_come_to_what_all_come_to(said: list[tuple[int, bool, int]]) -> None:
    """A2, A13: one createUpdate or delete of each UPRN is left, and it is all that a sequence would have left."""
    writes = [CreateUpdateOrDeleteToCoalesce(number, uprn) for number, (uprn, _, _) in enumerate(said)]

    coalesced = choose_last_write_of_each_uprn(writes)

    def state(ids: Sequence[int]) -> dict[int, int]:
        records: dict[int, int] = {}
        for uprn, is_delete, record in (said[id_] for id_ in ids):
            records[uprn] = record
            if is_delete:
                del records[uprn]
        return records

    assert state(sorted(coalesced.winners)) == state(range(len(said)))
    assert len(coalesced.winners) == len({uprn for uprn, _, _ in said})
    assert coalesced.superseded.keys() | coalesced.winners == set(range(len(said)))
    assert all(said[loser][0] == said[winner][0] for loser, winner in coalesced.superseded.items())


def test_who_makes_a_touched_message_needless_inherits_its_doubt() -> None:
    """Modules may differ there until the winner is done."""
    coalesced = choose_last_write_of_each_uprn(
        [
            CreateUpdateOrDeleteToCoalesce(1, 7, touched=True),
            CreateUpdateOrDeleteToCoalesce(2, 7),
            CreateUpdateOrDeleteToCoalesce(3, 8),
            CreateUpdateOrDeleteToCoalesce(4, 8, touched=True),
        ]
    )

    assert coalesced.superseded == {1: 2, 3: 4}
    assert coalesced.heirs == {2}


@pytest.mark.parametrize("size", [1, 2, 10, 500])
@pytest.mark.parametrize("groups", [[list(range(50_000))], [[id_] for id_ in range(50_000)]], ids=["apart", "in-a-row"])
def test_the_swaps_of_a_cycle_fit_into_a_history(groups: list[list[int]], size: int) -> None:
    """Three events of each activity, and each swap may be tried twice: an engine ends a run at some fifty thousand."""
    steps = ordering.pack_or_split_groups_into_sequential_steps(groups, size)

    assert 2 * 3 * len(steps) < 10_000


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 9))
def test_messages_are_split_by_their_sizes(sizes: list[int], most: int) -> None:
    """In their order, as many together as fit; one that does not fit anywhere is alone."""
    parts = ordering.split_by_size(range(len(sizes)), dict(enumerate(sizes)), most)

    assert [id_ for part in parts for id_ in part] == list(range(len(sizes)))
    for part, later in pairwise([*parts, []]):
        total = sum(sizes[id_] for id_ in part)
        assert total <= most or len([id_ for id_ in part if sizes[id_]]) == 1
        assert not later or total + sizes[later[0]] > most
