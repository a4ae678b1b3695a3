"""Traces: from the request to the call of the source in one trace where a collector is set, and none elsewhere."""

from __future__ import annotations

import pytest

from infra import tracing
from infra.component_settings import TraceSettings
from infra.settings import Settings
from tests.support.downloads import running_downloads
from tests.support.trace_collector import running_collector

pytestmark = pytest.mark.stack


async def test_a_download_is_one_trace(settings: Settings) -> None:
    """Request, workflow, activity and the call of its source; addresses of sources are not in it."""
    async with running_collector() as collector:
        tracing.start_span_export(TraceSettings(endpoint=collector.address), "haulage-test")
        try:
            async with running_downloads(settings) as downloads:
                await downloads.run(downloads.source.url(rows=30, seed=3), page_size=100)
        finally:
            await tracing.stop_span_export()

    calls = [span for span in collector.spans if span["name"] == "GET 127.0.0.1"]
    paths = [collector.trace(span) for span in calls]
    # The SDK ends the span of a workflow as soon as it has begun, beside those of its activities.
    started = ["POST /v1/downloads", "StartWorkflow:DownloadWorkflow"]
    assert [*started, "RunWorkflow:DownloadWorkflow"] in [collector.trace(span) for span in collector.spans]
    assert [
        *started,
        "StartActivity:download_probe",
        "RunActivity:download_probe",
        "GET 127.0.0.1",
    ] in paths
    assert "seed=3" not in str(collector.spans)


async def test_without_a_collector_nothing_is_sent(settings: Settings) -> None:
    """Also not by a process that exported traces before."""
    async with running_collector() as collector:
        tracing.start_span_export(TraceSettings(endpoint=collector.address), "haulage-test")
        await tracing.stop_span_export()
        before = collector.requests
        tracing.start_span_export(TraceSettings(), "haulage-test")
        assert tracing.build_interceptors() == []
        async with running_downloads(settings) as downloads:
            await downloads.run(downloads.source.url(rows=30), page_size=100)

        assert collector.requests == before == 0
