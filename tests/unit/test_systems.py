"""What each system offers: mypy compares its modules with the protocols here, and each test looks at one system."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import Client

import api.addresses
import api.downloads
import api.orders
import api.tasks
import api.transfers
import domain.addresses.names
import domain.downloads.names
import domain.orders.names
import domain.tasks.names
import domain.transfers.names
import domain.webhooks.names
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
from api.app import ROOMS
from api.overview import engine
from api.routes import Routes
from api.systems import Api, WorkloadSource, import_apis
from domain.workload import Workloads
from infra.settings import Settings
from services.services import Services
from systems.names import SYSTEMS, System
from systems.protocol import Names, Offer
from workflows.systems import Schedules, Work, import_schedules, import_works, list_names


@dataclass(frozen=True)
class Modules:
    """The modules of one system, as processes import them."""

    names: Names
    api: Api
    workload: WorkloadSource
    work: Work
    schedules: Schedules


# Typed, so that mypy says which member of a module is missing or has another type.
OFFERS: Mapping[System, Offer[Client, Services, Settings, Routes, Workloads]] = {
    "downloads": Modules(
        names=domain.downloads.names,
        api=api.downloads,
        workload=api.downloads.workload,
        work=workflows.downloads.queues,
        schedules=workflows.downloads.handle,
    ),
    "transfers": Modules(
        names=domain.transfers.names,
        api=api.transfers,
        workload=api.transfers.workload,
        work=workflows.transfers.queues,
        schedules=workflows.transfers.handle,
    ),
    "orders": Modules(
        names=domain.orders.names,
        api=api.orders,
        workload=api.orders.workload,
        work=workflows.orders.queues,
        schedules=workflows.orders.handle,
    ),
    "addresses": Modules(
        names=domain.addresses.names,
        api=api.addresses,
        workload=api.addresses.workload,
        work=workflows.addresses.queues,
        schedules=workflows.addresses.handle,
    ),
    "tasks": Modules(
        names=domain.tasks.names,
        api=api.tasks,
        workload=api.tasks.workload,
        work=workflows.tasks.queues,
        schedules=workflows.tasks.handle,
    ),
}

ROOT = Path(__file__).parents[2]

each_system = pytest.mark.parametrize("system", SYSTEMS)


def test_what_is_compared_is_what_processes_import() -> None:
    """In the order of the list, and nothing else."""
    assert list(OFFERS) == list(SYSTEMS)
    assert import_apis() == {system: offer.api for system, offer in OFFERS.items()}
    assert import_works() == {system: offer.work for system, offer in OFFERS.items()}
    assert import_schedules() == {system: offer.schedules for system, offer in OFFERS.items()}
    assert list_names() == [*(offer.names for offer in OFFERS.values()), domain.webhooks.names]
    assert list(worker.WORKS) == [*(offer.work for offer in OFFERS.values()), workflows.webhooks.queues]


@each_system
def test_a_system_is_known_by_its_own_name(system: System) -> None:
    """Its queues begin with it, so that whoever deploys sees whose they are."""
    names = OFFERS[system].names
    assert system == names.SYSTEM
    assert names.QUEUE in names.QUEUES
    assert all(queue.startswith(system) for queue in names.QUEUES)


@each_system
def test_the_api_serves_a_system_s_routes(system: System) -> None:
    """All of them, under a tag that is its name."""
    routes = OFFERS[system].api.routes
    assert routes in ROOMS
    assert routes.tag == system
    assert list(routes)


@each_system
def test_the_overview_shows_a_system(system: System) -> None:
    """What is counted has a name, and its queues are looked at."""
    offer = OFFERS[system]
    assert offer.api.workload is offer.workload
    assert offer.workload.UNIT
    assert {queue for queue, owner in engine.QUEUES.items() if owner == system} >= set(offer.names.QUEUES)


@each_system
def test_workers_can_serve_a_system_s_queues(system: System) -> None:
    """By their names and by no others, and housekeeping has something to do there."""
    work, names = OFFERS[system].work, OFFERS[system].names
    assert set(work.NAMES) >= set(names.QUEUES)
    assert all(work.can_serve(queue) for queue in work.NAMES)
    assert not any(work.can_serve(queue) for other in set(SYSTEMS) - {system} for queue in OFFERS[other].work.NAMES)
    assert work.WORKFLOWS
    assert names.HOUSEKEEPING


@pytest.mark.parametrize("layer", ["api", "workflows", "activities", "stores", "stores.tables", "domain"])
def test_contracts_hold_every_system_apart(layer: str) -> None:
    """In each layer: a system that a contract does not name could be imported by the others."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    apart = [set(each["modules"]) for each in contracts if each["type"] == "independence"]
    assert any(modules >= {f"{layer}.{system}" for system in SYSTEMS} for modules in apart)
