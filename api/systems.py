"""The systems as the API asks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, cast

from api.routes import Routes
from domain.workload import Workloads
from infra.settings import Settings
from services.services import Services
from systems import protocol
from systems.modules import import_modules
from systems.names import System

Api: TypeAlias = protocol.Api[Services, Settings, Routes, Workloads]
WorkloadSource: TypeAlias = protocol.WorkloadSource[Services, Settings, Workloads]


def import_apis() -> Mapping[System, Api]:
    """The API package of every system, in the order of the list."""
    return cast("Mapping[System, Api]", import_modules("api.{}"))
