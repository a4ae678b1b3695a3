"""What every system offers, by the module that offers it.

`Offer` is all of it. No process loads all layers of a system, so each asks the module of its own layer:
`tests/unit/test_systems.py` puts them together for every system and has mypy compare them with `Offer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from systems.queues import TaskQueue

Client_contra = TypeVar("Client_contra", contravariant=True)
Services_contra = TypeVar("Services_contra", contravariant=True)
Settings_contra = TypeVar("Settings_contra", contravariant=True)
Routes_co = TypeVar("Routes_co", covariant=True)
Workloads_co = TypeVar("Workloads_co", covariant=True)


class Names(Protocol):
    """`domain/<system>/names.py`: what the system is known by outside its own packages."""

    @property
    def SYSTEM(self) -> str:  # noqa: N802 - a module's constant
        """Its name, as the search attribute of its workflows has it."""

    @property
    def QUEUE(self) -> str:  # noqa: N802 - a module's constant
        """The task queue of its workflows and of its housekeeping."""

    @property
    def QUEUES(self) -> tuple[str, ...]:  # noqa: N802 - a module's constant
        """Its task queues that exist at all times, `QUEUE` among them."""

    @property
    def HOUSEKEEPING(self) -> tuple[str, ...]:  # noqa: N802 - a module's constant
        """The activities that remove what is past its time, in this order; a worker of `QUEUE` serves them."""


class Schedules(Protocol[Client_contra, Settings_contra]):
    """`workflows/<system>/handle.py`: the schedules of the system beside its housekeeping."""

    async def ensure_schedules(self, client: Client_contra, settings: Settings_contra) -> None:
        """Make them, or mend those that exist; a paused one stays paused."""


class Work(Protocol[Services_contra]):
    """`workflows/<system>/queues.py`: what workers do for the system."""

    @property
    def NAMES(self) -> tuple[str, ...]:  # noqa: N802 - a module's constant
        """The queues that a worker can be told to serve."""

    @property
    def WORKFLOWS(self) -> tuple[type, ...]:  # noqa: N802 - a module's constant
        """All its workflows."""

    def can_serve(self, queue: str) -> bool:
        """Whether a worker can be told to serve this queue."""

    def build_queues(self, services: Services_contra) -> list[TaskQueue]:
        """What each queue serves, over these clients."""

    async def run_background(self, services: Services_contra, queues: Sequence[str], stop: asyncio.Event) -> None:
        """Do what is done beside the queues, in a worker of these queues, until told to stop."""


class WorkloadSource(Protocol[Services_contra, Settings_contra, Workloads_co]):
    """`api/<system>/workload.py`: what the overview shows of the system."""

    @property
    def UNIT(self) -> str:  # noqa: N802 - a module's constant
        """What is counted, in the plural."""

    @property
    def HAS_PROJECTS(self) -> bool:  # noqa: N802 - a module's constant
        """Whether its work belongs to projects; otherwise only the admin key sees it."""

    def failed_since(self, settings: Settings_contra, now: datetime) -> datetime | None:
        """Since when failures are counted; None where they stay until somebody sees to them."""

    def make_counter(self, services: Services_contra) -> Callable[[], Awaitable[Workloads_co]]:
        """What counts the work of every project, over these clients."""


class Api(Protocol[Services_contra, Settings_contra, Routes_co, Workloads_co]):
    """`api/<system>/__init__.py`: what the API serves of the system."""

    @property
    def routes(self) -> Routes_co:
        """Its routes, all declared when the package is imported."""

    @property
    def workload(self) -> WorkloadSource[Services_contra, Settings_contra, Workloads_co]:
        """What the overview shows of it."""


class Offer(Protocol[Client_contra, Services_contra, Settings_contra, Routes_co, Workloads_co]):
    """All that a system offers. A process asks only the modules of the layers that it loads."""

    @property
    def names(self) -> Names:
        """What it is known by."""

    @property
    def api(self) -> Api[Services_contra, Settings_contra, Routes_co, Workloads_co]:
        """What the API serves of it."""

    @property
    def workload(self) -> WorkloadSource[Services_contra, Settings_contra, Workloads_co]:
        """What the overview shows of it; also in `api`, where mypy does not look into a module of a module."""

    @property
    def work(self) -> Work[Services_contra]:
        """What workers do for it."""

    @property
    def schedules(self) -> Schedules[Client_contra, Settings_contra]:
        """What makes its schedules."""
