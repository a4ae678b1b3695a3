"""The client of modules answers for them: each operation has its result, whatever a module does or leaves undone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clients.http import GuardedClient
from clients.modules import ModuleFailure, ModulesClient, client, connection
from domain.addresses.operations import (
    UPRN_MAX,
    LiveUprnsAndAppliedOps,
    Module,
    OperationOutcome,
    OperationResult,
)
from infra.address_settings import AddressSettings, AllModulesSettings, ModuleSettings
from infra.settings import EgressGuardSettings
from sims.oss.scenario import OssAction
from sims.oss.server import running_oss
from tests.support.http_peer import Script, answer, running_peer, says
from tests.support.module_tables import delete, purge, swap, upsert
from tests.support.modules import call_fault, list_outcomes, module_settings, running_modules, three_upserts
from tests.support.waiting import eventually

ED = Module.ED


@pytest.mark.parametrize(("batch", "calls"), [(1, 3), (2, 2), (500, 1)])
async def test_operations_travel_in_batches(tmp_path: Path, batch: int, calls: int) -> None:
    """As many in a call as the module accepts; results have the order of the operations."""
    async with running_modules(tmp_path, batch=batch) as (oss, client):
        results = await client.apply_operations(ED, three_upserts())

        assert [(each.op_id, each.outcome) for each in results] == [
            (str(seq), OperationOutcome.APPLIED) for seq in (1, 2, 3)
        ]
        assert sum(len(call.op_ids) for call in oss.modules["ed"].calls) == 3
        assert len(oss.modules["ed"].calls) == calls
        assert oss.modules["im"].calls == []


async def test_large_records_travel_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch has as many bytes as a request may have, and one operation at least."""
    monkeypatch.setattr(client, "BATCH_MAX_BYTES", 1_000)
    operations = [upsert(seq, seq, 10 + seq, street="x" * size) for seq, size in ((1, 400), (2, 300), (3, 5_000))]

    async with running_modules(tmp_path, batch=500) as (oss, caller):
        assert list_outcomes(await caller.apply_operations(ED, operations)) == ["applied"] * 3
        assert sorted(call.op_ids for call in oss.modules["ed"].calls) == [("1", "2"), ("3",)]


@pytest.mark.parametrize("batch", [1, 500])
async def test_each_outcome_comes_through(tmp_path: Path, batch: int) -> None:
    """With all that belongs to it."""
    async with running_modules(tmp_path, batch=batch) as (oss, client):
        oss.modules["ed"].begin_orders([11])
        await client.apply_operations(ED, three_upserts())

        told = await client.apply_operations(ED, [delete(4, 1), swap(5, 2, 9), swap(6, 7, 7), upsert(3, 3, 13)])
        again = await client.apply_operations(ED, [delete(4, 1)])
        purged = await client.apply_operations(ED, [purge(4, 1, 11)])

        assert list_outcomes(told) == ["logical", "missing", "refused", "already"]
        assert (told[0].logical_address_id, told[0].in_flight) == (11, True)
        assert told[1].missing == [9]
        assert told[2].error == "Both sides of the swap are UPRN 7."
        assert (again[0].outcome, again[0].original_outcome) == (OperationOutcome.ALREADY, OperationOutcome.LOGICAL)
        assert list_outcomes(purged) == ["logical"]


@pytest.mark.parametrize("batch", [1, 500])
async def test_one_that_breaks_does_not_take_others_along(tmp_path: Path, batch: int) -> None:
    """Its result has the trace of the module; the others of the batch are committed."""
    async with running_modules(tmp_path, call_fault(OssAction.FAIL, uprns=frozenset({2})), batch=batch) as (
        oss,
        client,
    ):
        results = await client.apply_operations(ED, three_upserts())

        assert list_outcomes(results) == ["applied", "failed", "applied"]
        assert "The transaction of UPRN 2 failed" in results[1].error
        assert sorted(oss.modules["ed"].live()) == [1, 3]


@pytest.mark.parametrize("action", [OssAction.ERROR, OssAction.RESET, OssAction.LOST])
async def test_a_call_that_fails_is_made_again(tmp_path: Path, action: OssAction) -> None:
    """Done or not, it is the same operation: it acts once."""
    async with running_modules(tmp_path, call_fault(action, times=2), batch=500) as (oss, client):
        await client.apply_operations(ED, three_upserts())
        results = await client.apply_operations(ED, [swap(4, 1, 2)])

        assert list_outcomes(results) == ["applied"]
        assert oss.modules["ed"].live()[1].address_id == 12


async def test_a_module_that_stays_away_makes_failed_results(tmp_path: Path) -> None:
    """When retries are used up each operation says so; nothing raises."""
    async with running_modules(tmp_path, call_fault(OssAction.ERROR), batch=2) as (oss, client):
        results = await client.apply_operations(ED, three_upserts())

        assert list_outcomes(results) == ["failed"] * 3
        assert results[0].error == "Module ed answered POST /operations with 500: 'ordered fault'. See its log."
        assert len(oss.modules["ed"].calls) == 2 * 3


