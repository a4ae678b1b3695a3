"""Figures of this process. Those of the SDK come from its own exporter and are joined to ours on one page."""

from __future__ import annotations

import aiohttp
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

ACTIVITIES = Histogram(
    "haulage_activity_seconds", "Time an activity attempt took, by outcome.", ["activity", "outcome"]
)
ROWS = Counter("haulage_download_rows", "Rows fetched from sources.")
PAGES = Counter("haulage_download_pages", "Pages fetched from sources, by outcome.", ["outcome"])
BYTES = Counter("haulage_download_bytes", "Bytes staged for downloads.")
WATCHERS = Gauge("haulage_download_watchers", "Streams and waiting requests that are told of downloads.")
PLATFORMS_UNSERVED = Gauge("haulage_platform_unserved", "Whether no worker serves a platform.", ["platform"])
CLOCKS_UNREAD = Gauge("haulage_platform_clock_unread", "Whether a platform's clock cannot be read.", ["platform"])
CREDENTIALS_REFUSED = Gauge(
    "haulage_platform_credentials_refused", "Whether a platform refuses the credentials of its account.", ["platform"]
)
SLICES_STALE = Gauge("haulage_platform_slices_stale", "Slices that take too long and were reported.", ["platform"])
SWEEPS_FAILED = Gauge("haulage_platform_sweeps_failed", "Complete slices whose last sweep failed.", ["platform"])
SERVICE_CALLS = Counter(
    "haulage_service_calls", "Calls to outside services, by service, call and outcome.", ["service", "call", "outcome"]
)
ADDRESS_MESSAGES = Counter(
    "haulage_address_messages", "Messages of addresses that were delivered, by outcome.", ["outcome"]
)
ADDRESS_ENDINGS = Counter("haulage_address_endings", "What became of messages in cycles, by outcome.", ["outcome"])
BACKFILLS = Counter("haulage_order_backfills", "Backfills that ended, by their state.", ["platform", "state"])
ORDERS = Counter("haulage_orders", "Orders written, new or newer than before.", ["platform"])
ORDERS_MISSED = Counter("haulage_orders_missed", "Orders that only a later reading found.", ["platform"])
LOOKS = Counter("haulage_download_looks", "Times that the engine was asked how a download goes.")


async def page(sdk_address: str) -> bytes:
    """Our own figures and those of the SDK, on one page in Prometheus' text format."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{sdk_address}/metrics") as answer:
        return generate_latest(REGISTRY) + await answer.read()
