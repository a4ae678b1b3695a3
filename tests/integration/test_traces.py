"""Traces: from the request to the call of the source in one trace where a collector is set, and none elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from infra import tracing
from infra.settings import Settings, TraceSettings
from tests.support.downloads import running_downloads

pytestmark = pytest.mark.stack


@dataclass
class Collector:
    """A collector of traces that keeps what it is sent."""

    address: str = ""
    requests: int = 0
    spans: list[dict[str, str]] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        """Keep the spans of one export."""
        self.requests += 1
        export = ExportTraceServiceRequest.FromString(await request.read())
        for resource in export.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [MessageToDict(span) for span in scope.spans]
        return web.Response(content_type="application/x-protobuf")

    def trace(self, span: dict[str, str]) -> list[str]:
        """Return the names from the first span of a trace down to this one."""
        parents = {each["spanId"]: each for each in self.spans}
        above = parents.get(span.get("parentSpanId", ""))
        return [*(self.trace(above) if above else []), span["name"]]


@asynccontextmanager
async def running_collector() -> AsyncIterator[Collector]:
    """Serve a collector at a port of its own."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        collector.address = f"http://{host}:{port}"
        yield collector
    finally:
        await runner.cleanup()


async def test_a_download_is_one_trace(settings: Settings) -> None:
    """Request, workflow, activity and the call of its source; addresses of sources are not in it."""
    async with running_collector() as collector:
        tracing.start(TraceSettings(endpoint=collector.address), "haulage-test")
        try:
            async with running_downloads(settings) as downloads:
                await downloads.run(downloads.source.url(rows=30, seed=3), page_size=100)
        finally:
            await tracing.stop()

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
        tracing.start(TraceSettings(endpoint=collector.address), "haulage-test")
        await tracing.stop()
        before = collector.requests
        tracing.start(TraceSettings(), "haulage-test")
        assert tracing.build_interceptors() == []
        async with running_downloads(settings) as downloads:
            await downloads.run(downloads.source.url(rows=30), page_size=100)

        assert collector.requests == before == 0
