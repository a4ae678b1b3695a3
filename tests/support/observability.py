"""Dashboards and the reference of metrics, from the code: `python -m tests.support.observability` writes both."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

import api.app  # noqa: F401 - declares the metrics of the API
import worker  # noqa: F401 - declares those of workers
from systems import SYSTEMS

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy/observability"
REFERENCE: Final = ROOT / "docs/reference/metrics.md"

Panels = tuple[tuple[str, str, str], ...]
"""Title, unit and expression of each panel."""

OVERVIEW: Final[Panels] = (
    ("Components that serve", "bool", "min by (component) (haulage_component_up)"),
    ("Requests", "reqps", "sum by (status) (rate(haulage_request_seconds_count[5m]))"),
    (
        "Slowest requests, 99th percentile",
        "s",
        "topk(10, histogram_quantile(0.99, sum by (le, route) (rate(haulage_request_seconds_bucket[5m]))))",
    ),
    ("Refusals", "reqps", "topk(10, sum by (route, code) (rate(haulage_request_refusals_total[5m])))"),
    ("Items that run", "short", 'max by (system) (haulage_workload_items{state="running"})'),
    ("Items that wait", "short", 'max by (system) (haulage_workload_items{state="waiting"})'),
    ("Items that failed", "short", 'max by (system) (haulage_workload_items{state="failed"})'),
    ("Concerns", "short", "max by (system, kind) (haulage_concerns) > 0"),
    ("Answer times of components", "s", "max by (component) (haulage_component_seconds)"),
    ("Webhooks that ended", "ops", "sum by (state) (rate(haulage_webhooks_ended_total[5m]))"),
    ("Webhooks that wait", "short", "max(haulage_webhooks_pending)"),
)
ENGINE: Final[Panels] = (
    ("Wait in queues", "s", "max by (queue) (haulage_queue_oldest_seconds)"),
    ("Backlog of queues", "short", "max by (queue) (haulage_queue_backlog)"),
    ("Workers of queues", "short", "max by (queue) (haulage_queue_workers)"),
    ("Activities by outcome", "ops", "sum by (outcome) (rate(haulage_activity_seconds_count[5m]))"),
    (
        "Activities, 95th percentile",
        "s",
        "topk(10, histogram_quantile(0.95, sum by (le, activity) (rate(haulage_activity_seconds_bucket[5m]))))",
    ),
    ("Calls of outside services", "ops", "sum by (service, outcome) (rate(haulage_service_calls_total[5m]))"),
    (
        "Calls of outside services, slowest",
        "s",
        "topk(9, histogram_quantile(0.95, sum by (le, service, call) (rate(haulage_service_call_seconds_bucket[5m]))))",
    ),
    ("Open circuit breakers", "bool", "max by (service) (haulage_service_circuit_open)"),
    ("Workflows that failed", "ops", "sum by (workflow, cause) (rate(haulage_workflows_failed_total[15m]))"),
    ("Attempts after the first", "ops", "topk(10, sum by (activity) (rate(haulage_activity_retries_total[5m])))"),
    (
        "Wait of activities for a worker, 95th percentile",
        "s",
        "topk(10, histogram_quantile(0.95, sum by (le, activity) (rate(haulage_activity_wait_seconds_bucket[5m]))))",
    ),
    (
        "Transactions, 95th percentile",
        "s",
        "histogram_quantile(0.95, sum by (le) (rate(haulage_database_seconds_bucket[5m])))",
    ),
    (
        "Calls of the object store, 95th percentile",
        "s",
        "histogram_quantile(0.95, sum by (le, call) (rate(haulage_store_seconds_bucket[5m])))",
    ),
    ("Requests to the engine", "reqps", "sum by (operation) (rate(temporal_request[5m]))"),
)
OF_EACH_SYSTEM: Final[Panels] = (
    ("Items", "short", 'max by (state) (haulage_workload_items{{system="{system}"}})'),
    ("Age of the oldest", "s", 'max by (state) (haulage_workload_oldest_seconds{{system="{system}"}})'),
    ("Concerns", "short", 'max by (kind) (haulage_concerns{{system="{system}"}})'),
    ("Wait in queues", "s", 'max by (queue) (haulage_queue_oldest_seconds{{system="{system}"}})'),
    ("Workers of queues", "short", 'max by (queue) (haulage_queue_workers{{system="{system}"}})'),
)
OWN: Final[dict[str, Panels]] = {
    "downloads": (
        ("Accepted and ended", "ops", "sum by (state, cause) (rate(haulage_downloads_ended_total[5m]))"),
        ("Rows", "rowsps", "sum(rate(haulage_download_rows_total[5m]))"),
        ("Bytes", "Bps", "sum(rate(haulage_download_bytes_total[5m]))"),
        ("Pages by outcome", "ops", "sum by (outcome) (rate(haulage_download_pages_total[5m]))"),
    ),
    "transfers": (
        ("Targets that joined", "ops", "sum by (outcome) (rate(haulage_transfer_joins_total[5m]))"),
        ("Targets that ended", "ops", "sum by (state, reason) (rate(haulage_transfer_targets_ended_total[5m]))"),
        ("Answers of GSE by code", "ops", "sum by (call, code) (rate(haulage_gse_answers_total[5m]))"),
        ("Calls of GSE", "ops", 'sum by (call, outcome) (rate(haulage_service_calls_total{service="gse"}[5m]))'),
    ),
    "orders": (
        ("Orders stored", "ops", "sum by (platform) (rate(haulage_orders_total[15m]))"),
        ("Orders that only a later reading found", "ops", "sum by (platform) (rate(haulage_orders_missed_total[1h]))"),
        ("Platforms without a worker", "bool", "max by (platform) (haulage_platform_unserved)"),
        ("Requests by status", "reqps", "sum by (platform, status) (rate(haulage_platform_requests_total[5m]))"),
        ("Age of complete_to", "s", "max by (platform) (haulage_platform_complete_age_seconds)"),
        ("Slices that ended", "ops", "sum by (purpose, outcome, cause) (rate(haulage_order_slices_ended_total[15m]))"),
        ("Without a permit in time", "ops", "sum by (platform) (rate(haulage_platform_quota_exhausted_total[15m]))"),
        ("Stale slices", "short", "max by (platform) (haulage_platform_slices_stale)"),
    ),
    "addresses": (
        ("Open messages", "short", "max by (topic, state) (haulage_addresses_open)"),
        ("Messages that ended", "ops", "sum by (outcome) (rate(haulage_address_endings_total[5m]))"),
        (
            "Open circuit breakers",
            "bool",
            'max by (service) (haulage_service_circuit_open{service=~"module_.*|pubsub"})',
        ),
        (
            "Cycles, 95th percentile",
            "s",
            "histogram_quantile(0.95, sum(rate(haulage_address_cycle_seconds_bucket[15m])) by (le))",
        ),
    ),
    "tasks": (
        ("Tasks by event", "ops", "sum by (type, event) (rate(haulage_tasks_total[5m]))"),
        ("Tasks that ended", "ops", "sum by (state) (rate(haulage_tasks_ended_total[5m]))"),
        (
            "From creation to end, 95th percentile",
            "s",
            "histogram_quantile(0.95, sum by (le) (rate(haulage_task_seconds_bucket[5m])))",
        ),
        (
            "Holds, 95th percentile",
            "s",
            "histogram_quantile(0.95, sum by (le) (rate(haulage_task_hold_seconds_bucket[5m])))",
        ),
        ("Oldest due task", "s", "max by (type) (haulage_task_oldest_due_seconds)"),
    ),
}


def build_dashboards() -> dict[str, str]:
    """Return the dashboards of Grafana by file name: an overview, the engine, and one of each system."""
    boards = {"overview": OVERVIEW, "engine": ENGINE}
    for system in SYSTEMS:
        common = tuple((title, unit, text.format(system=system)) for title, unit, text in OF_EACH_SYSTEM)
        boards[system] = (*common, *OWN[system])
    return {
        f"{name}.json": json.dumps(_build_dashboard(name, panels), indent=1) + "\n" for name, panels in boards.items()
    }


def _build_dashboard(name: str, panels: Panels) -> dict[str, Any]:
    return {
        "uid": f"haulage-{name}",
        "title": f"Haulage: {name}",
        "tags": ["haulage"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": title,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
                "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                "targets": [{"refId": "A", "expr": expression}],
            }
            for number, (title, unit, expression) in enumerate(panels)
        ],
    }


def list_metrics() -> list[MetricWrapperBase]:
    """Return every metric of Haulage that API and workers declare, by name."""
    found = {each for each in REGISTRY._names_to_collectors.values() if isinstance(each, MetricWrapperBase)}
    return sorted((each for each in found if each._name.startswith("haulage_")), key=lambda each: each._name)


def name_metric(metric: MetricWrapperBase) -> str:
    """Return the name under which a metric is served."""
    return f"{metric._name}_total" if metric._type == "counter" else metric._name


HEADING: Final = """# Metrics

