"""The sample source: anyone can recompute its rows, its faults come where they were ordered, its counts are true."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sims.faults import Faults, Kind
from sims.rows import BLOCK_ROWS, row, rows_json
from sims.source import Source, running_source
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
async def source() -> AsyncIterator[Source]:
    """One source for all tests here; each counts under its own tag."""
    async with running_source() as running:
        yield running


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """An ordinary client."""
    async with aiohttp.ClientSession() as session:
        yield session


async def fetch(http: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    """Status and text of an answer."""
    async with http.get(url) as response:
        return response.status, await response.text()


def parse(text: str) -> Any:
    """JSON with decimals kept exact."""
    return json.loads(text, parse_float=Decimal)


@settings(deadline=None)  # the first rows of a seed are rendered beforehand
@given(st.sampled_from([0, 7]), st.integers(0, 10**9) | st.integers(0, 3 * BLOCK_ROWS), st.integers(0, 2_500))
def test_json_is_rows(seed: int, start: int, count: int) -> None:
    """The served text is exactly the rows, to the last digit, wherever a page begins and ends."""
    text = rows_json(seed, start, start + count).decode()
    expected = [row(seed, n) for n in range(start, start + count)]
    assert json.loads(f"[{text}]", parse_float=str) == [{**cells, "amount": str(cells["amount"])} for cells in expected]


def test_rows_are_mixed() -> None:
    """Ten columns, unique ids and order numbers, and every kind of value that an export gets wrong."""
    sample = [row(5, n) for n in range(3_000)]
    assert {len(cells) for cells in sample} == {10}
    assert len({cells["id"] for cells in sample}) == len({cells["order_no"] for cells in sample}) == 3_000
    assert all(len(cells["order_no"]) == 19 and cells["order_no"].startswith("00") for cells in sample)
    assert {type(cells["paid"]) for cells in sample} == {bool}
    assert {cells["amount"].as_tuple().exponent for cells in sample} == {-2}
    assert min(cells["amount"] for cells in sample) < 0
    notes = {cells["note"] for cells in sample}
    assert None in notes
    assert all(any(mark in (note or "") for note in notes) for mark in ',"\n')
    assert not any(cells["customer"].isascii() for cells in sample)
    assert row(5, 0) != row(6, 0)


@pytest.mark.parametrize(
    ("page", "page_size", "count"), [(0, 1, 1), (0, 500, 500), (2, 500, 234), (3, 500, 0), (7, 177, 0)]
)
async def test_pages(source: Source, http: aiohttp.ClientSession, page: int, page_size: int, count: int) -> None:
    """Pages count from 0, the last is short, and after it come empty ones; each reports the total."""
    status, text = await fetch(http, source.url(rows=1_234, seed=3) + f"&page={page}&page_size={page_size}")
    first = page * page_size
    assert (status, parse(text)) == (200, {"total": 1_234, "data": [row(3, n) for n in range(first, first + count)]})


@pytest.mark.parametrize(
    ("kind", "status", "seen"),
    [
        (Kind.SERVER_ERROR, 503, "busy"),
        (Kind.TOO_MANY, 429, "slow down"),
        (Kind.NOT_FOUND, 404, "no such"),
        (Kind.NOT_JSON, 200, "<html>"),
    ],
)
async def test_canned_faults(source: Source, http: aiohttp.ClientSession, kind: Kind, status: int, seen: str) -> None:
    """Answers that are no pages at all."""
    got, text = await fetch(http, source.url(faults=kind, tag=kind))
    assert got == status
    assert seen in text


async def test_page_faults(source: Source, http: aiohttp.ClientSession) -> None:
    """Pages that lie: too short, with another total each time, without data, with rows that are not objects."""
    short, total, no_data, not_objects = [
        parse((await fetch(http, source.url(rows=1_000, faults=kind, tag="lies") + "&page=1"))[1])
        for kind in (Kind.SHORT, Kind.TOTAL, Kind.NO_DATA, Kind.NOT_OBJECTS)
    ]
    again = parse((await fetch(http, source.url(rows=1_000, faults=Kind.TOTAL, tag="lies") + "&page=1"))[1])
    assert (short["total"], len(short["data"])) == (1_000, 250)
    assert len({1_000, total["total"], again["total"]}) == 3
    assert no_data == {"total": 1_000}
    assert {type(each) for each in not_objects["data"]} == {list}


async def test_broken_json(source: Source, http: aiohttp.ClientSession) -> None:
    """Text that ends too early."""
    status, text = await fetch(http, source.url(faults=Kind.BROKEN_JSON))
    assert status == 200
    with pytest.raises(json.JSONDecodeError):
        parse(text)


async def test_reset(source: Source, http: aiohttp.ClientSession) -> None:
    """A connection that ends in the middle of the body, once: the client does not repeat it by itself."""
    with pytest.raises(aiohttp.ClientError):
        await fetch(http, source.url(rows=100_000, faults=Kind.RESET, tag="reset") + "&page_size=10000")
    assert source.requests(tag="reset", page_size=10_000) == {0: 1}


async def test_slow(source: Source, http: aiohttp.ClientSession) -> None:
    """Slow answers are right but late, and do not hold up others."""
    slow = asyncio.create_task(fetch(http, source.url(rows=1, faults=Kind.SLOW, slow_ms=1_500)))
    quick = await fetch(http, source.url(rows=1))
    assert not slow.done()
    assert await slow == quick


async def test_fail_first_and_counts(source: Source, http: aiohttp.ClientSession) -> None:
    """Each page fails as often as ordered, then works; the counts, also over HTTP, show the requests."""
    url = source.url(rows=1_000, faults=Kind.SERVER_ERROR, fail_first=2, tag="first")
    statuses = [(await fetch(http, f"{url}&page={page}"))[0] for page in (0, 0, 1, 0, 1)]
    assert statuses == [503, 503, 503, 200, 503]
    assert source.requests(tag="first", page_size=500) == {0: 3, 1: 2}
    assert source.requests(tag="first", page_size=1) == {}
    stats = parse((await fetch(http, f"{source.base}/stats?tag=first"))[1])
    assert stats["requests"] == 5
    assert stats["pages"][1] == {"page_size": 500, "page": 1, "requests": 2}


def test_faults_by_seed() -> None:
    """The same seed goes wrong in the same places, at about the ordered rate and with every ordered kind."""
    faults = Faults(faults=(Kind.RESET, Kind.SHORT), rate=0.2, seed=1)
    picks = [faults.pick(page, attempt) for page in range(1_000) for attempt in (1, 2)]
    assert picks == [faults.pick(page, attempt) for page in range(1_000) for attempt in (1, 2)]
    assert picks != [faults.model_copy(update={"seed": 2}).pick(page, a) for page in range(1_000) for a in (1, 2)]
    assert set(picks) == {None, Kind.RESET, Kind.SHORT}
    assert 300 < sum(pick is not None for pick in picks) < 500


async def test_what_stands_around_a_table(source: Source, http: aiohttp.ClientSession) -> None:
    """Template, header and footer as they were ordered, in every answer."""
    around = {"template": [{"name": "id", "title": "编号"}], "header": {"油站": "钓鱼岛"}, "footer": "<b>end</b>"}
    url = source.url(rows=3, seed=3, **{name: json.dumps(value) for name, value in around.items()})
    for page in (0, 1):
        data = [row(3, n) for n in range(3)] if page == 0 else []
        assert parse((await fetch(http, f"{url}&page={page}"))[1]) == {"total": 3, **around, "data": data}


async def test_groups(source: Source, http: aiohttp.ClientSession) -> None:
    """A three-dimensional page: the rows of each city, none lost; the total counts rows."""
    page = parse((await fetch(http, source.url(rows=100, seed=3, grouped="city") + "&page_size=60&page=1"))[1])
    assert page["total"] == 100
    assert all({cells["city"] for cells in group} == {city} for city, group in page["data"].items())
    flat = [cells for group in page["data"].values() for cells in group]
    assert sorted(flat, key=lambda cells: cells["id"]) == [row(3, n) for n in range(60, 100)]


@pytest.mark.parametrize("query", ["template={", "faults=nonsense", "rate=2", "page=-1", "page_size=0", "rows=x"])
async def test_wrong_parameters(source: Source, http: aiohttp.ClientSession, query: str) -> None:
    """A wrong parameter is named, so that a test with a typing error does not pass by chance."""
    status, text = await fetch(http, f"{source.base}/rows?{query}")
    assert status == 400
    assert query.partition("=")[0] in parse(text)["error"]


async def test_dies_with_its_parent() -> None:
    """As a process it prints its address, serves, and goes when its parent was killed."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import subprocess, sys; subprocess.run([sys.executable, '-m', 'sims.source', '--port', '0'])",
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout
    address = json.loads(await parent.stdout.readline())["url"]
    host, port = address.removeprefix("http://").split(":")
    async with aiohttp.ClientSession() as http:
        assert (await fetch(http, f"{address}/rows?rows=1"))[0] == 200
    parent.kill()
    await parent.wait()

    def is_closed() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0

    assert await eventually(is_closed)
