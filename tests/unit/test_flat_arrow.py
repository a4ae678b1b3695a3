"""A flat page is staged for rendering with the very cells that its rows have, whatever a template selects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.flat import CellGrid, CellGridFinder
from domain.downloads.shape import PageEncoder, TableShape
from domain.downloads.sinks import arrow
from domain.downloads.sinks.arrow import EXCEL_TYPE, ArrowSink
from domain.downloads.staging import read_frames

KEYS = ["a", "名", "c d", "e"]
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
shapes = st.lists(st.sampled_from([*KEYS, "none"]), min_size=1, max_size=6, unique=True)


async def stage_rows(columns: list[str], data: bytes) -> list[dict[str, Any]]:
    """The rows that a page of this data is staged as."""

    async def content() -> AsyncIterator[bytes]:
        yield data

    (page,) = [frame async for frame in read_frames(content())]
    rows = arrow.decode_record_batch(page, arrow.build_staged_schema(columns)).to_pylist()
    assert page.rows == len(rows)
    return [{name: msgspec.json.decode(cell) for name, cell in row.items()} for row in rows]


@given(rows=st.lists(st.tuples(*[values] * len(KEYS)), min_size=1, max_size=5), columns=shapes, spaced=st.booleans())
@pytest.mark.asyncio
async def test_every_cell_is_staged(rows: list[tuple[Any, ...]], columns: list[str], spaced: bool) -> None:
    """In the order of the columns; what no row has is null."""
    data = [dict(zip(KEYS, row, strict=True)) for row in rows]
    text = json.dumps(data, ensure_ascii=False, separators=None if spaced else (",", ":")).encode(errors="replace")
    shape = TableShape(columns=columns, left_out=[key for key in KEYS if key not in columns], keys=KEYS)
    read = msgspec.json.decode(text)

    page = PageEncoder(shape, ArrowSink("xlsx", EXCEL_TYPE)).encode(b'{"total":9,"data":%b}' % text)

    assert await stage_rows(columns, page.data) == [{name: row.get(name) for name in columns} for row in read]


def test_usual_pages_are_flat() -> None:
    """So that the property above is about the fast way."""
    data = json.dumps([dict.fromkeys(KEYS, "x,y")] * 3, ensure_ascii=False).encode()
    assert isinstance(CellGridFinder(KEYS).find_grid(data), CellGrid)
