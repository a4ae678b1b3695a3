"""A pytest plugin: run the union of several selections of tests once, and say for each selection what came of it.

`python -m tests.planted` loads it to see that the tests pass without any defect: one run of all of them shares what
each selection alone would start anew.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark import KeywordMatcher, MarkMatcher
from _pytest.mark.expression import Expression

SELECTIONS = "HAULAGE_PLANTED_SELECTIONS"
"""The variable with a list of lists of arguments, as JSON."""
RESULTS = "HAULAGE_PLANTED_RESULTS"
"""The variable with the path of the file that the results are written to."""
PROPERTY = "selections"


@dataclass
class Result:
    """What came of the tests of one selection."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_green(self) -> bool:
        """Whether there were tests, and none failed."""
        return self.passed > 0 and not self.failed


@dataclass(frozen=True)
class Selection:
    """Arguments of pytest, as far as defects use them."""

    paths: tuple[str, ...]
    keywords: str
    marks: str

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Selection:
        """Read paths, `-k` and `-m`; without the last, long tests are left out, as in any run."""
        parser = argparse.ArgumentParser(exit_on_error=False)
        parser.add_argument("paths", nargs="*")
        parser.add_argument("-k", dest="keywords", default="")
        parser.add_argument("-m", dest="marks", default="not soak")
        return cls(**{**vars(parsed := parser.parse_intermixed_args(arguments)), "paths": tuple(parsed.paths)})

    def has(self, item: pytest.Item) -> bool:
        """Whether pytest would run the test."""
        return (
            any(
                item.nodeid == path or item.nodeid.startswith((f"{path}/", f"{path}::", f"{path}["))
                for path in self.paths
            )
            and (not self.keywords or Expression.compile(self.keywords).evaluate(KeywordMatcher.from_item(item)))
            and (
                not self.marks or Expression.compile(self.marks).evaluate(MarkMatcher.from_markers(item.iter_markers()))
            )
        )


class Selecting:
    """Run the tests that are in any selection, and collect what came of each selection.

    Args:
        selections: Each by its place in the list.
        path: The results are written to it.
    """

    def __init__(self, selections: Sequence[Selection], path: Path) -> None:
        self._selections = selections
        self._results = [Result() for _ in selections]
        self._path = path

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = []
        for item in list(items):
            places = [place for place, selection in enumerate(self._selections) if selection.has(item)]
            item.user_properties.append((PROPERTY, places))  # goes with the report to the process that collects
            if not places:
                left_out.append(item)
                items.remove(item)
        config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for result in (self._results[place] for place in _places(report)):
            result.seconds += report.duration
            if report.failed and report.nodeid not in result.failed:
                result.failed.append(report.nodeid)
            result.passed += report.when == "call" and report.passed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            self._path.write_text(json.dumps([vars(each) for each in self._results]))


def _places(report: pytest.TestReport) -> list[int]:
    return [
        place
        for name, value in report.user_properties
        if name == PROPERTY and isinstance(value, list)
        for place in value
    ]


def pytest_configure(config: pytest.Config) -> None:
    """Take up what the environment says."""
    selections = [Selection.parse(arguments) for arguments in json.loads(os.environ[SELECTIONS])]
    config.pluginmanager.register(Selecting(selections, Path(os.environ[RESULTS])))
