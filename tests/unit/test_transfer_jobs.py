"""A job in one word, its states in the table, and the folder that it sends to."""

from __future__ import annotations

import pytest

from domain.transfers.models import TransferState, derive_job_outcome, normalize_folder
from stores.tables.transfers import STATES


@pytest.mark.parametrize(
    ("counts", "state", "partial"),
    [
        ({}, TransferState.FAILED, False),
        ({TransferState.PENDING: 2}, TransferState.PENDING, False),
        ({TransferState.PENDING: 2, TransferState.SUCCESS: 1}, TransferState.RUNNING, False),
        ({TransferState.RUNNING: 1, TransferState.FAILED: 1}, TransferState.RUNNING, False),
        ({TransferState.SUCCESS: 3}, TransferState.SUCCESS, False),
        ({TransferState.SUCCESS: 3, TransferState.FAILED: 1}, TransferState.FAILED, True),
        ({TransferState.TIMEOUT: 3, TransferState.FAILED: 1}, TransferState.FAILED, False),
        ({TransferState.TIMEOUT: 3, TransferState.SUCCESS: 1, TransferState.FAILED: 0}, TransferState.TIMEOUT, True),
    ],
)
def test_a_job_in_one_word(counts: dict[TransferState, int], state: TransferState, partial: bool) -> None:
    """Any failed target makes it Failed; `partial` says that others succeeded."""
    whole = derive_job_outcome(counts)

    assert (whole.state, whole.partial) == (state, partial)
    assert {each: count for each, count in whole.counts.items() if count} == {k: n for k, n in counts.items() if n}


def test_every_state_can_be_stored() -> None:
    """The table's check knows all of them, and no others."""
    assert set(STATES) == {state.value for state in TransferState}


@pytest.mark.parametrize(
    ("folder", "meant"),
    [
        ("/d", "/d"),
        ("/d/", "/d"),
        ("//d///e//", "/d/e"),
        ("/", "/"),
        ("C:\\d\\", "C:\\d"),
        ("C:/", "C:/"),
        ("c:\\d\\e", "c:\\d\\e"),
    ],
)
def test_a_folder_is_one_folder_however_it_is_written(folder: str, meant: str) -> None:
    """Otherwise one file would be sent to one place twice."""
    assert normalize_folder(folder) == meant
