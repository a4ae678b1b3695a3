"""What an operator sees of downloads: counters by state and cause, durations, and one log line at every end."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from tests.support.downloads import Downloads
from tests.support.waiting import eventually

NAMES = {
    "accepted": ("haulage_downloads_accepted_total", {"type": "csv"}),
    "succeeded": ("haulage_downloads_ended_total", {"state": "succeeded", "cause": ""}),
    "not JSON": ("haulage_downloads_ended_total", {"state": "failed", "cause": "source_not_json"}),
    "durations": ("haulage_download_seconds_count", {"state": "succeeded"}),
    "rows": ("haulage_download_rows_total", {}),
    "bytes": ("haulage_download_bytes_total", {}),
    "pages": ("haulage_download_pages_total", {"outcome": "done"}),
    "pages not JSON": ("haulage_download_pages_total", {"outcome": "source_not_json"}),
}


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests, in this process; a project of the test's own."""
    return shared_downloads


def read_metrics() -> dict[str, float]:
    """Return the metrics of this process by the names above."""
    return {name: REGISTRY.get_sample_value(metric, labels) or 0.0 for name, (metric, labels) in NAMES.items()}


async def test_downloads_are_counted_by_state_and_cause(exports: Downloads) -> None:
    """One that succeeds, and one whose source answers no JSON, which is asked for twice."""
    before = read_metrics()
    await exports.run(exports.source.url(rows=130), page_size=100)
    await exports.run(exports.source.url(rows=30, faults="not_json"))

    def are_counted() -> bool:
        after = read_metrics()
        assert after.pop("bytes") - before["bytes"] > 130
        assert {name: after[name] - before[name] for name in after} == {
            "accepted": 2,
            "succeeded": 1,
            "not JSON": 1,
            "durations": 1,
            "rows": 130,
            "pages": exports.source.asked[""] - 2,
            "pages not JSON": 2,
        }
        return True

    # An end is counted after callers see it.
    assert await eventually(are_counted)


async def test_every_end_is_one_log_line_with_its_counts(exports: Downloads) -> None:
    """It names the download, and why there is no file."""
    with capture_logs() as logs:
        good = await exports.run(exports.source.url(rows=130), page_size=100)
        bad = await exports.run(exports.source.url(rows=30, faults="not_json"))
        # The line follows the end that callers see.
        await eventually(lambda: sum(line["event"] == "download_ended" for line in logs) >= 2)
    ends = {line["task_id"]: line for line in logs if line["event"] == "download_ended"}

    assert ends.keys() == {good["task_id"], bad["task_id"]}
    line = ends[good["task_id"]]
    assert (line["state"], line["cause"], line["rows"], line["bytes"]) == ("succeeded", None, 130, good["bytes"])
    assert line["seconds"] > 0
    assert (line["project_id"], line["times_processed"]) == (exports.project_id, 1)
    line = ends[bad["task_id"]]
    assert (line["state"], line["cause"], line["rows"], line["bytes"]) == ("failed", "source_not_json", 0, None)
