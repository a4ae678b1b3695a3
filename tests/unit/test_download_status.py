"""The board remembers how far a run was seen, however little the engine says of it later."""

from __future__ import annotations

import pytest

from api.downloads import responses
from api.downloads.responses import HighestReportedRows
from domain.downloads.models import DownloadState, DownloadStatus

KEY = ("prj_1", "dl_1")


def build_running_status(rows: int, times_processed: int = 1) -> DownloadStatus:
    """What the engine says of a run."""
    return DownloadStatus(state=DownloadState.RUNNING, rows=rows, times_processed=times_processed)


def test_rows_do_not_fall_within_a_processing() -> None:
    """A lost heartbeat takes no rows back; progress is reported."""
    heights = HighestReportedRows()

    assert [
        heights.raise_rows_to_highest_reported(KEY, "run", build_running_status(rows)).rows
        for rows in (10, 700, 0, 500, 800)
    ] == [
        10,
        700,
        700,
        700,
        800,
    ]


def test_another_processing_starts_anew() -> None:
    """A processing from nothing, and a retry as a run of its own, count from where they are."""
    heights = HighestReportedRows()
    heights.raise_rows_to_highest_reported(KEY, "run", build_running_status(700))

    assert heights.raise_rows_to_highest_reported(KEY, "run", build_running_status(5, times_processed=2)).rows == 5
    assert (
        heights.raise_rows_to_highest_reported(KEY, "later run", build_running_status(3, times_processed=2)).rows == 3
    )
    assert heights.raise_rows_to_highest_reported(("prj_2", "dl_1"), "run", build_running_status(1)).rows == 1


def test_the_end_is_told_as_it_is() -> None:
    """What is over counts what its file holds."""
    heights = HighestReportedRows()
    heights.raise_rows_to_highest_reported(KEY, "run", build_running_status(700))
    failed = DownloadStatus(state=DownloadState.FAILED, rows=200, times_processed=1)

    assert heights.raise_rows_to_highest_reported(KEY, "run", failed) == failed


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that was asked about least recently is forgotten."""
    monkeypatch.setattr(responses, "RUNS_REMEMBERED_MAX", 2)
    heights = HighestReportedRows()
    for name in ("a", "b", "a", "c"):
        heights.raise_rows_to_highest_reported(("prj", name), "run", build_running_status(700))

    assert [
        heights.raise_rows_to_highest_reported(("prj", name), "run", build_running_status(0)).rows
        for name in ("a", "c", "b")
    ] == [
        700,
        700,
        0,
    ]
