"""The stand-in GSE: files arrive, each fault occurs where the scenario sets it, and the counts are right."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clients.gse import GseClient, GseRefused
from domain.transfers.gse import GseAgentWithUser, GseProgress, GseRecordsByAgent, GseVerdict
from sims.gse import orders
from sims.gse.disks import HostDisks
from sims.gse.scenario import Empty, GseAction, GseCall, GseRule, GseScenario, Shape
from sims.gse.tasks import FileSpot
from tests.support.gse import QUICK, SOURCE, call_fault, gse_settings, make_hosts, make_order, running_gse_client
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
GRACE = 0.2


def codes(results: GseRecordsByAgent) -> list[int]:
    """What the targets' records say, in the order of their names."""
    return [record.error_code for _, record in sorted(results.downloads.items())]


async def wait_for_results(client: GseClient, task_id: str, count: int) -> GseRecordsByAgent:
    """Return the results once this number of targets has ended."""

    async def over() -> GseRecordsByAgent | None:
        results = await client.get_results(task_id)
        final = [each for each in results.downloads.values() if each.verdict is not GseVerdict.RUNNING]
        return results if len(final) == count else None

    results = await eventually(over)
    assert results
    return results


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file to send."""
    path = tmp_path / "cache" / "abc"
    path.parent.mkdir()
    path.write_bytes(b"the file's bytes" * 1_000)
    return path


@pytest.mark.parametrize("links", [False, True])
async def test_bytes_arrive_before_success_is_told(tmp_path: Path, source: Path, links: bool) -> None:
    """Each target's folder holds the file as soon as its record says so, and whose it is."""
    targets = [
        GseAgentWithUser("0:10.0.0.1", "", "app"),
        GseAgentWithUser("a", "c1", "app"),
        GseAgentWithUser("a", "", "app"),
    ]
    async with running_gse_client() as (world, client):
        world.disks = HostDisks(tmp_path / "hosts", links=links)
        task_id = await client.begin_transfer(make_order(targets, file=source))
        results = await wait_for_results(client, task_id, 3)

        for each in targets:
            path = world.disks.path(FileSpot(each.agent_id, each.container_id, "/data/app", "abc"))
            assert path.read_bytes() == source.read_bytes()
            assert results.downloads[each.key].size == source.stat().st_size
        assert len({world.disks.path(FileSpot(*each.key, "/data/app", "abc")) for each in targets}) == 3


async def test_a_file_that_is_not_there_fails_the_upload(tmp_path: Path) -> None:
    """The source's record says so; no target gets anything."""
    async with running_gse_client(disks=tmp_path) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(2), file=tmp_path / "nothing"))

        async def has_upload_failed() -> bool:
            upload = (await client.get_results(task_id)).upload
            return upload is not None and upload.error_code == 705

        assert await eventually(has_upload_failed)
        await world.advance(10)
        assert codes(await client.get_results(task_id)) == [115, 115]
        assert world.received.total() == 0


async def test_targets_end_one_after_the_other() -> None:
    """The first has its file early; the last waits for its peers, and progress grows."""
    scenario = GseScenario(upload_seconds=1, download_seconds=10, swarm=0.5, jitter_seconds=0)
    async with running_gse_client(scenario=scenario) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(4)))
        await world.advance(6)
        early = await client.get_results(task_id)
        await world.advance(6)
        some = await client.get_results(task_id)
        await world.advance(60)
        assert codes(early) == [115] * 4
        assert 0 < early.downloads["host-3", ""].progress < some.downloads["host-3", ""].progress < 100
        assert codes(some) == [0, 115, 115, 115]
        assert codes(await client.get_results(task_id)) == [0] * 4


async def test_targets_fail_by_pattern() -> None:
    """A code and words for those whose names match; the others arrive."""
    async with running_gse_client(call_fault(GseAction.FAIL, agent="host-[13]", code=117, message="agent down")) as (
        _,
        client,
    ):
        results = await wait_for_results(client, await client.begin_transfer(make_order(make_hosts(4))), 4)
    assert codes(results) == [0, 117, 0, 117]
    assert results.downloads["host-1", ""].error_msg == "agent down"


