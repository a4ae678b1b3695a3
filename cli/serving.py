"""Worker and API processes."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from aiohttp import web

import worker
from cli.command import create_stop_event, print_warning
from domain.faults import Invalid
from infra import log, memory, metrics, temporal, tracing
from infra.settings import Settings, WorkerSlotsAndMetricsSettings
from infra.stopping import API_STOP_SECONDS, compute_worker_stop_seconds
from services import services

KEEPALIVE_SECONDS = 30.0
METRICS_PORT = "HAULAGE_WORKER__METRICS_PORT"
OWN_PORT = "HAULAGE_API__OWN_PORT"


async def serve_worker(settings: Settings, queues: Sequence[str]) -> None:
    """Serve task queues until SIGTERM or SIGINT, then let running activities finish."""
    memory.limit_allocator_memory()
    chosen = _require_known_queues_or_choose_all(queues)
    stop = create_stop_event()
    tracing.start_span_export(settings.traces, "haulage-worker")
    async with services.open_services(settings) as connected, _serve_metrics(settings.worker) as address:
        await services.require_revision_and_record_key_use(connected)
        # What is loaded by now stays; a collection of all of it would stop every activity of this process for a while.
        gc.freeze()
        log.get(__name__).info("worker_ready", queues=chosen, metrics=address)
        await worker.serve_queues(connected, chosen, stop)
        await tracing.stop_span_export()
        log.get(__name__).info("worker_stopped")


async def serve_workers(settings: Settings, queues: Sequence[str], processes: int) -> int:
    """Run several worker processes; return their exit code."""
    arguments = ("worker", *(f"--queues={queue}" for queue in _require_known_queues_or_choose_all(queues)))
    patience = compute_worker_stop_seconds(settings)
    return await _run_processes_as_group(arguments, METRICS_PORT, settings.worker.metrics_port, processes, patience)


async def serve_apis(settings: Settings, processes: int) -> int:
    """Run several API processes on one port; return their exit code."""
    port = settings.api.own_port or 0
    return await _run_processes_as_group(("api",), OWN_PORT, port, processes, API_STOP_SECONDS)


async def _run_processes_as_group(
    arguments: Sequence[str], port_variable: str, first_port: int, processes: int, patience_seconds: float
) -> int:
    """Run several processes that stop together, also when one of them dies.

    Args:
        port_variable: The variable of each process's own port; from a fixed first port they are numbered upwards.
        patience_seconds: How long they may take to stop; then they are killed.
    """
    stop = create_stop_event()
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "cli", *arguments),
            env={**os.environ, port_variable: str(first_port + number if first_port else 0)},
        )
        for number in range(processes)
    ]
    waits = [asyncio.create_task(child.wait()) for child in children]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *waits], return_when=asyncio.FIRST_COMPLETED)
    own_codes = [abs(child.returncode) for child in children if child.returncode is not None]
    for child in children:
        if child.returncode is None:
            child.terminate()
    _, hanging = await asyncio.wait(waits, timeout=patience_seconds)
    if hanging:
        print_warning(f"{len(hanging)} processes did not stop within {patience_seconds:g} s, and are killed.")
        for child in children:
            with suppress(ProcessLookupError):
                child.kill()
        await asyncio.wait(waits)
    stopping.cancel()
    # One that ended by itself has failed its purpose, whatever its code: a service manager starts the group again.
    return 0 if stop.is_set() else max(1, *own_codes)


def _require_known_queues_or_choose_all(queues: Sequence[str]) -> list[str]:
    known = worker.list_queue_names()
    unknown = sorted(queue for queue in set(queues) if not worker.is_known_queue(queue))
    if unknown:
        raise Invalid(
            "unknown_queue",
            f"No such task queue: {', '.join(unknown)}.",
            f"Choose from {', '.join(known)}, or none for all.",
        )
    return list(queues) or list(known)


@asynccontextmanager
async def _serve_metrics(settings: WorkerSlotsAndMetricsSettings) -> AsyncIterator[str]:
    """Serve `/metrics` and `/livez` of a worker process while the block runs."""

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=await metrics.render_metrics(temporal.get_or_create_sdk_runtime().address), content_type="text/plain"
        )

    async def check_liveness(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/metrics", show_metrics)
    app.router.add_get("/livez", check_liveness)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.metrics_host, settings.metrics_port)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()