async def test_an_answer_that_comes_too_late_is_a_failure_and_then_already(tmp_path: Path) -> None:
    """It was applied, and the answer was lost; the next call finds out."""
    # The question whether it is away comes too late as well.
    late = call_fault(OssAction.LATE, times=2, seconds=5)
    async with running_modules(tmp_path, late, retries=0, timeout_seconds=1.5) as (_, client):
        first = await client.apply_operations(ED, [upsert(1, 1, 11)])
        second = await client.apply_operations(ED, [upsert(1, 1, 11)])

    assert list_outcomes(first) == ["failed"]
    assert "gave no answer within 1.5 s" in first[0].error
    assert (second[0].outcome, second[0].was) == (OperationOutcome.ALREADY, OperationOutcome.APPLIED)


async def test_operations_that_share_a_uprn_are_no_call(tmp_path: Path) -> None:
    """Sent in parallel, their order would be undefined: that is a mistake of the caller, and raises."""
    async with running_modules(tmp_path) as (_, client):
        with pytest.raises(ValueError, match="share a UPRN"):
            await client.apply_operations(ED, [swap(1, 1, 2), upsert(2, 2, 12)])


async def test_addresses_come_in_pages(tmp_path: Path) -> None:
    """In order of their UPRNs; what is logically deleted has none."""
    async with running_modules(tmp_path, batch=500) as (oss, client):
        await client.apply_operations(ED, three_upserts())
        oss.modules["ed"].begin_orders([12])
        await client.apply_operations(ED, [delete(4, 2)])

        first = (await client.list_addresses(ED, 0, 1)).addresses
        rest = (await client.list_addresses(ED, 1, 5)).addresses

    assert [(each.uprn, each.address_id) for each in (*first, *rest)] == [(1, 11), (3, 13)]
    assert [each.record for each in rest] == [{"street": "x"}]


async def test_it_is_told_what_there_is_for_operations(tmp_path: Path) -> None:
    """Which of their UPRNs are live, and which of them took effect; any number may be asked about."""
    swaps = [swap(10 + place, 2 * place, 2 * place + 1) for place in range(1, 700)]
    async with running_modules(tmp_path, batch=500) as (_, client):
        await client.apply_operations(ED, [upsert(1, 2, 11), upsert(2, 3, 12), upsert(3, 1_399, 13)])
        await client.apply_operations(ED, swaps[:2])

        told = await client.look_up_operations(ED, swaps)
        nothing = await client.look_up_operations(Module.WFM, swaps[:1])

    assert told == LiveUprnsAndAppliedOps(live=frozenset({2, 3, 1_399}), applied=frozenset({"11"}))
    assert nothing == LiveUprnsAndAppliedOps(live=frozenset(), applied=frozenset())


async def test_orders_in_flight_are_told(tmp_path: Path) -> None:
    """Any number of addresses may be asked about."""
    async with running_modules(tmp_path) as (oss, client):
        oss.modules["od"].begin_orders([7, 2_500])

        assert await client.list_addresses_with_open_orders(Module.OD, range(1, 3_000)) == {7, 2_500}
        assert await client.list_addresses_with_open_orders(Module.OD, [8]) == set()
        assert await client.list_addresses_with_open_orders(Module.WFM, [7]) == set()


async def test_a_token_is_read_again_when_it_is_refused(tmp_path: Path) -> None:
    """It may be replaced in its file while we run."""
    async with running_oss(tmp_path) as oss:
        known = module_settings(oss.base, tmp_path)
        right = (tmp_path / "oss.json").read_text()
        (tmp_path / "oss.json").write_text('{"token": "old"}')
        async with ModulesClient(known) as client:
            (refused,) = await client.apply_operations(ED, [upsert(1, 1, 11)])
            (tmp_path / "oss.json").write_text(right)
            (applied,) = await client.apply_operations(ED, [upsert(1, 1, 11)])

    assert refused.outcome is OperationOutcome.FAILED
    assert "401" in refused.error
    assert "HAULAGE_ADDRESSES__MODULES__ED__CREDENTIALS" in refused.error
    assert applied.outcome is OperationOutcome.APPLIED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base_url": ""}, "Set HAULAGE_ADDRESSES__MODULES__ED__BASE_URL"),
        ({"credentials": "nobody"}, "Put a file nobody.json there"),
    ],
)
async def test_what_is_not_set_up_is_said(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """With what to do about it, in the result of each operation."""
    async with running_modules(tmp_path, **changes) as (_, client):
        (result,) = await client.apply_operations(ED, [upsert(1, 1, 11)])
        with pytest.raises(ModuleFailure, match=words):
            await client.list_addresses(ED, 0, 10)

    assert result.outcome is OperationOutcome.FAILED
    assert words in result.error


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>\n", "it is no JSON: '<html>\\n'"),
        (b"{}", "op_id: field required; outcome: field required"),
        (b"[]", "the answer: input should be an object"),
        (
            json.dumps({"op_id": "2", "outcome": "applied"}).encode(),
            "1 operations from 1 were sent, and ['2'] … were answered",
        ),
        (
            json.dumps({"op_id": "1", "outcome": "done"}).encode(),
            (
                "outcome: input should be 'applied', 'logical', 'already', 'stale', 'missing', 'refused' or 'failed', "
                "not 'done'"
            ),
        ),
        (
            json.dumps({"op_id": 1, "outcome": "applied", "missing": ["x", None], "address_id": {}}).encode(),
            (
                "op_id: input should be a valid string, not 1; missing[0]: input should be a valid integer, unable to "
                "parse string as an integer, not 'x'; missing[1]: input should be a valid integer, not None; and 1 "
                "more like these"
            ),
        ),
        (
            json.dumps({"op_id": "1", "outcome": "applied", "address_id": 2**63}).encode(),
            f"address_id: input should be less than or equal to {UPRN_MAX}, not {2**63}",
        ),
        (
            json.dumps({"op_id": "1", "outcome": "missing", "missing": [7, -(2**63)]}).encode(),
            f"missing[1]: input should be greater than or equal to -{UPRN_MAX}, not -{2**63}",
        ),
        (
            b'{"op_id": "1", "outcome": "applied", "deep": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
            """it is no JSON: '{"op_id": "1", "outcome": "applied", "deep": """ + "[" * 55 + "'",
        ),
    ],
)
async def test_an_answer_that_is_not_of_the_contract_is_no_success(tmp_path: Path, body: bytes, said: str) -> None:
    """Not JSON, no result, another's result, an unknown outcome: in a plain sentence without links."""
    (result,) = await _apply_one(tmp_path, says(answer(body)))

    assert result.outcome is OperationOutcome.FAILED
    assert f"with what is not of the contract: {said}. Mend its handler." in result.error
    assert "pydantic" not in result.error
    assert "\n" not in result.error


