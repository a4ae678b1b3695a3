"""What can stand still or fail, and how an operator learns of it and mends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from domain.workload import ConcernKind
from tests.support.operations.cells import Command, NotOffered, Route


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page of the console, by the pattern of its route."""

    path: str


@dataclass(frozen=True, slots=True)
class Standstill:
    """What can stand still or fail, and how an operator learns of it and mends it."""

    subject: str
    metric: str | NotOffered
    alert: str | NotOffered
    page: ConsolePage | NotOffered
    action: Route | Command | NotOffered


OVERVIEW: Final = ConsolePage("/console")
DOWNLOADS: Final = ConsolePage("/console/downloads")
TRANSFERS: Final = ConsolePage("/console/transfers")
PLATFORM: Final = ConsolePage("/console/orders/platforms/:platform")
ADDRESSES: Final = ConsolePage("/console/addresses")
TYPE: Final = ConsolePage("/console/tasks/types/:type")
OLDEST: Final = "haulage_workload_oldest_seconds"
ITEMS: Final = "haulage_workload_items"
CONCERNS: Final = "haulage_concerns"
START_WORKER: Final = Command("worker", ("--queues",))

STANDSTILLS: Final = (
    Standstill(
        "A component does not answer", "haulage_component_up", "HaulageComponentDown", OVERVIEW, Command("doctor")
    ),
    Standstill("A queue has no worker", "haulage_queue_workers", "HaulageQueueWithoutWorker", OVERVIEW, START_WORKER),
    Standstill(
        "A queue's workers are too few", "haulage_queue_oldest_seconds", "HaulageQueueWaits", OVERVIEW, START_WORKER
    ),
    Standstill(
        "A system is paused",
        CONCERNS,
        "HaulageSystemPaused",
        OVERVIEW,
        Route("POST /v1/systems/{system}/resume"),
    ),
    Standstill(
        "Activities fail",
        "haulage_activity_seconds",
        "HaulageActivitiesFail",
        NotOffered("Each item's page says what is retried."),
        NotOffered("Mend what the log names; the engine retries."),
    ),
    Standstill(
        "An outside service is away",
        "haulage_service_calls_total",
        "HaulageServiceFails",
        NotOffered("Each item's page quotes it."),
        NotOffered("Its operator mends it; what waits goes on by itself."),
    ),
    Standstill("Downloads wait or hang", OLDEST, "HaulageDownloadsStandStill", DOWNLOADS, Command("downloads cancel")),
    Standstill("Downloads fail", ITEMS, "HaulageDownloadsFail", DOWNLOADS, Command("downloads retry", ("--cause",))),
    Standstill(
        "A webhook is not delivered",
        "haulage_activity_seconds",
        NotOffered("Its receiver belongs to the caller, who sees it; retries go on for about three days."),
        ConsolePage("/console/downloads/:id"),
        Route("POST /v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver"),
    ),
    Standstill("Targets wait or hang", OLDEST, "HaulageTransfersStandStill", TRANSFERS, Command("transfers cancel")),
    Standstill(
        "GSE answers errors about targets",
        CONCERNS,
        NotOffered("It is asked again until the job's time is over; an alert tells what fails then."),
        TRANSFERS,
        Command("transfers show"),
    ),
    Standstill(
        "Targets fail",
        "haulage_transfer_targets_ended_total",
        "HaulageTransfersFail",
        TRANSFERS,
        Command("transfers retry", ("--reason",)),
    ),
    Standstill("Slices wait or hang", OLDEST, "HaulageOrdersStandStill", PLATFORM, Command("orders status")),
    Standstill(
        "A slice takes too long",
        "haulage_platform_slices_stale",
        NotOffered("It is an alarm to the platform's administrator, and the system's standstill."),
        PLATFORM,
        Command("orders redo"),
    ),
    Standstill(
        "Slices fail",
        "haulage_platform_slices_failed",
        "HaulageOrdersFail",
        PLATFORM,
        Command("orders redo", ("--cause",)),
    ),
    Standstill(
        "A platform has no worker", "haulage_platform_unserved", "HaulageOrdersPlatformUnserved", PLATFORM, START_WORKER
    ),
    Standstill(
        "A platform refuses its credentials",
        "haulage_platform_credentials_refused",
        "HaulageOrdersCredentialsRefused",
        PLATFORM,
        NotOffered("Renew the file of its credentials; workers read it again."),
    ),
    Standstill(
        "A platform's clock cannot be read",
        "haulage_platform_clock_unread",
        "HaulageOrdersClockUnread",
        PLATFORM,
        NotOffered("Name another source of its time in its configuration."),
    ),
    Standstill(
        "Sweeps fail", "haulage_platform_sweeps_failed", "HaulageOrdersSweepsFail", PLATFORM, Command("orders redo")
    ),
    Standstill(
        "A platform is paused",
        "haulage_platform_claimed_age_seconds",
        NotOffered("Its administrator paused it; what settles is claimed afterwards."),
        PLATFORM,
        Command("orders resume"),
    ),
    Standstill(
        "A back-fill fails",
        "haulage_order_backfills_total",
        NotOffered("It is an alarm to the platform's administrator, who asked for it."),
        PLATFORM,
        Command("orders backfill"),
    ),
    Standstill(
        "Messages wait",
        "haulage_addresses_oldest_seconds",
        "HaulageAddressesStandStill",
        ADDRESSES,
        Command("addresses resume"),
    ),
    Standstill(
        "Messages fail in modules",
        "haulage_addresses_failed_in",
        "HaulageAddressesFail",
        ADDRESSES,
        Command("addresses retry", ("--module",)),
    ),
    Standstill(
        "Messages are given up",
        "haulage_addresses_open",
        "HaulageAddressesGivenUp",
        ADDRESSES,
        Command("addresses skip", ("--reason",)),
    ),
    Standstill(
        "Messages cannot be read",
        CONCERNS,
        "HaulageAddressesQuarantined",
        ConsolePage("/console/addresses/quarantine"),
        Command("addresses mend"),
    ),
    Standstill(
        "A module of addresses is paused",
        CONCERNS,
        NotOffered("An operator paused it; what needs it waits, and that has an alert."),
        ADDRESSES,
        Command("addresses resume", ("--module",)),
    ),
    Standstill("Tasks wait", OLDEST, "HaulageTasksStandStill", TYPE, Command("tasks work")),
    Standstill("Tasks fail", ITEMS, "HaulageTasksFail", TYPE, Command("tasks put-back", ("--status",))),
    Standstill(
        "Tasks are due and no worker holds them",
        "haulage_task_oldest_due_seconds",
        "HaulageTasksOverdue",
        TYPE,
        Command("tasks work"),
    ),
    Standstill("A type of tasks is paused", CONCERNS, "HaulageTasksPaused", TYPE, Command("tasks resume")),
)

