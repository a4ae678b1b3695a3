"""Sources of heavy rows: they are asked for fewer at a time, if they heed how many are asked for."""

from __future__ import annotations

import pytest

from activities.downloads import probing
from sims import rows as sample
from tests.support.downloads import Downloads, parse_csv

ROWS, PAGE_SIZE, SEED = 450, 200, 3
PAD = 4_000

pytestmark = pytest.mark.stack


@pytest.fixture
def goal(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pages of 250 kB are heavy, so that the test need not move megabytes."""
    monkeypatch.setattr(probing, "PAGE_GOAL_BYTES", 250_000)
    return 250_000


async def test_heavy_rows_are_asked_for_in_smaller_pages(downloads: Downloads, goal: int) -> None:
    """By half as many as often as it takes; the file has every row once."""
    url = downloads.source.url(rows=ROWS, seed=SEED, pad=PAD, tag="heavy")
    status = await downloads.run(url, page_size=PAGE_SIZE)
    assert (status["state"], status["rows"], status["warnings"]) == ("succeeded", ROWS, [])
    sizes = {size for tag, size, _ in downloads.source.counts if tag == "heavy"}
    assert sizes == {1, PAGE_SIZE, 50}
    ids = [row[0] for row in parse_csv(await downloads.file(status["task_id"]))[1:]]
    assert ids == [str(sample.row(SEED, n)["id"]) for n in range(ROWS)]


async def test_light_rows_are_asked_for_as_the_request_says(downloads: Downloads, goal: int) -> None:
    """What the caller chose is only changed where it must be."""
    status = await downloads.run(downloads.source.url(rows=ROWS, tag="light"), page_size=PAGE_SIZE)
    assert status["state"] == "succeeded"
    assert {size for tag, size, _ in downloads.source.counts if tag == "light"} == {1, PAGE_SIZE}


async def test_a_source_that_heeds_no_size_is_not_asked_for_another(downloads: Downloads, goal: int) -> None:
    """All of its rows come at once, however heavy they are."""
    url = downloads.source.url(rows=ROWS, seed=SEED, pad=PAD, whole=1, tag="whole")
    status = await downloads.run(url, page_size=PAGE_SIZE)
    assert (status["state"], status["rows"]) == ("succeeded", ROWS)
    assert {size for tag, size, _ in downloads.source.counts if tag == "whole"} == {1, PAGE_SIZE, ROWS}
