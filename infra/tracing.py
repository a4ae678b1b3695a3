# ruff: noqa: PLC0415 - a process without a collector loads nothing of OpenTelemetry
"""Traces of requests, workflows, activities and calls outside, in OpenTelemetry's form, where a collector is set.

Without one nothing of OpenTelemetry is imported, and a span is no more than one comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from domain import VERSION
from infra.component_settings import TraceSettings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_PATH: Final = "/v1/traces"

_provider: TracerProvider | None = None
_tracer: Tracer | None = None


def start_span_export(settings: TraceSettings, service: str) -> None:
    """Export the spans of this process from now on, if a collector is set; call it once, before clients connect.

    Args:
        service: The name of the process' kind, `haulage-api` or `haulage-worker`.
    """
    global _provider, _tracer  # noqa: PLW0603 - a process has one tracer, as it has one log
    if not settings.endpoint:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    _provider = TracerProvider(
        resource=Resource.create({"service.name": service, "service.version": VERSION}),
        sampler=ParentBasedTraceIdRatio(settings.sampled_share),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=f"{settings.endpoint.rstrip('/')}{_PATH}")
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer("haulage", VERSION)


def is_span_export_started() -> bool:
    """Return whether this process exports spans."""
    return _tracer is not None


async def stop_span_export() -> None:
    """Export what is left, and trace no more."""
    global _provider, _tracer
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        await asyncio.to_thread(provider.shutdown)


def build_interceptors() -> list[Any]:
    """Return the SDK's interceptor that continues traces in workflows and activities; none without a collector."""
    if _tracer is None:
        return []
    from temporalio.contrib.opentelemetry import TracingInterceptor

    return [TracingInterceptor(_tracer)]


def trace_request(method: str, resource: Any, headers: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Trace the body as a request that the API serves, in the trace that its caller names, if it names one.

    Args:
        resource: What the router found; its template names the span, as the path itself carries ids.
    """
    if _tracer is None:
        return nullcontext()
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    name = f"{method} {resource.canonical if resource else 'none'}"
    return _trace_span(_tracer, name, SpanKind.SERVER, extract(dict(headers)))


def trace_call(method: str, url: object) -> AbstractContextManager[Any]:
    """Trace the body as a call to an outside service. Paths and queries stay out: they may carry secrets."""
    if _tracer is None:
        return nullcontext()
    from opentelemetry.trace import SpanKind

    host = urlsplit(str(url)).hostname or ""
    return _trace_span(_tracer, f"{method} {host}", SpanKind.CLIENT, None, {"server.address": host})


@contextmanager
def _trace_span(
    tracer: Tracer, name: str, kind: Any, parent: Context | None, attributes: Mapping[str, str] | None = None
) -> Iterator[None]:
    from opentelemetry.trace import StatusCode

    with tracer.start_as_current_span(
        name, parent, kind, attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except Exception as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            raise
