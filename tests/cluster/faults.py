"""Faults of the lab: each hits a host, a link or a part, lasts some seconds, and is undone as an operator would."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from lab.running import DATABASE_UNIT, Lab
from tests.cluster.record import NOTHING

CUT_SECONDS = 10.0
OFF_SECONDS = 5.0
LOSS = 0.05
DELAY_SECONDS = 0.2
CLOCK_SECONDS = 60

Action = Callable[[Lab], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """One fault, drawn from a seed."""

    kind: str
    target: str
    inject: Action
    """Returns once the fault is there."""
    undo: Action
    """Returns once all that was lost serves again."""
    lasts_seconds: float = CUT_SECONDS


def _lose_host(name: str) -> Fault:
    async def undo(lab: Lab) -> None:
        await lab.start_host(name)

    return Fault("host lost", name, lambda lab: lab.hosts[name].lose(), undo, OFF_SECONDS)


def _cut_host(name: str) -> Fault:
    return Fault("host cut off", name, lambda lab: lab.hosts[name].cut(), lambda lab: lab.hosts[name].connect())


def _cut_pair(one: str, other: str) -> Fault:
    async def inject(lab: Lab) -> None:
        await lab.hosts[one].drop_from(lab.hosts[other].spec.address)
        await lab.hosts[other].drop_from(lab.hosts[one].spec.address)

    async def undo(lab: Lab) -> None:
        await asyncio.gather(lab.hosts[one].connect(), lab.hosts[other].connect())

    return Fault("two hosts cut from each other", f"{one}, {other}", inject, undo)


def _cut_one_way(sender: str, receiver: str) -> Fault:
    async def inject(lab: Lab) -> None:
        await lab.hosts[receiver].drop_from(lab.hosts[sender].spec.address)

    undo: Action = lambda lab: lab.hosts[receiver].connect()  # noqa: E731
    return Fault("one-way cut", f"{sender} to {receiver}", inject, undo)


def _lose_packets(name: str) -> Fault:
    inject: Action = lambda lab: lab.hosts[name].drop_from("10.99.0.0/24", LOSS)  # noqa: E731
    return Fault(f"{LOSS:.0%} of packets lost", name, inject, lambda lab: lab.hosts[name].connect())


def _delay_packets(name: str) -> Fault:
    async def inject(lab: Lab) -> None:
        host = lab.hosts[name]
        await host.delay(DELAY_SECONDS)
        began = time.monotonic()
        await host.run("bash", "-c", "exec 3<>/dev/tcp/10.99.0.254/1 || true")
        assert time.monotonic() - began >= 2 * DELAY_SECONDS, "the relay delays nothing"

    kind = f"{DELAY_SECONDS * 1_000:.0f} ms of delay each way"
    return Fault(kind, name, inject, lambda lab: lab.hosts[name].connect())


def _fill_disk(name: str) -> Fault:
    async def undo(lab: Lab) -> None:
        host = lab.hosts[name]
        await host.free_disk()
        for unit in host.spec.units:
            if not host.is_running(unit):
                await host.start_unit(unit)
        await lab.wait_for_host(name)

    return Fault("disk full", name, lambda lab: lab.hosts[name].fill_disk(), undo)


def _move_clock(name: str) -> Fault:
    inject: Action = lambda lab: lab.hosts[name].set_clock(CLOCK_SECONDS)  # noqa: E731
    return Fault(f"clock {CLOCK_SECONDS} s ahead, and back", name, inject, lambda lab: lab.hosts[name].set_clock(0))


def _lose_primary(_: str) -> Fault:
    """The host of the primary loses its power; an operator promotes a standby, and the host joins again later."""
    lost: list[str] = []

    async def inject(lab: Lab) -> None:
        lost.append(lab.primary)
        await lab.hosts[lab.primary].lose()
        await asyncio.sleep(OFF_SECONDS)
        await lab.promote(await lab.find_best_standby())

    return Fault("primary lost, standby promoted", "primary", inject, lambda lab: lab.start_host(lost[0]), OFF_SECONDS)


def _cut_primary(_: str) -> Fault:
    """The host of the primary is cut off in silence and goes on: it is fenced before a standby is promoted."""
    cut: list[str] = []

    async def inject(lab: Lab) -> None:
        cut.append(lab.primary)
        await lab.hosts[lab.primary].cut()
        await asyncio.sleep(OFF_SECONDS)
        await lab.promote(await lab.find_best_standby())

    async def undo(lab: Lab) -> None:
        await lab.hosts[cut[0]].connect()
        await lab.join_standby(cut[0])
        await lab.wait_for_host(cut[0])

    return Fault("primary cut off, standby promoted", "primary", inject, undo, OFF_SECONDS)


def _kill_unit(kind: str, unit: str, name: str) -> Fault:
    """A process is killed; systemd starts it again."""

    async def inject(lab: Lab) -> None:
        await lab.hosts[name].stop_unit(unit, kill=True)

    async def undo(lab: Lab) -> None:
        await lab.hosts[name].start_unit(unit)
        await lab.wait_for_host(name)

    return Fault(kind, f"{unit} on {name}", inject, undo, OFF_SECONDS)


async def _do_nothing(_: Lab) -> None:
    """Stand in for a fault, so that there is something to compare with."""


def _restart_everything(_: str) -> Fault:
    """Every unit but the database is stopped as systemd stops it and started again, host by host, then the standbys."""

    async def inject(lab: Lab) -> None:
        for host in lab.hosts.values():
            if DATABASE_UNIT in host.spec.units and host.name == lab.primary:
                continue
            for unit in reversed(host.spec.units):
                await host.stop_unit(unit)
            for unit in host.spec.units:
                await host.start_unit(unit)
            await lab.wait_for_host(host.name)

    return Fault("rolling restart", "everything", inject, _do_nothing, 0.0)


def _draw_host(draw: random.Random, lab: Lab) -> str:
    """Return any host that may be lost without a promotion."""
    return draw.choice([name for name in lab.hosts if name not in {lab.primary, "watch1"}])


KINDS: Mapping[str, Callable[[random.Random, Lab], Fault]] = {
    "nothing": lambda _draw, _lab: Fault(NOTHING, "nothing", _do_nothing, _do_nothing),
    "host lost": lambda draw, lab: _lose_host(_draw_host(draw, lab)),
    "host cut off": lambda draw, lab: _cut_host(_draw_host(draw, lab)),
    "pair": lambda draw, lab: _cut_pair(*draw.sample([name for name in lab.hosts if name != "watch1"], 2)),
    "one way": lambda draw, lab: _cut_one_way(*draw.sample([name for name in lab.hosts if name != "watch1"], 2)),
    "loss": lambda draw, lab: _lose_packets(_draw_host(draw, lab)),
    "delay": lambda draw, lab: _delay_packets(_draw_host(draw, lab)),
    "disk": lambda draw, lab: _fill_disk(
        draw.choice([*lab.topology.list_hosts(DATABASE_UNIT), *lab.topology.list_hosts("seaweedfs-volume")])
    ),
    "clock": lambda draw, lab: _move_clock(draw.choice([name for name in lab.hosts if name[:2] in {"db", "ap", "wo"}])),
    "primary lost": lambda _draw, _lab: _lose_primary(""),
    "primary cut": lambda _draw, _lab: _cut_primary(""),
    "volume": lambda draw, lab: _kill_unit(
        "volume server killed", "seaweedfs-volume", draw.choice(lab.topology.list_hosts("seaweedfs-volume"))
    ),
    "filer": lambda draw, lab: _kill_unit(
        "filer killed", "seaweedfs-filer", draw.choice(lab.topology.list_hosts("seaweedfs-filer"))
    ),
    "gateway": lambda draw, lab: _kill_unit(
        "gateway killed", "seaweedfs-s3", draw.choice(lab.topology.list_hosts("seaweedfs-s3"))
    ),
    "history": lambda draw, lab: _kill_unit(
        "history service killed", "temporal@history", draw.choice(lab.topology.list_hosts("temporal@history"))
    ),
    "restart": lambda _draw, _lab: _restart_everything(""),
}
"""Every kind of fault by the word that chooses it."""
WEIGHTS: Mapping[str, int] = {
    "host lost": 4,
    "host cut off": 4,
    "pair": 3,
    "one way": 3,
    "loss": 2,
    "delay": 2,
    "disk": 2,
    "clock": 3,
    "restart": 0,
}
"""How often a kind is drawn; 1 where it is not named. The restart of everything comes once, in the end."""
