"""Worker and API processes."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

import worker
from cli.process import stop_signal
from domain.faults import Invalid
from infra import log, memory, metrics, temporal
from infra.settings import Settings, WorkerSettings
from services import services
from stores import migrate

KEEPALIVE_SECONDS = 30.0
METRICS_PORT = "HAULAGE_WORKER__METRICS_PORT"
OWN_PORT = "HAULAGE_API__OWN_PORT"


async def serve_worker(settings: Settings, queues: Sequence[str]) -> None:
    """Serve task queues until told to stop, then let what runs finish."""
    memory.configure()
    chosen = _chosen(queues)
    stop = stop_signal()
    async with services.connect(settings) as held, _figures(settings.worker) as address:
        await migrate.require_head(held.database)
        # What is loaded by now stays: a look through all of it stops every activity of this process for a while.
        gc.freeze()
        log.get(__name__).info("worker_ready", queues=chosen, metrics=address)
        await worker.serve(held, chosen, stop)
        log.get(__name__).info("worker_stopped")


async def serve_workers(settings: Settings, queues: Sequence[str], processes: int) -> int:
    """Several worker processes as one."""
    arguments = ("worker", *(f"--queues={queue}" for queue in _chosen(queues)))
    return await _serve_as_one(arguments, METRICS_PORT, settings.worker.metrics_port, processes)


async def serve_apis(settings: Settings, processes: int) -> int:
    """Several API processes as one, on one port."""
    return await _serve_as_one(("api",), OWN_PORT, settings.api.own_port or 0, processes)


async def _serve_as_one(arguments: Sequence[str], port_variable: str, first_port: int, processes: int) -> int:
    """Several processes that stop together, also when one of them dies.

    Args:
        port_variable: Where each is told the port that is its own: a fixed one is followed by those of its siblings.
    """
    stop = stop_signal()
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
    for child in children:
        if child.returncode is None:
            child.terminate()
    codes = await asyncio.gather(*waits)
    stopping.cancel()
    return 0 if stop.is_set() else max(map(abs, codes))


def _chosen(queues: Sequence[str]) -> list[str]:
    known = worker.list_queue_names()
    unknown = sorted(queue for queue in set(queues) if not worker.is_known(queue))
    if unknown:
        raise Invalid(
            "unknown_queue",
            f"No such task queue: {', '.join(unknown)}.",
            f"Choose from {', '.join(known)}, or none for all.",
        )
    return list(queues) or list(known)


@asynccontextmanager
async def _figures(settings: WorkerSettings) -> AsyncIterator[str]:
    """`/metrics` and `/livez` of a worker process."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=await metrics.page(temporal.telemetry().address), content_type="text/plain")

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/metrics", show)
    app.router.add_get("/livez", live)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.metrics_host, settings.metrics_port)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()
