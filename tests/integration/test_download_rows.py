"""Rows that JSON readers take differently: keys that come twice, and numbers that are none."""

from __future__ import annotations

import pytest

from sims import rows as sample
from tests.support.downloads import Downloads, parse_csv

ROWS, SEED, PAGE_SIZE = 2_500, 4, 100
TWICE_FROM = 1_234

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("envelope", [0, 1])
@pytest.mark.parametrize("no_total", [0, 1])
async def test_a_key_that_comes_twice_is_told_with_its_first_page(
    downloads: Downloads, envelope: int, no_total: int
) -> None:
    """One warning for a thousand rows, whichever fetchers saw them; the last value is in the file."""
    url = downloads.source.url(rows=ROWS, seed=SEED, twice_from=TWICE_FROM, envelope=envelope, no_total=no_total)
    status = await downloads.run(url, page_size=PAGE_SIZE)
    assert (status["state"], status["rows"]) == ("succeeded", ROWS), status
    twice = f"Rows of the source have the key `city` twice, first on page {TWICE_FROM // PAGE_SIZE}"
    assert status["warnings"] == [f"{twice}; the file has the last value."]
    cities = [row[-1] for row in parse_csv(await downloads.file(status["task_id"]))[1:]]
    assert cities[:TWICE_FROM] == [sample.row(SEED, n)["city"] for n in range(TWICE_FROM)]
    assert cities[TWICE_FROM:] == [f"city {n}" for n in range(TWICE_FROM, ROWS)]


@pytest.mark.parametrize("kind", ["excel", "parquet"])
async def test_it_is_told_of_every_kind_of_file(downloads: Downloads, kind: str) -> None:
    """Of the pages of the source, counted as the source does."""
    url = downloads.source.url(rows=ROWS, seed=SEED, twice_from=TWICE_FROM)
    status = await downloads.run(url, page_size=PAGE_SIZE, type=kind)
    assert status["state"] == "succeeded"
    assert [warning for warning in status["warnings"] if "`city` twice, first on page 12" in warning] != []


@pytest.mark.parametrize(("row", "page"), [(7, 0), (1_777, 17)])
async def test_a_number_that_is_none_is_told_with_page_and_row(downloads: Downloads, row: int, page: int) -> None:
    """JSON has no NaN: the fault names its place."""
    status = await downloads.run(downloads.source.url(rows=ROWS, seed=SEED, nan_at=row), page_size=PAGE_SIZE)
    assert (status["state"], status["fault"]["code"]) == ("failed", "source_not_json")
    message = status["fault"]["message"]
    assert message.startswith(f"Page {page} failed twice")
    assert f"NaN is in data[{row % PAGE_SIZE}], under the key “amount”" in message
