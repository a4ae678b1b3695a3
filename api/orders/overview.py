"""What the overview shows of orders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final

from domain.workload import Workloads
from infra.settings import Settings
from services.services import Services
from stores.orders import workload

UNIT: Final = "slices"
HAS_PROJECTS: Final = True


def failed_since(settings: Settings, now: datetime) -> datetime | None:
    """Failed slices stay until somebody sees to them."""
    return None


def make_counter(services: Services) -> Callable[[], Awaitable[Workloads]]:
    """What counts slices."""
    return partial(workload.count, services.database)
