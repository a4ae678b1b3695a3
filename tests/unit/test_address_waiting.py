"""Who queues behind whom, and what the answers of the modules come to."""

from __future__ import annotations

from typing import Any

import pytest

from domain.addresses.messages import Topic
from domain.addresses.operations import (
    LiveUprnsAndAppliedOps,
    Module,
    Operation,
    OperationKind,
    OperationOutcome,
    OperationResult,
    UnansweredResult,
)
from domain.addresses.ordering import (
    FailedLookup,
    MessageAboutToBeSent,
    UnfinishedMessage,
    WaitKind,
    WaitReason,
    find_first_blocker_of_each_message,
    find_swap_obstacles,
)
from domain.addresses.results import NewLogicalDelete, combine_module_results

SWAP = MessageAboutToBeSent(50, Topic.SWAP, (1, 2))
TOUCHED_SWAP = MessageAboutToBeSent(50, Topic.SWAP, (1, 2), touched=True)
CREATE = MessageAboutToBeSent(50, Topic.CREATE_UPDATE, (1,))
DELETE = MessageAboutToBeSent(50, Topic.DELETE, (1,))


def swap(id_: int, *, due: bool = True, touched: bool = False) -> UnfinishedMessage:
    """Another swap that shares UPRN 1."""
    return UnfinishedMessage(id_, True, (1, 9), due, touched)


def write(id_: int, *, touched: bool) -> UnfinishedMessage:
    """A createUpdate or delete of UPRN 1."""
    return UnfinishedMessage(id_, False, (1,), True, touched)


@pytest.mark.parametrize(
    ("asking", "other", "queues"),
    [
        pytest.param(SWAP, swap(40), True, id="swap-behind-earlier-swap"),
        pytest.param(SWAP, swap(60), False, id="swap-before-later-swap"),
        pytest.param(SWAP, swap(40, due=False), False, id="swap-past-swap-that-was-given-up"),
        pytest.param(SWAP, swap(40, due=False, touched=True), True, id="swap-behind-swap-given-up-halfway"),
        pytest.param(SWAP, swap(60, touched=True), True, id="swap-behind-later-swap-that-has-begun"),
        pytest.param(TOUCHED_SWAP, swap(40), False, id="begun-swap-goes-on"),
        pytest.param(TOUCHED_SWAP, swap(40, touched=True), True, id="of-two-begun-swaps-the-earlier"),
        pytest.param(TOUCHED_SWAP, swap(60, touched=True), False, id="of-two-begun-swaps-not-the-later"),
        pytest.param(SWAP, write(60, touched=True), True, id="swap-behind-begun-write"),
        pytest.param(SWAP, write(40, touched=False), False, id="swap-before-write"),
        pytest.param(CREATE, swap(60, touched=True), True, id="create-behind-begun-swap"),
        pytest.param(CREATE, swap(40), False, id="create-past-swap"),
        pytest.param(DELETE, swap(40, touched=True), True, id="delete-behind-begun-swap"),
        pytest.param(CREATE._replace(touched=True), swap(40, touched=True), False, id="begun-create-goes-on"),
        pytest.param(CREATE, write(40, touched=True), False, id="writes-do-not-queue"),
        pytest.param(SWAP, UnfinishedMessage(40, True, (8, 9), True, True), False, id="strangers"),
        pytest.param(SWAP, swap(50, touched=True), False, id="itself"),
    ],
)
def test_what_must_wait_waits(asking: MessageAboutToBeSent, other: UnfinishedMessage, queues: bool) -> None:
    """Modules see the messages of a UPRN in one order, whichever of them fails."""
    assert find_first_blocker_of_each_message([asking], [other]) == ({asking.id: other.id} if queues else {})


def test_it_is_said_behind_whom_a_message_queues() -> None:
    """The first of them, whichever UPRN they share."""
    assert find_first_blocker_of_each_message(
        [SWAP], [swap(40), swap(30), UnfinishedMessage(20, True, (2, 7), True, False)]
    ) == {50: 20}


