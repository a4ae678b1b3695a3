"""One round of one contender: joins in one window, reads while files travel, and a look at every task at the end."""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from bench.load import Plan, Report
from bench.processor import sum_cpu_seconds
from bench.transfers.contenders import HaulageTransfers, JobProgress, TransferContender, job_id, join
from bench.transfers.surroundings import ROOT, BenchRepository, FileDelivery, GseProcess, run_name

WINDOW_SECONDS = 15
PREPARED_PER_SECOND = 10_000
"""Requests that the load generator prepares in a second, also on a busy machine."""
JOIN_CONNECTIONS = 512
"""Tens of thousands of hosts send requests at once; answers that are awaited at a time."""
READ_CONNECTIONS = 16
READ_SECONDS = 5.0
"""How long the other design is read at the end."""
WATCHED = 50
WATCH_SECONDS = 0.2
STANDING_SECONDS = 1.0
PATIENCE_SECONDS = 180.0


class TransferRoundFailed(Exception):
    """A contender did not do what it was there for."""


@dataclass(frozen=True)
class TransferRound:
    """What one round took; times are seconds after the end of the window unless named otherwise."""

    targets: int
    joins_per_second: float
    join_seconds: float
    inside_window: bool
    join_cpu_seconds: float
    """Of all processes of the contender, while joins came."""
    latencies_ms: Sequence[float]
    first_task: float
    last_task: float
    fetches: int
    sent_again: int
    calls: Mapping[str, int]
    reads_per_second: float
    last_reads_per_second: float
    lost: int
    visible: Sequence[float]
    """For each watched target: seconds from GSE's first answer after its end until its task says Success."""
    seen: Sequence[float]
    """For each watched target: seconds from its end."""
    converged: float
    """From the end of the last target until the job was over."""
    cpu_seconds: Mapping[str, float]


@dataclass(frozen=True)
class _RoundSetup:
    contender: TransferContender
    gse: GseProcess
    folder: Path
    session: aiohttp.ClientSession


