"""Which worker process runs which test: a file is one worker's, and so are all houses, one after the other."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

HOUSES = "tests/faults/"
CONSOLE = "tests/console/"
# Houses take half of the time of the suite, and the API's fuzzing minutes: what begins last ends last.
LONGEST = (HOUSES, CONSOLE, "tests/fuzz/")


class OneHouseAtATime(LoadFileScheduling):  # type: ignore[misc]
    """Files are given out as they come; a house is worth two cores, and two at once would disturb each other.

    The console's tests share a house and a browser, which one process starts once.
    """

    def _split_scope(self, nodeid: str) -> str:
        """What stays together."""
        together = (folder for folder in (HOUSES, CONSOLE) if nodeid.startswith(folder))
        return next(together, nodeid.split("::", 1)[0])
