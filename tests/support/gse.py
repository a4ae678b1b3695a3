"""A stand-in GSE, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from clients.gse import GseClient
from domain.transfers.gse import FolderAndFileName, GseAgentWithUser, GseTransferRequest
from infra.component_settings import GseSettings
from sims.gse.disks import HostDisks
from sims.gse.scenario import GseAction, GseRule, GseScenario
from sims.gse.server import running_gse
from sims.gse.world import GseWorld


@dataclass(frozen=True)
class Gse:
    """A stand-in GSE: its address, and its world, whose scenario sets the faults."""

    base: str
    world: GseWorld
    disks: HostDisks


SOURCE = GseAgentWithUser("source-1", "", "root")
QUICK = GseScenario(upload_seconds=0.05, download_seconds=0.05, swarm=0, jitter_seconds=0.05, terminate_seconds=0.05)


def gse_settings(base: str, **other: Any) -> GseSettings:
    """Settings that find it and repeat calls soon."""
    known = {"app_code": "haulage", "app_secret": SecretStr("s3cret"), "retries": 2, "retry_pause_seconds": 0.001}
    return GseSettings(base_url=base, **{**known, **other})


@asynccontextmanager
async def running_hosts(folder: Path) -> AsyncIterator[Gse]:
    """Start a GSE whose hosts keep their files below a folder."""
    disks = HostDisks(folder, links=True)
    world = GseWorld(QUICK, disks)
    async with running_gse(world) as base:
        yield Gse(base, world, disks)


@asynccontextmanager
async def running_gse_client(
    *rules: GseRule, disks: Path | None = None, scenario: GseScenario = QUICK, **other: Any
) -> AsyncIterator[tuple[GseWorld, GseClient]]:
    """Run a stand-in with these faults, and yield its world and a client."""
    world = GseWorld(scenario.model_copy(update={"rules": rules}), HostDisks(disks, links=False) if disks else None)
    async with running_gse(world) as base, GseClient(gse_settings(base, **other)) as client:
        yield world, client


def make_order(
    targets: Sequence[GseAgentWithUser], *, file: Path = Path("/cache/abc"), timeout_seconds: int = 600
) -> GseTransferRequest:
    """One file to these."""
    return GseTransferRequest(
        source=SOURCE,
        source_file=FolderAndFileName(str(file.parent), file.name),
        targets=targets,
        target_file=FolderAndFileName("/data/app", file.name),
        timeout_seconds=timeout_seconds,
    )


def make_hosts(count: int) -> list[GseAgentWithUser]:
    """Return this number of hosts."""
    return [GseAgentWithUser(f"host-{number}", "", "app") for number in range(count)]


def call_fault(action: GseAction, **parameters: Any) -> GseRule:
    """A fault."""
    return GseRule(action=action, **parameters)
