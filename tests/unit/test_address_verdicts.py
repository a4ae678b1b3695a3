"""What the answers of modules to a message come to: whether that was a try, and who may have applied it."""

from __future__ import annotations

import pytest

from domain.addresses.operations import Module, OperationOutcome, OperationResult, UnansweredResult
from domain.addresses.ordering import WaitKind, WaitReason
from domain.addresses.results import combine_module_results
from tests.support.module_tables import swap, upsert

OPERATION = upsert(1, 1, 11)
FAILED = OperationResult(op_id="1", outcome=OperationOutcome.FAILED, error="It broke.")
AWAY = UnansweredResult(op_id="1", outcome=OperationOutcome.FAILED, error="It is away.")
POSTPONED = UnansweredResult(
    op_id="1", outcome=OperationOutcome.FAILED, error="Others spoil its batch.", is_unapplied=True
)


@pytest.mark.parametrize(
    ("answer", "before", "counts", "unsure"),
    [
        pytest.param(FAILED, [], True, [Module.OD], id="it-failed"),
        pytest.param(AWAY, [], False, [Module.OD], id="nobody-answers"),
        pytest.param(POSTPONED, [], False, [], id="others-spoil-its-batch"),
        pytest.param(POSTPONED, [Module.OD], False, [Module.OD], id="an-earlier-call-may-be-on-its-way"),
    ],
)
def test_only_what_a_module_said_of_it_counts(
    answer: OperationResult, before: list[Module], counts: bool, unsure: list[Module]
) -> None:
    """A module that said nothing of the message costs no try, and is in doubt only while it may have it."""
    verdict = combine_module_results(OPERATION, WaitReason(unsure=before), {Module.OD: answer})

    assert (verdict.counts, verdict.acks, verdict.traces) == (counts, {Module.OD: "N"}, {Module.OD: answer.error})
    assert verdict.reason is not None
    assert verdict.reason.unsure == unsure


def test_a_failure_counts_once_all_modules_could_be_asked() -> None:
    """To be given up while one of them may have begun with it, a message would hold up others for nothing."""
    verdict = combine_module_results(OPERATION, WaitReason(), {Module.ED: FAILED, Module.OD: AWAY})

    assert not verdict.counts
    assert verdict.reason is not None
    assert verdict.reason.unsure == [Module.ED, Module.OD]
    assert combine_module_results(OPERATION, WaitReason(), {Module.ED: FAILED}).counts


PAUSED = UnansweredResult(op_id="1", outcome=OperationOutcome.FAILED, error="It is paused.", is_paused=True)


def test_a_message_waits_for_a_paused_module_unless_another_one_failed() -> None:
    """What is behind a message that waits for a pause does so too. The module was not called: its answer stays."""
    waits = combine_module_results(OPERATION, WaitReason(), {Module.IM: PAUSED})
    fails = combine_module_results(OPERATION, WaitReason(), {Module.IM: PAUSED, Module.OD: FAILED})

    assert (waits.acks, waits.traces, waits.counts) == ({}, {}, False)
    assert waits.reason is not None
    assert (waits.reason.kind, waits.reason.paused, waits.reason.is_only_for_paused_modules) == (
        WaitKind.PAUSED,
        [Module.IM],
        True,
    )
    assert fails.reason is not None
    assert (fails.reason.kind, fails.reason.module, fails.reason.paused) == (WaitKind.FAILED, Module.OD, [Module.IM])
    assert not fails.reason.is_only_for_paused_modules
    assert fails.acks == {Module.OD: "N"}
    assert WaitReason().with_blocking_message(7, [Module.IM]).is_only_for_paused_modules
    assert not WaitReason().with_blocking_message(7).is_only_for_paused_modules


MISSING = OperationResult(op_id="1", outcome=OperationOutcome.MISSING, missing=[2])
REFUSED = OperationResult(op_id="1", outcome=OperationOutcome.REFUSED, error="It cannot be.")


@pytest.mark.parametrize(
    ("answer", "lacked", "counts_anew", "missing"),
    [
        pytest.param(MISSING, [2], False, [2], id="the-side-is-still-missing"),
        pytest.param(FAILED, [2], True, [], id="the-side-came-and-it-failed"),
        pytest.param(REFUSED, [2], True, [], id="the-side-came-and-it-was-refused"),
        pytest.param(AWAY, [2], False, [2], id="the-module-may-still-lack-it"),
        pytest.param(FAILED, [], False, [], id="it-has-failed-before"),
    ],
)
def test_tries_that_lacked_a_side_are_not_counted_once_it_came(
    answer: OperationResult, lacked: list[int], counts_anew: bool, missing: list[int]
) -> None:
    """A swap that waited long would be given up on its first failure, and hold up what comes behind it."""
    verdict = combine_module_results(
        swap(1, 1, 2), WaitReason(kind=WaitKind.MISSING, missing=lacked), {Module.OD: answer}
    )

    assert verdict.reason is not None
    assert (verdict.counts_anew, verdict.reason.missing) == (counts_anew, missing)
