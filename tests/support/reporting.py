"""What a run says at its end: what was killed and what came of it, where the time went, and what was missing here."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import kills, requirements

KILLS_FILE = "kills.json"
FUZZED = "fuzzed_requests"
"""Property of a test: the answers to its odd requests, counted by status."""
FILES_SHOWN = 40
PROCESSOR = pytest.StashKey["_Processor"]()


class _Processor:
    """Measure, in a process that runs tests, the processor time that each file of tests takes, children included."""

    def __init__(self) -> None:
        self.file = ""
        self.seconds: dict[str, float] = defaultdict(float)
        self.before = 0.0

    def enter(self, file: str) -> None:
        """Charge the time from now on to this file."""
        if file == self.file:
            return
        now = _processor_seconds()
        if self.file:
            self.seconds[self.file] += now - self.before
        self.file, self.before = file, now


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


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _folder(nodeid: str) -> str:
    return "/".join(nodeid.split("/")[:2]) if nodeid.startswith("tests/") else nodeid.partition("/")[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Measure what the file of the test costs, in the process that runs it."""
    processor = item.config.stash.setdefault(PROCESSOR, _Processor())
    processor.enter(_file(item.nodeid))
    result = yield
    if nextitem is None:
        processor.enter("-")
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
    deployment = getattr(item, "funcargs", {}).get("deployment")
    if report.failed and deployment is not None:
        kept = _keep_logs(item, deployment.data_dir / "logs")
        report.sections.append(("logs", f"What its processes logged is kept in {kept}."))
    return report


def _keep_logs(item: pytest.Item, folder: Path) -> Path:
    """Copy the logs of a deployment, which are removed with it, to where runs keep what they leave."""
    kept = item.config.rootpath / ".pytest_cache" / "logs" / re.sub(r"\W+", "-", item.nodeid)
    shutil.copytree(folder, kept, dirs_exist_ok=True)
    return kept


class _Collected:
    """What worker processes handed over."""

    def __init__(self) -> None:
        self.processor: dict[str, float] = defaultdict(float)
        self.left_out = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        for file, seconds in output.get("processor", {}).items():
            self.processor[file] += seconds
        # Each process collects all tests.
        self.left_out = max(self.left_out, output.get("left_out", 0))


COLLECTED = pytest.StashKey[_Collected]()
LEFT_OUT = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Listen to worker processes."""
    config.stash[COLLECTED] = _Collected()
    config.stash[LEFT_OUT] = 0
    config.pluginmanager.register(config.stash[COLLECTED])


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the tests that take long and are left out; `make test-whole` leaves those of `make soak` out, too."""
    if items:
        items[0].config.stash[LEFT_OUT] += sum(_is_long(each) for each in items)


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None and item.get_closest_marker("soak") is None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Report the figures of a worker process; say last, after pytest's totals, what could not be tested here."""
    output = getattr(session.config, "workeroutput", None)
    processor = session.config.stash.get(PROCESSOR, None)
    if output is not None and processor is not None:
        output["processor"] = dict(processor.seconds)
    if output is not None:
        output["left_out"] = session.config.stash[LEFT_OUT]
    yield
    terminal: pytest.TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    reasons = [str(each.longrepr) for each in terminal.stats.get("skipped", [])] if terminal else []
    left_out = session.config.stash[LEFT_OUT] or session.config.stash[COLLECTED].left_out
    if terminal and left_out:
        terminal.write_line(f"{left_out:,} tests that take long were left to `make test-whole`.")
    if terminal and (missing := requirements.list_missing(reasons)):
        terminal.write_line(requirements.explain(missing), yellow=True, bold=True)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print where the time went, what was killed, and how many odd requests were sent."""
    reports = [each for several in terminalreporter.stats.values() for each in several if hasattr(each, "nodeid")]
    _print_times(terminalreporter, config, reports)
    _print_kills(terminalreporter, config, reports)
    _print_fuzzed(terminalreporter, reports)


def _print_times(terminal: pytest.TerminalReporter, config: pytest.Config, reports: list[Any]) -> None:
    """Print the time of each folder, and the files that take the processor longest."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, int] = defaultdict(int)
    for report in reports:
        if hasattr(report, "duration"):
            for part in (_folder(report.nodeid), _file(report.nodeid)):
                seconds[part] += report.duration
                tests[part] += report.when == "call"
    files = dict(config.stash[COLLECTED].processor)
    if not files and (own := config.stash.get(PROCESSOR, None)):
        files = dict(own.seconds)
    if len(files) < 2:
        return
    folders: dict[str, float] = defaultdict(float)
    for file, processor in files.items():
        folders[_folder(file)] += processor
    terminal.section("where the time went")
    terminal.write_line(f"{'tests':<48}{'number':>7}{'seconds':>10}{'processor':>11}{'idle':>8}")
    longest = sorted(files, key=files.__getitem__, reverse=True)[:FILES_SHOWN]
    for part in (*sorted(folders, key=folders.__getitem__, reverse=True), *longest):
        processor = folders[part] if part in folders else files[part]
        idle = max(0.0, seconds[part] - processor)
        terminal.write_line(f"{part:<48}{tests[part]:>7}{seconds[part]:>10.1f}{processor:>11.1f}{idle:>8.1f}")


def _list_properties(reports: list[Any], wanted: str) -> list[Any]:
    """Return the values of a property that tests had at their end."""
    ended = [report for report in reports if getattr(report, "when", "") == "teardown"]
    return [value for report in ended for name, value in report.user_properties if name == wanted]


def _print_fuzzed(terminal: pytest.TerminalReporter, reports: list[Any]) -> None:
    answers: Counter[str] = Counter()
    for counted in _list_properties(reports, FUZZED):
        answers.update(counted)
    if answers:
        by_status = ", ".join(f"{status}: {answers[status]:,}" for status in sorted(answers) if answers[status])
        terminal.section("odd requests")
        terminal.write_line(f"{answers.total():,} odd requests were sent; answers by status: {by_status}")


def _print_kills(terminal: pytest.TerminalReporter, config: pytest.Config, reports: list[Any]) -> None:
    records = _list_properties(reports, kills.PROPERTY)
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
            f"{name}: {_describe_counts(each)} ({each['wasted']} hit nothing), {found}"
            + (f", recovered within {each['recovery_seconds']:.1f} s" if each["recovery_seconds"] else "")
        )
    terminal.write_line(
        f"{_describe_counts(summary)}, lost {summary['lost']}, doubled {summary['doubled']}, slowest recovery "
        f"{summary['recovery_seconds_max']:.1f} s; kept in {os.path.relpath(path, config.rootpath)}"
    )


def _describe_counts(counts: dict[str, Any]) -> str:
    """Say how many kills there were, and how many stops and hangs if there were any."""
    return ", ".join(
        f"{counts[kind]} {kind}" for kind in ("kills", "stops", "hangs") if counts[kind] or kind == "kills"
    )
