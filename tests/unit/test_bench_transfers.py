"""The bench of transfers: its load is what was planned, and its figures say what was reached."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bench import load
from bench.load import Plan, Report
from bench.transfers import figures, rounds
from bench.transfers.rounds import TransferRound, TransferRoundFailed
from bench.transfers.surroundings import FileDelivery, find_first_deliveries
from tests.support.waiting import eventually


@asynccontextmanager
async def echo(seen: list[str] | None = None) -> AsyncIterator[str]:
    """A server that says what it was sent, the odd ones with another status."""

    async def say(request: web.Request) -> web.Response:
        sent = await request.json() if request.can_read_body else None
        await asyncio.sleep(0)
        if seen is not None:
            seen.append(request.path)
        body = {"path": request.path, "sent": sent, "key": request.headers["Authorization"]}
        return web.json_response(body, status=202 if sent and sent["number"] % 2 else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", say)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def run_load(base: str, folder: Path, requests: list[Any], **other: Any) -> tuple[Report, list[Any]]:
    """A run of the load generator beside a server."""
    (folder / "requests").write_text("\n".join(map(json.dumps, requests)))
    plan = Plan(
        base=base,
        headers={"Authorization": "Bearer k"},
        requests=folder / "requests",
        answers=folder / "answers",
        connections=8,
        **other,
    )
    report = await asyncio.to_thread(load.run, plan)
    return report, [json.loads(line) for line in (folder / "answers").read_bytes().split(b"\n") if line]


async def test_each_request_is_sent_once_and_its_answer_kept_in_its_place(tmp_path: Path) -> None:
    """Bodies, headers and raw paths arrive; statuses and times are counted."""
    requests = [("POST", f"/a:b/{number}", {"number": number, "pad": "é" * 20_000}) for number in range(20)]
    async with echo() as base:
        report, answers = await run_load(base, tmp_path, requests)

    assert [each["sent"]["number"] for each in answers] == list(range(20))
    assert [each["path"] for each in answers] == [path for _, path, _ in requests]
    assert {each["key"] for each in answers} == {"Bearer k"}
    assert report.statuses == {200: 10, 202: 10}
    assert len(report.latencies_ms) == 20
    assert min(report.latencies_ms) > 0


async def test_load_begins_and_ends_when_it_is_told(tmp_path: Path) -> None:
    """Not before its time, and nothing is begun after its end."""
    async with echo() as base:
        start_at = time.time() + 0.3
        report, answers = await run_load(base, tmp_path, [("GET", "/x", None)] * 20_000, start_at=start_at, seconds=0.2)

    assert report.begun_at >= start_at
    assert 0 < len(answers) < 20_000
    assert report.statuses == {200: len(answers)}


async def test_load_repeats_until_a_file_exists_and_keeps_the_times_of_answers(tmp_path: Path) -> None:
    """Requests begin anew after the last one; each has the time of its last answer."""
    until, times = tmp_path / "over", tmp_path / "times"
    began = time.time()
    seen: list[str] = []
    async with echo(seen) as base:
        loading = asyncio.create_task(
            run_load(base, tmp_path, [("GET", f"/{number}", None) for number in range(20)], until=until, times=times)
        )
        await eventually(lambda: len(seen) > 40)
        until.touch()
        report, answers = await loading

    assert [each["path"] for each in answers] == [f"/{number}" for number in range(20)]
    assert report.statuses[200] > 20
    at = [float(line) for line in times.read_text().split("\n")]
    assert len(at) == 20
    assert began < min(at) <= max(at) <= time.time()
    assert report.ended_at - report.begun_at < 30


@pytest.mark.parametrize(
    ("answer", "read_at", "is_true"),
    [
        (b'{"status": "Success"}', 11.0, True),
        (b'{"status": "Success"}', 9.0, False),
        (b'{"status": "Running"}', 11.0, True),
        (b'{"status": "Failed"}', 11.0, False),
        (b'{"title": "Not found"}', 11.0, False),
        (b"", 0.0, True),
    ],
)
def test_reads_that_say_what_is_not_so_end_the_round(answer: bytes, read_at: float, is_true: bool) -> None:
    """A success before the target had its file counts for no one; what was not read says nothing."""
    with nullcontext() if is_true else pytest.raises(TransferRoundFailed):
        rounds.require_true_reads([answer], [read_at], [10.0])


def test_a_target_that_was_sent_twice_had_its_file_at_the_first_time() -> None:
    """What was read in between is true; that it was sent twice is another figure."""
    targets: list[dict[str, Any]] = [
        {"agent_id": "a", "task_id": "1", "finished_at": 5.0, "code": 0},
        {"agent_id": "a", "task_id": "2", "finished_at": 9.0, "code": 0},
        {"agent_id": "b", "task_id": "1", "finished_at": 4.0, "code": 119},
        {"agent_id": "c", "task_id": "1", "finished_at": None, "code": 0},
    ]

    assert find_first_deliveries(targets) == {"a": FileDelivery("1", 5.0)}


GOOD = TransferRound(
    targets=50_000,
    joins_per_second=6_000,
    join_seconds=8.3,
    join_cpu_seconds=10.0,
    inside_window=True,
    latencies_ms=[float(each) for each in range(1, 1_001)],
    first_task=0.4,
    last_task=2.0,
    fetches=1,
    sent_again=0,
    calls={"transfer": 100, "results": 300, "terminate": 0, "states": 50},
    reads_per_second=3_000,
    last_reads_per_second=4_000,
    lost=0,
    visible=[0.1, 0.9],
    seen=[1.0, 2.0],
    converged=1.0,
    cpu_seconds={"api": 9.0},
)


def read_figures(ours: list[TransferRound]) -> dict[str, Any]:
    """Figures by name, beside a design that takes a third as many joins."""
    results = {"ours": ours, "seed design": [replace(GOOD, joins_per_second=2_000)]}
    return {each.name: each for each in figures.figures(results)}


def test_a_good_run_reaches_everything() -> None:
    """Each figure that the issue names holds."""
    found = read_figures([GOOD])

    named = [each for each in found.values() if each.holds is not None]
    assert len(named) == 11
    assert all(each.holds for each in named)
    assert found["ours: p99 of a join's answer"].value == pytest.approx(990, abs=1)
    assert found["ours: CPU for a join"].value == pytest.approx(200)
    assert found["ours: GSE calls for a target"].value == pytest.approx(0.009)
    assert found["ours ÷ seed design: joins/s"].value == 3


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"inside_window": False}, "ours: all joins durable"),
        ({"first_task": 1.1}, "ours: first GSE task after the window's end"),
        ({"visible": [0.1, 1.1]}, "ours: success visible after the poll that tells it"),
        ({"fetches": 0}, "ours: repository fetches"),
        ({"fetches": 2}, "ours: repository fetches"),
        ({"sent_again": 1}, "ours: targets sent more than once"),
        ({"lost": 1}, "ours: tasks without success at the end"),
    ],
)
def test_one_bad_round_is_enough(wrong: dict[str, Any], name: str) -> None:
    """What may never happen is not averaged away."""
    found = read_figures([GOOD, replace(GOOD, **wrong), GOOD])

    assert found[name].holds is False
    assert all(each.holds for each in found.values() if each.holds is not None and each.name != name)


def test_joins_count_by_their_median() -> None:
    """One disturbed round decides nothing."""
    slow = replace(GOOD, joins_per_second=1_000)

    assert read_figures([GOOD, slow, GOOD])["ours: joins/s"].holds is True
    assert read_figures([slow, slow, GOOD])["ours: joins/s"].holds is False


@pytest.mark.parametrize(("watched_from", "expected"), [(0.0, 0.5), (12.25, 0.25)])
def test_visibility_counts_from_the_poll_that_could_tell(watched_from: float, expected: float) -> None:
    """A delivery between two polls is visible with the second, and to no client before it looks."""
    tasks = [{"task_id": "t", "polled_at": [10.0, 12.0, 14.0]}]

    assert rounds.visible({"a": 12.5}, watched_from, {"a": FileDelivery("t", 11.0)}, tasks) == [expected]
