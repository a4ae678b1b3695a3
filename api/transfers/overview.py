"""What the overview shows of transfers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from domain.workload import Workloads
from infra.settings import Settings
from services.services import Services
from stores.transfers.workload import TransferCounter

UNIT: Final = "targets"
HAS_PROJECTS: Final = True


def failed_since(settings: Settings, now: datetime) -> datetime | None:
    """Return the time since which failures are counted: the retention of jobs."""
    return now - timedelta(seconds=settings.transfers.kept_seconds)


def make_counter(services: Services) -> Callable[[], Awaitable[Workloads]]:
    """Return the function that counts targets."""
    return TransferCounter(services.database).count
