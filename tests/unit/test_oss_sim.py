"""The stand-in modules: faults come where they were ordered and by seed, and a kill in the middle loses nothing."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from clients.modules import ModulesClient
from domain.addresses.operations import Module, Operation, OperationOutcome, OperationResult
from sims.oss.module import OssModule
from sims.oss.scenario import OssAction
from sims.oss.server import TOKEN
from tests.support.address_oracle import ModuleOracle
from tests.support.module_tables import delete, swap, upsert
from tests.support.modules import call_fault, module_settings, running_modules

ROOT = Path(__file__).parents[2]
ED, OD = Module.ED, Module.OD


def many(count: int) -> list[Operation]:
    """Addresses of this number."""
    return [upsert(seq, seq, 1_000 + seq, street=seq) for seq in range(1, count + 1)]


async def test_every_call_is_recorded(tmp_path: Path) -> None:
    """With its operations and what went wrong with it."""
    async with running_modules(tmp_path, call_fault(OssAction.ERROR, times=1), batch=2) as (oss, client):
        await client.apply_operations(ED, many(2))

        assert [(call.method, call.op_ids, call.fault) for call in oss.modules["ed"].calls] == [
            ("POST", ("1", "2"), "error"),
            ("POST", ("1", "2"), None),
        ]
        assert oss.calls() == 2


async def test_an_operation_may_fail_once_or_always(tmp_path: Path) -> None:
    """In one module, while the others apply it."""
    once = call_fault(OssAction.FAIL, modules=frozenset({"ed"}), uprns=frozenset({1}), times=1)
    always = call_fault(OssAction.FAIL, modules=frozenset({"od"}), kinds=frozenset({"swap"}))
    async with running_modules(tmp_path, once, always, batch=500) as (_, client):
        assert _outcomes(await client.apply_operations(ED, many(2))) == ["failed", "applied"]
        assert _outcomes(await client.apply_operations(ED, many(2))) == ["applied", "already"]
        assert _outcomes(await client.apply_operations(OD, many(2))) == ["applied", "applied"]
        for _ in range(3):
            assert _outcomes(await client.apply_operations(OD, [swap(3, 1, 2)])) == ["failed"]


async def test_a_seed_goes_wrong_in_the_same_places(tmp_path: Path) -> None:
    """And another seed in others."""
    fault = call_fault(OssAction.FAIL, fraction=0.3)

    async def list_failures(seed: int, run: int) -> list[str]:
        folder = tmp_path / f"{seed}-{run}"
        folder.mkdir()
        async with running_modules(folder, fault, seed=seed, batch=500) as (_, client):
            return [
                each.op_id
                for each in await client.apply_operations(ED, many(50))
                if each.outcome is OperationOutcome.FAILED
            ]

    first = await list_failures(1, 1)
    assert 0 < len(first) < 50
    assert first == await list_failures(1, 2)
    assert first != await list_failures(2, 1)


async def test_a_module_may_be_away_for_a_while(tmp_path: Path) -> None:
    """By the clock since the scenario was set."""
    away = call_fault(OssAction.RESET, modules=frozenset({"ed"}), to_second=0.3)
    async with running_modules(tmp_path, away, retries=12, retry_pause_seconds=0.01) as (oss, client):
        assert _outcomes(await client.apply_operations(ED, many(1))) == ["applied"]
        assert oss.modules["ed"].calls[0].fault == "reset"


async def test_it_is_steered_over_http(tmp_path: Path) -> None:
    """Scenario, orders in flight, lost and spoiled addresses; and what is wrong is said."""
    async with running_modules(tmp_path, batch=500) as (oss, client), aiohttp.ClientSession(oss.base) as session:
        await client.apply_operations(ED, many(3))
        for deed, address_ids in (("begin-orders", [1_001]), ("forget", [1_002]), ("spoil", [1_003])):
            async with session.post(f"/_sim/ed/{deed}", json=address_ids) as answer:
                assert answer.status == 200
        async with session.put("/_sim/scenario", json={"rules": [{"action": "error"}]}) as answer:
            assert answer.status == 200
        async with session.put("/_sim/scenario", json={"rules": [{"action": "explode"}]}) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"].startswith("rules.0.action: Input should be ")
        async with session.get("/_sim/ed/states") as answer:
            states = await answer.json()
        async with session.get("/_sim/other/states") as answer:
            assert answer.status == 404

    assert [(each["address_id"], each["record"]) for each in states] == [
        (1_001, {"street": 1}),
        (1_003, {"spoiled": True}),
    ]


@asynccontextmanager
async def process(folder: Path, port: int) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The modules as a process of their own."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "sims.oss", "--folder", str(folder), "--port", str(port)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert started.stdout
        yield json.loads(await started.stdout.readline())["url"], started
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        await started.wait()


@pytest.mark.long
async def test_a_module_that_is_killed_in_the_middle_applies_each_operation_once(tmp_path: Path) -> None:
    """Swaps undo themselves when they act twice: killed again and again, what was not answered is sent again."""
    dice, operations, port = random.Random(7), _history(), 0
    left = list(operations)
    while left:
        async with process(tmp_path, port) as (base, running):
            port = int(base.rpartition(":")[2])
            async with ModulesClient(module_settings(base, tmp_path, retries=0, batch=10)) as client:
                killer = asyncio.get_running_loop().call_later(dice.uniform(0.05, 0.3), running.kill)
                left = await _send(client, left)
                killer.cancel()

    book = ModuleOracle()
    for operation in operations:
        book.apply(operation)
    module = OssModule("ed", tmp_path / "ed.sqlite", TOKEN)
    assert {uprn: (each.address_id, each.record) for uprn, each in module.live().items()} == book.live
    assert len(module.list_applied()) == len(set(module.list_applied())) == len(book.done)


def _history() -> list[Operation]:
    """Addresses, then swaps that all hang on each other, and some deletes at the end."""
    dice = random.Random(3)
    swaps = [swap(seq, *dice.sample(range(1, 41), 2)) for seq in range(41, 241)]
    return [*many(40), *swaps, *(delete(seq, seq - 240) for seq in range(241, 246))]


async def _send(client: ModulesClient, operations: Sequence[Operation]) -> list[Operation]:
    """Send them in order until one is not answered; returns those that are left."""
    for place, operation in enumerate(operations):
        (result,) = await client.apply_operations(ED, [operation])
        if not result.is_acknowledged:
            return list(operations[place:])
    return []


def _outcomes(results: Sequence[OperationResult]) -> list[str]:
    return [each.outcome.value for each in results]
