"""What each system offers: mypy compares its modules with the protocols here, and each test looks at one system."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

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
from api.systems import Api, WorkloadSource, import_apis
from systems.names import SYSTEMS, System
from systems.protocol import Names
from workflows.systems import Schedules, Work, import_schedules, import_works, list_names

# Typed, so that mypy says which member of a module is missing or has another type.
NAMES: Mapping[System, Names] = {
    "downloads": domain.downloads.names,
    "transfers": domain.transfers.names,
    "orders": domain.orders.names,
    "addresses": domain.addresses.names,
    "tasks": domain.tasks.names,
}
APIS: Mapping[System, Api] = {
    "downloads": api.downloads,
    "transfers": api.transfers,
    "orders": api.orders,
    "addresses": api.addresses,
    "tasks": api.tasks,
}

# By itself: inside a package mypy does not look at a module.
WORKLOADS: Mapping[System, WorkloadSource] = {
    "downloads": api.downloads.workload,
    "transfers": api.transfers.workload,
    "orders": api.orders.workload,
    "addresses": api.addresses.workload,
    "tasks": api.tasks.workload,
}
SCHEDULES: Mapping[System, Schedules] = {
    "downloads": workflows.downloads.handle,
    "transfers": workflows.transfers.handle,
    "orders": workflows.orders.handle,
    "addresses": workflows.addresses.handle,
    "tasks": workflows.tasks.handle,
}
WORKS: Mapping[System, Work] = {
    "downloads": workflows.downloads.queues,
    "transfers": workflows.transfers.queues,
    "orders": workflows.orders.queues,
    "addresses": workflows.addresses.queues,
    "tasks": workflows.tasks.queues,
}

ROOT = Path(__file__).parents[2]

each_system = pytest.mark.parametrize("system", SYSTEMS)


def test_what_is_compared_is_what_processes_import() -> None:
    """In the order of the list, and nothing else."""
    assert list(import_apis().items()) == [(system, APIS[system]) for system in SYSTEMS]
    assert list(import_works().items()) == [(system, WORKS[system]) for system in SYSTEMS]
    assert list(import_schedules().items()) == [(system, SCHEDULES[system]) for system in SYSTEMS]
    assert list_names() == [*(NAMES[system] for system in SYSTEMS), domain.webhooks.names]
    assert list(worker.WORKS) == [*(WORKS[system] for system in SYSTEMS), workflows.webhooks.queues]


@each_system
def test_a_system_is_known_by_its_own_name(system: System) -> None:
    """Its queues begin with it, so that whoever deploys sees whose they are."""
    names = NAMES[system]
    assert system == names.SYSTEM
    assert names.QUEUE in names.QUEUES
    assert all(queue.startswith(system) for queue in names.QUEUES)


@each_system
def test_the_api_serves_a_system_s_routes(system: System) -> None:
    """All of them, under a tag that is its name."""
    routes = APIS[system].routes
    assert routes in ROOMS
    assert routes.tag == system
    assert list(routes)


@each_system
def test_the_overview_shows_a_system(system: System) -> None:
    """What is counted has a name, and its queues are looked at."""
    assert APIS[system].workload is WORKLOADS[system]
    assert WORKLOADS[system].UNIT
    assert {queue for queue, owner in engine.QUEUES.items() if owner == system} >= set(NAMES[system].QUEUES)


@each_system
def test_workers_can_serve_a_system_s_queues(system: System) -> None:
    """By their names and by no others, and housekeeping has something to do there."""
    work, names = WORKS[system], NAMES[system]
    assert set(work.NAMES) >= set(names.QUEUES)
    assert all(work.can_serve(queue) for queue in work.NAMES)
    assert not any(work.can_serve(queue) for other in set(SYSTEMS) - {system} for queue in WORKS[other].NAMES)
    assert work.WORKFLOWS
    assert names.HOUSEKEEPING


@pytest.mark.parametrize("layer", ["api", "workflows", "activities", "stores", "stores.tables", "domain"])
def test_contracts_hold_every_system_apart(layer: str) -> None:
    """In each layer: a system that a contract does not name could be imported by the others."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    apart = [set(each["modules"]) for each in contracts if each["type"] == "independence"]
    assert any(modules >= {f"{layer}.{system}" for system in SYSTEMS} for modules in apart)