async def test_a_long_trace_is_cut(tmp_path: Path) -> None:
    """It is kept up to the limit, and the result counts."""
    body = json.dumps({"op_id": "1", "outcome": "refused", "error": "x" * 9_000}).encode()
    (result,) = await _apply_one(tmp_path, says(answer(body)))

    assert (result.outcome, len(result.error)) == (OperationOutcome.REFUSED, 8_000)


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """The token is for the module, not for wherever it points."""
    (result,) = await _apply_one(tmp_path, says(answer(b"", "Location: http://127.0.0.1:1/", status="307 Moved")))

    assert "with 307" in result.error


async def _apply_one(folder: Path, script: Script) -> list[OperationResult]:
    async with running_peer(script) as here:
        each = ModuleSettings(base_url=here.url, retries=0)
        known = AddressSettings(credentials_folder=folder, modules=AllModulesSettings(ed=each))
        async with ModulesClient(known) as client:
            return await client.apply_operations(ED, [upsert(1, 1, 11)])


async def test_an_address_that_an_operator_gave_must_be_allowed(tmp_path: Path) -> None:
    """Unlike one of the environment: the socket is not even made, and the sentence says what to do."""
    async with running_oss(tmp_path) as oss:
        given = module_settings(oss.base, tmp_path, batch=500)
        host = oss.base.removeprefix("http://")
        for allow, expected in (([], "failed"), ([host], "applied")):
            guard = GuardedClient(EgressGuardSettings(allow=allow))
            environment = AddressSettings(credentials_folder=tmp_path)
            async with ModulesClient(environment, guard.open_socket_if_allowed) as known:
                results = await known.copy_with_settings(given).apply_operations(ED, three_upserts())
                assert list_outcomes(results) == [expected] * 3
                assert ("HAULAGE_GUARD__ALLOW" in results[0].error) == (expected == "failed")
            assert bool(oss.modules["ed"].calls) == (expected == "applied")


async def test_settings_change_while_calls_are_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call keeps the settings that it began with; an unused connection is closed."""
    monkeypatch.setattr(connection, "OPEN_MAX", 2)
    slow = call_fault(OssAction.LATE, times=1, seconds=0.5)
    async with running_modules(tmp_path, slow, batch=500) as (oss, client):
        first = asyncio.create_task(client.apply_operations(ED, three_upserts()))
        await eventually(lambda: bool(oss.modules["ed"].calls))
        for batch in range(1, 6):
            changed = module_settings(oss.base, tmp_path, batch=batch)
            results = await client.copy_with_settings(changed).apply_operations(ED, [upsert(10 + batch, 9, 9)])
            assert list_outcomes(results) == ["applied"]

        assert list_outcomes(await first) == ["applied"] * 3
        assert len(client._connections._open) <= 3


async def test_a_page_that_is_too_large_says_that_fewer_may_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single address may be larger than a page of several."""
    monkeypatch.setattr(client, "PAGE_MAX_BYTES", 1_000, raising=False)
    async with running_modules(tmp_path, batch=500) as (_, caller):
        await caller.apply_operations(ED, [upsert(seq, seq, 10 + seq, street="x" * 1_500) for seq in (1, 2)])
        with pytest.raises(ModuleFailure, match="more than 1,000 bytes") as raised:
            await caller.list_addresses(ED, 0, 2)
        page = await caller.list_addresses(ED, 0, 1)

    assert (raised.value.is_too_large, [each.uprn for each in page.addresses]) == (True, [1])
