"""What the overview shows of tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final

from domain.workload import Workloads
from infra.settings import Settings
from services.services import Services
from stores.tasks import workload

UNIT: Final = "tasks"
HAS_PROJECTS: Final = True


def failed_since(settings: Settings, now: datetime) -> datetime | None:
    """A day ago."""
    return now - workload.FAILED_WITHIN


def make_counter(services: Services) -> Callable[[], Awaitable[Workloads]]:
    """What counts tasks."""
    return partial(workload.count, services.database)
