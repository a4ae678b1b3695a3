"""Which workflows and activities serve which task queue; nothing else."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities.addresses.cycle import CycleSteps
from activities.addresses.housekeeping import AddressHousekeeping
from activities.addresses.pulling import AddressPulling
from activities.addresses.purging import LogicalDeletes
from activities.addresses.reporting import DriftReporting
from activities.downloads.housekeeping import DownloadHousekeeping
from activities.downloads.steps import DownloadSteps
from activities.orders import serving
from activities.orders.backfilling import OrderBackfills
from activities.orders.housekeeping import OrderHousekeeping
from activities.orders.scanning import OrderScan
from activities.orders.steps import OrderSteps
from activities.orders.watching import OrderWatching
from activities.tasks.housekeeping import TaskHousekeeping
from activities.tasks.steps import TaskSteps
from activities.transfers.housekeeping import TransferHousekeeping
from activities.transfers.steps import TransferSteps, host_queue
from activities.webhooks.housekeeping import WebhookHousekeeping
from activities.webhooks.steps import WebhookSteps
from domain.addresses import names as addresses_names
from domain.downloads import names as downloads_names
from domain.orders import names as orders_names
from domain.tasks import names as tasks_names
from domain.transfers import names as transfers_names
from domain.webhooks import names as webhooks_names
from infra import memory
from infra.settings import EngineSettings
from services.addresses.configuration import Configuration, CurrentModules
from services.orders import gauges
from services.services import Services
from workflows.addresses import handle as addresses_handle
from workflows.addresses.cycle import AddressCycle
from workflows.addresses.intake import AddressIntake
from workflows.addresses.upkeep import AddressCheck, AddressDrift, AddressPurge
from workflows.downloads.download import DownloadWorkflow
from workflows.housekeeping import HousekeepingWorkflow
from workflows.orders.backfill import OrderBackfill
from workflows.orders.cycle import OrderCycle
from workflows.orders.report import OrderReport
from workflows.orders.slice import OrderSlice
from workflows.orders.watch import OrderWatch
from workflows.tasks.lane import TaskLane
from workflows.transfers.job import TransferJob
from workflows.webhooks.delivery import WebhookDelivery


@dataclass(frozen=True)
class Queue:
    """One line of the table: what a task queue serves, and how much of it at a time."""

    name: str
    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]
    slots: int
    polls: int = 5
    eager: int = 3
    """So many activities that a workflow begins at one time may run in its own process, without a way to the engine."""
    beside: str = ""
    """The queue whose workers serve this one, too; it has no name that anybody could ask for."""

    def is_among(self, names: Sequence[str]) -> bool:
        """Whether who serves these serves it."""
        return (self.beside or self.name) in names


def table(services: Services) -> list[Queue]:
    """All queues of the house."""
    return [
        *_of_downloads(services),
        *_of_webhooks(services),
        *_of_transfers(services),
        *_of_orders(services),
        *_of_tasks(services),
        *_of_addresses(services),
    ]


def _of_downloads(services: Services) -> list[Queue]:
    download, housekeeping = DownloadSteps(services), DownloadHousekeeping(services)
    return [
        Queue(
            name=downloads_names.QUEUE,
            workflows=[DownloadWorkflow, HousekeepingWorkflow],
            activities=[
                download.record,
                download.probe,
                download.assemble,
                download.bind,
                download.discard,
                download.finish,
                housekeeping.expire,
                housekeeping.sweep,
                WebhookHousekeeping(services).purge,
                TransferHousekeeping(services).purge,
                OrderHousekeeping(services).purge,
                AddressHousekeeping(services).purge,
                TaskHousekeeping(services).purge,
            ],
            slots=50,
        ),
        Queue(
            name=downloads_names.FETCH_QUEUE,
            workflows=[],
            activities=[download.fetch_range],
            slots=services.settings.worker.fetch_slots,
            # One poll at a time: the ranges of a download come to all workers in turn, not all of them to one.
            polls=1,
        ),
        Queue(
            name=downloads_names.RENDER_QUEUE,
            workflows=[],
            activities=[download.render],
            slots=services.settings.worker.render_slots,
            polls=1,
        ),
    ]


def _of_webhooks(services: Services) -> list[Queue]:
    webhook = WebhookSteps(services.database, services.http, services.sealer, services.settings.webhooks)
    return [
        Queue(
            name=webhooks_names.QUEUE,
            workflows=[WebhookDelivery],
            activities=[webhook.enter, webhook.attempt],
            # Half of the guarded client's connections: receivers that hang must not keep sources from being asked.
            slots=32,
        )
    ]


def _of_transfers(services: Services) -> list[Queue]:
    transfer = TransferSteps(services)
    return [
        Queue(
            name=transfers_names.QUEUE,
            workflows=[TransferJob],
            activities=[
                transfer.freeze,
                transfer.freeze_retry,
                transfer.look,
                transfer.settle,
                transfer.cancel,
                transfer.finish,
            ],
            slots=20,
        ),
        Queue(name=transfers_names.FILE_QUEUE, workflows=[], activities=[transfer.fetch], slots=8),
        Queue(
            # What has to happen where the file lies.
            name=host_queue(services.settings.gse),
            workflows=[],
            activities=[transfer.ship],
            # Each waits for GSE most of the time, and the largest job has 500 of them.
            slots=1_000,
            beside=transfers_names.FILE_QUEUE,
        ),
    ]


def _of_orders(services: Services) -> list[Queue]:
    order, watching, backfilling = OrderSteps(services), OrderWatching(services), OrderBackfills(services)
    return [
        Queue(
            # What asks platforms has queues of its own, one platform each: `serving` makes them while it runs.
            name=orders_names.QUEUE,
            workflows=[
                OrderCycle,
                OrderSlice,
                OrderBackfill,
                OrderReport,
                OrderWatch,
            ],
            activities=[
                order.claim,
                order.settings,
                order.fail,
                order.clock_failed,
                order.credentials_failed,
                backfilling.begin,
                backfilling.step,
                backfilling.end,
                watching.platforms,
                watching.note,
                OrderScan(services).scan,
            ],
            slots=20,
        )
    ]


def _of_tasks(services: Services) -> list[Queue]:
    task = TaskSteps(services)
    return [Queue(name=tasks_names.QUEUE, workflows=[TaskLane], activities=[task.keep, task.close], slots=20)]


def _of_addresses(services: Services) -> list[Queue]:
    configuration = Configuration(services.database, services.modules, services.settings.addresses)
    modules = CurrentModules(configuration)
    cycle = CycleSteps(services.database, services.engine, configuration)
    logical = LogicalDeletes(services.database, modules, services.settings.addresses)
    return [
        Queue(
            name=addresses_names.QUEUE,
            workflows=[
                AddressCycle,
                AddressCheck,
                AddressPurge,
                AddressDrift,
            ],
            activities=[
                cycle.load,
                cycle.apply,
                cycle.waiting,
                cycle.archive,
                logical.check,
                logical.purge,
                DriftReporting(services.database, services.objects, modules).report,
            ],
            slots=20,
            # Steps that are applied side by side come to all workers in turn, not all of them to one.
            polls=1,
            eager=1,
        ),
        Queue(
            name=addresses_names.INTAKE_QUEUE,
            workflows=[AddressIntake],
            activities=[AddressPulling(services).pull],
            slots=10,
        ),
    ]


def workflows() -> list[type]:
    """All workflows of the house, for the replayer."""
    return [
        DownloadWorkflow,
        HousekeepingWorkflow,
        WebhookDelivery,
        TransferJob,
        OrderCycle,
        OrderSlice,
        OrderBackfill,
        OrderReport,
        OrderWatch,
        TaskLane,
        AddressCycle,
        AddressIntake,
        AddressCheck,
        AddressPurge,
        AddressDrift,
    ]


def names() -> tuple[str, ...]:
    """The task queues that a worker can be told to serve."""
    return (
        downloads_names.QUEUE,
        downloads_names.FETCH_QUEUE,
        downloads_names.RENDER_QUEUE,
        webhooks_names.QUEUE,
        transfers_names.QUEUE,
        transfers_names.FILE_QUEUE,
        orders_names.QUEUE,
        orders_names.PLATFORM_QUEUES,
        tasks_names.QUEUE,
        addresses_names.QUEUE,
        addresses_names.INTAKE_QUEUE,
    )


def is_known(name: str) -> bool:
    """Whether a worker can be told to serve this queue: those of single platforms are named after them."""
    return name in names() or orders_names.served_platform(name) is not None


def build(client: Client, engine: EngineSettings, queue: Queue) -> Worker:
    """A Temporal worker for one line of the table."""
    return Worker(
        client,
        task_queue=queue.name,
        workflows=queue.workflows,
        activities=queue.activities,
        max_concurrent_activities=queue.slots,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(queue.polls),
        max_eager_activity_reservations_per_workflow_task=queue.eager,
        # A killed worker freezes its cached workflows for this long; the default of 10 s is felt by users.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=engine.sticky_timeout_seconds),
        # Heartbeats carry the progress that people watch.
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=engine.graceful_shutdown_seconds),
    )


async def serve(services: Services, queues: Sequence[str], stop: asyncio.Event) -> None:
    """Serve the named queues until told to stop; what runs may finish within the graceful time."""
    chosen = [queue for queue in table(services) if queue.is_among(queues)]
    if downloads_names.FETCH_QUEUE in queues:
        # Arrow is loaded where it is used, and the first download should not wait for that.
        importlib.import_module("domain.downloads.flat_csv")
    workers = [build(services.engine, services.settings.engine, queue) for queue in chosen]
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker.run())
        group.create_task(serving.serve(services, queues, stop))
        group.create_task(gauges.keep(services, queues, stop))
        group.create_task(memory.give_back(stop))
        if addresses_names.INTAKE_QUEUE in queues:
            group.create_task(addresses_handle.keep_intakes(services, stop))
        await stop.wait()
        for worker in workers:
            group.create_task(worker.shutdown())