Every metric of Haulage, as API and workers declare it (`python -m tests.support.observability` writes this page).
[Operate](../how-to/operate.md#metrics) says what to watch, and has a section for each alert.

`haulage_component_…`, `haulage_workload_…`, `haulage_webhooks_pending`, `haulage_webhooks_oldest_seconds`,
`haulage_concerns` and `haulage_queue_…` describe the whole installation, and each API process has them: aggregate them
by `max`. Others count what their process did: aggregate them by `sum`.

| metric | type | labels | what it is |
|---|---|---|---|
"""


def build_reference() -> str:
    """Return the page with all metrics."""
    return HEADING + "".join(map(_build_row, list_metrics()))


def _build_row(metric: MetricWrapperBase) -> str:
    labels = " ".join(f"`{label}`" for label in metric._labelnames)
    return f"| `{name_metric(metric)}` | {metric._type} | {labels} | {metric._documentation} |\n"


if __name__ == "__main__":
    (FOLDER / "dashboards").mkdir(parents=True, exist_ok=True)
    for file, text in build_dashboards().items():
        (FOLDER / "dashboards" / file).write_text(text)
    REFERENCE.write_text(build_reference())
    sys.stdout.write(f"wrote {FOLDER.relative_to(ROOT)}/dashboards and {REFERENCE.relative_to(ROOT)}\n")
