"""What each system offers: mypy compares its modules with the protocols here, and each test looks at one system."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, assert_never

import pytest
from temporalio.client import Client

import api.addresses
import api.addresses.overview
import api.addresses.quotas
import api.downloads
import api.downloads.overview
import api.downloads.quotas
import api.orders
import api.orders.overview
import api.orders.quotas
import api.tasks
import api.tasks.overview
import api.tasks.quotas
import api.transfers
import api.transfers.overview
import api.transfers.quotas
import domain.addresses.names
import domain.downloads.names
import domain.orders.names
import domain.tasks.names
import domain.transfers.names
import domain.webhooks
import worker
import workflows.addresses.handle
import workflows.addresses.queues
import workflows.downloads.handle
import workflows.downloads.queues
import workflows.orders.handle
import workflows.orders.queues
import workflows.tasks.handle
import workflows.tasks.queues
import workflows.transfers.handle
import workflows.transfers.queues
import workflows.webhooks.queues
from api.app import ROUTE_GROUPS, SystemApi, import_api_packages
from api.http.routes import Routes
from api.overview import QUEUES, SystemOverview, import_overviews
from api.quotas import SystemQuotas, import_quotas
from cli.backups import reconcile
from domain.workload import WorkByProject
from infra.database import Database
from infra.settings import Settings
from services.services import Services
from systems import SYSTEMS, System
from systems.protocol import ModuleWithQueues, SystemModules, SystemNames
from workflows.systems import SystemSchedules, import_names_modules, import_queues, import_schedules


@dataclass(frozen=True)
class ImportedModules:
    """The modules of one system, as processes import them."""

    names: SystemNames
    api: SystemApi
    overview: SystemOverview
    quotas: SystemQuotas
    queues: ModuleWithQueues[Services]
    schedules: SystemSchedules


Modules: TypeAlias = SystemModules[Client, Database, Services, Settings, Routes, WorkByProject]


def choose_modules(system: System) -> Modules:
    """Return the modules of a system, typed: mypy says which member of one is missing, and which system."""
    match system:
        case "downloads":
            return ImportedModules(
                names=domain.downloads.names,
                api=api.downloads,
                overview=api.downloads.overview,
                quotas=api.downloads.quotas,
                queues=workflows.downloads.queues,
                schedules=workflows.downloads.handle,
            )
        case "transfers":
            return ImportedModules(
                names=domain.transfers.names,
                api=api.transfers,
                overview=api.transfers.overview,
                quotas=api.transfers.quotas,
                queues=workflows.transfers.queues,
                schedules=workflows.transfers.handle,
            )
        case "orders":
            return ImportedModules(
                names=domain.orders.names,
                api=api.orders,
                overview=api.orders.overview,
                quotas=api.orders.quotas,
                queues=workflows.orders.queues,
                schedules=workflows.orders.handle,
            )
        case "addresses":
            return ImportedModules(
                names=domain.addresses.names,
                api=api.addresses,
                overview=api.addresses.overview,
                quotas=api.addresses.quotas,
                queues=workflows.addresses.queues,
                schedules=workflows.addresses.handle,
            )
        case "tasks":
            return ImportedModules(
                names=domain.tasks.names,
                api=api.tasks,
                overview=api.tasks.overview,
                quotas=api.tasks.quotas,
                queues=workflows.tasks.queues,
                schedules=workflows.tasks.handle,
            )
        case _:
            assert_never(system)


MODULES: Mapping[System, Modules] = {system: choose_modules(system) for system in SYSTEMS}

ROOT = Path(__file__).parents[2]

each_system = pytest.mark.parametrize("system", SYSTEMS)


def test_what_is_compared_is_what_processes_import() -> None:
    """In the order of the list, and nothing else."""
    assert import_api_packages() == {system: modules.api for system, modules in MODULES.items()}
    assert import_overviews() == {system: modules.overview for system, modules in MODULES.items()}
    assert import_quotas() == {system: modules.quotas for system, modules in MODULES.items()}
    assert import_queues() == {system: modules.queues.QUEUES for system, modules in MODULES.items()}
    assert import_schedules() == {system: modules.schedules for system, modules in MODULES.items()}
    assert import_names_modules() == [*(modules.names for modules in MODULES.values()), domain.webhooks]
    assert list(worker.SYSTEM_QUEUES) == [
        *(modules.queues.QUEUES for modules in MODULES.values()),
        workflows.webhooks.queues.QUEUES,
    ]


@each_system
def test_a_system_is_known_by_its_own_name(system: System) -> None:
    """Its queues begin with it, so that an operator sees whose they are."""
    names = MODULES[system].names
    assert system == names.SYSTEM
    assert names.QUEUE in names.QUEUES
    assert all(queue.startswith(system) for queue in names.QUEUES)


@each_system
def test_the_api_serves_a_system_s_routes(system: System) -> None:
    """All of them, under a tag that is its name."""
    routes = MODULES[system].api.routes
    assert routes in ROUTE_GROUPS
    assert routes.tag == system
    assert list(routes)


def test_all_routes_are_declared_before_the_application_is_built() -> None:
    """A module that is imported later declares routes that nothing serves: importing the API imports all of them."""
    code = (
        "import api.app as app, importlib, pathlib\n"
        "before = [f'{r.method} {r.path}' for g in app.ROUTE_GROUPS for r in g]\n"
        "paths = [p for p in pathlib.Path('api').rglob('*.py') if p.name != '__init__.py']\n"
        "[importlib.import_module('.'.join(p.with_suffix('').parts)) for p in paths]\n"
        "print(*{f'{r.method} {r.path}' for g in app.ROUTE_GROUPS for r in g} - {*before}, sep='\\n')"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


@each_system
def test_the_overview_shows_a_system(system: System) -> None:
    """What is counted has a name, and its queues are looked at."""
    modules = MODULES[system]
    assert modules.overview.UNIT
    assert {queue for queue, owner in QUEUES.items() if owner == system} >= set(modules.names.QUEUES)


@each_system
def test_workers_can_serve_a_system_s_queues(system: System) -> None:
    """By their names and by no others, and housekeeping has something to do there."""
    queues, names = MODULES[system].queues.QUEUES, MODULES[system].names
    assert set(queues.names) >= set(names.QUEUES)
    assert all(queues.can_serve(queue) for queue in queues.names)
    assert not any(
        queues.can_serve(queue) for other in set(SYSTEMS) - {system} for queue in MODULES[other].queues.QUEUES.names
    )
    assert queues.workflows
    assert names.HOUSEKEEPING


@pytest.mark.parametrize("layer", ["api", "workflows", "activities", "stores", "stores.tables", "domain"])
def test_contracts_hold_every_system_apart(layer: str) -> None:
    """In each layer: a system that a contract does not name could be imported by the others."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    apart = [set(each["modules"]) for each in contracts if each["type"] == "independence"]
    assert any(modules >= {f"{layer}.{system}" for system in SYSTEMS} for modules in apart)


def test_a_restore_brings_every_system_together_with_its_database() -> None:
    """A new system must say what is to be done with its workflows and schedules, or that nothing is."""
    assert tuple(reconcile.BY_SYSTEM) == SYSTEMS