async def test_targets_fail_a_number_of_times() -> None:
    """A target that fails twice gets its file with the third transfer, each counted."""
    async with running_gse_client(call_fault(GseAction.FAIL, code=703, times=2)) as (world, client):
        ends = [
            codes(await wait_for_results(client, await client.begin_transfer(make_order(make_hosts(2))), 2))
            for _ in range(3)
        ]
        assert ends == [[703, 703], [703, 703], [0, 0]]
        assert orders.build_stats(world) == {
            "calls": {"transfer": 3, "results": world.calls[GseCall.RESULTS], "terminate": 0, "states": 0},
            "targets_sent": 6,
            "targets": 2,
            "sent_again": 4,
            "received": 2,
            "received_again": 0,
            "refused_keys": 0,
        }


async def test_a_fraction_fails_by_seed() -> None:
    """The same seed strikes the same targets, in another process too; another seed strikes others."""

    async def list_failed_agents(seed: int) -> set[str]:
        rule = call_fault(GseAction.FAIL, fraction=0.3)
        async with running_gse_client(rule, scenario=QUICK.model_copy(update={"seed": seed})) as (_, client):
            results = await wait_for_results(client, await client.begin_transfer(make_order(make_hosts(200))), 200)
        return {agent for (agent, _), record in results.downloads.items() if record.error_code}

    first = await list_failed_agents(1)
    assert first == await list_failed_agents(1)
    assert first != await list_failed_agents(2)
    assert 30 < len(first) < 90


async def test_stuck_targets_run_until_gses_own_timeout() -> None:
    """Then they end as 120."""
    async with running_gse_client(call_fault(GseAction.STUCK, agent="host-0")) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(2), timeout_seconds=60))
        await world.advance(30)
        assert codes(await client.get_results(task_id)) == [115, 0]
        await world.advance(31)
        assert codes(await client.get_results(task_id)) == [120, 0]


async def test_a_missing_record_is_of_a_target_that_has_its_file() -> None:
    """The response is a success all the same."""
    async with running_gse_client(call_fault(GseAction.MISSING, agent="host-0")) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(2)))
        await world.advance(10)
        assert set((await client.get_results(task_id)).downloads) == {("host-1", "")}
        assert world.received.total() == 2


async def test_a_flapping_target_fails_runs_again_and_succeeds() -> None:
    """Its record is not final until it is."""
    scenario = GseScenario(upload_seconds=0, download_seconds=100, swarm=0, jitter_seconds=0)
    async with running_gse_client(call_fault(GseAction.FLAP, code=703), scenario=scenario) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(1)))
        seen = []
        for seconds in (50, 30, 30, 0):
            seen += codes(await client.get_results(task_id))
            await world.advance(seconds)
    assert seen == [115, 703, 115, 0]


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, [115, 115]), (15.0, [0, 115])])
@pytest.mark.parametrize("shape", [Shape(), Shape(records_after_failed_upload=False)])
async def test_an_upload_fails_at_once_or_after_some_targets_are_done(
    seconds: float, expected: list[int], shape: Shape
) -> None:
    """Those that were done stay so; of the others there are records that run for ever, or none."""
    scenario = GseScenario(upload_seconds=1, download_seconds=10, swarm=1, jitter_seconds=0, shape=shape)
    async with running_gse_client(call_fault(GseAction.UPLOAD_FAIL, code=708, seconds=seconds), scenario=scenario) as (
        world,
        client,
    ):
        task_id = await client.begin_transfer(make_order(make_hosts(2)))
        await world.advance(14)
        await world.advance(86)
        results = await client.get_results(task_id)
    assert results.upload
    assert results.upload.error_code == 708
    told = expected if shape.records_after_failed_upload else [code for code in expected if code != 115]
    assert codes(results) == told


