"""A module that fails is left alone, and what spoils a batch is isolated: other operations lose no attempt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clients.modules import ModuleFailure, client
from domain.addresses.operations import (
    Module,
    OperationOutcome,
    UnansweredResult,
)
from sims.oss.scenario import OssAction, OssRule, OssScenario
from tests.support.module_tables import upsert
from tests.support.modules import call_fault, list_outcomes, running_modules, three_upserts
from tests.support.pace import measure_pace

ED = Module.ED


async def test_a_module_that_fails_in_a_row_is_left_alone(tmp_path: Path) -> None:
    """No call goes out until the time is over; the others are called as ever."""
    rule = call_fault(OssAction.ERROR, modules=frozenset({"ed"}))
    async with running_modules(tmp_path, rule, retries=0, breaker_failures=3, concurrency=1) as (oss, client):
        results = await client.apply_operations(ED, [upsert(seq, seq, 10 + seq) for seq in range(1, 9)])
        others = await client.apply_operations(Module.IM, three_upserts())

        assert list_outcomes(results) == ["failed"] * 8
        # A lookup between two operations has failed as well.
        assert len(oss.modules["ed"].calls) == 2
        assert "failed 3 times in a row and is not called for 10 s" in results[-1].error
        assert list_outcomes(others) == ["applied"] * 3


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        (call_fault(OssAction.ERROR), {}),
        (call_fault(OssAction.ERROR, status=503, times=1), {}),
        (call_fault(OssAction.ERROR, status=429, times=1), {}),
        (call_fault(OssAction.RESET), {}),
        (call_fault(OssAction.SLOW, seconds=5), {"timeout_seconds": 0.1}),
        (call_fault(OssAction.FAIL), {"base_url": ""}),
        (call_fault(OssAction.FAIL), {"credentials": "nobody"}),
        (call_fault(OssAction.FAIL), {"base_url": "http://127.0.0.1:9"}),
    ],
    ids=["answers-500", "503", "429", "cut", "silent", "not-set", "no-credentials", "nobody-there"],
)
async def test_a_module_that_answers_nobody_is_away(tmp_path: Path, rule: OssRule, changes: dict[str, Any]) -> None:
    """That says nothing about the operations."""
    async with running_modules(tmp_path, rule, retries=0, batch=500, **changes) as (_, client):
        results = await client.apply_operations(ED, three_upserts())

    assert [type(each) for each in results] == [UnansweredResult] * 3
    assert list_outcomes(results) == ["failed"] * 3


async def test_an_open_breaker_says_nothing_about_operations(tmp_path: Path) -> None:
    """They were not even sent."""
    async with running_modules(
        tmp_path, call_fault(OssAction.RESET), retries=0, breaker_failures=2, breaker_seconds=60
    ) as (oss, client):
        for _ in range(3):
            results = await client.apply_operations(ED, three_upserts())
        oss.set(OssScenario())
        results = await client.apply_operations(ED, three_upserts())

    assert "is not called for 60 s" in results[0].error
    assert [type(each) for each in results] == [UnansweredResult] * 3


async def test_a_paused_module_is_not_called(tmp_path: Path) -> None:
    """Nothing is sent, not even a probe; that says nothing about the operations, and other modules are called."""
    async with running_modules(tmp_path, call_fault(OssAction.FAIL), paused=True) as (oss, client):
        results = await client.apply_operations(ED, three_upserts())
        assert oss.modules["ed"].calls == []

    assert "Module ed is paused" in results[0].error
    assert [type(each) for each in results] == [UnansweredResult] * 3


@pytest.mark.parametrize("spoilt", [frozenset({7}), frozenset({1, 64}), frozenset({30, 31, 50})])
async def test_what_a_module_cannot_digest_is_found_by_halves(tmp_path: Path, spoilt: frozenset[int]) -> None:
    """The others of its batch are applied; it failed by itself, for the module answers others."""
    operations = [upsert(seq, seq, 100 + seq) for seq in range(1, 65)]
    rule = call_fault(OssAction.CHOKE, uprns=spoilt)
    async with running_modules(tmp_path, rule, retries=0, batch=500) as (oss, client):
        results = await client.apply_operations(ED, operations)

        assert [each.op_id for each in results] == [each.op_id for each in operations]
        assert {each.op_id for each in results if each.outcome is not OperationOutcome.APPLIED} == set(map(str, spoilt))
        assert not any(isinstance(each, UnansweredResult) for each in results)
        assert sorted(oss.modules["ed"].live()) == sorted({*range(1, 65)} - spoilt)


async def test_nobody_looks_for_ever_for_what_spoils_a_batch(tmp_path: Path) -> None:
    """A module that can read nothing of it is not called once for each; what it was not asked about alone can wait."""
    operations = [upsert(seq, seq, 1_000 + seq) for seq in range(1, 401)]
    rule = call_fault(OssAction.CHOKE, uprns=frozenset(range(1, 401)))
    async with running_modules(tmp_path, rule, retries=0, batch=500) as (oss, caller):
        results = await caller.apply_operations(ED, operations)

        assert list_outcomes(results) == ["failed"] * 400
        assert len(oss.modules["ed"].calls) < 2 * client.FAILED_CALLS_MAX
        alone = {call.op_ids[0] for call in oss.modules["ed"].calls if len(call.op_ids) == 1}
        assert alone
        assert {each.op_id for each in results if not isinstance(each, UnansweredResult)} == alone


@pytest.mark.parametrize(("retries", "failures"), [(0, 1), (1, 1), (2, 3)])
async def test_what_spoils_a_batch_is_found_whenever_the_breaker_opens(
    tmp_path: Path, retries: int, failures: int
) -> None:
    """A module that answers others is not away, though one operation alone fails often enough to open the breaker."""
    operations = [upsert(seq, seq, 100 + seq) for seq in range(1, 33)]
    rule = call_fault(OssAction.CHOKE, uprns=frozenset({7}))
    settings = {"retries": retries, "breaker_failures": failures, "breaker_seconds": 60, "batch": 500}
    async with running_modules(tmp_path, rule, **settings) as (oss, client):
        results = await client.apply_operations(ED, operations)

        assert {each.op_id for each in results if each.outcome is OperationOutcome.FAILED} == {"7"}
        assert not any(isinstance(each, UnansweredResult) for each in results)
        assert sorted(oss.modules["ed"].live()) == sorted({*range(1, 33)} - {7})


async def test_a_module_that_comes_back_between_two_calls_has_refused_nothing(tmp_path: Path) -> None:
    """The operation met its last failure, the question whether it is away its first answer."""
    async with running_modules(tmp_path, call_fault(OssAction.ERROR, times=1), retries=0, batch=1) as (_, client):
        assert list_outcomes(await client.apply_operations(ED, [upsert(1, 1, 11)])) == ["applied"]


async def test_many_poisons_cost_the_others_of_their_batch_nothing(tmp_path: Path) -> None:
    """100 of 500: what is not isolated in time waits; sent again without those that were, all others are applied."""
    operations = [upsert(seq, seq, 1_000 + seq) for seq in range(1, 501)]
    poisons = frozenset(range(3, 501, 5))
    rule = call_fault(OssAction.CHOKE, uprns=poisons)
    async with running_modules(tmp_path, rule, retries=0, batch=500) as (oss, caller):
        left, given_up = operations, set[int]()
        for _ in range(60):
            results = dict(zip((each.seq for each in left), await caller.apply_operations(ED, left), strict=True))
            failed = {seq for seq, each in results.items() if each.outcome is OperationOutcome.FAILED}
            given_up |= {seq for seq in failed if not isinstance(results[seq], UnansweredResult)}
            waiting = {seq: each for seq, each in results.items() if isinstance(each, UnansweredResult)}
            assert all(each.is_unapplied and client.BATCH_FAILED_ERROR in each.error for each in waiting.values())
            left = [each for each in operations if each.seq in waiting]
            if not left:
                break

        assert given_up == poisons
        assert sorted(oss.modules["ed"].live()) == sorted({*range(1, 501)} - poisons)


async def test_what_was_not_told_apart_may_be_applied_while_a_call_is_unanswered(tmp_path: Path) -> None:
    """The first call with all of them ran into the time-out: it may still be on its way, so nothing is certain."""
    operations = [upsert(seq, seq, 1_000 + seq) for seq in range(1, 401)]
    choke = call_fault(OssAction.CHOKE, uprns=frozenset(range(1, 401)))
    pace = measure_pace()  # once, so that the first call takes longer than the time-out whatever else is done meanwhile
    slow = call_fault(OssAction.SLOW, times=1, seconds=3 * pace)
    async with running_modules(tmp_path, slow, choke, retries=1, batch=500, timeout_seconds=2 * pace) as (_, caller):
        waiting = [each for each in await caller.apply_operations(ED, operations) if isinstance(each, UnansweredResult)]

        assert waiting
        assert not any(each.is_unapplied for each in waiting)


@pytest.mark.parametrize("batch", [1, 500])
async def test_a_module_that_goes_on_failing_holds_the_others_up_for_some_minutes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """It answers lookups, but its writes hang; what was not sent by then has not failed."""
    monkeypatch.setattr(client, "FAILING_SECONDS_MAX", 0.0, raising=False)
    rule = call_fault(OssAction.CHOKE, uprns=frozenset(range(1, 9)))
    async with running_modules(tmp_path, rule, retries=0, concurrency=1, batch=batch) as (oss, caller):
        results = await caller.apply_operations(ED, [upsert(seq, seq, 10 + seq) for seq in range(1, 9)])

    assert list_outcomes(results) == ["failed"] * 8
    assert [type(each) for each in results[1:]] == [UnansweredResult] * 7
    # Parts of a batch were sent with it.
    assert [isinstance(each, UnansweredResult) and each.is_unapplied for each in results[1:]] == [batch == 1] * 7
    assert "failed on other operations for several minutes" in results[-1].error
    assert sum(bool(call.op_ids) for call in oss.modules["ed"].calls) <= 2


async def test_what_spoils_a_batch_is_found_over_several_calls_if_each_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one failure the time is over, as where a call hangs: the next one goes on with the halves."""
    monkeypatch.setattr(client, "FAILING_SECONDS_MAX", 0.0, raising=False)
    operations = [upsert(seq, seq, 100 + seq) for seq in range(1, 65)]
    rule = call_fault(OssAction.CHOKE, uprns=frozenset({7}))
    left, isolated = operations, set[int]()
    async with running_modules(tmp_path, rule, retries=0, concurrency=1, batch=500) as (oss, caller):
        for _ in range(8):
            results = dict(zip((each.seq for each in left), await caller.apply_operations(ED, left), strict=True))
            failed = {seq for seq, each in results.items() if each.outcome is OperationOutcome.FAILED}
            isolated |= {seq for seq in failed if not isinstance(results[seq], UnansweredResult)}
            left = [each for each in left if each.seq in failed]

        assert isolated == {7}
        assert sorted(oss.modules["ed"].live()) == sorted({*range(1, 65)} - {7})
        # From now on it is sent alone, after the others.
        before = len(oss.modules["ed"].calls)
        await caller.apply_operations(ED, [operations[6], *(upsert(seq, seq, 100 + seq) for seq in range(65, 69))])
        sent = [list(call.op_ids) for call in oss.modules["ed"].calls[before:] if call.op_ids]
        assert sent[:2] == [["65", "66", "67", "68"], ["7"]]


def test_only_the_time_of_failed_calls_counts_and_of_calls_at_the_same_time_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow module that fails once after a long while has not failed for several minutes."""
    clock = [10_000.0]
    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    patience, failure = client._PatienceWithFailures(), ModuleFailure("x", is_transient=True)
    for began_at, now, is_over in [(9_990.0, 10_000.0, False), (9_000.0, 10_200.0, False), (10_195.0, 10_301.0, True)]:
        clock[0] = now
        patience.add_failure(failure, max(began_at, 9_990.0))
        assert patience.is_over is is_over


@pytest.mark.parametrize("status", [404, 405])
async def test_a_module_without_batches_has_not_failed_on_operations(tmp_path: Path, status: int) -> None:
    """It answers lookups: that `batch` says what it cannot do is no failure of a message, and is said."""
    rule = call_fault(OssAction.ERROR, status=status, times=1)
    async with running_modules(tmp_path, rule, batch=500) as (oss, caller):
        results = await caller.apply_operations(ED, three_upserts())

    assert [type(each) for each in results] == [UnansweredResult] * 3
    assert "and batch if it takes no batches" in results[0].error
    assert len(oss.modules["ed"].calls) == 1
