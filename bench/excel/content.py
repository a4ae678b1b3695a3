"""The rows of the sample source in the two forms that writers take: typed Arrow, and pages as a download stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from domain.downloads.pages import PageReader
from sims import rows as sample

SEED = 20_260_101
ZONE = "Asia/Shanghai"
PAGE_ROWS = 1_000
BATCH_ROWS = 10_000
COLUMNS = tuple(sample.row(SEED, 0))
TYPED = pa.schema(
    {
        "id": pa.int64(),
        "order_no": pa.string(),
        "customer": pa.string(),
        "product": pa.string(),
        "amount": pa.float64(),
        "quantity": pa.int64(),
        "paid": pa.bool_(),
        "ordered_at": pa.timestamp("us"),
        "note": pa.string(),
        "city": pa.string(),
    }
)


def write_typed(rows: int, path: Path) -> None:
    """For the peers: cells as Excel knows them, moments as the clocks of the zone show them."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, TYPED) as writer:
        for start, stop in _split_range(rows, BATCH_ROWS):
            writer.write_batch(_build_typed_batch(start, stop))


def write_staged(rows: int, path: Path) -> None:
    """For ours: page by page as they come from a source, every cell the JSON text that was written."""
    reader = PageReader(COLUMNS)
    schema = pa.schema([pa.field(name, pa.binary()) for name in COLUMNS])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for start, stop in _split_range(rows, PAGE_ROWS):
            page = reader.read(b'{"total":%d,"data":[%b]}' % (rows, sample.rows_json(SEED, start, stop)))
            columns = zip(*page.rows, strict=True)
            arrays = [pa.array(list(map(bytes, cells)), pa.binary()) for cells in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of either form, batch by batch."""
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)


class _Row(msgspec.Struct, gc=False):
    id: int
    order_no: str
    customer: str
    product: str
    amount: float
    quantity: int
    paid: bool
    ordered_at: str
    note: str | None
    city: str


_decoder = msgspec.json.Decoder(list[_Row])


def _build_typed_batch(start: int, stop: int) -> pa.RecordBatch:
    rows = _decoder.decode(b"[%b]" % sample.rows_json(SEED, start, stop))
    columns = dict(zip(COLUMNS, zip(*map(msgspec.structs.astuple, rows), strict=True), strict=True))
    instants = pa.array(columns["ordered_at"]).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", ZONE))
    arrays = [
        pc.local_timestamp(instants) if field.name == "ordered_at" else pa.array(columns[field.name], field.type)
        for field in TYPED
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TYPED)


def _split_range(rows: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, rows)) for start in range(0, rows, step))
