"""Proof that files hold the source's rows, all of them, in order, whatever way their writer has of writing a cell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
from pyarrow import csv

from sims import rows as sample

BLOCK_BYTES = 8 * 1024 * 1024
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "order_no": pa.string(),
        "customer": pa.string(),
        "product": pa.string(),
        "amount": pa.decimal128(18, 2),
        "quantity": pa.int64(),
        "paid": pa.bool_(),
        "ordered_at": pa.string(),
        "note": pa.string(),
        "city": pa.string(),
    }
)


class ExportsDiffer(Exception):
    """A contender's files are not what the source holds: its run does not count."""


@dataclass(frozen=True)
class ExportContent:
    """The rows that a source holds."""

    rows: int
    seed: int


def require_equal(files: Sequence[Path], content: ExportContent) -> None:
    """Compare every cell by value: `5.0` is `5.00`, `True` is `true`, an empty field is null; texts are as they are."""
    done = 0
    for batch in _read(files):
        end = done + batch.num_rows
        if end > content.rows:
            raise ExportsDiffer(f"more than {content.rows:,} rows")
        expected = _truth(content.seed, done, end)
        if not batch.equals(expected):
            raise ExportsDiffer(_difference(batch, expected, done))
        done = end
    if done != content.rows:
        raise ExportsDiffer(f"{done:,} rows, not {content.rows:,}")


def _read(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Cells by value; several files in the order of their rows."""
    parse = csv.ParseOptions(newlines_in_values=True)
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(SCHEMA.names, pa.string()), include_columns=SCHEMA.names, strings_can_be_null=False
    )
    for path in sorted(files, key=_first_id):
        reader = csv.open_csv(path, csv.ReadOptions(block_size=BLOCK_BYTES), parse, convert)
        for batch in reader:
            try:
                arrays = [batch.column(field.name).cast(field.type) for field in SCHEMA]
            except pa.ArrowInvalid as error:
                raise ExportsDiffer(f"{path.name}: {error}") from None
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _first_id(path: Path) -> int:
    with path.open(encoding="utf-8-sig") as file:
        file.readline()
        found = re.match(r'"?(\d+)', file.readline())
    return int(found[1]) if found else 0


def _truth(seed: int, start: int, stop: int) -> pa.RecordBatch:
    read = _decoder.decode(b"[%b]" % sample.rows_json(seed, start, stop))
    columns = zip(*map(msgspec.structs.astuple, read), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _Row(msgspec.Struct, gc=False):
    id: int
    order_no: str
    customer: str
    product: str
    amount: Decimal
    quantity: int
    paid: bool
    ordered_at: str
    note: str | None
    city: str

    def __post_init__(self) -> None:
        self.note = self.note or ""


_decoder = msgspec.json.Decoder(list[_Row])


def _difference(batch: pa.RecordBatch, expected: pa.RecordBatch, offset: int) -> str:
    pairs = zip(batch.to_pylist(), expected.to_pylist(), strict=True)
    place, row, right = next((place, row, right) for place, (row, right) in enumerate(pairs) if row != right)
    return f"row {offset + place:,} is {row}, not {right}"
