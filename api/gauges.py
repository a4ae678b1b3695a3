"""Gauges of the whole installation, which each API process sets whenever it is asked for its metrics."""

from __future__ import annotations

import asyncio
from math import nan
from typing import Final

from aiohttp import web
from prometheus_client import Gauge

from api.components import ComponentHealth
from api.overview import CONTEXT, OverviewResponse
from domain.workload import ConcernKind
from infra import log
from stores.webhooks import PendingDeliveries

COMPONENT_UP: Final = Gauge("haulage_component_up", "Whether a component answers and can be written.", ["component"])
COMPONENT_SECONDS: Final = Gauge(
    "haulage_component_seconds", "Time in which a component answered its last check.", ["component"]
)
ITEMS: Final = Gauge("haulage_workload_items", "Items of a system by state.", ["system", "state"])
OLDEST: Final = Gauge(
    "haulage_workload_oldest_seconds", "Age of the oldest item of a system by state.", ["system", "state"]
)
CONCERNS: Final = Gauge("haulage_concerns", "What an operator should look at, by system and kind.", ["system", "kind"])
QUEUE_WORKERS: Final = Gauge("haulage_queue_workers", "Worker processes that serve a queue.", ["system", "queue"])
QUEUE_BACKLOG: Final = Gauge("haulage_queue_backlog", "What waits in a queue for a worker, about.", ["system", "queue"])
QUEUE_WAIT: Final = Gauge(
    "haulage_queue_oldest_seconds", "How long the first of a queue has waited for a worker, about.", ["system", "queue"]
)
WEBHOOKS_PENDING: Final = Gauge("haulage_webhooks_pending", "Deliveries that have not ended.")
WEBHOOKS_OLDEST: Final = Gauge("haulage_webhooks_oldest_seconds", "Age of the oldest delivery that has not ended.")
GAUGES_TIMEOUT_SECONDS: Final = 7.0
"""A scrape that takes longer lacks gauges, rather than all metrics. It is longer than the check of a component that
hangs, which must be shown as down, and shorter than the 10 s that Prometheus waits."""
_LABELLED: Final = (COMPONENT_UP, COMPONENT_SECONDS, ITEMS, OLDEST, CONCERNS, QUEUE_WORKERS, QUEUE_BACKLOG, QUEUE_WAIT)

_log = log.get(__name__)


async def update_installation_gauges(app: web.Application) -> None:
    """Set the gauges to the present state of the installation; remove those that cannot be read at present."""
    reader = app[CONTEXT].reader
    overview: OverviewResponse | None = None
    deliveries: PendingDeliveries | None = None
    components: list[ComponentHealth] = []
    try:
        async with asyncio.timeout(GAUGES_TIMEOUT_SECONDS):
            components = await reader.read_components_health()
            deliveries = await reader.read_pending_deliveries()
            overview = await reader.read_snapshot(None, is_admin=True)
    except Exception as error:  # noqa: BLE001 (the metrics of this process are read even if no component serves)
        _log.warning("gauges_not_updated", error=repr(error))
    for gauge in _LABELLED:
        gauge.clear()
    for component in components:
        COMPONENT_UP.labels(component.name).set(component.ok)
        if component.milliseconds is not None:
            COMPONENT_SECONDS.labels(component.name).set(component.milliseconds / 1_000)
    # They have no labels to remove; a zero would say that nothing waits.
    WEBHOOKS_PENDING.set(deliveries.count if deliveries else nan)
    WEBHOOKS_OLDEST.set(deliveries.compute_age_of_oldest() if deliveries else nan)
    if overview is not None:
        _set_overview_gauges(overview)


def _set_overview_gauges(overview: OverviewResponse) -> None:
    for each in overview.systems:
        for state, count, seconds in (
            ("running", each.running, each.oldest_running_seconds),
            ("waiting", each.waiting, each.oldest_waiting_seconds),
            ("failed", each.failed, each.oldest_failed_seconds),
        ):
            ITEMS.labels(each.system, state).set(count)
            OLDEST.labels(each.system, state).set(seconds or 0.0)
        for kind in ConcernKind:
            CONCERNS.labels(each.system, kind).set(sum(one.count for one in each.concerns if one.kind is kind))
    for queue in overview.queues:
        QUEUE_WORKERS.labels(queue.system, queue.name).set(queue.workers)
        QUEUE_BACKLOG.labels(queue.system, queue.name).set(queue.backlog)
        QUEUE_WAIT.labels(queue.system, queue.name).set(queue.backlog_seconds)
