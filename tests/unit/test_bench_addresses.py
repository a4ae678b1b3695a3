"""The bench of addresses: its stream has one outcome, wrong tables do not count, its figures say what was reached."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from bench import load
from bench.addresses import figures, surroundings
from bench.addresses import module as module_messages
from bench.addresses.figures import Pulled, Results
from bench.addresses.module import Content, MemoryModule
from bench.addresses.ours import Lag, RunFailed
from bench.addresses.rounds import Arrivals, Backlog, Run, Turns, check, median
from bench.addresses.stream import Address, build_stream, compute_outcome, merge_streams
from bench.peers.addresses.buffered_sink import reduce_buffer
from bench.report import Figure
from domain.addresses.messages import Topic
from domain.addresses.operations import Operation, OperationOutcome
from sims.oss.scenario import MODULES
from tests.support.address_oracle import ModuleOracle
from tests.support.module_tables import ADDRESSES, histories

MESSAGES = 2_000
RUN = Run(messages=10_000, seconds=4, calls=400, cpu_seconds=5, modules_cpu_seconds=2)
BACKLOG = Backlog(intake=3_500, intake_cpu_us=200, run=RUN, cycles=1, superseded=500, worker_peak_bytes=2**28)
ARRIVALS = Arrivals(10_000, 6, Lag(2, 5, 6))


def results(
    backlog: Backlog = BACKLOG, pushed: Backlog = BACKLOG, cycle: Backlog = BACKLOG, sequential_seconds: float = 90
) -> Results:
    """All contenders, one round."""
    slow = [replace(RUN, seconds=sequential_seconds)]
    peers = {
        figures.SEQUENTIAL: slow,
        figures.SEQUENTIAL_BATCHED: [replace(RUN, seconds=5)],
        figures.SINK: [replace(RUN, seconds=3.1, cpu_seconds=2.1)],
    }
    turns = Turns([backlog], peers)
    alone = Turns([pushed], dict.fromkeys((figures.SEQUENTIAL, figures.SINK_ALONE), slow))
    return Results(Pulled(turns, cycle, ARRIVALS, ARRIVALS, [300, 200], [90]), alone)


def list_named_figures(found: Results) -> Mapping[str, Figure]:
    """The figures that the issue names."""
    return {each.name: each for each in figures.build_figures(found) if each.holds is not None}


def test_what_the_issue_names_is_reached() -> None:
    """Ratios to the plain consumer, intake both ways, one cycle."""
    found = list_named_figures(results())
    assert {name: each.holds for name, each in found.items()} == {
        "ours ÷ sequential": True,
        "ours ÷ sequential, batched": True,
        "ours ÷ buffered sink": True,
        "ours ÷ buffered sink: CPU for a message": True,
        "ours, one a call ÷ sequential": True,
        "intake by pull": True,
        "intake by push": True,
        "one cycle of 10,000": True,
    }
    assert found["ours ÷ sequential"].value == pytest.approx(22.5)


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (results(sequential_seconds=79), "ours ÷ sequential"),
        (results(backlog=replace(BACKLOG, run=replace(RUN, cpu_seconds=6))), "ours ÷ buffered sink: CPU for a message"),
        (results(pushed=replace(BACKLOG, run=replace(RUN, seconds=37))), "ours, one a call ÷ sequential"),
        (results(backlog=replace(BACKLOG, intake=2_999)), "intake by pull"),
        (results(pushed=replace(BACKLOG, intake=2_999)), "intake by push"),
        (results(cycle=replace(BACKLOG, run=replace(RUN, seconds=60))), "one cycle of 10,000"),
        (results(cycle=replace(BACKLOG, cycles=2)), "one cycle of 10,000"),
    ],
)
def test_what_is_missed_is_told(found: Results, name: str) -> None:
    """Two cycles are no cycle."""
    assert [each for each, figure in list_named_figures(found).items() if not figure.holds] == [name]


def test_rounds_are_held_against_those_of_the_same_turn() -> None:
    """A machine that is slow for a while is slow for both, and one odd round decides nothing."""
    seconds = ((4, 50), (8, 90), (40, 50))
    ours = [replace(BACKLOG, run=replace(RUN, seconds=mine)) for mine, _ in seconds]
    turns = Turns(ours, {"peer": [replace(RUN, seconds=its) for _, its in seconds]})

    assert turns.ratios("peer") == pytest.approx([1.25, 11.25, 12.5])
    assert turns.run.seconds == 8
    assert median(turns.peers["peer"]).seconds == 50


def test_a_smaller_cycle_reaches_nothing() -> None:
    """It is reported with its size."""
    small = replace(BACKLOG, run=replace(RUN, messages=1_000))
    assert "one cycle of 10,000" not in list_named_figures(results(cycle=small))
    assert "one cycle of 1,000" in {each.name for each in figures.build_figures(results(cycle=small))}


def test_the_chart_has_a_bar_for_each_contender() -> None:
    """In each panel."""
    panels = json.loads(figures.render_panels(results()))
    assert {len(values) for values in panels.values()} == {6}
    assert panels["messages a second"][figures.OURS] == 2_500


def test_a_stream_is_as_the_issue_says() -> None:
    """Seven createUpdates, two swaps, a delete; one in twenty superseded; nothing is shared with another stream."""
    one, other = build_stream(1, MESSAGES), build_stream(2, MESSAGES)
    topics = Counter(topic for topic, _ in one.messages)
    assert len(one.messages) == MESSAGES
    assert topics[Topic.CREATE_UPDATE] == pytest.approx(0.7 * MESSAGES, rel=0.1)
    assert topics[Topic.SWAP] == pytest.approx(0.2 * MESSAGES, rel=0.2)
    written = [said["uprn"] for topic, said in one.messages if topic is Topic.CREATE_UPDATE]
    assert len(written) - len(set(written)) == pytest.approx(0.05 * MESSAGES, rel=0.4)
    assert not one.before.keys() & other.before.keys()
    assert merge_streams([one, other]).before.keys() == one.before.keys() | other.before.keys()


def test_the_order_of_topics_does_not_count() -> None:
    """Intake mixes the topics anew, and a cycle takes them one after the other: swaps may wait, and none is lost."""
    made = build_stream(3, MESSAGES)
    expected = compute_outcome(made.before, made.messages)
    for order in ((Topic.SWAP, Topic.CREATE_UPDATE, Topic.DELETE), (Topic.DELETE, Topic.CREATE_UPDATE, Topic.SWAP)):
        assert compute_outcome(made.before, sorted(made.messages, key=lambda each: order.index(each[0]))) == expected
    assert expected != made.before


def test_a_swap_without_a_side_changes_nothing() -> None:
    """And those behind it are done."""
    before: dict[int, Address] = {1: (1, {}), 2: (2, {})}
    missing = (Topic.SWAP, {"uprn_1": 1, "uprn_2": 9, "delete_after": False})
    retiring = (Topic.SWAP, {"uprn_1": 1, "uprn_2": 2, "delete_after": True})
    assert compute_outcome(before, [missing, retiring]) == {2: (1, {})}


def test_wrong_tables_count_for_nothing(tmp_path: Path) -> None:
    """One module of four that differs at one UPRN is reported."""
    made = build_stream(4, 50)
    tables = surroundings.build_tables(tmp_path / "tables", made)
    found = {name: surroundings.decode_content((tables / f"{name}.json").read_bytes()).live for name in MODULES}
    check("contender", found, made.before, [])
    found["wfm"][next(iter(made.before))] = (0, {})
    with pytest.raises(RunFailed, match="1 UPRNs of module wfm are wrong"):
        check("contender", found, made.before, [])


@given(histories(), st.sets(ADDRESSES))
@pytest.mark.long
def test_the_modules_of_the_bench_hold_the_contract(history: Sequence[Operation], busy: set[int]) -> None:
    """The same outcomes and the same addresses as of the oracle, which the reference handler is compared with, too."""
    module, book = MemoryModule(Content(busy=busy)), ModuleOracle(busy=busy)

    for operation in history:
        result = module.apply(msgspec.json.decode(operation.json_bytes, type=module_messages.Operation))
        assert result.outcome == book.apply(operation)
        assert bool(result.missing) == (result.outcome == OperationOutcome.MISSING)
    assert {uprn: (id_, msgspec.json.decode(record)) for uprn, (id_, record) in module.live.items()} == book.live
    assert set(module.logical) == set(book.logical)


def test_the_sink_keeps_the_last_write_between_swaps() -> None:
    """What lies before a swap of the same UPRN is another matter."""
    kinds = (("upsert", 1, 0), ("upsert", 1, 0), ("swap", 1, 2), ("delete", 1, 0), ("upsert", 3, 0), ("upsert", 1, 0))
    buffer = [
        {"seq": seq, "kind": kind, "uprn": uprn, "uprn_2": other} for seq, (kind, uprn, other) in enumerate(kinds, 1)
    ]
    assert [each["seq"] for each in reduce_buffer(buffer)] == [2, 3, 5, 6]


async def test_the_load_takes_answers_without_a_body(tmp_path: Path) -> None:
    """A push is answered with 204, which has no length; the next one goes out over the same connection."""

    async def empty(_: web.Request) -> web.Response:
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/v1/push", empty)
    async with TestServer(app) as server:
        (tmp_path / "requests").write_text("\n".join([json.dumps(["POST", "/v1/push", {}])] * 3))
        plan = load.Plan(
            base=str(server.make_url("")),
            headers={},
            requests=tmp_path / "requests",
            answers=tmp_path / "answers",
            connections=1,
        )
        report = await asyncio.to_thread(load.run, plan)

    assert report.statuses == {204: 3}
