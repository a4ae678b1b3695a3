"""Figures of this process. Those of the SDK come from its own exporter and are joined to ours on one page."""

from __future__ import annotations

from prometheus_client import REGISTRY, Counter, Histogram, generate_latest

ACTIVITIES = Histogram(
    "haulage_activity_seconds", "Time an activity attempt took, by outcome.", ["activity", "outcome"]
)
ROWS = Counter("haulage_download_rows", "Rows fetched from sources.")
PAGES = Counter("haulage_download_pages", "Pages fetched from sources, by outcome.", ["outcome"])
BYTES = Counter("haulage_download_bytes", "Bytes staged for downloads.")


def render() -> bytes:
    """Our own figures in Prometheus' text format."""
    return generate_latest(REGISTRY)
