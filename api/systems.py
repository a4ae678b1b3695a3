"""The modules of every system that the API imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from api.http.routes import Routes
from domain.workload import Workloads
from infra.settings import Settings
from services.services import Services
from systems import protocol
from systems.names import System, import_modules

SystemApi: TypeAlias = protocol.SystemApi[Services, Settings, Routes, Workloads]
SystemOverview: TypeAlias = protocol.SystemOverview[Services, Settings, Workloads]


def import_apis() -> Mapping[System, SystemApi]:
    """Import the API package of every system, in the order of the list."""
    return cast("Mapping[System, SystemApi]", import_modules("api.{}"))
