"""Metrics of this process, and one page of them with those of the SDK's own exporter."""

from __future__ import annotations

import aiohttp
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

ACTIVITIES = Histogram(
    "haulage_activity_seconds", "Time an activity attempt took, by outcome.", ["activity", "outcome"]
)
ROWS = Counter("haulage_download_rows", "Rows fetched from sources.")
PAGES = Counter(
    "haulage_download_pages",
    "Requests for pages, by outcome: `done`, or the code of the fault.",
    ["outcome"],
)
DOWNLOADS_ACCEPTED = Counter("haulage_downloads_accepted", "Downloads that were accepted, by type of file.", ["type"])
DOWNLOADS_ENDED = Counter(
    "haulage_downloads_ended", "Downloads that ended, by state and by the code of the fault.", ["state", "cause"]
)
DOWNLOAD_SECONDS = Histogram(
    "haulage_download_seconds",
    "Time from the acceptance of a download to its end, by state.",
    ["state"],
    buckets=(0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600),
)
BYTES = Counter("haulage_download_bytes", "Bytes staged for downloads.")
TRANSFER_TARGETS_ENDED = Counter(
    "haulage_transfer_targets_ended", "Targets of ended jobs, by final state and reason.", ["state", "reason"]
)
TRANSFER_JOB_SECONDS = Histogram(
    "haulage_transfer_job_seconds",
    "Time from the end of a job's window to the end of the job, by state.",
    ["state"],
    buckets=(1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)
WATCHERS = Gauge("haulage_download_watchers", "Streams and waiting requests that watch downloads.")
PLATFORMS_UNSERVED = Gauge("haulage_platform_unserved", "Whether no worker serves a platform.", ["platform"])
CLOCKS_UNREAD = Gauge("haulage_platform_clock_unread", "Whether a platform's clock cannot be read.", ["platform"])
CREDENTIALS_REFUSED = Gauge(
    "haulage_platform_credentials_refused", "Whether a platform refuses the credentials of its account.", ["platform"]
)
SLICES_STALE = Gauge("haulage_platform_slices_stale", "Slices that take too long and were reported.", ["platform"])
SWEEPS_FAILED = Gauge("haulage_platform_sweeps_failed", "Complete slices whose last sweep failed.", ["platform"])
SLICES_OPEN = Gauge("haulage_platform_slices_open", "Slices that wait or are read.", ["platform"])
SLICES_FAILED = Gauge("haulage_platform_slices_failed", "Slices in the failed set.", ["platform"])
CLAIMED_AGE = Gauge(
    "haulage_platform_claimed_age_seconds", "How far `claimed_to` is behind the platform's clock.", ["platform"]
)
COMPLETE_AGE = Gauge(
    "haulage_platform_complete_age_seconds", "How far `complete_to` is behind the platform's clock.", ["platform"]
)
PLATFORM_REQUESTS = Counter(
    "haulage_platform_requests",
    "Requests to a platform, by status of the answer, or `unanswered`.",
    ["platform", "status"],
)
SLICES_ENDED = Counter(
    "haulage_order_slices_ended",
    "Readings of slices that ended, by purpose, by outcome (`done`, `failed`), and by the code of the fault.",
    ["platform", "purpose", "outcome", "cause"],
)
SLICE_SECONDS = Histogram(
    "haulage_order_slice_seconds",
    "Time from the claim of a slice to its completion.",
    buckets=(1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400),
)
SERVICE_CALLS = Counter(
    "haulage_service_calls", "Calls to outside services, by service, call and outcome.", ["service", "call", "outcome"]
)
ADDRESS_MESSAGES = Counter(
    "haulage_address_messages", "Messages of addresses that were delivered, by outcome.", ["outcome"]
)
ADDRESS_ENDINGS = Counter("haulage_address_endings", "Messages that ended in cycles, by outcome.", ["outcome"])
BACKFILLS = Counter("haulage_order_backfills", "Backfills that ended, by their state.", ["platform", "state"])
ORDERS = Counter("haulage_orders", "Orders written, new or newer than before.", ["platform"])
ORDERS_MISSED = Counter("haulage_orders_missed", "Orders that only a later reading found.", ["platform"])
STATUS_QUERIES = Counter("haulage_download_status_queries", "Status queries to the engine for downloads.")


async def render_page(sdk_address: str) -> bytes:
    """Return the metrics of this process and of the SDK in Prometheus' text format."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{sdk_address}/metrics") as answer:
        return generate_latest(REGISTRY) + await answer.read()
