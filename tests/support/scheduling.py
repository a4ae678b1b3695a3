"""Which worker process runs which test, and in which order."""

from __future__ import annotations

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