COMPONENT: Final = "components"
"""The list of `GET /v1/overview` whose items the overview has a line for, where they do not answer."""
IN_LOG_ONLY: Final = NotOffered("An activity is no object: what it holds up waits or fails, and has a line for that.")

OVERVIEW_LINES: Final[Mapping[str, ConcernKind | str | NotOffered]] = {
    "A component does not answer": COMPONENT,
    "A queue has no worker": ConcernKind.NO_WORKER,
    "A queue's workers are too few": ConcernKind.QUEUE_WAITS,
    "A system is paused": ConcernKind.SYSTEM_PAUSED,
    "Activities fail": IN_LOG_ONLY,
    "An outside service is away": NotOffered(
        "What needs it waits or fails, and has a line for that, which names the cause."
    ),
    "Downloads wait or hang": ConcernKind.WAITING,
    "Downloads fail": ConcernKind.FAILED,
    "A webhook is not delivered": NotOffered(
        "It belongs to the caller, and its item has its own page; an alert counts all."
    ),
    "Targets wait or hang": ConcernKind.WAITING,
    "GSE answers errors about targets": ConcernKind.GSE_FAILS,
    "Targets fail": ConcernKind.FAILED,
    "Slices wait or hang": ConcernKind.WAITING,
    "A slice takes too long": ConcernKind.STALE,
    "Slices fail": ConcernKind.FAILED,
    "A platform has no worker": ConcernKind.UNSERVED,
    "A platform refuses its credentials": ConcernKind.CREDENTIALS_REFUSED,
    "A platform's clock cannot be read": ConcernKind.CLOCK_UNREAD,
    "Sweeps fail": ConcernKind.SWEEPS_FAILED,
    "A platform is paused": NotOffered(
        "Its schedule in the engine is paused; the list of platforms and its page say so."
    ),
    "A back-fill fails": ConcernKind.BACKFILL_FAILED,
    "Messages wait": ConcernKind.WAITING,
    "Messages fail in modules": ConcernKind.FAILED,
    "Messages are given up": ConcernKind.GIVEN_UP,
    "Messages cannot be read": ConcernKind.QUARANTINED,
    "A module of addresses is paused": ConcernKind.MODULE_PAUSED,
    "Tasks wait": ConcernKind.WAITING,
    "Tasks fail": ConcernKind.FAILED,
    "Tasks are due and no worker holds them": ConcernKind.OVERDUE,
    "A type of tasks is paused": ConcernKind.PAUSED,
}
"""The line of the console's overview for each standstill: a concern of `GET /v1/overview`, or why there is none."""