async def run(
    contender: TransferContender, gse: GseProcess, repository: BenchRepository, targets: int, folder: Path
) -> TransferRound:
    """Join, wait, look."""
    path = f"/bench/{run_name()}.bin"
    agents = [f"agent-{number:06}" for number in range(targets)]
    await gse.forget()
    async with aiohttp.ClientSession() as session:
        scene = _RoundSetup(contender, gse, folder, session)
        before = _cpu_seconds(contender)
        start_at = _next_window(time.time() + 2 + targets / PREPARED_PER_SECOND)
        requests = [("POST", contender.join_path, join(each, path, repository.signature(path))) for each in agents]
        starting = asyncio.create_task(_cpu_seconds_at(contender, start_at))
        report, answers = await _load(scene, requests, JOIN_CONNECTIONS, start_at=start_at)
        window_number = int(report.begun_at // WINDOW_SECONDS)
        started, joined = await starting, _cpu_seconds(contender)
        task_ids = [json.loads(each)["task_id"] for each in answers]
        _require_all(report, targets, len(set(task_ids)))
        jobs = [job_id(path, each) for each in range(window_number, int(report.ended_at // WINDOW_SECONDS) + 1)]
        travelling = await _watch_round(scene, dict(zip(agents, task_ids, strict=True)), jobs, window_number)
        last_reads, lost = await _last_reads(scene, task_ids, travelling)
        after = _cpu_seconds(contender)
    window_end = (window_number + 1) * WINDOW_SECONDS
    tasks, deliveries, counts = await gse.tasks(), await gse.deliveries(), await gse.stats()
    delivered_at = [deliveries[agent].at if agent in deliveries else math.inf for agent in agents]
    require_true_reads(travelling.read_answers, travelling.read_at, delivered_at)
    begun = [each["created_at"] - window_end for each in tasks]
    return TransferRound(
        targets=targets,
        joins_per_second=targets / (report.ended_at - report.begun_at),
        join_seconds=report.ended_at - report.begun_at,
        join_cpu_seconds=sum(joined.values()) - sum(started.values()),
        inside_window=report.ended_at < window_end,
        latencies_ms=report.latencies_ms,
        first_task=min(begun),
        last_task=max(begun),
        fetches=repository.fetches[path],
        sent_again=counts["sent_again"],
        calls=counts["calls"],
        reads_per_second=_rate(travelling.reads),
        last_reads_per_second=_rate(last_reads),
        lost=lost,
        visible=visible(travelling.seen_at, travelling.began_at, deliveries, tasks),
        seen=[at - max(deliveries[agent].at, travelling.began_at) for agent, at in travelling.seen_at.items()],
        converged=travelling.over_at - max(each.at for each in deliveries.values()),
        cpu_seconds={name: seconds - before[name] for name, seconds in after.items()},
    )


def visible(
    seen_at: Mapping[str, float],
    watched_from: float,
    deliveries: Mapping[str, FileDelivery],
    tasks: Sequence[Mapping[str, Any]],
) -> list[float]:
    """Return how long after GSE's first answer with it a success was seen by a client that watched from a moment on."""
    polls = {each["task_id"]: each["polled_at"] for each in tasks}
    found = []
    for agent, seen in seen_at.items():
        delivery = deliveries[agent]
        told = next(at for at in polls[delivery.task_id] if at >= delivery.at)
        found.append(seen - max(told, watched_from))
    return found


def require_true_reads(answers: Sequence[bytes], times: Sequence[float], delivered_at: Sequence[float]) -> None:
    """Check what was read of each target while files travelled.

    Raises:
        TransferRoundFailed: A task had succeeded before its target had the file, or was in a state that none can be in.
    """
    for answer, read_at, delivered in zip(answers, times, delivered_at, strict=True):
        if not answer:
            continue
        status = json.loads(answer).get("status")
        if status not in ("Pending", "Running", "Success") or (status == "Success" and read_at < delivered):
            raise TransferRoundFailed(f"read at {read_at}: {answer!r}; the target had the file at {delivered}")


def _next_window(moment: float) -> float:
    """A moment after the beginning of the first window that begins later."""
    return (moment // WINDOW_SECONDS + 1) * WINDOW_SECONDS + 0.05


@dataclass(frozen=True)
class _WatchedRound:
    """What was seen from the end of the window until the jobs were over."""

    began_at: float
    reads: Report
    """From the first success of a watched task until the jobs were over."""
    read_answers: Sequence[bytes]
    read_at: Sequence[float]
    seen_at: Mapping[str, float]
    over_at: float
    succeeded: int


async def _watch_round(
    scene: _RoundSetup, task_ids: Mapping[str, str], jobs: Sequence[str], window_number: int
) -> _WatchedRound:
    await asyncio.sleep(max(0.0, (window_number + 1) * WINDOW_SECONDS + 1 - time.time()))
    began_at, first_seen = time.time(), asyncio.Event()
    watching = asyncio.create_task(_watch(scene, task_ids, first_seen))
    seeing = asyncio.create_task(first_seen.wait())
    await asyncio.wait({watching, seeing}, return_when=asyncio.FIRST_COMPLETED)
    seeing.cancel()
    over, times = scene.folder / "over", scene.folder / "times"
    over.unlink(missing_ok=True)
    requests = _reads(scene.contender, list(task_ids.values()))
    reading = asyncio.create_task(_load(scene, requests, READ_CONNECTIONS, until=over, times=times))
    try:
        over_at, succeeded = await _wait_for_jobs(scene, jobs)
    finally:
        over.touch()
    reads, answers = await reading
    read_at = [float(each) for each in times.read_text().split("\n")]
    return _WatchedRound(began_at, reads, answers, read_at, await watching, over_at, succeeded)


async def _last_reads(scene: _RoundSetup, task_ids: Sequence[str], travelling: _WatchedRound) -> tuple[Report, int]:
    """Read how every task of ours ended. Of the other design the job is read instead, as its reads are too slow."""
    every = isinstance(scene.contender, HaulageTransfers)
    requests = _reads(scene.contender, task_ids)
    report, answers = await _load(scene, requests, READ_CONNECTIONS, seconds=3_600.0 if every else READ_SECONDS)
    succeeded = sum(json.loads(each)["status"] == "Success" for each in answers) if every else travelling.succeeded
    return report, len(task_ids) - succeeded


async def _load(
    scene: _RoundSetup,
    requests: Sequence[tuple[str, str, Any]],
    connections: int,
    **other: Any,
) -> tuple[Report, list[bytes]]:
    """The load generator, in a process of its own."""
    asked, answered = scene.folder / "requests", scene.folder / "answers"
    asked.write_text("\n".join(map(json.dumps, requests)))
    plan = Plan(
        base=scene.contender.base,
        headers=scene.contender.headers,
        requests=asked,
        answers=answered,
        connections=connections,
        **other,
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(plan.model_dump_json().encode())
    if process.returncode:
        raise TransferRoundFailed(f"the load generator ended with {process.returncode}; its error is printed above")
    return Report.model_validate_json(output), answered.read_bytes().split(b"\n")


def _require_all(report: Report, targets: int, task_ids: int) -> None:
    good = sum(count for status, count in report.statuses.items() if 200 <= status < 300)
    if (good, task_ids) != (targets, targets):
        raise TransferRoundFailed(
            f"{targets:,} joins had {good:,} good answers and {task_ids:,} tasks: {report.statuses}"
        )


def _reads(contender: TransferContender, task_ids: Sequence[str]) -> list[tuple[str, str, None]]:
    return [("GET", contender.status_prefix + task_id, None) for task_id in task_ids]


async def _watch(scene: _RoundSetup, task_ids: Mapping[str, str], first_seen: asyncio.Event) -> dict[str, float]:
    """When some targets' tasks were first seen to have succeeded; the event is set with the first of them."""
    waiting = {agent: task_ids[agent] for agent in random.Random(0).sample(sorted(task_ids), WATCHED)}
    seen: dict[str, float] = {}
    deadline = time.time() + PATIENCE_SECONDS
    while waiting and time.time() < deadline:
        for agent, task_id in list(waiting.items()):
            if await _has_succeeded(scene, task_id):
                seen[agent] = time.time()
                first_seen.set()
                del waiting[agent]
        await asyncio.sleep(WATCH_SECONDS)
    if waiting:
        raise TransferRoundFailed(
            f"{len(waiting)} of {WATCHED} watched tasks did not succeed in {PATIENCE_SECONDS:.0f} s"
        )
    return seen


async def _has_succeeded(scene: _RoundSetup, task_id: str) -> bool:
    contender = scene.contender
    url = f"{contender.base}{contender.status_prefix}{task_id}"
    async with scene.session.get(url, headers=contender.headers) as answer:
        body = await answer.json()
    if body.get("status") not in ("Pending", "Running", "Success"):
        raise TransferRoundFailed(f"{task_id} ended as {body}")
    return bool(body["status"] == "Success")


async def _wait_for_jobs(scene: _RoundSetup, jobs: Sequence[str]) -> tuple[float, int]:
    """When all jobs were over, and how many targets had succeeded then."""
    deadline = time.time() + PATIENCE_SECONDS
    while time.time() < deadline:
        standings: list[JobProgress] = [await scene.contender.read_progress(each) for each in jobs]
        if all(each.done for each in standings):
            return time.time(), sum(each.succeeded for each in standings)
        await asyncio.sleep(STANDING_SECONDS)
    raise TransferRoundFailed(f"not over in {PATIENCE_SECONDS:.0f} s: {standings}")


def _rate(report: Report) -> float:
    return sum(report.statuses.values()) / (report.ended_at - report.begun_at)


async def _cpu_seconds_at(contender: TransferContender, moment: float) -> dict[str, float]:
    await asyncio.sleep(max(0.0, moment - time.time()))
    return _cpu_seconds(contender)


def _cpu_seconds(contender: TransferContender) -> dict[str, float]:
    return {name: sum_cpu_seconds(psutil.Process(pid)) for name, pid in contender.pids().items()}
