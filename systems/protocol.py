"""What every system offers, by the module that offers it.

`SystemModules` is all of it. No process loads all layers of a system, so each imports the module of its own layer:
`tests/unit/test_systems.py` puts them together for every system and has mypy compare them with `SystemModules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

Client_contra = TypeVar("Client_contra", contravariant=True)
Database_contra = TypeVar("Database_contra", contravariant=True)
Services_contra = TypeVar("Services_contra", contravariant=True)
Settings_contra = TypeVar("Settings_contra", contravariant=True)
Routes_co = TypeVar("Routes_co", covariant=True)
Call_contra = TypeVar("Call_contra", contravariant=True)
Limits_contra = TypeVar("Limits_contra", contravariant=True)
Usage_co = TypeVar("Usage_co", covariant=True)
Workloads_co = TypeVar("Workloads_co", covariant=True)


@dataclass(frozen=True)
class TaskQueue:
    """A task queue of the engine with the workflows and activities that a worker serves on it."""

    name: str
    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]
    slots: int
    """Activities that run at a time."""
    polls: int = 5
    eager: int = 3
    """Activities that one workflow task may start in its own process without asking the engine for them."""
    served_with: str = ""
    """The queue whose workers serve this one as well; a worker cannot be asked for this one by name."""

    def is_served_by_worker_of(self, queue_names: Sequence[str]) -> bool:
        """Return whether a worker of the named queues serves this one."""
        return (self.served_with or self.name) in queue_names


class SystemNames(Protocol):
    """`domain/<system>/names.py`: the names of the system outside its own packages."""

    @property
    def SYSTEM(self) -> str:  # noqa: N802 - a module's constant
        """The value of the search attribute of its workflows."""

    @property
    def QUEUE(self) -> str:  # noqa: N802 - a module's constant
        """The task queue of its workflows and of its housekeeping."""

    @property
    def QUEUES(self) -> tuple[str, ...]:  # noqa: N802 - a module's constant
        """Its task queues that exist at all times, `QUEUE` among them."""

    @property
    def HOUSEKEEPING(self) -> tuple[str, ...]:  # noqa: N802 - a module's constant
        """The activities that remove what is past its retention, in this order; a worker of `QUEUE` serves them."""


async def create_no_schedules(_engine: object, _database: object, _settings: object) -> None:
    """Do nothing: the `create_or_update_schedules` of systems without schedules beside housekeeping."""


class SystemSchedules(Protocol[Client_contra, Database_contra, Settings_contra]):
    """`workflows/<system>/handle.py`: the schedules of the system beside its housekeeping."""

    async def create_or_update_schedules(
        self, engine: Client_contra, database: Database_contra, settings: Settings_contra
    ) -> None:
        """Create the schedules, or update those that exist; a paused one stays paused.

        A schedule of what is not configured has no interval: it runs when it is triggered.
        """


async def do_nothing_in_background(_services: object, _queues: Sequence[str], _stop: asyncio.Event) -> None:
    """Do nothing: most systems have no work beside their queues."""


@dataclass(frozen=True)
class SystemQueues(Generic[Services_contra]):
    """What workers do for a system."""

    names: tuple[str, ...]
    """The queues that a worker can be asked to serve."""
    workflows: tuple[type, ...]
    """All its workflows."""
    build: Callable[[Services_contra], list[TaskQueue]]
    """Builds the queues whose activities work with these clients."""
    run_background: Callable[[Services_contra, Sequence[str], asyncio.Event], Coroutine[Any, Any, None]] = (
        do_nothing_in_background
    )
    """Runs what a worker of the named queues does beside them, until the event is set."""
    is_named_later: Callable[[str], bool] = lambda _queue: False
    """Whether a queue that is not in `names` is one of the system's that appear at run time."""

    def can_serve(self, queue: str) -> bool:
        """Return whether a worker can be asked to serve this queue."""
        return queue in self.names or self.is_named_later(queue)


class ModuleWithQueues(Protocol[Services_contra]):
    """`workflows/<system>/queues.py`: what workers do for the system."""

    @property
    def QUEUES(self) -> SystemQueues[Services_contra]:  # noqa: N802 - a module's constant
        """All of it."""


class SystemOverview(Protocol[Services_contra, Settings_contra, Workloads_co]):
    """`api/<system>/overview.py`: what the overview shows of the system."""

    @property
    def UNIT(self) -> str:  # noqa: N802 - a module's constant
        """What is counted, in the plural."""

    @property
    def HAS_PROJECTS(self) -> bool:  # noqa: N802 - a module's constant
        """Whether its work belongs to projects; otherwise only the admin key sees it."""

    @property
    def STANDSTILL_SECONDS(self) -> int:  # noqa: N802 - a module's constant
        """What waits for longer stands still: the threshold of the alert `Haulage…StandStill`."""

    def get_failure_count_period(self, settings: Settings_contra, /) -> timedelta | None:
        """Return how long a failure is counted; None where it counts until an operator resolves it."""

    def build_workload_counter(self, services: Services_contra) -> Callable[[], Awaitable[Workloads_co]]:
        """Return a function that counts the work of every project; what a schedule does waits where it is overdue."""


class SystemQuotas(Protocol[Call_contra, Limits_contra, Usage_co]):
    """`api/<system>/quotas.py`: what a project may use of the system."""

    async def read_usage(self, call: Call_contra, project_id: str, limits: Limits_contra, /) -> Sequence[Usage_co]:
        """Return how much of its quotas a project has used, in the order in which they are shown."""


class SystemApi(Protocol[Routes_co]):
    """`api/<system>/__init__.py`: what the API serves of the system."""

    @property
    def routes(self) -> Routes_co:
        """Its routes, all declared when the package is imported."""


class SystemModules(
    Protocol[Client_contra, Database_contra, Services_contra, Settings_contra, Routes_co, Workloads_co]
):
    """All modules of a system that other packages use. A process imports only those of the layers that it loads."""

    @property
    def names(self) -> SystemNames:
        """`domain/<system>/names.py`."""

    @property
    def api(self) -> SystemApi[Routes_co]:
        """`api/<system>/__init__.py`."""

    @property
    def overview(self) -> SystemOverview[Services_contra, Settings_contra, Workloads_co]:
        """`api/<system>/overview.py`."""

    @property
    def quotas(self) -> SystemQuotas[Any, Any, Any]:
        """`api/<system>/quotas.py`."""

    @property
    def queues(self) -> ModuleWithQueues[Services_contra]:
        """`workflows/<system>/queues.py`."""

    @property
    def schedules(self) -> SystemSchedules[Client_contra, Database_contra, Settings_contra]:
        """`workflows/<system>/handle.py`."""
