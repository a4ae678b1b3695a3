"""dlt: `rest_api` to CSV files of the filesystem destination, tuned as its page on performance advises."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

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

# With the types given, dlt need not look for dates in texts: a fifth faster here.
TYPES = {
    "id": "bigint",
    "order_no": "text",
    "customer": "text",
    "product": "text",
    "amount": "double",
    "quantity": "bigint",
    "paid": "bool",
    "ordered_at": "text",
    "note": "text",
    "city": "text",
}


def export(url: str, page_size: int, folder: Path) -> None:
    """Pages until an empty one comes."""
    parts = urlsplit(url)
    endpoint = {
        "path": parts.path.removeprefix("/"),
        "params": {**dict(parse_qsl(parts.query)), "page_size": page_size},
        "data_selector": "data",
        "paginator": {"type": "page_number", "base_page": 0, "page_param": "page", "total_path": None},
    }
    columns = {name: {"data_type": kind} for name, kind in TYPES.items()}
    source = rest_api_source(
        {
            "client": {"base_url": f"{parts.scheme}://{parts.netloc}"},
            "resources": [{"name": "rows", "endpoint": endpoint, "columns": columns}],
        }
    )
    pipeline = dlt.pipeline(
        "bench",
        destination=dlt.destinations.filesystem(bucket_url=folder.as_uri()),
        dataset_name="files",
        pipelines_dir=str(folder / "pipelines"),
    )
    pipeline.run(source, loader_file_format="csv")
    for path in sorted((folder / "files" / "rows").iterdir()):
        path.rename(folder / path.name)


if __name__ == "__main__":
    source_url, size, target = sys.argv[1:]
    with measure_run():
        export(source_url, int(size), Path(target))
