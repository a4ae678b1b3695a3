"""The next version of the rehearsal is this tree with its changes: they still fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from domain import VERSION
from stores import migrate
from tests.rehearsal import next_version

SHOWN = """
import workflows.downloads.download
from domain import VERSION
from domain.downloads.activity_models import ProbeInput
from stores import migrate
from stores.tables.downloads import Download
fields = "rehearsed" in Download.model_fields, "rehearsed" in ProbeInput.model_fields
print(VERSION, migrate.get_head_revision(), migrate.OLDEST_REVISION, *fields)
"""


def test_its_version_follows_this_one() -> None:
    """As numbers, not as texts; and the file that it replaces has the one of today."""
    ours, following = ([int(part) for part in each.split(".")] for each in (VERSION, next_version.VERSION))
    assert following > ours
    assert all(
        (next_version.ROOT / name).read_text().count(before) == 1 for name, (before, _) in next_version.CHANGES.items()
    )


@pytest.mark.long
def test_it_has_one_more_migration_one_changed_workflow_and_one_more_field(tmp_path: Path) -> None:
    """Each change is found once in its file; the code works on both revisions, and so does that of today."""
    next_version.build_next_version(tmp_path)
    shown = subprocess.run(
        [sys.executable, "-c", SHOWN],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert shown.stdout.split() == [
        next_version.VERSION, next_version.REVISION, migrate.OLDEST_REVISION, "True", "True",
    ]  # fmt: skip
    assert migrate.get_head_revision() != next_version.REVISION
