"""The modules of every system that workers import, and the schedules of an installation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias, cast

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)

from domain import webhooks
from infra import housekeeping, starts
from infra.database import Database
from infra.housekeeping import HousekeepingActivityNamesInput
from infra.settings import Settings
from services.services import Services
from systems import System, import_modules, protocol
from systems.protocol import ModuleWithQueues, SystemNames

SystemQueues: TypeAlias = protocol.SystemQueues[Services]
SystemSchedules: TypeAlias = protocol.SystemSchedules[Client, Database, Settings]

_HOUSEKEEPING_INTERVAL = timedelta(minutes=10)
_FORMER_HOUSEKEEPING = "housekeeping"
"""The one schedule that earlier versions had for all systems, on the queue of downloads."""


def import_names_modules() -> list[SystemNames]:
    """Return the module of names of every system, and that of webhooks."""
    return [*cast("Mapping[System, SystemNames]", import_modules("domain.{}.names")).values(), webhooks]


def import_queues() -> Mapping[System, SystemQueues]:
    """Import the queues of every system, in the order of the list."""
    modules = cast("Mapping[System, ModuleWithQueues[Services]]", import_modules("workflows.{}.queues"))
    return {system: module.QUEUES for system, module in modules.items()}


def import_schedules() -> Mapping[System, SystemSchedules]:
    """Import what makes the schedules of every system."""
    return cast("Mapping[System, SystemSchedules]", import_modules("workflows.{}.handle"))


async def create_or_update_schedules(engine: Client, database: Database, settings: Settings) -> None:
    """Create the schedules of all systems, or update those that exist; a paused one stays paused."""
    await asyncio.gather(
        starts.remove_schedule(engine, _FORMER_HOUSEKEEPING),
        *(
            starts.create_or_update_schedule(
                engine, housekeeping.build_schedule_id(names.SYSTEM), _build_housekeeping_schedule(names)
            )
            for names in import_names_modules()
        ),
        *(system.create_or_update_schedules(engine, database, settings) for system in import_schedules().values()),
    )


def _build_housekeeping_schedule(names: SystemNames) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            housekeeping.WORKFLOW,
            HousekeepingActivityNamesInput(activities=names.HOUSEKEEPING),
            id=housekeeping.build_schedule_id(names.SYSTEM),
            task_queue=names.QUEUE,
            typed_search_attributes=starts.build_search_attributes(names.SYSTEM),
            static_summary=f"housekeeping of {names.SYSTEM}",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=_HOUSEKEEPING_INTERVAL)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_HOUSEKEEPING_INTERVAL),
    )
