"""The judge of worlds of addresses sees loss, doubling, wrong order, a false supersede and a needless failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from tests.support.address_oracle import ModuleOracle
from tests.worlds import pairwise
from tests.worlds.addresses import options
from tests.worlds.addresses.flaws import KINDS
from tests.worlds.addresses.judge import judge_world
from tests.worlds.addresses.observation import MessageReport, Observation, is_at_rest
from tests.worlds.addresses.publications import Names
from tests.worlds.addresses.world import NEVER, MessageKind, PlannedMessage, Round, World, draw_world, list_smaller
from tests.worlds.flaws import Flaw
from tests.worlds.verdict import Ending

CREATES = (
    PlannedMessage(kind=MessageKind.CREATE, one=0),
    PlannedMessage(kind=MessageKind.CREATE, one=1),
    PlannedMessage(kind=MessageKind.CREATE, one=2),
)
SWAPS = (PlannedMessage(kind=MessageKind.SWAP, one=0, other=1), PlannedMessage(kind=MessageKind.SWAP, one=1, other=2))
HOPELESS = PlannedMessage(kind=MessageKind.SWAP, one=0, other=NEVER)
FIRST_ID = 11
MODULES = frozenset(Module)


def make_names(*messages: PlannedMessage) -> Names:
    """A world of one round without flaws."""
    return Names(World(seed=0, uprns=3, rounds=(Round(messages=messages, waits=True),)), 1)


def make_observation(
    names: Names, applied: dict[str, Sequence[int]] | None = None, **changes: dict[str, Any]
) -> Observation:
    """All is done everywhere, in the order of receipt.

    Args:
        names: The world.
        applied: By module: the places of the messages that it applied, in its order, where that is another.
        changes: By the place of a message, like `m3`: what is reported of it instead.
    """
    reports, operations = [], {}
    for place, each in enumerate(names.accepted):
        id_ = FIRST_ID + place
        operations[id_] = operation = each.operation(id_)
        uprns = tuple(uprn for uprn in (operation.uprn, operation.uprn_2) if uprn)
        done = MessageReport(id_, each.number, Topic(each.topic), uprns, MessageState.DONE, acked=MODULES)
        reports.append(replace(done, **changes.get(f"m{place}", {})))
    orders = {module: (applied or {}).get(module, range(len(reports))) for module in Module}
    ids = {module: [FIRST_ID + place for place in order] for module, order in orders.items()}
    live = {}
    for module in Module:
        oracle = ModuleOracle()
        for id_ in ids[module]:
            oracle.apply(operations[id_])
        live[module.value] = oracle.live
    everywhere = {module.value: frozenset(operations) for module in Module}
    return Observation(reports, {module.value: order for module, order in ids.items()}, everywhere, live)


def given_up(kind: str, **changes: Any) -> dict[str, Any]:
    """The report of a message that no module applied."""
    return {"state": MessageState.GIVEN_UP, "kind": kind, "acked": frozenset(), **changes}


def without(place: int, count: int) -> dict[str, Sequence[int]]:
    """All modules applied all but one."""
    return {module: [each for each in range(count) if each != place] for module in Module}


def test_a_world_in_which_all_is_done_is_equal() -> None:
    """Nothing is found where nothing is wrong."""
    names = make_names(*CREATES, *SWAPS)

    assert judge_world(names, make_observation(names)).ending is Ending.EQUAL


def test_a_swap_that_lacks_a_side_has_failed_rightly() -> None:
    """It says so, and took effect nowhere."""
    names = make_names(*CREATES, HOPELESS)
    observation = make_observation(names, without(3, 4), m3=given_up("missing", missing=(NEVER,)))

    assert judge_world(names, observation).ending is Ending.FAILED


def test_what_stopped_halfway_and_says_so_is_warned_of() -> None:
    """Modules differ, and a message waits for a person."""
    names = make_names(*CREATES, *SWAPS)
    report = given_up("failed", acked=MODULES - {"od"}, unsure=frozenset({"od"}))
    observation = make_observation(names, {"od": [0, 1, 2, 3]}, m4=report)
    observation.hit = frozenset({FIRST_ID + 4})

    assert judge_world(names, observation).ending is Ending.WARNED


@pytest.mark.parametrize(
    ("applied", "changes"),
    [
        pytest.param({"im": [0, 1, 2, 3]}, {}, id="lost-in-one"),
        pytest.param(without(4, 5), {}, id="lost-everywhere"),
        pytest.param({"im": [0, 1, 2, 3, 4, 4]}, {}, id="doubled"),
        pytest.param({"im": [0, 1, 2, 4, 3]}, {}, id="another-order"),
        pytest.param(
            without(4, 5), {"m4": {"acked": frozenset(), "superseded_by": FIRST_ID + 3}}, id="a-swap-superseded"
        ),
        pytest.param(
            without(0, 5),
            {"m0": {"acked": frozenset(), "superseded_by": FIRST_ID + 1}},
            id="superseded-by-another-uprn",
        ),
        pytest.param(without(0, 5), {"m0": {"acked": frozenset()}}, id="done-and-nobody-has-it"),
        pytest.param({}, {"m4": given_up("failed")}, id="given-up-and-applied"),
        pytest.param(
            {"ed": [0, 1, 2, 3]}, {"m4": given_up("failed", acked=MODULES)}, id="acknowledged-and-not-applied"
        ),
    ],
)
def test_what_is_told_wrongly_is_a_silent_difference(
    applied: dict[str, Sequence[int]], changes: dict[str, dict[str, Any]]
) -> None:
    """Loss, doubling, another order, and words that are not true."""
    names = make_names(*CREATES, *SWAPS)

    assert judge_world(names, make_observation(names, applied, **changes)).ending is Ending.SILENT


def test_a_state_that_its_operations_do_not_make_is_seen() -> None:
    """Whatever the module says that it applied."""
    names = make_names(*CREATES, *SWAPS)
    observation = make_observation(names)
    live = {module: dict(entries) for module, entries in observation.live.items()}
    live["wfm"].pop(names.uprn(0))
    observation.live = live

    assert judge_world(names, observation).ending is Ending.SILENT


@pytest.mark.parametrize("kind", ["lost", "twice", "swapped"])
def test_each_message_is_once_in_the_log_or_its_history(kind: str) -> None:
    """And their ids have the order of receipt."""
    names = make_names(*CREATES)
    observation = make_observation(names)
    first, second, *others = observation.reports
    renumbered = [replace(first, number=second.number), replace(second, number=first.number)]
    observation.reports = {
        "lost": [second, *others],
        "twice": [first, *observation.reports],
        "swapped": [*renumbered, *others],
    }[kind]

    assert judge_world(names, observation).ending is Ending.SILENT


def test_a_message_that_a_later_one_made_needless_is_right() -> None:
    """Where that one is done, or waits for a person in turn."""
    again = PlannedMessage(kind=MessageKind.CREATE, one=0, address=1)
    names = make_names(*CREATES, again)
    report = {"acked": frozenset(), "superseded_by": FIRST_ID + 3}

    assert judge_world(names, make_observation(names, without(0, 4), m0=report)).ending is Ending.EQUAL
    by_an_earlier = {"acked": frozenset(), "superseded_by": FIRST_ID}
    assert judge_world(names, make_observation(names, without(3, 4), m3=by_an_earlier)).ending is Ending.SILENT


@pytest.mark.parametrize(
    ("report", "ending"),
    [
        (given_up("failed"), Ending.NEEDLESS),
        (given_up("refused"), Ending.NEEDLESS),
        (given_up("behind", behind=FIRST_ID + 3), Ending.NEEDLESS),
        (given_up("missing"), Ending.WRONG_CAUSE),
        (given_up("overtaken", behind=FIRST_ID + 3), Ending.WRONG_CAUSE),
        (given_up("behind", behind=FIRST_ID + 3, state=MessageState.FAILED), Ending.WRONG_CAUSE),
    ],
)
def test_what_is_given_up_has_a_true_reason(report: dict[str, Any], ending: Ending) -> None:
    """Weather, a side that is there, and one that is done already are none."""
    names = make_names(*CREATES, *SWAPS)

    assert judge_world(names, make_observation(names, without(4, 5), m4=report)).ending is ending


@pytest.mark.parametrize(
    ("kept", "ending"), [(["w1-3"], Ending.EQUAL), ([], Ending.SILENT), (["w1-3", "w1-3"], Ending.SILENT)]
)
def test_a_poison_is_in_quarantine_once(kept: list[str], ending: Ending) -> None:
    """Neither lost nor doubled, and others are as ever."""
    names = make_names(*CREATES, PlannedMessage(kind=MessageKind.POISON, one=0, poison="bad_json"))
    observation = make_observation(names)
    observation.refused = kept

    assert judge_world(names, observation).ending is ending


@pytest.mark.parametrize(("found", "ending"), [(frozenset({1_001}), Ending.EQUAL), (frozenset(), Ending.SILENT)])
def test_what_a_module_lost_must_be_told_by_the_comparison(found: frozenset[int], ending: Ending) -> None:
    """It acknowledged it, and has it no more."""
    flaw = Flaw(name="module_forgets", passes=False, dial=0)
    world = World(seed=0, uprns=3, rounds=(Round(messages=CREATES, waits=True),), flaws=(flaw,))
    names = Names(world, 1)
    observation = make_observation(names)
    observation.lost, observation.forgotten, observation.found = frozenset({1_001, 1_002}), frozenset({1_001}), found
    observation.fired = frozenset({"module_forgets"})

    assert judge_world(names, observation).ending is ending


@pytest.mark.parametrize(("listed", "ending"), [(frozenset({1_501}), Ending.EQUAL), (frozenset(), Ending.SILENT)])
def test_what_a_module_keeps_must_be_listed(listed: frozenset[int], ending: Ending) -> None:
    """It would never be removed."""
    names = make_names(*CREATES)
    observation = make_observation(names)
    observation.kept, observation.listed = frozenset({1_501}), listed

    assert judge_world(names, observation).ending is ending


def test_what_nobody_can_see_is_counted_apart() -> None:
    """All is as it was published, and that is not what was meant."""
    names = make_names(*CREATES)
    observation = make_observation(names)
    observation.fired = frozenset({"never_delivered"})

    assert judge_world(names, observation).ending is Ending.INVISIBLE


def test_neighbouring_worlds_share_options_and_few_of_them_have_every_pair() -> None:
    """They are in force for all that are played at that time."""
    rows = [draw_world(seed).options for seed in range(len(options.pairwise_rows()) * options.WORLDS_OF_A_ROW)]

    assert rows[0] == rows[options.WORLDS_OF_A_ROW - 1] != rows[options.WORLDS_OF_A_ROW]
    wanted = {pair for row in options.pairwise_rows() for pair in pairwise.pairs_of(row)}
    assert {pair for row in rows for pair in pairwise.pairs_of(row)} == wanted
    assert {value for row in rows for value in row.items()} == {
        (name, value) for name, values in options.OPTIONS.items() for value in values
    }


def test_what_was_never_sent_holds_nobody_up() -> None:
    """A swap whose sides a module could not report is in doubt there, but only until it can be asked."""
    names = make_names(*CREATES, HOPELESS)
    observation = make_observation(
        names, without(3, 4), m3=given_up("missing", missing=(NEVER,), unsure=frozenset({"od"}))
    )
    observation.sent = {**observation.sent, "od": frozenset()}

    assert judge_world(names, observation).ending is Ending.NEEDLESS


def test_an_overtaken_swap_names_a_later_one_that_took_effect() -> None:
    """It is a true reason then."""
    names = make_names(*CREATES, *SWAPS)
    observation = make_observation(names, without(3, 5), m3=given_up("overtaken", behind=FIRST_ID + 4))

    assert judge_world(names, observation).ending is Ending.FAILED


def test_messages_rest_behind_what_waits_for_a_person() -> None:
    """One that is still tried does not rest, nor does what queues behind it."""
    names = make_names(*CREATES, *SWAPS)
    head, tail = make_observation(names).reports[3:]
    queues = replace(tail, state=MessageState.FAILED, kind="behind", behind=head.id)

    assert is_at_rest({})
    assert is_at_rest({head.id: replace(head, state=MessageState.GIVEN_UP), tail.id: queues})
    assert not is_at_rest({head.id: replace(head, state=MessageState.WAITING), tail.id: queues})
    assert not is_at_rest({tail.id: queues})
    assert is_at_rest({head.id: head, tail.id: replace(tail, state=MessageState.GIVEN_UP)})
    assert not is_at_rest({head.id: head})
    assert not is_at_rest({head.id: head, tail.id: queues})


def test_every_flaw_is_drawn_and_a_seed_makes_one_world() -> None:
    """Smaller worlds are other ones."""
    worlds = [draw_world(seed) for seed in range(300)]

    assert {name for world in worlds for name in world.flaw_names} == set(KINDS)
    assert worlds[7] == draw_world(7)
    assert all(smaller != world for world in worlds[:20] for smaller in list_smaller(world))
    assert all(draw_world(seed, ("side_comes_later",)).has("side_comes_later") for seed in range(20))
