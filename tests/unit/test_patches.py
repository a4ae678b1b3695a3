"""Changed steps of workflows: which version brought them, and whether they are taken while versions are replaced."""

from __future__ import annotations

import re
from unittest.mock import Mock

import pytest
from temporalio.worker import PatchActivationInput

from infra.temporal import build_patch_check
from tests.replay import fingerprints


@pytest.mark.parametrize(
    ("compatible_with", "patch_id", "taken"),
    [
        ("0.1.0", "0.1.0 waits first", True),
        ("0.1.0", "0.1.1 waits first", False),
        ("0.9.0", "0.10.0 waits first", False),
        ("0.10.0", "0.9.0 waits first", True),
        ("1.0.0", "0.9.12 waits first", True),
    ],
)
def test_a_later_step_is_not_taken_beside_older_workers(compatible_with: str, patch_id: str, taken: bool) -> None:
    """By the version that brought it, compared as numbers."""
    check = build_patch_check(compatible_with)
    assert check is not None
    assert check(PatchActivationInput(workflow_info=Mock(), patch_id=patch_id)) is taken


def test_every_step_is_taken_where_all_workers_are_new() -> None:
    """Without a check the SDK takes it."""
    assert build_patch_check("") is None


def test_every_patch_names_its_version() -> None:
    """As `0.2.0 what it changes`; the check of a running worker reads it."""
    calls = [call for methods in fingerprints.read().values() for calls in methods.values() for call in calls]
    patches = [call for call in calls if call.startswith("workflow.patched(")]
    assert [call for call in patches if not re.match(r"workflow\.patched\('\d+\.\d+\.\d+ .+'\)$", call)] == []
