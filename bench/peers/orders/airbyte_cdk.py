"""Airbyte's CDK: a declarative stream with the concurrent datetime cursor, as its builder writes one.

The CDK is a source and no more: what it emits is written to a file, and merging by id is left to who reads that.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from airbyte_cdk.models import (  # type: ignore[import-not-found]  # in the peer's environment alone
    AirbyteMessageSerializer,
    AirbyteStateMessageSerializer,
    ConfiguredAirbyteCatalogSerializer,
    Type,
)
from airbyte_cdk.sources.declarative.concurrent_declarative_source import (  # type: ignore[import-not-found]
    ConcurrentDeclarativeSource,
)
from orjson import dumps  # type: ignore[import-not-found]

from bench.peers.meter import measure_run

STREAM = "orders"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "status": {"type": "string"},
        "created_at": {"type": "string"},
        "updated_at": {"type": "string", "format": "date-time"},
        "version": {"type": "integer"},
        "currency": {"type": "string"},
        "total": {"type": "number"},
        "tax": {"type": "number"},
        "customer": {"type": "object"},
        "items": {"type": "array"},
    },
}


def manifest(url: str, start: str, step: str, lag_seconds: int, page_size: int) -> dict[str, Any]:
    """What the builder calls a connector: windows of a step, both ends included, pages by their number."""
    form = "%Y-%m-%dT%H:%M:%SZ"
    cursor = {
        "type": "DatetimeBasedCursor",
        "cursor_field": "updated_at",
        "datetime_format": form,
        "cursor_datetime_formats": [form],
        "start_datetime": {"type": "MinMaxDatetime", "datetime": start, "datetime_format": form},
        "end_datetime": {"type": "MinMaxDatetime", "datetime": "{{ config['now'] }}", "datetime_format": form},
        "step": step,
        "cursor_granularity": "PT1S",
        "lookback_window": f"PT{lag_seconds}S",
        "start_time_option": {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "from"},
        "end_time_option": {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "to"},
    }
    paginator = {
        "type": "DefaultPaginator",
        "page_token_option": {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "page"},
        "page_size_option": {"type": "RequestOption", "inject_into": "request_parameter", "field_name": "page_size"},
        "pagination_strategy": {"type": "PageIncrement", "start_from_page": 1, "page_size": page_size},
    }
    requester = {
        "type": "HttpRequester",
        "url_base": url,
        "path": "/orders",
        "http_method": "GET",
        "request_parameters": {"sort": "updated_at"},
        "authenticator": {"type": "BearerAuthenticator", "api_token": "token-of-this-shop-1"},
    }
    # A first page is asked for by its number, too.
    paginator["pagination_strategy"]["inject_on_first_request"] = True  # type: ignore[index]
    stream = {
        "type": "DeclarativeStream",
        "name": STREAM,
        "primary_key": ["id"],
        "incremental_sync": cursor,
        "schema_loader": {"type": "InlineSchemaLoader", "schema": SCHEMA},
        "retriever": {
            "type": "SimpleRetriever",
            "requester": requester,
            "paginator": paginator,
            "record_selector": {
                "type": "RecordSelector",
                "extractor": {"type": "DpathExtractor", "field_path": ["orders"]},
            },
        },
    }
    return {
        "type": "DeclarativeSource",
        "version": "7.0.0",
        "check": {"type": "CheckStream", "stream_names": [STREAM]},
        "streams": [stream],
        "concurrency_level": {"type": "ConcurrencyLevel", "default_concurrency": 4},
        "spec": {"type": "Spec", "connection_specification": {"type": "object", "properties": {}}},
    }


def run(connector: dict[str, Any], now: str, folder: Path) -> None:
    """One incremental sync: records are appended to a file, the last state is kept for the next."""
    config, kept = {"now": now}, folder / "state.json"
    state = [AirbyteStateMessageSerializer.load(each) for each in json.loads(kept.read_text())] if kept.exists() else []
    catalog = ConfiguredAirbyteCatalogSerializer.load(
        {
            "streams": [
                {
                    "stream": {
                        "name": STREAM,
                        "json_schema": SCHEMA,
                        "supported_sync_modes": ["full_refresh", "incremental"],
                        "source_defined_cursor": True,
                        "default_cursor_field": ["updated_at"],
                        "source_defined_primary_key": [["id"]],
                    },
                    "sync_mode": "incremental",
                    "destination_sync_mode": "append_dedup",
                    "cursor_field": ["updated_at"],
                    "primary_key": [["id"]],
                }
            ]
        }
    )
    source = ConcurrentDeclarativeSource(catalog=catalog, config=config, state=state, source_config=connector)
    with (folder / "records.jsonl").open("ab") as out:
        for message in source.read(logging.getLogger("airbyte"), config, catalog, state):
            if message.type == Type.RECORD:
                out.write(dumps(AirbyteMessageSerializer.dump(message)) + b"\n")
            elif message.type == Type.STATE:
                kept.write_text(json.dumps([AirbyteStateMessageSerializer.dump(message.state)]))


if __name__ == "__main__":
    base, target, begin, platform_now, length, lag, size = sys.argv[1:]
    with measure_run():
        run(manifest(base, begin, length, int(lag), int(size)), platform_now, Path(target))
