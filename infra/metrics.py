"""Metrics of this process, and one page of them with those of the SDK's own exporter."""

from __future__ import annotations

import aiohttp
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

ACTIVITIES = Histogram(
    "haulage_activity_seconds", "Time an activity attempt took, by outcome.", ["activity", "outcome"]
)
ACTIVITY_WAITS = Histogram(
    "haulage_activity_wait_seconds",
    "Time an activity attempt waited for a worker, from when it was due to its start.",
    ["activity"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800),
)
ACTIVITY_RETRIES = Counter("haulage_activity_retries", "Activity attempts after the first one.", ["activity"])
WORKFLOWS_FAILED = Counter(
    "haulage_workflows_failed",
    "Workflows that failed in the engine, by type of the error: internal errors, not faults of users.",
    ["workflow", "cause"],
)
DATABASE_SECONDS = Histogram(
    "haulage_database_seconds",
    "Time of a transaction, or of a loan of a connection, by outcome; with the wait for the connection.",
    ["outcome"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)
STORE_SECONDS = Histogram(
    "haulage_store_seconds",
    "Time of a call of the object store, by call and outcome; with the wait for a thread.",
    ["call", "outcome"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
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
TRANSFER_JOB_TARGETS = Histogram(
    "haulage_transfer_job_targets",
    "Targets of a job: how many requests a window brings together.",
    buckets=(1, 10, 100, 1_000, 10_000, 50_000, 100_000),
)
TRANSFER_JOINS = Counter(
    "haulage_transfer_joins",
    "Targets that were to join a job, by outcome: `joined`, `window_full` or `failed`.",
    ["outcome"],
)
TRANSFER_FILE_BYTES = Counter("haulage_transfer_file_bytes", "Bytes of files that were fetched to be sent.")
TRANSFER_BYTES = Counter("haulage_transfer_bytes", "Bytes that reached targets: of a file, once for each.")
GSE_ANSWERS = Counter(
    "haulage_gse_answers",
    "Answers of GSE by call and code; `none` for an answer without a code, `other` for a code beyond the first 100.",
    ["call", "code"],
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
PLATFORM_WAITS = Histogram(
    "haulage_platform_wait_seconds",
    "Time a request waited for its permit within the rate of its account.",
    ["platform"],
    buckets=(0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300),
)
PLATFORM_QUOTA_REFUSALS = Counter(
    "haulage_platform_quota_exhausted",
    "Requests that did not get a permit in time because the rate or the day's quota of the account was used up.",
    ["platform"],
)
PLATFORM_BYTES = Counter("haulage_platform_bytes", "Bytes of a platform's answers.", ["platform"])
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
SERVICE_CALL_SECONDS = Histogram(
    "haulage_service_call_seconds",
    "Time of an attempt to call an outside service; of a platform with the wait for its permit.",
    ["service", "call"],
)
SERVICE_CIRCUITS = Gauge(
    "haulage_service_circuit_open",
    "Whether a circuit breaker of this process is open: an outside service failed too often in a row.",
    ["service"],
)
ADDRESS_CYCLE_SECONDS = Histogram(
    "haulage_address_cycle_seconds",
    "Time of a cycle of addresses that had messages.",
    buckets=(0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 3_600),
)
ADDRESS_MESSAGES = Counter(
    "haulage_address_messages", "Messages of addresses that were delivered, by outcome.", ["outcome"]
)
ADDRESS_ENDINGS = Counter("haulage_address_endings", "Messages that ended in cycles, by outcome.", ["outcome"])
BACKFILLS = Counter("haulage_order_backfills", "Backfills that ended, by their state.", ["platform", "state"])
ORDERS = Counter("haulage_orders", "Orders written, new or newer than before.", ["platform"])
ORDERS_MISSED = Counter("haulage_orders_missed", "Orders that only a later reading found.", ["platform"])
TASK_HOLD_SECONDS = Histogram(
    "haulage_task_hold_seconds", "Time in which lanes answered a request for due tasks, without its wait for them."
)
TASKS_ENDED = Counter("haulage_tasks_ended", "Tasks that were archived, by their final state.", ["state"])
TASK_SECONDS = Histogram(
    "haulage_task_seconds",
    "Time from the creation of a task to its end, by its final state.",
    ["state"],
    buckets=(0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 3_600, 14_400, 86_400),
)
WEBHOOK_ATTEMPTS = Counter(
    "haulage_webhook_attempts",
    "Attempts of deliveries, by class of the receiver's status (`2xx`), or `unanswered`.",
    ["outcome"],
)
WEBHOOKS_ENDED = Counter("haulage_webhooks_ended", "Deliveries that ended, by state.", ["state"])
WEBHOOK_SECONDS = Histogram(
    "haulage_webhook_seconds",
    "Time from the event of a delivery, or from a redelivery, to its end, by state.",
    ["state"],
    buckets=(0.1, 0.5, 1, 5, 30, 60, 300, 1_800, 3_600, 14_400, 86_400),
)
STATUS_QUERIES = Counter("haulage_download_status_queries", "Status queries to the engine for downloads.")


async def render_metrics(sdk_address: str) -> bytes:
    """Return the metrics of this process and of the SDK in Prometheus' text format."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{sdk_address}/metrics") as answer:
        return generate_latest(REGISTRY) + await answer.read()
