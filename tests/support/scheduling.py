"""Which worker process runs which test, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_FAULTS_OF_DOWNLOADS = tuple(
    f"tests/faults/test_{name}"
    for name in ("download_kills", "download_memory", "many_downloads", "promises", "recovery", "webhook_kills")
)
TOGETHER: tuple[tuple[str, ...], ...] = (
    _FAULTS_OF_DOWNLOADS,
    ("tests/faults/",),
    ("tests/console/",),
    ("tests/demo/",),
)
"""Paths of one process each: tests that share the processes which they kill, a browser, or what `haulage up` runs.

Those that kill are two halves of about the same length, each with a stack and with processes of its own.
"""
LONGEST_FIRST = (
    *(path for paths in TOGETHER for path in paths),
    "tests/integration/test_order_promises.py",
    "tests/worlds/",
    "tests/fuzz/",
    "tests/integration/",
    "tests/workflow/",
)
"""What begins last ends last, and unit tests are short enough to fill the gaps."""


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Give files to processes as they come free, and some as one."""

    def _split_scope(self, nodeid: str) -> str:
        """Return what stays together."""
        return find_unit(nodeid)


def find_unit(nodeid: str) -> str:
    """Return the name of what one process runs: the test's file, or the first path of what it is together with."""
    return next((paths[0] for paths in TOGETHER if nodeid.startswith(paths)), nodeid.split("::", 1)[0])


def order(nodeid: str) -> int:
    """Return the place of a test's folder in the run; within a folder the order is random."""
    places = (place for place, folder in enumerate(LONGEST_FIRST) if nodeid.startswith(folder))
    return next(places, len(LONGEST_FIRST))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    # Tests that start the processes anew come last, those with the same settings one after the other.
    items.sort(key=lambda item: (order(item.nodeid), _describe_deployment(item)))


def _describe_deployment(item: pytest.Item) -> str:
    """Return the settings with which a test starts the processes that it kills; empty where it shares them."""
    marker = item.get_closest_marker("deployment")
    return repr({name: value for name, value in marker.kwargs.items() if name != "why"}) if marker else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Give out files in that order."""
    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """End the run and name the test: what a process leaves when it dies is given out again, and waited for in vain."""
    pytest.exit(f"{crashitem} ended the process that it ran in.", returncode=1)
