"""`python -m tests.cluster [FAULTS] [SEED] [KIND …]`: faults one after the other under load, and what came of it."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence

import aiohttp

from lab.inside import enter_own_namespaces
from lab.running import Lab
from lab.tools import prepare_tools
from tests.cluster.faults import KINDS, WEIGHTS, Fault
from tests.cluster.installation import CALL_TIMEOUT, LabDeployment, running_lab_deployment
from tests.cluster.load import build_loads
from tests.cluster.outcome import make_project, print_verdicts, say, wait_for_recovery
from tests.cluster.record import FaultRecord, Verdict, publish_record, summarize
from tests.cluster.work import Load

FAULTS, SEED = 100, 1
WARM_SECONDS = 20.0


async def run(faults: int, seed: int, kinds: Sequence[str]) -> int:
    """Run the lab, its load and the faults; return the exit code."""
    async with running_lab_deployment(say) as deployment:
        headers = {"Authorization": f"Bearer {deployment.installation.admin_key}"}
        traces = [deployment.answers.build_trace()]
        async with aiohttp.ClientSession(
            base_url=deployment.api, timeout=CALL_TIMEOUT, trace_configs=traces
        ) as session:
            caller = await make_project(session, headers)
            loads = build_loads(deployment, caller, seed)
            records, verdicts = await _play(deployment, loads, faults, seed, kinds)
    figures = summarize(records, verdicts)
    if kinds:
        for figure in figures:
            say(f"{figure.name}: {figure.value:,.1f} {figure.unit} ({figure.how})")
    else:
        publish_record(figures)
    return print_verdicts(verdicts)


async def _play(
    deployment: LabDeployment, loads: Sequence[Load], faults: int, seed: int, kinds: Sequence[str]
) -> tuple[list[FaultRecord], dict[str, Verdict]]:
    over = asyncio.Event()
    records: list[FaultRecord] = []
    async with asyncio.TaskGroup() as group:
        for load in loads:
            group.create_task(load.run(over), name=load.name)
        began = time.monotonic()
        await asyncio.sleep(WARM_SECONDS)
        await wait_for_recovery(loads, began)
        for fault in draw_faults(deployment.lab, faults, random.Random(seed), kinds):
            records.append(await _play_fault(deployment, loads, fault))
            say(records[-1].render())
        over.set()
        say("All faults are made; the work that is under way is finished.")
    return records, {load.name: await load.check() for load in loads}


def draw_faults(lab: Lab, count: int, draw: random.Random, kinds: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults: every kind once, then by weight, and the restart of everything last."""
    chosen = list(kinds or KINDS)
    once = [kind for kind in chosen if WEIGHTS.get(kind, 1)]
    rest = [kind for kind in chosen if not WEIGHTS.get(kind, 1)]
    draw.shuffle(once)
    weights = [WEIGHTS.get(kind, 1) for kind in once]
    more = draw.choices(once, weights, k=max(0, count - len(chosen))) if once else []
    for kind in [*once, *more, *rest][:count]:
        yield KINDS[kind](draw, lab)


async def _play_fault(deployment: LabDeployment, loads: Sequence[Load], fault: Fault) -> FaultRecord:
    """Make a fault, undo it, and wait until every system has done work that began after it."""
    answers = deployment.answers
    requests, unavailable = answers.total, answers.unavailable
    under_way = {load.name: len(load.work.open) for load in loads}
    began = time.monotonic()
    await fault.inject(deployment.lab)
    injected = time.monotonic()
    await asyncio.sleep(max(0.0, fault.lasts_seconds - (injected - began)))
    await fault.undo(deployment.lab)
    undone = time.monotonic()
    recovered = await wait_for_recovery(loads, injected)
    return FaultRecord(
        kind=fault.kind,
        target=fault.target,
        under_way=sum(under_way.values()),
        lasted_seconds=round(undone - began, 1),
        recovery_seconds={name: round(at - injected, 1) for name, at in recovered.items()},
        requests=answers.total - requests,
        unavailable=answers.unavailable - unavailable,
        longest_silence_seconds=round(answers.find_longest_silence(began, time.monotonic()), 1),
    )


def main(arguments: Sequence[str]) -> int:
    """Run within namespaces of our own."""
    prepare_tools()
    enter_own_namespaces("tests.cluster", arguments)
    faults = int(arguments[0]) if arguments else FAULTS
    seed = int(arguments[1]) if len(arguments) > 1 else SEED
    return asyncio.run(run(faults, seed, arguments[2:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