async def test_an_upload_may_seem_to_run_for_ever() -> None:
    """All downloads are done, and its record still says that it runs."""
    async with running_gse_client(call_fault(GseAction.UPLOAD_STUCK)) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(2)))
        await world.advance(10)
        results = await client.get_results(task_id)
    assert codes(results) == [0, 0]
    assert results.upload
    assert results.upload.verdict is GseVerdict.RUNNING


SHAPES: list[tuple[Shape, Callable[[list[Any]], bool]]] = [
    (Shape(), lambda told: all({"type", "mode"} < set(each["content"]) for each in told)),
    (Shape(types=False), lambda told: not any("type" in each["content"] for each in told)),
    (Shape(modes=False), lambda told: not any("mode" in each["content"] for each in told)),
    (Shape(upload_record=False), lambda told: len(told) == 3),
    (Shape(progress_at_success=97), lambda told: {each["content"]["progress"] for each in told} == {97}),
    (Shape(unknown_target=True), lambda told: len(told) == 5),
    (Shape(duplicates=True), lambda told: len(told) == 8),
    (Shape(older_too=True), lambda told: [each["error_code"] for each in told] == [0, 115] * 4),
    (Shape(text_codes=True), lambda told: {each["error_code"] for each in told} == {"0"}),
    (
        Shape(shuffled=True),
        lambda told: [each["content"].get("dest_agent_id") for each in told] != [None, "host-0", "host-1", "host-2"],
    ),
]


@pytest.mark.parametrize(("shape", "looks"), SHAPES, ids=range(len(SHAPES)))
async def test_answers_have_the_ordered_shape(shape: Shape, looks: Callable[[list[Any]], bool]) -> None:
    """However they look, the same results are read from them."""
    async with running_gse_client(scenario=QUICK.model_copy(update={"shape": shape})) as (world, _):
        task = world.transfer(
            FileSpot(SOURCE.agent_id, "", "/cache", "abc"), [FileSpot(f"host-{n}", "", "/", "f") for n in range(3)], 60
        )
        await world.advance(10)
        told = orders.execute_call(world, GseCall.RESULTS, {"task_id": task.id})["result"]
        assert looks(told)
        results = GseRecordsByAgent.from_records(filter(None, map(GseProgress.parse, told)))
        assert {key: each.verdict for key, each in results.downloads.items() if "host" in key[0]} == {
            (f"host-{number}", ""): GseVerdict.SUCCESS for number in range(3)
        }


async def test_results_may_be_empty_at_first() -> None:
    """As often as ordered."""
    async with running_gse_client(scenario=QUICK.model_copy(update={"shape": Shape(empty_polls=2)})) as (_, client):
        task_id = await client.begin_transfer(make_order(make_hosts(1)))
        assert [len((await client.get_results(task_id)).downloads) for _ in range(3)] == [0, 0, 1]


@pytest.mark.parametrize("empty_as", Empty)
async def test_results_may_be_empty_in_three_ways(empty_as: Empty) -> None:
    """No records, none at all, or a code that says so; a client takes each for nothing yet."""
    shape = Shape(empty_polls=1, empty_as=empty_as)
    async with running_gse_client(scenario=QUICK.model_copy(update={"shape": shape})) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(1)))
        if empty_as is Empty.CODE:
            with pytest.raises(orders.GseCallRefused, match="redis reply"):
                orders.execute_call(world, GseCall.RESULTS, {"task_id": task_id})
        else:
            told = orders.execute_call(world, GseCall.RESULTS, {"task_id": task_id})
            assert told["result"] == (None if empty_as is Empty.NULL else [])
        assert len((await client.get_results(task_id)).downloads) == 1


async def test_a_success_may_be_none(tmp_path: Path, source: Path) -> None:
    """The record says that it arrived: on one host is nothing, on another something else."""
    lost, spoiled = call_fault(GseAction.LOSE, agent="host-0"), call_fault(GseAction.SPOIL, agent="host-1")
    async with running_gse_client(lost, spoiled, disks=tmp_path) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(3), file=source))
        assert codes(await wait_for_results(client, task_id, 3)) == [0, 0, 0]
        assert world.disks
        paths = [world.disks.path(FileSpot(f"host-{number}", "", "/data/app", "abc")) for number in range(3)]
        assert not paths[0].exists()
        assert paths[1].stat().st_size == source.stat().st_size
        assert paths[1].read_bytes() != source.read_bytes() == paths[2].read_bytes()
        assert world.fired == {0: 1, 1: 1}


