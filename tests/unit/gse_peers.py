"""A client of GSE and the stand-in that it talks to, on one machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from domain.transfers.gse import Agent, Place, TransferOrder
from infra.gse import GseClient
from infra.settings import GseSettings
from sims.gse.disks import Disks
from sims.gse.scenario import Action, Rule, Scenario
from sims.gse.server import running_gse
from sims.gse.world import World

SOURCE = Agent("source-1", "", "root")
QUICK = Scenario(upload_seconds=0.05, download_seconds=0.05, swarm=0, jitter_seconds=0.05, terminate_seconds=0.05)


def settings(base: str, **other: Any) -> GseSettings:
    """Settings that find it and repeat calls soon."""
    known = {"app_code": "haulage", "app_secret": SecretStr("s3cret"), "retries": 2, "retry_pause_seconds": 0.001}
    return GseSettings(base_url=base, **{**known, **other})


@asynccontextmanager
async def gse(
    *rules: Rule, disks: Path | None = None, scenario: Scenario = QUICK, **other: Any
) -> AsyncIterator[tuple[World, GseClient]]:
    """A stand-in with these faults, and a client."""
    world = World(scenario.model_copy(update={"rules": rules}), Disks(disks, links=False) if disks else None)
    async with running_gse(world) as base, GseClient(settings(base, **other)) as client:
        yield world, client


def order(targets: Sequence[Agent], *, file: Path = Path("/cache/abc"), timeout_seconds: int = 600) -> TransferOrder:
    """One file to these."""
    return TransferOrder(
        source=SOURCE,
        source_file=Place(str(file.parent), file.name),
        targets=targets,
        target_file=Place("/data/app", file.name),
        timeout_seconds=timeout_seconds,
    )


def hosts(count: int) -> list[Agent]:
    """So many hosts."""
    return [Agent(f"host-{number}", "", "app") for number in range(count)]


def call_fault(action: Action, **parameters: Any) -> Rule:
    """A fault."""
    return Rule(action=action, **parameters)
