"""Cases of requests of orders: for each field two values that make a difference, and where they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sims.platforms import texts
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.orders import CREDENTIALS

SPAN_SECONDS = 3_600
FIRST, MIDDLE = "2026-01-01T00:00:00Z", "2026-01-01T00:30:00Z"
NEXT = "next_cursor of the page before"
SLOW_RATE, ROW_OF_REQUESTS = 0.5, 3
"""Requests a second, and the number of requests in a row that take long at this rate, on any machine."""
QUICK: dict[str, Any] = {
    "credentials": CREDENTIALS,
    "settle_lag": 60,
    "retryintv": 0.0,
    "sweep_after": 0,
    "retries": 0,
    "starttime": FIRST,
    "interval": 1_500,
}
HOUR = PlatformScenario(orders=60, span_seconds=SPAN_SECONDS)
ERRORS, SLOW = PlatformFaults(errors=1), PlatformFaults(slow_ms=900)
SMALL_PAGES = PLAIN.model_copy(update={"paging": PLAIN.paging.model_copy(update={"size": 20})})


def failing(faults: PlatformFaults) -> PlatformScenario:
    """Return an hour of orders with these faults."""
    return HOUR.model_copy(update={"faults": faults})


@dataclass(frozen=True)
class Case:
    """Two values of a field, and a request in which they make a difference."""

    one: Any
    other: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the request."""
    beside_other: Mapping[str, Any] | None = None
    """The rest of the request with the other value, where it cannot be the same."""
    scenario: PlatformScenario = HOUR

    @property
    def requests(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what else is sent with each value."""
        return dict(self.beside), dict(self.beside if self.beside_other is None else self.beside_other)


CONFIG: dict[str, Case] = {
    "starttime": Case(FIRST, MIDDLE),
    "interval": Case(1_500, 600),
    "timeout": Case(1, 60, scenario=failing(SLOW)),
    "retries": Case(0, 1, scenario=failing(ERRORS)),
    "retryintv": Case(0.0, 1.0, {"retries": 1}, scenario=failing(ERRORS)),
    "threads": Case(1, 8, {"interval": 200}, scenario=failing(PlatformFaults(slow_ms=100))),
    "overlap": Case(0, 1_000),
    "settle_lag": Case(60, 1_200),
    "sweep_after": Case(0, 1),
    "max_rows_per_slice": Case(5, 10_000),
    # One slice, as each request takes two seconds.
    "requests_per_second": Case(SLOW_RATE, 1_000.0, {"burst": 1, "interval": 3_000}),
    "burst": Case(1, 60, {"requests_per_second": SLOW_RATE, "interval": 3_000}),
    "daily_quota": Case(4, 10_000),
    "credentials": Case(CREDENTIALS, "withdrawn"),
    "api_version": Case(
        "v1", "v2", scenario=PlatformScenario(orders=60, span_seconds=SPAN_SECONDS, api_version="v1", version_in="path")
    ),
}
SETUP: dict[str, Case] = {
    "project_id": Case("own", "other"),
    "kind": Case(
        "taobao",
        "woocommerce",
        {"capability": None},
        scenario=PlatformScenario(kind="taobao", orders=9, skew_seconds=0, span_seconds=SPAN_SECONDS),
    ),
    "shop": Case("one", "other"),
    "base_url": Case("one", "other"),
    "capability": Case(PLAIN.model_dump(mode="json"), SMALL_PAGES.model_dump(mode="json")),
    "notify_url": Case(None, "somebody", scenario=failing(ERRORS)),
}
CHOICE: dict[str, Case] = {
    "slices": Case(["first"], ["second"]),
    "start": Case(FIRST, MIDDLE),
    "end": Case("2026-01-01T00:00:10Z", "2026-01-02T00:00:00Z"),
    "cause": Case("platform_busy", "slice_timeout"),
    "all": Case(True, False, {}, {"cause": "slice_timeout"}),
}
SIGNED: dict[str, Case] = {
    "who": Case("Ada", "Grace"),
    "reason": Case("too old", "too dear"),
    "dry_run": Case(True, False),
}
TRIED: dict[str, Case] = {name: SETUP[name] for name in ("kind", "base_url", "capability")} | {
    # A failure names the shop.
    "shop": Case("one", "other", scenario=failing(ERRORS)),
    "credentials": Case(CREDENTIALS, "withdrawn"),
    "start": Case(FIRST, MIDDLE),
    "end": Case(MIDDLE, "2026-01-01T00:50:00Z", {"start": FIRST}),
}
REASON = Case("too old", "too dear", {"slices": ["first"]}, {"slices": ["second"]})
BACKFILL: dict[str, Case] = {
    "start": Case(FIRST, MIDDLE, {"end": "2026-01-01T00:50:00Z"}),
    "end": Case("2026-01-01T00:10:00Z", "2026-01-01T00:50:00Z", {"start": FIRST}),
    "who": Case("Ada", "Grace", {"start": FIRST, "end": MIDDLE}),
}
PAGES: dict[str, Case] = {"limit": Case(1, 2), "cursor": Case(None, NEXT, {"limit": 1})}
SLICES: dict[str, Case] = PAGES | {
    "state": Case("done", "failed"),
    "reread": Case("succeeded", "failed"),
    "stale": Case(None, "true"),
    "sweep": Case(None, "failed"),
    "cause": Case("platform_busy", "slice_timeout"),
    "start": Case(FIRST, MIDDLE),
    "end": Case(MIDDLE, "2026-01-02T00:00:00Z"),
}
ORDERS: dict[str, Case] = PAGES | {
    "platform": Case("one", "two"),
    "shop": Case("shop", "other"),
    "order_id": Case("an id", "another id"),
    "field": Case(f"id={texts.order_id(1)}", f"id={texts.order_id(2)}"),
    "modified_after": Case(FIRST, MIDDLE, {"limit": 200}),
    "modified_before": Case("2026-01-02T00:00:00Z", MIDDLE, {"limit": 200}),
}
FILTERS: dict[str, Case] = {
    "platform": Case("one", "two"),
    "modified_after": Case(FIRST, MIDDLE, {"platform": "one"}),
    "modified_before": Case("2026-01-02T00:00:00Z", MIDDLE, {"platform": "one"}),
}
SOURCE: dict[str, Case] = FILTERS | {
    "mark": Case("before a change", "after it", {"platform": "one"}),
    "page": Case(0, 1, {"platform": "one"}),
    "page_size": Case(10, 20, {"platform": "one"}),
}
TIMELINE: dict[str, Case] = {
    "start": Case(FIRST, MIDDLE),
    "end": Case(MIDDLE, "2026-01-01T00:50:00Z"),
    "bucket_count": Case(2, 5),
}
