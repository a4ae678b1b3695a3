"""Parquet at assembly, against the real store."""

from __future__ import annotations

import hashlib
import io
import json

import pyarrow.parquet as pq
import pytest

from activities.downloads import assembly
from domain.downloads.sinks.arrow import PARQUET_TYPE, ArrowSink
from infra.objects import ObjectStore

pytestmark = pytest.mark.stack

COLUMNS = ["id", "name"]


def stage_pages(pages: int, rows: int) -> bytes:
    """What fetchers stage for a number of pages."""
    sink = ArrowSink("parquet", PARQUET_TYPE)
    numbers = range(pages * rows)
    lines = [(str(number).encode(), json.dumps(f"名 {number}").encode()) for number in numbers]
    return sink.encode_head(COLUMNS) + b"".join(
        sink.encode_page(lines[at : at + rows]) for at in range(0, len(lines), rows)
    )


async def test_render_makes_one_valid_file(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of rows follow each other in order, and what is reported of the file is true."""
    monkeypatch.setattr(assembly, "GROUP_BYTES", 50_000)
    await objects.put("staged", stage_pages(40, 500))

    made = await assembly.render_parquet(objects, "staged", "file", metadata={"task": "t"})

    content = await objects.get("file")
    file = pq.ParquetFile(io.BytesIO(content))
    assert file.num_row_groups > 5
    assert file.read().to_pylist() == [{"id": n, "name": f"名 {n}"} for n in range(20_000)]
    assert (made.rows, made.stored.size) == (20_000, len(content))
    assert made.stored.sha256 == hashlib.sha256(content).hexdigest()
    head = await objects.head("file")
    assert head is not None
    assert (head.content_type, head.metadata["task"]) == (PARQUET_TYPE, "t")


async def test_rendered_again_it_is_the_same(objects: ObjectStore) -> None:
    """An assembly that died after the file was made makes it again."""
    await objects.put("staged", stage_pages(3, 10))
    first = await assembly.render_parquet(objects, "staged", "file", metadata={})

    again = await assembly.render_parquet(objects, "staged", "file", metadata={})

    assert again == first


async def test_a_head_alone_is_an_empty_file(objects: ObjectStore) -> None:
    """A source without rows makes a file with columns."""
    await objects.put("staged", ArrowSink("parquet", PARQUET_TYPE).encode_head(COLUMNS))

    made = await assembly.render_parquet(objects, "staged", "file", metadata={})

    assert made.rows == 0
    assert pq.read_table(io.BytesIO(await objects.get("file"))).column_names == COLUMNS
