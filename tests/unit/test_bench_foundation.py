"""The record of the foundation: of this version, and with every figure that a newcomer's first minutes are held to."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench import ping, report, usage
from bench.__main__ import main
from bench.ping import PingCost
from bench.processor import ProcessorReading
from bench.report import RESULTS, Figure, build_medians, describe_falls
from domain import VERSION

RECORD = json.loads((RESULTS / "foundation.json").read_text())
BOUNDED = {
    "first work of `make demo`",
    "`make demo` after installation",
    "ready, over the slowest of engine, database and store",
    "processor seconds of Haulage's processes until ready, over one import",
    "processor of an idle installation",
    "memory of an idle installation",
}


def test_the_record_is_of_this_version() -> None:
    """A release measures again: `make bench-foundation` on a quiet machine."""
    assert RECORD.get("version") == VERSION


@pytest.mark.parametrize("name", sorted(BOUNDED))
def test_the_record_says_what_is_to_be_reached(name: str) -> None:
    """Each figure has a bound, and says whether it holds and how it was measured."""
    [figure] = [figure for figure in RECORD["figures"] if figure["name"] == name]
    assert figure["reach"].startswith("≤ ")
    assert figure["holds"] is (figure["value"] <= float(figure["reach"].removeprefix("≤ ")))
    assert figure["how"]


def test_a_ratio_that_fell_by_more_than_a_quarter_is_named() -> None:
    """Whichever way is better; what has no record, and what is no ratio, is not compared."""
    before = {"quicker": 2.0, "slower": 2.0, "less": 1.0, "more": 1.0, "rate": 100.0}
    ran = [
        Figure("quicker", 1.6, "×", ""),
        Figure("slower", 1.4, "×", ""),
        Figure("less", 1.3, "×", "", "≤ 2"),
        Figure("more", 1.4, "×", "", "≤ 2"),
        Figure("rate", 10.0, "1/s", ""),
        Figure("new", 0.1, "×", ""),
    ]

    assert describe_falls(before, ran) == [
        "Worse by more than a quarter: slower: 1.40, recorded 2.00",
        "Worse by more than a quarter: more: 1.40, recorded 1.00",
    ]


def test_of_several_runs_the_middle_counts() -> None:
    """Its value, whether it holds, and how it was measured; the values of all are said."""
    runs = [
        [Figure("ratio", 0.5, "×", "first", "≥ 1", False), Figure("new in each", 1.0, "s", "a")],
        [Figure("ratio", 1.2, "×", "second", "≥ 1", True), Figure("new in each", 3.0, "s", "b")],
        [Figure("ratio", 1.1, "×", "third", "≥ 1", True), Figure("new in each", 2.0, "s", "c")],
    ]

    assert build_medians(runs[:1]) == runs[0]
    ratio, seconds = build_medians(runs)
    assert (ratio.value, ratio.holds, ratio.how) == (1.1, True, "third; the middle of 3 runs: 0.5, 1.1, 1.2")
    assert seconds.value == 2.0


async def test_a_record_says_what_other_programs_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the machine did beyond ours, by seconds of the clock; more than a tenth of a core is too much to record."""
    before, after = ProcessorReading(clock=100, machine=50, own=20), ProcessorReading(clock=110, machine=65, own=30)
    assert before.count_cores_of_others_until(after) == 0.5
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "tasks.json").write_text('{"machine": {"cores": 2}, "figures": []}')
    report.note_cores_of_others("tasks", 0.04)
    assert capsys.readouterr().out == ""
    report.note_cores_of_others("tasks", 0.5)
    assert "Other programs used 0.50 cores" in capsys.readouterr().out
    assert json.loads((tmp_path / "tasks.json").read_text())["machine"] == {"cores": 2, "cores_of_others": 0.5}


async def test_work_of_other_programs_is_told_from_own() -> None:
    """A child's processor time is ours, also after it has ended."""
    before = ProcessorReading.take()
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "for _ in range(10**7): pass")
    await child.wait()
    after = ProcessorReading.take()
    assert after.own - before.own >= 0.1
    assert after.machine - before.machine >= 0.1


@pytest.mark.parametrize(("arguments", "value", "code"), [(["--strict"], 1.4, 1), (["--strict"], 1.6, 0), ([], 1.4, 0)])
async def test_a_ratio_that_fell_fails_a_strict_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], value: float, code: int
) -> None:
    """Others only say so."""

    async def measure() -> None:
        report.publish("toys-small", [Figure("ours ÷ theirs", value, "×", "")])

    monkeypatch.setenv("SIZE", "small")
    monkeypatch.setattr("bench.__main__.BENCHMARKS", {"toys": measure})
    monkeypatch.setattr(report, "_figures_of_runs", {})
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "read_committed", {"toys-small": {"ours ÷ theirs": 2.0}}.get)

    assert await main([*arguments, "toys"]) == code


@pytest.mark.parametrize(("ours", "holds"), [([60.0, 90.0, 10.0], True), ([61.0], False)])
def test_a_ping_is_compared_by_medians(ours: list[float], holds: bool) -> None:
    """One round that something else disturbed does not count."""
    figure = PingCost(ours, [40.0, 41.0, 5.0]).build_figure()

    assert (figure.name, figure.reach, figure.holds) == ("a ping ÷ bare aiohttp: CPU", "≤ 1.5", holds)


async def test_a_ping_of_another_answer_is_not_measured() -> None:
    """What is compared has done the same."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({**ping.ANSWER, "code": 1})

    app = web.Application()
    app.router.add_get(ping.PATH, answer)
    async with TestServer(app) as server:
        base = f"http://127.0.0.1:{server.port}"
        with pytest.raises(ping.PingFailed):
            await asyncio.to_thread(ping._ping, base, ping.CONNECTIONS)


def test_the_largest_process_is_found_by_its_peak() -> None:
    """The peak of a process is at least what it has now, and the largest of all installations counts."""
    stack = SimpleNamespace(list_pids=lambda: dict.fromkeys(usage.list_own_processes(), os.getpid()))
    peak = usage.read_largest_process_mb(cast("Any", SimpleNamespace(stack=stack)))

    assert peak >= psutil.Process().memory_info().rss / 1024**2 * 0.9
    figure = usage.build_largest_process_figure([peak, peak + 400.1])
    assert (figure.name, figure.holds) == ("largest process of ours", False)
    assert figure.value == pytest.approx(peak + 400.1)
