"""Raw pages as Parquet, for audit and for reading them again: what the platform told, byte by byte."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Final

from activities.orders.reading import Sheet
from infra.objects import ObjectStore

CONTENT_TYPE: Final = "application/vnd.apache.parquet"


async def keep(objects: ObjectStore, key: str, sheets: Sequence[Sheet]) -> None:
    """Write the pages of a reading, in the order they were read."""
    body = await asyncio.to_thread(_encoded, sheets)
    await objects.put(key, body, content_type=CONTENT_TYPE)


def _encoded(sheets: Sequence[Sheet]) -> bytes:
    # Workflows import the steps for their signatures, and must not pay for Arrow.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pa.table(
        {
            "page": pa.array([sheet.number for sheet in sheets], pa.int32()),
            "asked_at": pa.array([sheet.asked_at for sheet in sheets], pa.timestamp("us", tz="UTC")),
            "body": pa.array([sheet.body for sheet in sheets], pa.binary()),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", use_dictionary=False, write_statistics=False)
    return out.getvalue()
