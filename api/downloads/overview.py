"""The workload of downloads, for the overview."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Final

from domain.workload import WorkByProject
from infra.settings import Settings
from services.services import Services
from stores.downloads import catalogue

UNIT: Final = "downloads"
HAS_PROJECTS: Final = True
STANDSTILL_SECONDS: Final = 3_600


def get_failure_count_period(settings: Settings) -> timedelta:
    """Return how long a failure is counted."""
    return catalogue.FAILED_WITHIN


def build_workload_counter(services: Services) -> Callable[[], Awaitable[WorkByProject]]:
    """Return a function that counts the downloads of every project."""
    return partial(catalogue.count_downloads_and_failure_causes_by_project, services.database)
