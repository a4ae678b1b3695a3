"""Which worker process runs which test, and in which order."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

TOGETHER = ("tests/faults/", "tests/console/")
"""Folders of one process each: their tests share the processes that they kill, or a browser and what it looks at."""
LONGEST_FIRST = (
    *TOGETHER,
    "tests/integration/test_order_promises.py",
    "tests/worlds/",
    "tests/fuzz/",
    "tests/integration/",
    "tests/workflow/",
)
"""What begins last ends last, and unit tests are short enough to fill the gaps."""


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Give files to processes as they come free, and some folders as one."""

    def _split_scope(self, nodeid: str) -> str:
        """Return what stays together."""
        together = (folder for folder in TOGETHER if nodeid.startswith(folder))
        return next(together, nodeid.split("::", 1)[0])


def order(nodeid: str) -> int:
    """Return the place of a test's folder in the run; within a folder the order is random."""
    places = (place for place, folder in enumerate(LONGEST_FIRST) if nodeid.startswith(folder))
    return next(places, len(LONGEST_FIRST))
