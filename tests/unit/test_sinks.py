"""Sinks turn pages into bytes that can be joined; what is staged for Parquet becomes a file of exact types."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.downloads.models import DownloadSpec, FileType, TextEncoding
from domain.downloads.sinks import build_sink, csv
from domain.downloads.sinks.arrow import ColumnTypeInference, ParquetRenderer
from domain.downloads.staging import read_frames

SPECS = [
    DownloadSpec(task_id="t", project_id="p", file_name="f", type=kind, encoding=encoding)
    for kind, encoding in [
        (FileType.CSV, TextEncoding.UTF_8_BOM),
        (FileType.CSV, TextEncoding.GB18030),
        (FileType.PARQUET, TextEncoding.UTF_8_BOM),
    ]
]


async def split_pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    """The content, some bytes at a time."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def render_parquet(columns: Sequence[str], *pages: Sequence[Sequence[bytes]], piece: int = 1000) -> pa.Table:
    """The Parquet file of these pages, read back."""
    sink = build_sink(SPECS[2])
    staged = sink.encode_head(columns) + b"".join(map(sink.encode_page, pages))
    head, *messages = [message async for message in read_frames(split_pieces(staged, piece))]
    survey = ColumnTypeInference(head)
    for message in messages:
        survey.add([message])
    renderer = ParquetRenderer(survey)
    content = (
        b"".join(map(renderer.write_row_group, [[message] for message in messages]))
        + renderer.write_footer_and_take_bytes()
    )
    assert survey.rows == sum(map(len, pages))
    return pq.read_table(io.BytesIO(content))


@pytest.mark.parametrize("spec", SPECS, ids=str)
class TestContract:
    """What fetching relies on, whatever the sink."""

    def test_extension_is_the_type(self, spec: DownloadSpec) -> None:
        """The file lies in the store under its type."""
        assert build_sink(spec).extension == spec.type

    def test_pages_keep_no_state(self, spec: DownloadSpec) -> None:
        """A range that goes on in another process makes the same bytes."""
        first, second = [(b"1", '"中"'.encode())], [(b"2", b"null")]
        one = build_sink(spec)

        assert one.encode_page(first) + one.encode_page(second) == build_sink(spec).encode_page(first) + build_sink(
            spec
        ).encode_page(second)

    def test_an_empty_page_is_no_bytes(self, spec: DownloadSpec) -> None:
        """A source may answer empty pages in mid-stream."""
        assert build_sink(spec).encode_page([]) == b""

    def test_raw_cells_are_taken(self, spec: DownloadSpec) -> None:
        """Pages hold cells as the decoder gives them."""
        raw = msgspec.json.decode(b'[1,"a"]', type=tuple[msgspec.Raw, msgspec.Raw])

        assert build_sink(spec).encode_page([raw]) == build_sink(spec).encode_page([(b"1", b'"a"')])


def test_csv_takes_encoding_and_guard_from_the_order() -> None:
    """What was asked for reaches the bytes."""
    spec = DownloadSpec(task_id="t", project_id="p", file_name="f", encoding=TextEncoding.GB18030, guard_formulas=False)
    sink = build_sink(spec)

    assert sink.encode_head(["=中"]) + sink.encode_page([('"@中"'.encode(),)]) == '"=中"\r\n"@中"\r\n'.encode("gb18030")
    assert (sink.content_type, sink.needs_rendering) == (csv.get_content_type(TextEncoding.GB18030), False)


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_frames_come_back_from_any_pieces(size: int) -> None:
    """The store decides how much it gives at a time."""
    table = await render_parquet(["a"], [(b"1",), (b"2",)], [(b"3",)], piece=size)

    assert table.to_pylist() == [{"a": 1}, {"a": 2}, {"a": 3}]


