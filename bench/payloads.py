"""Encrypted payloads: what encryption costs a payload, and a whole workflow run."""

from __future__ import annotations

import asyncio
import base64
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.worker import Worker

from bench.report import Figure, publish
from dev.embedded.stack import run_stack
from infra import temporal
from infra.component_settings import EmbeddedPortSettings
from infra.payloads import EncryptingCodec

SMALL: Final = os.environ.get("SIZE") == "small"
SIZES: Final = {"200 B": 200, "2 kB": 2_000, "50 kB": 50_000, "1 MB": 1_000_000}
SECONDS: Final = 0.2 if SMALL else 1.0
RUNS: Final = 100 if SMALL else 400
CONCURRENCY: Final = 20
ROUNDS: Final = 3 if SMALL else 5
CONTENT_BYTES: Final = 2_000
PORTS: Final = EmbeddedPortSettings(engine_port=0, ui_port=0, database_port=0, store_port=0)
QUEUE: Final = "bench-payloads"


@activity.defn(name="bench-echo")
async def echo(text: str) -> str:
    """Return what came."""
    return text


@workflow.defn(name="BenchEcho")
class EchoWorkflow:
    """Two activities, whose arguments and results are payloads."""

    @workflow.run
    async def run(self, text: str) -> str:
        """Pass a text through both."""
        for _ in range(2):
            text = await workflow.execute_activity(echo, text, start_to_close_timeout=timedelta(minutes=1))
        return text


@dataclass(frozen=True)
class Round:
    """Runs of one round: seconds and processor seconds of this process a run, and bytes of a history."""

    seconds: float
    cpu_seconds: float
    history_bytes: int


async def measure() -> None:
    """Measure payloads alone, then runs without and with encryption in turn; publish."""
    codec = EncryptingCodec([base64.urlsafe_b64encode(os.urandom(32)).decode()], encrypts=True)
    figures = [figure for name, size in SIZES.items() for figure in await _measure_payload(codec, name, size)]
    with tempfile.TemporaryDirectory(prefix="haulage-payloads-") as folder:
        async with run_stack(Path(folder), ui=False, ports=PORTS) as stack:
            environment = stack.build_environment()
            clients = [await temporal.connect(environment, codec=each) for each in (None, codec)]
            rounds: tuple[list[Round], list[Round]] = ([], [])
            for turn in range(ROUNDS + 1):
                for client, kept in zip(clients, rounds, strict=True):
                    done = await _run_round(client)
                    # The first round of each warms up.
                    kept.extend([done] if turn else [])
    publish("payloads-small" if SMALL else "payloads", [*figures, *_compare_rounds(*rounds)])


async def _measure_payload(codec: EncryptingCodec, name: str, size: int) -> list[Figure]:
    plain = Payload(metadata={"encoding": b"json/plain"}, data=os.urandom(size // 2).hex().encode())
    hidden = await codec.encode([plain])
    figures = []
    for step, work, payloads in (("encrypt", codec.encode, [plain]), ("decrypt", codec.decode, hidden)):
        done, began = 0, time.process_time()
        while time.process_time() - began < SECONDS:
            await work(payloads)
            done += 1
        figures.append(Figure(f"{step} {name}", (time.process_time() - began) / done * 1e6, "µs", f"{done:,} times"))
    more = len(hidden[0].SerializeToString()) - len(plain.SerializeToString())
    return [*figures, Figure(f"bytes more of {name}", more, "B", "in the engine's database")]


async def _run_round(client: Client) -> Round:
    text = "x" * CONTENT_BYTES
    gate = asyncio.Semaphore(CONCURRENCY)
    ids = [f"bench-{uuid.uuid4()}" for _ in range(RUNS)]

    async def run_one(workflow_id: str) -> None:
        async with gate:
            await client.execute_workflow(EchoWorkflow.run, text, id=workflow_id, task_queue=QUEUE)

    async with Worker(client, task_queue=QUEUE, workflows=[EchoWorkflow], activities=[echo]):
        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*map(run_one, ids))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    history = await client.get_workflow_handle(ids[0]).fetch_history()
    size = sum(len(event.SerializeToString()) for event in history.events)
    return Round(seconds / RUNS, cpu / RUNS, size)


def _compare_rounds(plain: Sequence[Round], encrypted: Sequence[Round]) -> list[Figure]:
    what = f"median of {ROUNDS} rounds of {RUNS} runs, {CONCURRENCY} at a time; two activities of {CONTENT_BYTES:,} B"
    figures = []
    for name, rounds in (("without", plain), ("with", encrypted)):
        figures += [
            Figure(
                f"processor of client and worker for a run, {name} encryption", _median_cpu(rounds) * 1e3, "ms", what
            ),
            Figure(f"a run, {name} encryption", statistics.median(each.seconds for each in rounds) * 1e3, "ms", what),
            Figure(f"history of a run, {name} encryption", rounds[0].history_bytes, "B", what),
        ]
    ratio = _median_cpu(encrypted) / _median_cpu(plain)
    return [*figures, Figure("processor with encryption over without", ratio, "", what)]


def _median_cpu(rounds: Sequence[Round]) -> float:
    return statistics.median(each.cpu_seconds for each in rounds)