def test_a_queued_message_keeps_what_is_known_of_it() -> None:
    """Which modules are in doubt, and which UPRNs are missing."""
    before = WaitReason(kind=WaitKind.MISSING, module=Module.ED, uprn=1, missing=[1], unsure=[Module.OD])

    assert before.with_blocking_message(7) == WaitReason(
        kind=WaitKind.BEHIND, behind=7, missing=[1], unsure=[Module.OD]
    )


SIDES = frozenset({1, 2})


@pytest.mark.parametrize(
    ("wfm", "im", "outcomes"),
    [
        pytest.param(LiveUprnsAndAppliedOps(live=SIDES, applied=frozenset()), None, {}, id="all-there"),
        pytest.param(
            LiveUprnsAndAppliedOps(live=frozenset({2}), applied=frozenset()),
            None,
            {Module.WFM: OperationOutcome.MISSING},
            id="missing-in-one",
        ),
        pytest.param(LiveUprnsAndAppliedOps(live=frozenset({2}), applied=frozenset({"5"})), None, {}, id="has-begun"),
        pytest.param(
            LiveUprnsAndAppliedOps(live=SIDES, applied=frozenset()),
            "away",
            {Module.IM: OperationOutcome.FAILED},
            id="not-asked",
        ),
        pytest.param(
            LiveUprnsAndAppliedOps(live=frozenset(), applied=frozenset({"5"})),
            "away",
            {Module.WFM: OperationOutcome.MISSING, Module.IM: OperationOutcome.FAILED},
            id="has-begun-but-not-all-asked",
        ),
    ],
)
def test_a_swap_goes_to_all_modules_or_to_none(
    wfm: LiveUprnsAndAppliedOps, im: str | None, outcomes: dict[Module, OperationOutcome]
) -> None:
    """Unless one has applied it, its sides must be there in each."""
    there = LiveUprnsAndAppliedOps(live=SIDES, applied=frozenset())
    told = {Module.ED: there, Module.IM: FailedLookup(im) if im else there, Module.WFM: wfm, Module.OD: there}

    found = find_swap_obstacles(operation(OperationKind.SWAP), told)

    assert {module: answer.outcome for module, answer in found.items()} == outcomes


def operation(kind: OperationKind = OperationKind.UPSERT) -> Operation:
    """Message 5 of UPRN 1."""
    return Operation(op_id="5", seq=5, kind=kind, uprn=1, uprn_2=2, address_id=11, record={})


def answer(outcome: OperationOutcome, **fields: Any) -> OperationResult:
    """What a module says of it."""
    return OperationResult(op_id="5", outcome=outcome, **fields)


AWAY = UnansweredResult(op_id="5", outcome=OperationOutcome.FAILED, error="It is away.")
APPLIED = answer(OperationOutcome.APPLIED)
MISSES = answer(OperationOutcome.MISSING, missing=[2])


@pytest.mark.parametrize(
    ("result", "ack", "trace"),
    [
        (answer(OperationOutcome.APPLIED), "Y", None),
        (answer(OperationOutcome.LOGICAL, logical_address_id=11), "Y", None),
        (answer(OperationOutcome.ALREADY, was=OperationOutcome.APPLIED), "Y", None),
        (answer(OperationOutcome.MISSING, missing=[1, 2]), "N", "There is no address with UPRN 1 or 2."),
        (answer(OperationOutcome.REFUSED, error="no"), "N", "no"),
        (answer(OperationOutcome.FAILED, error="away"), "N", "away"),
    ],
)
def test_each_answer_is_an_acknowledgement_or_a_trace(result: OperationResult, ack: str, trace: str | None) -> None:
    """A6: Y where the module needs the message no more."""
    verdict = combine_module_results(operation(), WaitReason(), {Module.IM: result})

    assert (verdict.acks, verdict.traces.get(Module.IM)) == ({Module.IM: ack}, trace)
    assert (verdict.reason is None) == (ack == "Y")
    assert not verdict.stale


