"""What a download can become, through the public API: encodings, the guard, Parquet by several fetchers."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.settings import Settings
from sims import rows as sample
from tests.support.downloads import Downloads
from tests.support.pages import asking
from tests.support.selecting import combine_and_mark_long_except

pytestmark = pytest.mark.stack

SEED = 8
CUT, WHOLE, TOLD = "cut \\ud83d", "whole \\ud83d\\ude00", "told \\\\ud83d"
"""As JSON writes half of a pair, a pair, and a backslash before a letter."""


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


@pytest.mark.parametrize(
    ("request_", "content"),
    [
        ({"encoding": "utf-8"}, '"名","式"\r\n"中€😀","\'=1"\r\n'.encode()),
        ({"encoding": "utf-8-bom"}, '\ufeff"名","式"\r\n"中€😀","\'=1"\r\n'.encode()),
        ({"encoding": "gb18030"}, '"名","式"\r\n"中€😀","\'=1"\r\n'.encode("gb18030")),
        ({"encoding": "utf-8", "formula_guard": False}, '"名","式"\r\n"中€😀","=1"\r\n'.encode()),
    ],
)
async def test_text(exports: Downloads, request_: dict[str, Any], content: bytes) -> None:
    """The bytes of a CSV file, as asked for."""
    status = await _export_inline(exports, data=[{"名": "中€😀", "式": "=1"}], **request_)

    assert await exports.file(status["task_id"]) == content


@pytest.mark.parametrize(
    ("text", "type_"),
    combine_and_mark_long_except(
        (CUT, WHOLE, TOLD),
        ("csv", "parquet", "excel"),
        often=[(CUT, "csv"), (WHOLE, "parquet"), (TOLD, "excel")],
    ),
)
async def test_half_of_a_surrogate_pair_is_warned_of(settings: Settings, type_: str, text: str) -> None:
    """Of a whole pair, and of a backslash before a letter, nothing is said."""
    body = f'{{"total": 2, "data": [{{"name": "fine"}}, {{"name": "{text}"}}]}}'.encode()
    async with asking(settings, lambda _page, _size: body) as (downloads, url):
        status = await downloads.run(url, type=type_, allow_repeats=True)

    assert (status["state"], status["rows"]) == ("succeeded", 2), status["fault"]
    told = [warning for warning in status["warnings"] if "half of a surrogate pair" in warning]
    assert len(told) == text.startswith("cut")
    assert all("first on page 0" in warning and "U+FFFD" in warning for warning in told)


@pytest.mark.parametrize("request_", [{"encoding": "utf-8"}, {"encoding": "gb18030"}, {"type": "parquet"}], ids=str)
async def test_a_source_of_nothing(exports: Downloads, request_: dict[str, Any]) -> None:
    """No rows and no columns still make a file."""
    status = await exports.run(exports.source.url(rows=0), **request_)

    assert (status["state"], status["rows"]) == ("succeeded", 0), status["fault"]
    content = await exports.file(status["task_id"])
    assert len(content) == status["bytes"]
    assert content == b"\r\n" or pq.read_table(io.BytesIO(content)).num_rows == 0


@pytest.mark.long
async def test_parquet_by_several_fetchers(exports: Downloads) -> None:
    """One valid file, every value exact and in order, and nothing of the staging stays."""
    rows = 40_001
    status = await exports.run(exports.source.url(rows=rows, seed=SEED), page_size=100, type="parquet")

    assert (status["state"], status["rows"]) == ("succeeded", rows), status["fault"]
    table = pq.read_table(io.BytesIO(await exports.file(status["task_id"])))
    assert table.to_pylist() == [sample.row(SEED, number) for number in range(rows)]
    assert table.schema.field("id").type == pa.int64()
    assert pa.types.is_decimal128(table.schema.field("amount").type)
    assert table.schema.field("paid").type == pa.bool_()
    folder = f"files/{exports.project_id}/{status['task_id']}"
    assert await exports.leftovers() == [f"{folder}/data.parquet", f"{folder}/manifest.json"]


async def _export_inline(exports: Downloads, **request: Any) -> dict[str, Any]:
    """A download of rows that come with the request, at its end."""
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json=request)
    assert reply.status == 202, reply.body
    return await exports.wait_for_end(reply.body["task_id"])
