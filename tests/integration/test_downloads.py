"""Downloads through the public API: real engine, database and store, and the sample source."""

from __future__ import annotations

import pytest

from tests.support.downloads import Downloads, expected_rows, parse_csv
from tests.support.waiting import eventually

SEED = 8  # a seed whose very first answer is right, as a broken first page is no passing fault


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


@pytest.mark.parametrize(
    ("rows", "page_size", "fetchers"),
    [
        (1, 500, 1),
        (100, 100, 1),
        (1_234, 500, 1),
        pytest.param(40_000, 100, 1, marks=pytest.mark.long),
        pytest.param(40_001, 100, 4, marks=pytest.mark.long),
        (60_050, 100, 5),
    ],
)
async def test_file_equals_source(exports: Downloads, rows: int, page_size: int, fetchers: int) -> None:
    """Every cell of every row is there once and in order, by one fetcher or by several."""
    status = await exports.run(exports.source.url(rows=rows, seed=SEED), page_size=page_size, file_name="订单")

    assert (status["state"], status["rows"], status["total"]) == ("succeeded", rows, rows)
    assert parse_csv(await exports.file(status["task_id"])) == expected_rows(SEED, range(rows))
    requests = exports.source.requests(page_size=page_size)
    # Where the last page is full, only the one behind it shows that it is the last.
    assert set(requests) == set(range(rows // page_size + 1))
    assert fetchers == 1 or sum(requests.values()) <= len(requests) + 1  # the first page is looked at twice


async def test_only_file_and_manifest_stay(exports: Downloads) -> None:
    """Staging goes as soon as the file is there."""
    status = await exports.run(exports.source.url(rows=40_001), page_size=100)

    folder = f"files/{exports.project_id}/{status['task_id']}"
    assert await exports.leftovers() == [f"{folder}/data.csv", f"{folder}/manifest.json"]


async def test_file_arrives_under_its_name(exports: Downloads) -> None:
    """Any Unicode name survives the link."""
    status = await exports.run(exports.source.url(rows=10), file_name="报表 “Q3” 🚚.csv")

    assert status["file_name"] == "报表 “Q3” 🚚.csv"
    reply = await exports.api_client.ask("GET", f"/v1/downloads/{status['task_id']}/file", key=exports.key)
    assert "filename%2A%3DUTF-8" in reply.headers["Location"]
    assert reply.headers["Cache-Control"] == "no-store"


async def test_empty_source_gives_an_empty_file(exports: Downloads) -> None:
    """No rows is an answer, not a fault."""
    status = await exports.run(exports.source.url(rows=0))

    assert (status["state"], status["rows"]) == ("succeeded", 0)
    assert await exports.file(status["task_id"]) == b"\xef\xbb\xbf"


@pytest.mark.parametrize("kind", ["5xx", "429", "reset", "short", "not_json", "broken_json"])
async def test_faults_that_pass_are_waited_out(exports: Downloads, kind: str) -> None:
    """A source that goes wrong now and then costs retries, not rows."""
    url = exports.source.url(rows=2_000, seed=SEED, faults=kind, rate=0.2, fail_first=1, retry_after=0)

    status = await exports.run(url, page_size=100)

    assert status["state"] == "succeeded", status
    assert parse_csv(await exports.file(status["task_id"])) == expected_rows(SEED, range(2_000))


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("faults=404&rate=1", "source_status", "answered 404"),
        ("faults=5xx&rate=1", "source_status", "failed 6 times; at last: The source answered 503"),
        ("faults=5xx&rate=1&only_page=7", "source_status", "Page 7 failed 6 times; at last: The source answered 503"),
        ("faults=not_json&rate=1", "source_not_json", "failed twice; at last: The source did not answer JSON but HTML"),
        ("faults=no_data&rate=1", "source_no_data", "has no `data`"),
        ("faults=not_objects&rate=1", "source_bad_row", "data[0]"),
        ("faults=reset&rate=1", "source_cut_off", "failed twice; at last: 127.0.0.1"),
        ("faults=total&rate=1", "source_total_changed", "one after another"),
        ("faults=total&rate=1&only_page=7", "source_total_changed", "Page 7 failed 3 times; at last: Page 7 reported"),
        ("faults=short&rate=1", "source_page_size", "failed twice; at last: Page"),
    ],
)
async def test_faults_that_stay_are_told(exports: Downloads, query: str, code: str, words: str) -> None:
    """The download fails with one clear sentence and what to do, and leaves nothing in the store."""
    status = await exports.run(f"{exports.source.base}/rows?rows=1000&{query}", page_size=100)

    assert (status["state"], status["phase"]) == ("failed", "done")
    assert status["fault"]["code"] == code
    assert words in status["fault"]["message"]
    assert status["fault"]["hint"]
    await eventually(exports.is_empty)  # what may still be gone on from stays for the resume window
    reply = await exports.api_client.ask("GET", f"/v1/downloads/{status['task_id']}/file", key=exports.key)
    assert (reply.status, reply.code) == (409, "download_failed")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source_url": "ftp://example.com/x"}, "http"),
        ({"source_url": "http://10.0.0.7/rows"}, "private"),
        ({"source_url": "http://localhost/rows"}, "localhost"),
        ({"page_size": 99}, "100"),
        ({"page_size": 1001}, "1000"),
        ({"page_size": "500"}, "page_size"),
        ({"colour": "red"}, "colour"),
        ({"type": "pdf"}, "csv"),
        ({"source_url": None}, "source_url"),
    ],
)
async def test_wrong_requests_are_refused(exports: Downloads, change: dict[str, object], words: str) -> None:
    """What can be seen to be wrong is refused at once, and starts nothing."""
    request = {"source_url": exports.source.url(rows=10)} | change

    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json=request)

    assert reply.status == 422, reply.body
    assert words in reply.body["detail"] + str(reply.body["errors"])
    assert await exports.leftovers() == []


async def test_unknown_download_is_missing(exports: Downloads) -> None:
    """An unknown id, and one of another project, are the same: not found."""
    status = await exports.run(exports.source.url(rows=10))
    _, stranger = await exports.api_client.make_project("stranger")

    for key, task_id in ((exports.key, "dl_" + "0" * 24), (stranger, status["task_id"])):
        for path in (f"/v1/downloads/{task_id}", f"/v1/downloads/{task_id}/file"):
            assert (await exports.api_client.ask("GET", path, key=key)).status == 404


@pytest.mark.long
async def test_running_download_tells_its_rows(exports: Downloads) -> None:
    """While it runs, phase, total and a growing number of rows can be seen, and there is no file yet."""
    task_id = await exports.start(exports.source.url(rows=50_000, delay_ms=60), page_size=100)
    seen: list[int] = []
    while (status := await exports.status(task_id))["state"] not in ("succeeded", "failed"):
        if status["phase"] == "fetching" and status["rows"]:
            assert status["total"] == 50_000
            seen.append(status["rows"])
            reply = await exports.api_client.ask("GET", f"/v1/downloads/{task_id}/file", key=exports.key)
            # It may have ended since it was asked about.
            assert reply.status == 302 or (reply.status, reply.code) == (409, "download_unfinished")

    assert status["state"] == "succeeded"
    assert seen
    assert seen[-1] > seen[0]
