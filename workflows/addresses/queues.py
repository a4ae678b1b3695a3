"""The task queues of addresses, and what workers serve on them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from activities.addresses.activities import AddressCycleActivities, AddressHousekeeping, LogicalDeleteActivities
from activities.addresses.drift import ComparisonActivities
from activities.addresses.intake import AddressIntakeActivities
from domain.addresses import names
from services.addresses import ConfigurationLoader, ModulesClientWithNewestSettings
from services.services import Services
from systems.protocol import SystemQueues, TaskQueue
from workflows.addresses import handle
from workflows.addresses.cycle import AddressCycle
from workflows.addresses.maintenance import AddressIntake, LogicalDeleteCheck, ModuleComparison, SelectedAddressesPurge
from workflows.housekeeping import HousekeepingWorkflow

WORKFLOWS: Final = (AddressCycle, AddressIntake, LogicalDeleteCheck, SelectedAddressesPurge, ModuleComparison)


def build_queues(services: Services) -> list[TaskQueue]:
    """Build the queue of cycles and operators' requests, and that of pulls, which never waits for the other."""
    configuration = ConfigurationLoader(services.database, services.modules, services.settings.addresses)
    modules = ModulesClientWithNewestSettings(configuration)
    cycle = AddressCycleActivities(services.database, services.engine, configuration)
    logical = LogicalDeleteActivities(services.database, modules, services.settings.addresses)
    return [
        TaskQueue(
            name=names.QUEUE,
            workflows=[
                AddressCycle,
                LogicalDeleteCheck,
                SelectedAddressesPurge,
                ModuleComparison,
                HousekeepingWorkflow,
            ],
            activities=[
                cycle.resume_or_begin_cycle_unless_paused,
                cycle.apply_step_and_count_endings,
                cycle.list_waiting_swaps,
                cycle.confirm_and_archive_messages,
                logical.check_logical_deletes_and_purge_if_configured,
                logical.purge_addresses,
                ComparisonActivities(services.database, services.objects, modules).compare_modules_and_write_workbook,
                AddressHousekeeping(services).delete_expired_rows_of_log,
            ],
            slots=20,
            # So that parallel steps are spread over all workers, instead of all going to one.
            polls=1,
            eager=1,
        ),
        TaskQueue(
            name=names.INTAKE_QUEUE,
            workflows=[AddressIntake],
            activities=[AddressIntakeActivities(services).pull_messages],
            slots=10,
        ),
    ]


async def keep_intakes_running_if_served(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Keep the intakes running, where this worker serves intake."""
    if names.INTAKE_QUEUE in queues:
        await handle.keep_intakes_running(services, stop)


QUEUES: Final = SystemQueues(
    names=names.QUEUES, workflows=WORKFLOWS, build=build_queues, run_background=keep_intakes_running_if_served
)
