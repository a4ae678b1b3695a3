"""dlt: `rest_api`, incremental and merged into PostgreSQL, with the lag and the tuning that its documents advise."""

from __future__ import annotations

import os
import sys

from bench.peers.meter import measure_run

# dlt reads its configuration from the environment when it is imported, and so do its worker processes.
os.environ |= {
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "NORMALIZE__WORKERS": str(os.cpu_count()),
    "DATA_WRITER__FILE_MAX_ITEMS": "100000",  # several files are what several workers can share
    "DATA_WRITER__DISABLE_COMPRESSION": "true",
    "NORMALIZE__DATA_WRITER__DISABLE_COMPRESSION": "true",
}

import dlt  # type: ignore[import-not-found]  # in the peer's environment alone
from dlt.sources.rest_api import rest_api_source  # type: ignore[import-not-found]

# With the types given, dlt need not look for dates in texts; what is nested stays one value, as ours keeps it.
TYPES = {
    "id": "bigint",
    "status": "text",
    "created_at": "text",
    "updated_at": "text",
    "version": "bigint",
    "currency": "text",
    "total": "double",
    "tax": "double",
    "customer": "json",
    "items": "json",
}


def run(url: str, database: str, folder: str, start: str, lag_seconds: int, page_size: int) -> None:
    """One incremental run: from the newest order that was seen, less the lag, to the end; merged by id."""
    endpoint = {
        "path": "orders",
        "params": {"page_size": page_size, "sort": "updated_at"},
        "data_selector": "orders",
        "paginator": {"type": "page_number", "base_page": 1, "page_param": "page", "total_path": None},
        "incremental": {
            "start_param": "from",
            "cursor_path": "updated_at",
            "initial_value": start,
            "lag": lag_seconds,
        },
    }
    columns: dict[str, dict[str, str]] = {name: {"data_type": kind} for name, kind in TYPES.items()}
    columns["updated_at"]["dedup_sort"] = "desc"  # of two copies in one run the newer one stays
    source = rest_api_source(
        {
            "client": {"base_url": f"{url}/", "auth": {"type": "bearer", "token": "token-of-this-shop-1"}},
            "resources": [
                {
                    "name": "orders",
                    "primary_key": "id",
                    # The strategy `upsert` would be faster, but fails where one run brings an order twice.
                    "write_disposition": {"disposition": "merge", "strategy": "delete-insert"},
                    "max_table_nesting": 0,
                    "columns": columns,
                    "endpoint": endpoint,
                }
            ],
        }
    )
    pipeline = dlt.pipeline(
        "bench_orders",
        destination=dlt.destinations.postgres(credentials=database),
        dataset_name="peer",
        pipelines_dir=folder,
    )
    pipeline.run(source, loader_file_format="csv")


if __name__ == "__main__":
    base, credentials, pipelines, begin, lag, size = sys.argv[1:]
    with measure_run():
        run(base, credentials, pipelines, begin, int(lag), int(size))