async def test_a_cut_frame_is_noticed() -> None:
    """A staged object that ends too early must not become a shorter file."""
    staged = build_sink(SPECS[2]).encode_head(["a"]) + build_sink(SPECS[2]).encode_page([(b"1",)])

    with pytest.raises(ValueError, match="end within"):
        _ = [message async for message in read_frames(split_pieces(staged[:-1], 50))]


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        ("true false null", pa.bool_(), [True, False, None]),
        ("1 -2 null", pa.int64(), [1, -2, None]),
        ("9223372036854775807 -9223372036854775808", pa.int64(), [2**63 - 1, -(2**63)]),
        ("9223372036854775808 1", pa.string(), ["9223372036854775808", "1"]),
        (
            "12345678901234567890123456789012345678901 0",
            pa.string(),
            ["12345678901234567890123456789012345678901", "0"],
        ),
        ("12.50 -0.125 7", pa.decimal128(5, 3), [Decimal("12.500"), Decimal("-0.125"), Decimal("7.000")]),
        ("0.30000000000000004", pa.decimal128(18, 17), [Decimal("0.30000000000000004")]),
        ("1e3 2.5E-2 -1.5e+1", pa.decimal128(7, 3), [Decimal(1000), Decimal("0.025"), Decimal(-15)]),
        ("1e5", pa.decimal128(6, 0), [Decimal(100_000)]),
        ("1e300 2.5", pa.string(), ["1e300", "2.5"]),
        (f"1e{'9' * 5_000} 2.5", pa.string(), [f"1e{'9' * 5_000}", "2.5"]),
        (f"1e{'0' * 5_000}3 1E+000002", pa.decimal128(4, 0), [Decimal(1000), Decimal(100)]),
        ("1e-0000001 2.5", pa.decimal128(2, 1), [Decimal("0.1"), Decimal("2.5")]),
        ("12345678901234567890.1 0.1234567890123456789", pa.string(), None),
        ('"a" 1 1.50 true null', pa.string(), ["a", "1", "1.50", "true", None]),
        ("1 true", pa.string(), ["1", "true"]),
        ('{"a":1.0} [1,"x"]', pa.string(), ['{"a":1.0}', '[1,"x"]']),
        (r'"\u4e0a\n\"x\"" "\\" "上"', pa.string(), ['上\n"x"', "\\", "上"]),
        ('"null" null', pa.string(), ["null", None]),
        ("null null", pa.string(), [None, None]),
        ('"" null', pa.string(), ["", None]),
        ('"=1+1"', pa.string(), ["=1+1"]),  # nothing in a Parquet file is run
    ],
)
@pytest.mark.parametrize("together", [True, False])
async def test_types(cells: str, kind: pa.DataType, values: list[Any] | None, together: bool) -> None:
    """A column has the narrowest type that keeps every cell as written, whichever page it came in."""
    rows = [(cell.encode(),) for cell in cells.split(" ")]

    table = await render_parquet(["a"], *([rows] if together else [[row] for row in rows]))

    assert table.schema.field("a").type == kind
    assert table["a"].to_pylist() == (cells.split(" ") if values is None else values)


async def test_no_rows_make_a_file_of_heads() -> None:
    """An empty source succeeds, whether it names columns or not."""
    table = await render_parquet(["a", "b"])

    assert (table.column_names, table.num_rows) == (["a", "b"], 0)
    assert (await render_parquet([])).num_columns == 0


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.lists(st.integers(), max_size=2)
)
columns_of_values = st.one_of(
    st.lists(values, min_size=1, max_size=8),
    st.lists(st.integers() | st.none(), min_size=1, max_size=8),
    st.lists(st.decimals(allow_nan=False, allow_infinity=False) | st.integers(), min_size=1, max_size=8),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.none(), min_size=1, max_size=8),
)


@given(columns_of_values, st.booleans())
async def test_every_value_comes_back(column: list[Any], escape: bool) -> None:
    """Whatever the type became, the value is the one that was written; in a text column a number is its own text."""
    cells = [as_json(value, escape) for value in column]

    table = await render_parquet(["a"], [(cell.encode(),) for cell in cells])

    read = table["a"].to_pylist()
    if table.schema.field("a").type == pa.string():
        expected = [value if isinstance(value, str | None) else cell for value, cell in zip(column, cells, strict=True)]
    else:
        expected = column
    assert read == expected


def as_json(value: Any, escape: bool) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=escape)
