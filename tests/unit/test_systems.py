"""What each system offers: mypy compares its modules with the protocols here, and each test looks at one system."""

from __future__ import annotations

from collections.abc import Mapping

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
from api.app import ROOMS
from api.overview import engine
from api.systems import Api, import_apis
from systems.modules import import_modules
from systems.names import SYSTEMS, System
from systems.protocol import Names

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

each_system = pytest.mark.parametrize("system", SYSTEMS)


def test_what_is_compared_is_what_processes_import() -> None:
    """In the order of the list, and nothing else."""
    assert list(import_apis().items()) == [(system, APIS[system]) for system in SYSTEMS]
    assert import_modules("domain.{}.names") == NAMES


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
    assert APIS[system].workload.UNIT
    assert {queue for queue, owner in engine.QUEUES.items() if owner == system} >= set(NAMES[system].QUEUES)
