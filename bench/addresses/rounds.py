"""The phases of ours, and the rounds of the peers; each ends with a look into the modules' tables."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench import usage
from bench.addresses.ours import Lag, Ours, RunFailed, build_database_address
from bench.addresses.stream import Address, Sent, compute_outcome
from bench.addresses.surroundings import ModuleProcesses, running_modules
from bench.databases import temporary_database
from bench.peers import environments
from bench.processor import sum_cpu_seconds
from dev.local import LocalInstallation, list_worker_names
from sims.oss.server import TOKEN

SYSTEM: Final = "addresses"
TRICKLE_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Run:
    """Some messages from a log into four modules, by one contender."""

    messages: int
    """Different ones that were done: of a share of a stream, some swaps may miss what only the rest creates."""
    seconds: float
    calls: int
    cpu_seconds: float
    """Of its own processes, and of the database and engine that it uses."""
    modules_cpu_seconds: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def calls_each(self) -> float:
        """Module calls for a message."""
        return self.calls / self.messages

    @property
    def cpu_us(self) -> float:
        """Of processors for a message, the modules' apart."""
        return self.cpu_seconds / self.messages * 1e6

    @property
    def modules_cpu_us(self) -> float:
        """What the modules used for a message."""
        return self.modules_cpu_seconds / self.messages * 1e6


@dataclass(frozen=True)
class Backlog:
    """A log that was filled while cycles were paused, and then emptied."""

    intake: float
    """Messages a second that were committed."""
    intake_cpu_us: float
    """Of processors for a message, of our processes and of those that serve them."""
    run: Run
    cycles: int
    superseded: int
    """Messages that a later one made needless."""
    worker_peak_bytes: int


@dataclass(frozen=True)
class Turns:
    """Rounds of ours and of the peers in turn, so that other load of the machine affects all of them."""

    backlogs: Sequence[Backlog]
    peers: Mapping[str, Sequence[Run]]

    @property
    def run(self) -> Run:
        """The median of ours."""
        return median([each.run for each in self.backlogs])

    def ratios(self, peer: str) -> list[float]:
        """How many times as fast as a peer ours was, in each round; from the least to the most."""
        return sorted(ours.run.rate / its.rate for ours, its in zip(self.backlogs, self.peers[peer], strict=True))


def median(runs: Sequence[Run]) -> Run:
    """The round in the middle, by messages a second."""
    return sorted(runs, key=lambda each: each.rate)[len(runs) // 2]


@dataclass(frozen=True)
class Arrivals:
    """Messages that came while cycles ran: how long until all were done, and how late each was."""

    messages: int
    seconds: float
    lag: Lag


async def backlog(ours: Ours, modules: ModuleProcesses, messages: Sequence[Sent]) -> Backlog:
    """Take all in, then let cycles run until nothing is left."""
    await ours.pause()
    async with usage.measure_usage(ours.running) as intake:
        await ours.deliver(messages)
        await ours.wait_until_received()
    taken, intake_seconds = await ours.intake()
    if taken != len(messages):
        raise RunFailed(f"{len(messages):,} messages were delivered, the log has {taken:,}.")
    calls, modules_cpu = await ours.calls(), modules.cpu_seconds()
    async with usage.measure_usage(ours.running) as use:
        began = time.perf_counter()
        await ours.resume()
        await ours.wait_until_done()
        seconds = time.perf_counter() - began
    run = Run(
        messages=taken,
        seconds=seconds,
        calls=await ours.calls() - calls,
        cpu_seconds=_cpu_seconds(use),
        modules_cpu_seconds=modules.cpu_seconds() - modules_cpu,
    )
    peak = max(use.peak_bytes[name] for name in list_worker_names())
    intake_cpu_us = _cpu_seconds(intake) / taken * 1e6
    return Backlog(taken / intake_seconds, intake_cpu_us, run, *await ours.cycles(taken), peak)


def _cpu_seconds(use: usage.Usage) -> float:
    return use.own_cpu_seconds + sum(use.cpu_seconds[name] for name in usage.SERVING)


async def burst(ours: Ours, messages: Sequence[Sent]) -> Arrivals:
    """All at once."""
    began = time.perf_counter()
    await ours.deliver(messages)
    await ours.wait_until_done()
    return Arrivals(len(messages), time.perf_counter() - began, await ours.lag(len(messages)))


async def trickle(ours: Ours, messages: Sequence[Sent], per_second: int) -> Arrivals:
    """Some every moment."""
    size = max(1, int(per_second * TRICKLE_SECONDS))
    began = time.perf_counter()
    for number, start in enumerate(range(0, len(messages), size)):
        await asyncio.sleep(max(0.0, began + number * TRICKLE_SECONDS - time.perf_counter()))
        await ours.deliver(messages[start : start + size])
    await ours.wait_until_done()
    return Arrivals(len(messages), time.perf_counter() - began, await ours.lag(len(messages)))


async def peer(
    installation: LocalInstallation,
    tables: Path,
    before: Mapping[int, Address],
    messages: Sequence[Sent],
    module: str,
    batch: int,
) -> Run:
    """A peer with a database of its own, on the very server that ours uses, and with modules as ours found them."""
    server = psutil.Process(installation.stack.list_pids()[usage.SERVING[1]])
    file = tables.parent / "messages"
    file.write_text("".join(json.dumps([topic, said]) + "\n" for topic, said in messages))
    async with temporary_database(build_database_address(installation)) as address, running_modules(tables) as modules:
        serving, modules_cpu = sum_cpu_seconds(server), modules.cpu_seconds()
        given = {"database": address, "messages": file, "token": TOKEN, "batch": batch}
        given["modules"] = json.dumps(dict(modules.bases))
        arguments = (str(word) for name, value in given.items() for word in (f"--{name}", value))
        took = json.loads((await environments.run_peer(SYSTEM, module, *arguments)).splitlines()[-1])
        check(module, modules.live(), before, messages)
        return Run(
            messages=took["done"],
            seconds=took["seconds"],
            calls=took["calls"],
            cpu_seconds=took["cpu_seconds"] + sum_cpu_seconds(server) - serving,
            modules_cpu_seconds=modules.cpu_seconds() - modules_cpu,
        )


def check(
    name: str, found: Mapping[str, dict[int, Address]], before: Mapping[int, Address], messages: Sequence[Sent]
) -> None:
    """Nothing counts unless each module has what plain Python makes of the same messages."""
    expected = compute_outcome(dict(before), messages)
    for module, live in found.items():
        wrong = [uprn for uprn in expected.keys() | live.keys() if expected.get(uprn) != live.get(uprn)]
        if wrong:
            first = wrong[0]
            raise RunFailed(
                f"After {name}, {len(wrong):,} UPRNs of module {module} are wrong: {first} has "
                f"{live.get(first)}, and should have {expected.get(first)}."
            )
