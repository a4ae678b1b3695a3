"""A collector of traces in OpenTelemetry's form, which keeps what processes export."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


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
