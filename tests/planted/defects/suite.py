"""Defects of the suite itself."""

from __future__ import annotations

from tests.planted.defect import Defect

DEFECTS = (
    Defect(
        "a-kill-kills-nothing",
        "tests",
        "tests/support/kills.py",
        "        self._target.kill(name)\n",
        "        pass\n",
        ("tests/faults/test_download_kills.py::test_kill_changes_nothing",),
    ),
    Defect(
        "a-kill-finds-nothing-under-way",
        "tests",
        "tests/faults/test_download_kills.py",
        "return await _count_requested_pages(deployment, tag) < PAGES",
        "return await _count_requested_pages(deployment, tag) < 0",
        ("tests/faults/test_download_kills.py::test_kill_changes_nothing",),
    ),
)
