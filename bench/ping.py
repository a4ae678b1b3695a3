"""`python -m bench.ping`: a bare aiohttp server; and how much processor a ping costs beside it.

Only processor seconds are compared, in rounds in turn: they hold on a machine that does other things, too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Final

import psutil
import uvloop
from aiohttp import web

from api.app import GC_THRESHOLDS
from bench import load
from bench.load import Script
from bench.processor import sum_cpu_seconds
from bench.report import RATIO, Figure
from domain import VERSION

ROOT: Final = Path(__file__).parent.parent
PATH: Final = "/v1/ping"
ANSWER: Final = {"code": 0, "msg": "SUCCESS", "service": "haulage", "version": VERSION}
CONNECTIONS: Final = 16
WARM_UP_PINGS: Final = 2_000
REACH: Final = 1.5


class PingFailed(Exception):
    """A ping was answered with something else."""


@dataclass(frozen=True)
class PingCost:
    """Processor microseconds of a ping, by round."""

    ours: list[float]
    bare: list[float]

    def build_figure(self) -> Figure:
        """Return the ratio of the medians."""
        ours, bare = median(self.ours), median(self.bare)
        how = (
            f"processor time of an API process for a ping by that of one aiohttp handler with the same answer on the "
            f"same loop, without a log: {ours:.0f} and {bare:.0f} µs, medians of {len(self.ours)} rounds in turn"
        )
        return Figure("a ping ÷ bare aiohttp: CPU", ours / bare, RATIO, how, f"≤ {REACH:g}", ours / bare <= REACH)


async def measure(api: str, pid: int, rounds: int, pings: int) -> PingCost:
    """Ping one API process, by its own address, and a bare server in turn.

    Raises:
        PingFailed: One of them answered wrongly.
    """
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.ping"), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None  # noqa: S101 (it was started with a pipe)
        bare = (await server.stdout.readline()).decode().strip()
        cost = PingCost([], [])
        for base in (api, bare):
            await asyncio.to_thread(_ping, base, WARM_UP_PINGS)
        for _ in range(rounds):
            cost.ours.append(await _measure_round(api, pid, pings))
            cost.bare.append(await _measure_round(bare, server.pid, pings))
        return cost
    finally:
        server.terminate()
        await server.wait()


async def _measure_round(base: str, pid: int, pings: int) -> float:
    process = psutil.Process(pid)
    before = sum_cpu_seconds(process)
    await asyncio.to_thread(_ping, base, pings)
    return (sum_cpu_seconds(process) - before) / pings * 1e6


def _ping(base: str, pings: int) -> None:
    request = load.request({}, "GET", PATH, b"")
    wrong: list[tuple[int, bytes]] = []

    def ping_in_turn(_begun: float) -> Script:
        for _ in range(pings // CONNECTIONS):
            status, body = yield request, 0.0
            if status != HTTPStatus.OK or json.loads(body) != ANSWER:
                wrong.append((status, body))

    load.drive(base, CONNECTIONS, ping_in_turn)
    if wrong:
        raise PingFailed(f"{base} answered {len(wrong)} pings wrongly, the first with {wrong[0]}")


async def _serve() -> None:
    """Serve one handler until the process is ended."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(ANSWER)

    app = web.Application()
    app.router.add_get(PATH, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    # As the API does it.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())
