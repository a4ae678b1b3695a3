"""The client of modules and the stand-ins that it calls, on one machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clients.modules import ModulesClient
from domain.addresses.operations import Module, Operation, OperationResult
from infra.address_settings import AddressSettings, AllModulesSettings, ModuleSettings
from sims.oss.scenario import OssAction, OssRule, OssScenario
from sims.oss.server import TOKEN, Oss, running_oss
from tests.support.module_tables import upsert

NAME = "oss"
QUICK: dict[str, Any] = {"retry_pause_seconds": 0.001, "retries": 2, "breaker_failures": 100}


def module_settings(base: str, folder: Path, **changes: Any) -> AddressSettings:
    """Settings that find the modules, with a token that they take."""
    (folder / f"{NAME}.json").write_text(json.dumps({"token": TOKEN}))
    each = {
        module.value: ModuleSettings(**{"base_url": f"{base}/{module}", "credentials": NAME, **QUICK, **changes})
        for module in Module
    }
    return AddressSettings(credentials_folder=folder, modules=AllModulesSettings(**each))


@asynccontextmanager
async def running_modules(
    folder: Path, *rules: OssRule, seed: int = 0, **changes: Any
) -> AsyncIterator[tuple[Oss, ModulesClient]]:
    """The four stand-ins with these faults, and the client; `changes` replace settings of every module."""
    async with running_oss(folder) as oss, ModulesClient(module_settings(oss.base, folder, **changes)) as client:
        oss.set(OssScenario(seed=seed, rules=rules))
        yield oss, client


def call_fault(action: OssAction, **parameters: Any) -> OssRule:
    """A fault of calls."""
    return OssRule(action=action, **parameters)


def three_upserts() -> list[Operation]:
    """Return operations that create three addresses."""
    return [upsert(seq, seq, 10 + seq, street="x") for seq in (1, 2, 3)]


def list_outcomes(results: Sequence[OperationResult]) -> list[str]:
    """Return the outcome of each result."""
    return [each.outcome.value for each in results]