async def test_a_task_may_be_forgotten() -> None:
    """One of two, when it is asked for; what had not arrived does not arrive."""
    rule = call_fault(GseAction.FORGET, calls={GseCall.RESULTS}, times=1)
    async with running_gse_client(rule, retries=0) as (world, client):
        task_ids = [await client.begin_transfer(make_order(make_hosts(1))) for _ in range(2)]
        with pytest.raises(GseRefused, match="there is no task"):
            await client.get_results(task_ids[0])
        await world.advance(10)
        assert codes(await client.get_results(task_ids[1])) == [0]
        assert [task.id for task in world.forgotten] == task_ids[:1]
        assert world.received.total() == 1


async def test_one_agent_may_spoil_a_termination() -> None:
    """Nothing is given up of what is named beside it."""
    blocked, stuck = call_fault(GseAction.BLOCK_TERMINATE, agent="host-1", code=1000001), call_fault(GseAction.STUCK)
    async with running_gse_client(blocked, stuck) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(3)))
        with pytest.raises(GseRefused, match="Bad Request"):
            await client.request_termination(task_id, make_hosts(3))
        await client.request_termination(task_id, make_hosts(1))
        await world.advance(10)
        assert codes(await client.get_results(task_id)) == [126, 115, 115]


async def test_a_code_may_be_a_word() -> None:
    """As some deployments answer."""
    async with running_gse_client(call_fault(GseAction.FAIL, code="E17")) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(1)))
        await world.advance(10)
        told = orders.execute_call(world, GseCall.RESULTS, {"task_id": task_id})["result"]
        assert [each["error_code"] for each in told] == [0, "E17"]


async def test_a_termination_may_be_ignored() -> None:
    """The answer is good, and the targets go on."""
    async with running_gse_client(
        call_fault(GseAction.IGNORE, calls={GseCall.TERMINATE}), call_fault(GseAction.STUCK)
    ) as (
        world,
        client,
    ):
        task_id = await client.begin_transfer(make_order(make_hosts(1)))
        await client.request_termination(task_id, make_hosts(1))
        await world.advance(10)
        assert codes(await client.get_results(task_id)) == [115]


async def test_it_runs_as_a_process(tmp_path: Path, source: Path) -> None:
    """It prints its address, accepts a scenario over HTTP, returns counts, and rejects a wrong scenario."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sims.gse", "--folder", str(tmp_path), "--scenario", QUICK.model_dump_json(),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout
        base = json.loads(await process.stdout.readline())["url"]
        async with GseClient(gse_settings(base)) as client, aiohttp.ClientSession(base_url=base) as http:
            scenario = QUICK.model_copy(update={"rules": (GseRule(action=GseAction.FAIL, agent="host-0", code=122),)})
            async with http.put("/_sim/scenario", data=scenario.model_dump_json()) as answer:
                assert answer.status == 200
            async with http.put("/_sim/scenario", data='{"no_such": 1}') as answer:
                assert answer.status == 400
                assert (await answer.json())["error"].startswith("no_such: Extra inputs are not permitted. Fields: ")
            task_id = await client.begin_transfer(make_order(make_hosts(3), file=source))
            assert codes(await wait_for_results(client, task_id, 3)) == [122, 0, 0]
            async with http.get("/_sim/stats") as answer:
                assert (await answer.json())["received"] == 2
            async with http.get("/_sim/targets") as answer:
                assert [each["code"] for each in await answer.json()] == [122, 0, 0]
            async with http.post("/_sim/restart"):
                pass
            async with http.get("/_sim/tasks") as answer:
                assert await answer.json() == []
        assert (tmp_path / "host-1" / "data" / "app" / "abc").read_bytes() == source.read_bytes()
    finally:
        process.terminate()
        await process.wait()