@pytest.mark.parametrize("kind", [OperationKind.UPSERT, OperationKind.DELETE])
def test_a_write_that_something_younger_made_needless_is_told_so(kind: OperationKind) -> None:
    """What was not applied is not acknowledged."""
    verdict = combine_module_results(
        operation(kind), WaitReason(), {Module.IM: answer(OperationOutcome.STALE), Module.ED: AWAY}
    )

    assert verdict.stale
    assert verdict.acks == {Module.ED: "N"}
    assert verdict.reason == WaitReason(kind=WaitKind.FAILED, module=Module.ED, unsure=[Module.ED])


def test_nothing_stands_for_a_swap() -> None:
    """One that came too late in a module is not done there, whatever was applied instead."""
    verdict = combine_module_results(
        operation(OperationKind.SWAP), WaitReason(), {Module.IM: answer(OperationOutcome.STALE), Module.ED: MISSES}
    )

    assert (verdict.stale, verdict.overtaken) == (False, True)
    assert verdict.acks == {Module.IM: "N", Module.ED: "N"}
    assert verdict.traces[Module.IM] == "A later swap of one of its addresses was applied here before."
    assert verdict.reason == WaitReason(kind=WaitKind.OVERTAKEN, module=Module.IM, missing=[2])


@pytest.mark.parametrize(
    ("answers", "counts"),
    [
        pytest.param({Module.ED: AWAY}, False, id="away"),
        pytest.param({Module.ED: AWAY, Module.IM: APPLIED}, False, id="away-from-one"),
        pytest.param({Module.ED: AWAY, Module.IM: MISSES}, False, id="another-misses-a-side"),
        pytest.param({Module.IM: OperationResult(op_id="5", outcome=OperationOutcome.FAILED)}, True, id="no-answer"),
        pytest.param({Module.IM: APPLIED}, False, id="applied"),
    ],
)
def test_to_find_a_module_away_is_no_failure(answers: dict[Module, OperationResult], counts: bool) -> None:
    """It says nothing about the message."""
    assert combine_module_results(operation(OperationKind.SWAP), WaitReason(), answers).counts == counts


def test_a_missing_side_says_more_than_a_failure() -> None:
    """And who gave no answer stays in doubt."""
    answers = {
        Module.ED: answer(OperationOutcome.FAILED, error="away"),
        Module.IM: answer(OperationOutcome.APPLIED),
        Module.WFM: answer(OperationOutcome.MISSING, missing=[2]),
    }

    assert combine_module_results(
        operation(OperationKind.SWAP), WaitReason(inherits=True), answers
    ).reason == WaitReason(
        kind=WaitKind.MISSING, module=Module.WFM, uprn=2, missing=[2], unsure=[Module.ED], inherits=True
    )


def test_logical_deletes_are_listed_with_who_has_orders_in_flight() -> None:
    """Also those of a call that had taken effect before; modules that say so of one delete say it together."""
    answers = {
        Module.OD: answer(OperationOutcome.LOGICAL, logical_address_id=11, in_flight=True),
        Module.WFM: answer(
            OperationOutcome.ALREADY, was=OperationOutcome.LOGICAL, logical_address_id=11, in_flight=True
        ),
        Module.ED: answer(OperationOutcome.APPLIED),
    }

    listings = combine_module_results(operation(OperationKind.DELETE), WaitReason(), answers).listings

    assert listings == [NewLogicalDelete(11, 1, 5, frozenset({module})) for module in (Module.OD, Module.WFM)]
    assert listings[0].merge_reports_of_modules(listings[1]) == NewLogicalDelete(
        11, 1, 5, frozenset({Module.OD, Module.WFM})
    )
    assert listings[0].merge_reports_of_modules(NewLogicalDelete(11, 1, 9, frozenset())) == NewLogicalDelete(
        11, 1, 9, frozenset()
    )


def test_a_create_revives_whatever_address_it_gave_life_to() -> None:
    """A delete revives no address."""
    done = {Module.OD: answer(OperationOutcome.APPLIED, address_id=77)}

    assert combine_module_results(operation(), WaitReason(), done).revived == {77}
    assert combine_module_results(operation(OperationKind.DELETE), WaitReason(), done).revived == set()
