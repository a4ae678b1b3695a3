"""What a run says at its end: what was killed and what came of it, where the time went, and what was missing here."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import kills, requirements

KILLS_FILE = "kills.json"
PARTS = pytest.StashKey["_Parts"]()


class _Parts:
    """Measure, in a process that runs tests, the processor time that each folder of tests takes, children included."""

    def __init__(self) -> None:
        self.folder = ""
        self.processor: dict[str, float] = defaultdict(float)
        self.before = 0.0

    def enter(self, folder: str) -> None:
        """Note that tests of this folder run from now on."""
        if folder == self.folder:
            return
        now = _processor_seconds()
        if self.folder:
            self.processor[self.folder] += now - self.before
        self.folder, self.before = folder, now


def _processor_seconds() -> float:
    """Return the processor time of this process and all below it, those that have ended included."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _folder(nodeid: str) -> str:
    return "/".join(nodeid.split("/")[:2]) if nodeid.startswith("tests/") else nodeid.partition("/")[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Measure what the folder of the test costs, in the process that runs it."""
    parts = item.config.stash.setdefault(PARTS, _Parts())
    parts.enter(_folder(item.nodeid))
    result = yield
    if nextitem is None:
        parts.enter("-")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the last report of a test carry what it killed: reports go from one process to another, records do not.

    A test that passes without having counted what was lost and doubled fails.
    """
    record = item.stash.get(kills.RECORD, None)
    if record is not None and call.when == "teardown":
        item.user_properties.append((kills.PROPERTY, asdict(record)))
    report = yield
    if record is not None and call.when == "call" and report.passed and record.problem:
        report.outcome, report.longrepr = "failed", record.problem
    return report


class _Collected:
    """What worker processes handed over."""

    def __init__(self) -> None:
        self.processor: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for folder, seconds in getattr(node, "workeroutput", {}).get("processor", {}).items():
            self.processor[folder] += seconds


COLLECTED = pytest.StashKey[_Collected]()


def pytest_configure(config: pytest.Config) -> None:
    """Listen to worker processes."""
    config.stash[COLLECTED] = _Collected()
    config.pluginmanager.register(config.stash[COLLECTED])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Hand the figures of a worker process over; say last, after pytest's totals, what could not be tested here."""
    output = getattr(session.config, "workeroutput", None)
    parts = session.config.stash.get(PARTS, None)
    if output is not None and parts is not None:
        output["processor"] = dict(parts.processor)
    yield
    terminal: pytest.TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    reasons = [str(each.longrepr) for each in terminal.stats.get("skipped", [])] if terminal else []
    if terminal and (missing := requirements.list_missing(reasons)):
        terminal.write_line(requirements.explain(missing), yellow=True, bold=True)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print where the time went, and what was killed."""
    reports = [each for several in terminalreporter.stats.values() for each in several if hasattr(each, "nodeid")]
    _print_parts(terminalreporter, config, reports)
    _print_kills(terminalreporter, config, reports)


def _print_parts(terminal: pytest.TerminalReporter, config: pytest.Config, reports: list[Any]) -> None:
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, int] = defaultdict(int)
    for report in reports:
        if hasattr(report, "duration"):
            seconds[_folder(report.nodeid)] += report.duration
            tests[_folder(report.nodeid)] += report.when == "call"
    processor = dict(config.stash[COLLECTED].processor)
    if not processor and (own := config.stash.get(PARTS, None)):
        processor = own.processor
    if not processor or sum(tests.values()) < 2:
        return
    terminal.section("where the time went")
    terminal.write_line(f"{'folder':<24}{'tests':>7}{'seconds':>10}{'processor':>11}{'idle':>8}")
    for folder in sorted(processor, key=lambda each: -processor[each]):
        idle = max(0.0, seconds[folder] - processor[folder])
        terminal.write_line(
            f"{folder:<24}{tests[folder]:>7}{seconds[folder]:>10.1f}{processor[folder]:>11.1f}{idle:>8.1f}"
        )


def _print_kills(terminal: pytest.TerminalReporter, config: pytest.Config, reports: list[Any]) -> None:
    records = [
        value
        for report in reports
        if getattr(report, "when", "") == "teardown"
        for name, value in report.user_properties
        if name == kills.PROPERTY
    ]
    if not records:
        return
    summary = kills.summarize(records)
    path = Path(config.rootpath) / ".pytest_cache" / KILLS_FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")
    terminal.section("kills")
    for each in summary["tests"]:
        found = "not counted" if each["lost"] is None else f"lost {each['lost']}, doubled {each['doubled']}"
        name = each["test"].removeprefix("tests/faults/")
        terminal.write_line(
            f"{name}: {_made(each)} ({each['wasted']} hit nothing), {found}"
            + (f", recovered within {each['recovery_seconds']:.1f} s" if each["recovery_seconds"] else "")
        )
    terminal.write_line(
        f"{_made(summary)}, lost {summary['lost']}, doubled {summary['doubled']}, slowest recovery "
        f"{summary['recovery_seconds_max']:.1f} s; kept in {os.path.relpath(path, config.rootpath)}"
    )


def _made(counts: dict[str, Any]) -> str:
    """Say how many kills there were, and how many stops and hangs if there were any."""
    return ", ".join(
        f"{counts[kind]} {kind}" for kind in ("kills", "stops", "hangs") if counts[kind] or kind == "kills"
    )
