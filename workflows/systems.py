"""The systems as workers and schedules ask them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from temporalio.client import Client

from domain.webhooks import names as webhooks_names
from infra.settings import Settings
from services.services import Services
from systems import protocol
from systems.modules import import_modules
from systems.names import System
from systems.protocol import Names

Work: TypeAlias = protocol.Work[Services]
Schedules: TypeAlias = protocol.Schedules[Client, Settings]


def list_names() -> list[Names]:
    """The names of every system, and of the webhooks that they share."""
    return [*cast("Mapping[System, Names]", import_modules("domain.{}.names")).values(), webhooks_names]


def import_works() -> Mapping[System, Work]:
    """The queues of every system, in the order of the list."""
    return cast("Mapping[System, Work]", import_modules("workflows.{}.queues"))


def import_schedules() -> Mapping[System, Schedules]:
    """What makes the schedules of every system."""
    return cast("Mapping[System, Schedules]", import_modules("workflows.{}.handle"))
