"""Whatever is killed while changes of addresses come in and are applied, each takes effect once and modules agree."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import asyncpg
import pytest

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from sims.oss.scenario import OssAction, OssRule, OssScenario
from tests.support.address_log import PATIENCE_SECONDS, AddressLog, Rows
from tests.support.deployment import Deployment
from tests.support.engine import busy_processes
from tests.support.kills import Killer
from tests.support.selecting import mark_long_except
from tests.support.waiting import eventually

VICTIMS = ("worker-1", "engine", "database", "api-1")
MESSAGES, AT_A_TIME, TURNS_MAX = 150, 20, 4
UPRNS = 60
# Calls that are slow, and some that are lost, so that a kill finds work under way.
ROUGH = (OssRule(action=OssAction.SLOW, seconds=0.05), OssRule(action=OssAction.LOST, fraction=0.05))

Said = tuple[Topic, dict[str, Any]]

_bases = itertools.count(1_000, 1_000)


@pytest.fixture
def log(deployment: Deployment) -> AddressLog:
    """Return the share of the test: UPRNs that no other test has."""
    base = next(_bases)
    return AddressLog(deployment, range(base, base + UPRNS))


@pytest.mark.parametrize("victim", mark_long_except(VICTIMS, ("database",)))
async def test_kill_loses_no_change_and_repeats_none(
    log: AddressLog, killer: Killer, chance: random.Random, victim: str
) -> None:
    """A1, A5, A9, A10, A12: SIGKILL in the middle of intake and cycles, and once more later."""
    changes = Changes(log.uprns, chance)
    log.deployment.oss.set(OssScenario(seed=chance.randrange(2**32), rules=ROUGH))
    await log.resume()
    for share in (chance.uniform(0.05, 0.3), chance.uniform(0.4, 0.8)):
        for _ in range(TURNS_MAX):
            if await _kill_amid(log, killer, victim, share, changes):
                break

    rows = await log.settle()

    wanted = sorted(_number(log, number) for number in range(changes.made))
    logged = sorted(row["msg_no"] for row in rows.values())
    needed = {str(id_) for id_, row in rows.items() if row["superseded_by"] is None}
    applied = {module: log.list_applied(module, rows) for module in Module}
    lost = len(set(wanted) - set(logged)) + sum(len(needed - set(each)) for each in applied.values())
    killer.close(lost=lost, doubled=sum(len(each) - len(set(each)) for each in applied.values()))
    assert killer.record.kills == 2, "kills came when all was done"
    assert logged == wanted
    for module in Module:
        assert len(applied[module]) == len(set(applied[module])), module
        assert needed <= set(applied[module]), module
        assert log.states(module) == log.compute_expected(applied[module], rows), module
        assert log.states(module) == log.states(Module.ED), module


@pytest.mark.long
async def test_a_worker_that_hangs_changes_nothing_when_it_wakes(log: AddressLog, killer: Killer) -> None:
    """A8: it is stopped while it applies; others take over, younger messages and swaps come, and then it wakes.

    That its late writes are void, whatever it holds, is shown by `test_address_suspended_workers.py`, step by step.
    """
    log.deployment.oss.set(OssScenario(rules=(OssRule(action=OssAction.SLOW, seconds=1.0),)))
    await log.resume()
    held, free = log.uprns[:8], log.uprns[8]
    said = itertools.count()
    for turn in range(TURNS_MAX):
        await _publish_each(log, said, [_record(uprn, f"old {turn}") for uprn in held])
        worker = await eventually(lambda: _find_busy_worker(log), PATIENCE_SECONDS)
        assert worker is not None
        async with killer.hang(worker, under_way=lambda worker=worker: _is_busy(log, worker)) as hit:  # type: ignore[misc]
            younger = [_record(uprn, f"young {turn}") for uprn in held[:4]]
            younger += [(Topic.SWAP, {"uprn_1": held[place], "uprn_2": held[place + 1]}) for place in (3, 4, 5)]
            await _publish_each(log, said, [*younger, (Topic.DELETE, {"uprn": held[7]})])
            rows = await log.settle()
        if hit:
            break
    states = {module: log.states(module) for module in Module}

    # A resumed worker has written its late results once it applies another message.
    async def is_awake() -> bool:
        await _publish_each(log, said, [_record(free, "afterwards")])
        busy = await eventually(lambda: _find_busy_worker(log), PATIENCE_SECONDS)
        await log.settle()  # one message at a time: each takes its time
        return busy == worker

    await eventually(is_awake, PATIENCE_SECONDS)
    after = await log.settle()

    applied = {module: log.list_applied(module, after) for module in Module}
    needed = {str(id_) for id_, row in after.items() if row["superseded_by"] is None}
    killer.close(
        lost=sum(len(needed - set(each)) for each in applied.values()),
        doubled=sum(len(each) - len(set(each)) for each in applied.values()),
    )
    assert killer.record.hangs == 1, "each worker that was stopped had just ended its step"
    # They may have been moved to the history meanwhile; nothing else of them changes.
    assert {id_: _without_archiving(after[id_]) for id_ in rows} == {
        id_: _without_archiving(row) for id_, row in rows.items()
    }
    for module in Module:
        assert {uprn: log.states(module).get(uprn) for uprn in held} == {
            uprn: states[module].get(uprn) for uprn in held
        }, module
        assert needed <= set(applied[module]), module
        assert len(applied[module]) == len(set(applied[module])), module
        assert log.states(module) == log.compute_expected(applied[module], after), module
        assert log.states(module) == log.states(Module.ED), module


def _without_archiving(row: asyncpg.Record) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "archived_at"}


async def _publish_each(log: AddressLog, numbers: Iterator[int], said: Sequence[Said]) -> None:
    """Push messages one after the other."""
    for topic, payload in said:
        await log.push(f"h{log.uprns.start}-{next(numbers)}", topic, payload)


def _record(uprn: int, text: str) -> Said:
    return Topic.CREATE_UPDATE, {"uprn": uprn, "address_id": 1_000_000 + uprn, "record": {"text": text}}


async def _find_busy_worker(log: AddressLog) -> str | None:
    """Name a worker process that takes a step of a cycle just now."""
    engine, names = await log.deployment.engine(), {pid: name for name, pid in log.deployment.pids.items()}
    cycle = await log.deployment.as_admin("GET", "/v1/addresses/cycle")
    for workflow_id in cycle["workflow_ids"]:
        for pid in await busy_processes(engine.get_workflow_handle(workflow_id)) & names.keys():
            return names[pid]
    return None


async def _is_busy(log: AddressLog, worker: str) -> bool:
    return await _find_busy_worker(log) == worker


class Changes:
    """Makes all addresses come to be, some exchange their UPRNs, others go and come again."""

    def __init__(self, uprns: Sequence[int], chance: random.Random) -> None:
        self.made = 0
        self._uprns = uprns
        self._chance = chance

    def make(self, count: int) -> dict[int, Said]:
        """Return the next changes by their numbers."""
        numbers = range(self.made, self.made + count)
        self.made += count
        return {number: self._change(number) for number in numbers}

    def _change(self, number: int) -> Said:
        uprns, chance, half = self._uprns, self._chance, len(self._uprns) // 2
        if number < len(uprns):
            return _create(uprns[number], chance)
        match chance.choices(("create", "swap", "delete"), (7, 2, 1))[0]:
            case "create":
                return _create(chance.choice(uprns), chance)
            case "swap":
                one, other = chance.sample(uprns[:half], 2)
                return Topic.SWAP, {"uprn_1": one, "uprn_2": other}
            case _:
                return Topic.DELETE, {"uprn": chance.choice(uprns[half:])}


async def _kill_amid(log: AddressLog, killer: Killer, victim: str, share: float, changes: Changes) -> bool:
    """Publish more changes and kill when this share of them is done; say whether some were not."""
    said = changes.make(MESSAGES)
    numbers = {_number(log, number) for number in said}

    async def is_there() -> bool:
        return await _share_done(log, numbers) >= share

    async def is_under_way() -> bool:
        return await _share_done(log, numbers) < 1

    async with asyncio.TaskGroup() as group:
        group.create_task(_publish_all(log, said))
        killing = group.create_task(killer.try_kill(victim, begun=is_there, under_way=is_under_way))
    return killing.result()


def _create(uprn: int, chance: random.Random) -> Said:
    record = {"n": chance.randint(0, 99)}
    return Topic.CREATE_UPDATE, {"uprn": uprn, "address_id": 1_000_000 + uprn, "record": record}


async def _publish_all(log: AddressLog, said: Mapping[int, Said]) -> None:
    """Push several at a time; each tenth twice."""
    places = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int) -> None:
        async with places:
            for _ in range(2 if number % 10 == 0 else 1):
                await log.push(_number(log, number), *said[number])

    await asyncio.gather(*(one(number) for number in said))


def _number(log: AddressLog, number: int) -> str:
    return f"m{log.uprns.start}-{number}"


async def _share_done(log: AddressLog, numbers: Collection[str]) -> float:
    """Return which share of some messages is done; while the database is away, ask until it is back."""

    async def read() -> list[Rows]:
        try:
            return [await log.rows()]
        except (OSError, asyncpg.PostgresError) as error:
            raise AssertionError(str(error)) from error

    [rows] = await eventually(read)
    done = [row for row in rows.values() if row["msg_no"] in numbers and row["proc_flag"] == "Y"]
    return len(done) / len(numbers)
