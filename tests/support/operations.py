"""What an operator can do to each object, and what can stand still: `python -m tests.support.operations` writes both
tables of `docs/how-to/operate.md`.

A cell is what carries it out, or a sentence that says why there is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from domain.workload import ConcernKind

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/how-to/operate.md"
CONSOLE: Final = ROOT / "api/console/js"
ACTIONS: Final = (
    "redo",
    "retry",
    "skip",
    "split",
    "cancel",
    "pause and resume",
    "put back",
    "delete",
    "resubmit",
    "archive",
)


@dataclass(frozen=True, slots=True)
class No:
    """A cell without anything, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Route:
    """A route, and the fields of its request that matter here."""

    name: str
    """Method and path template."""

    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Console:
    """Where the console offers it: a module, and a text of its source."""

    module: str
    """Below `api/console/js/`."""

    source: str
    shows_first: bool = False
    """Whether its question names what will be changed, before anything is: the console's dry run."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, with the options that matter here."""

    name: str
    options: tuple[str, ...] = ()


Cell: TypeAlias = Route | Console | Command | No


@dataclass(frozen=True, slots=True)
class Operation:
    """An action on an object: on one, on a list, on all that a filter finds; tried without effect; and where."""

    one: Route | No
    many: Route | Console | Command | No
    filtered: Route | Console | Command | No
    dry_run: Route | Console | Command | No
    console: Console | No
    command: Command | No


Row: TypeAlias = Mapping[str, Operation | No]

ENDS: Final = No("It is not a run: there is nothing to cancel.")
BY_ITSELF: Final = No("Housekeeping removes it after its retention.")
NOT_HERE: Final = No("It has no parts.")
ONE: Final = No("One at a time: each is a decision of its own.")
ONE_SHOWN: Final = No("It concerns the one that is shown.")
NO_QUEUE: Final = No("It waits in no queue of workers.")
NOT_REFUSED: Final = No("What was refused was never taken in: its caller sends it again.")
UNDO: Final = No("It takes effect at once, and is undone by its opposite.")

MANY_DOWNLOADS: Final = "pages/downloads/actions.js"
SLICES: Final = "pages/orders/deeds.js"
STEER_SLICES: Final = Console(SLICES, "export async function steer", shows_first=True)
MESSAGES: Final = "pages/addresses/actions.js"

OPERATIONS: Final[Mapping[str, Row]] = {
    "download": {
        "redo": No("A download that has succeeded is complete; another export is another download."),
        "retry": Operation(
            one=Route("POST /v1/downloads/{task_id}/retry"),
            many=Console(MANY_DOWNLOADS, "eachOf"),
            filtered=Command("downloads retry", ("--cause", "--operator", "--host", "--after", "--before")),
            dry_run=Command("downloads retry", ("--dry-run",)),
            console=Console(MANY_DOWNLOADS, 'download.state === "failed"'),
            command=Command("downloads retry"),
        ),
        "skip": No("Nothing waits behind a download that failed."),
        "split": No("Its ranges are split by its own plan."),
        "cancel": Operation(
            one=Route("POST /v1/downloads/{task_id}/cancel"),
            many=Console(MANY_DOWNLOADS, "eachOf"),
            filtered=Command("downloads cancel", ("--state", "--operator", "--host", "--after", "--before")),
            dry_run=Command("downloads cancel", ("--dry-run",)),
            console=Console(MANY_DOWNLOADS, "isFinal(download)"),
            command=Command("downloads cancel"),
        ),
        "pause and resume": No("It is a matter of minutes: cancel it, or pause the system."),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("DELETE /v1/downloads/{task_id}"),
            many=Command("downloads delete"),
            filtered=Command("downloads delete", ("--operator", "--host", "--after", "--before")),
            dry_run=Command("downloads delete", ("--dry-run",)),
            console=Console("pages/downloads/detailpage.js", "del(this.path)"),
            command=Command("downloads delete"),
        ),
        "resubmit": NOT_REFUSED,
        "archive": BY_ITSELF,
    },
    "webhook delivery": {
        "redo": No("A redelivery is the same: see retry."),
        "retry": Operation(
            one=Route("POST /v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver"),
            many=No("A receiver that was away gets its deliveries by their own retries, for about three days."),
            filtered=No("A receiver that was away gets its deliveries by their own retries, for about three days."),
            dry_run=No("The receiver has the id of the event, and takes a repetition for what it is."),
            console=Console("pages/downloads/deliveries.js", "redeliver"),
            command=Command("ask", ("--method",)),
        ),
        "skip": No("Nothing waits behind it."),
        "split": NOT_HERE,
        "cancel": No("A receiver that answers 410 ends it."),
        "pause and resume": No("A receiver that is away pauses it; its retries go on by themselves."),
        "put back": NO_QUEUE,
        "delete": BY_ITSELF,
        "resubmit": NOT_REFUSED,
        "archive": BY_ITSELF,
    },
    "transfer job": {
        "redo": No("Targets that have the file need it no second time."),
        "retry": Operation(
            one=Route("POST /v1/transfers/jobs/{job_id}/retry"),
            many=No("A retry is a job of the targets that failed in one job."),
            filtered=Route("POST /v1/transfers/jobs/{job_id}/retry", ("reason",)),
            dry_run=Console("pages/transfers/job.js", "transfers.retryTitle", shows_first=True),
            console=Console("pages/transfers/job.js", "/retry"),
            command=Command("transfer retry", ("--reason",)),
        ),
        "skip": No("Nothing waits behind it."),
        "split": No("Its shards are split by its own plan."),
        "cancel": Operation(
            one=Route("POST /v1/transfers/jobs/{job_id}/cancel"),
            many=ONE,
            filtered=No("Of a job, each target can be cancelled by its task."),
            dry_run=Console("pages/transfers/job.js", "transfers.cancelTitle", shows_first=True),
            console=Console("pages/transfers/job.js", "/cancel"),
            command=Command("transfer cancel"),
        ),
        "pause and resume": No("It is a matter of minutes: cancel it, or pause the system."),
        "put back": NO_QUEUE,
        "delete": BY_ITSELF,
        "resubmit": NOT_REFUSED,
        "archive": BY_ITSELF,
    },
    "target of a transfer": {
        "redo": No("A target that has the file needs it no second time."),
        "retry": No("The failed targets of a job are retried together: see its job."),
        "skip": No("Nothing waits behind it."),
        "split": NOT_HERE,
        "cancel": Operation(
            one=Route("POST /v1/transfers/{task_id}/cancel"),
            many=No("All targets of a job are cancelled by their job."),
            filtered=No("All targets of a job are cancelled by their job."),
            dry_run=ONE_SHOWN,
            console=Console("pages/transfers/task.js", "/cancel"),
            command=Command("ask", ("--method",)),
        ),
        "pause and resume": No("A host is taken out of use at GSE."),
        "put back": NO_QUEUE,
        "delete": BY_ITSELF,
        "resubmit": NOT_REFUSED,
        "archive": BY_ITSELF,
    },
    "platform": {
        "redo": No("Its slices are redone: see there, and back-fill."),
        "retry": No("Its slices are retried: see there."),
        "skip": No("Its slices are skipped: see there."),
        "split": No("Its slices are split: see there."),
        "cancel": ENDS,
        "pause and resume": Operation(
            one=Route("POST /v1/platforms/{platform}/pause"),
            many=Route("POST /v1/systems/{system}/pause"),
            filtered=ONE,
            dry_run=UNDO,
            console=Console(SLICES, "/pause"),
            command=Command("orders pause"),
        ),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("POST /v1/platforms/{platform}/remove", ("who", "reason")),
            many=ONE,
            filtered=ONE,
            dry_run=ONE_SHOWN,
            console=Console(SLICES, "/remove"),
            command=Command("orders remove", ("--reason",)),
        ),
        "resubmit": NOT_REFUSED,
        "archive": No("Its orders stay when it is removed."),
    },
    "slice of orders": {
        "redo": Operation(
            one=Route("POST /v1/platforms/{platform}/slices/{slice}/redo"),
            many=Route("POST /v1/platforms/{platform}/slices:redo", ("slices",)),
            filtered=Route("POST /v1/platforms/{platform}/slices:redo", ("start", "end", "code", "all")),
            dry_run=Route("POST /v1/platforms/{platform}/slices:redo", ("dry_run",)),
            console=STEER_SLICES,
            command=Command("orders redo", ("--code", "--dry-run")),
        ),
        "retry": No("It is retried by itself while it is open; once it has failed, redo it."),
        "skip": Operation(
            one=Route("POST /v1/platforms/{platform}/slices/{slice}/skip", ("reason",)),
            many=Route("POST /v1/platforms/{platform}/slices:skip", ("slices", "reason")),
            filtered=Route("POST /v1/platforms/{platform}/slices:skip", ("start", "end", "code", "all")),
            dry_run=Route("POST /v1/platforms/{platform}/slices:skip", ("dry_run",)),
            console=STEER_SLICES,
            command=Command("orders skip", ("--reason", "--code", "--dry-run")),
        ),
        "split": Operation(
            one=Route("POST /v1/platforms/{platform}/slices/{slice}/split"),
            many=Route("POST /v1/platforms/{platform}/slices:split", ("slices",)),
            filtered=Route("POST /v1/platforms/{platform}/slices:split", ("start", "end", "code", "all")),
            dry_run=Route("POST /v1/platforms/{platform}/slices:split", ("dry_run",)),
            console=STEER_SLICES,
            command=Command("orders split", ("--code", "--dry-run")),
        ),
        "cancel": No("An open slice is a hole: it is finished, or fails and is skipped."),
        "pause and resume": No("Its platform is paused: see there."),
        "put back": NO_QUEUE,
        "delete": No("The ledger of slices is never deleted; it goes with its platform."),
        "resubmit": NOT_REFUSED,
        "archive": No("The ledger of slices is the archive."),
    },
    "back-fill": {
        "redo": Operation(
            one=Route("POST /v1/platforms/{platform}/backfill", ("start", "end", "who")),
            many=ONE,
            filtered=No("A back-fill is a time of one platform."),
            dry_run=Console(SLICES, "askTimes", shows_first=True),
            console=Console(SLICES, "/backfill"),
            command=Command("orders backfill", ("--who",)),
        ),
        "retry": No("Start another one of the same time: what was read again is read once more."),
        "skip": No("Nothing waits behind it."),
        "split": No("It reads slice by slice."),
        "cancel": No("Terminate its workflow in the engine: its record is closed, and no watermark has moved."),
        "pause and resume": No("It is a matter of minutes to hours: terminate it, and start another one."),
        "put back": NO_QUEUE,
        "delete": No("Its record stays with its platform."),
        "resubmit": NOT_REFUSED,
        "archive": No("Its record stays with its platform."),
    },
    "message of addresses": {
        "redo": No("A message that is done is in all modules; publish it again to write it once more."),
        "retry": Operation(
            one=Route("POST /v1/addresses/messages/{message_id}/retry", ("who", "reason")),
            many=Route("POST /v1/addresses/messages/retry", ("ids",)),
            filtered=Route("POST /v1/addresses/messages/retry", ("topic", "module", "kind", "state", "created_after")),
            dry_run=Route("GET /v1/addresses/messages/failed"),
            console=Console(MESSAGES, "retryMany", shows_first=True),
            command=Command("addresses retry", ("--topic", "--module", "--kind", "--dry-run", "--reason")),
        ),
        "skip": Operation(
            one=Route("POST /v1/addresses/messages/{message_id}/skip", ("who", "reason", "though_touched")),
            many=Route("POST /v1/addresses/messages/skip", ("ids",)),
            filtered=Route("POST /v1/addresses/messages/skip", ("topic", "module", "kind", "state", "created_after")),
            dry_run=Route("GET /v1/addresses/messages/failed"),
            console=Console(MESSAGES, "skipMany", shows_first=True),
            command=Command("addresses skip", ("--topic", "--module", "--kind", "--dry-run", "--reason")),
        ),
        "split": NOT_HERE,
        "cancel": No("Skip it: a module may have applied it already."),
        "pause and resume": No("Cycles are paused: see the cycle."),
        "put back": No("Retry puts it back into the next cycle."),
        "delete": No("The log keeps every message; skip it."),
        "resubmit": No("Publish it again; the log knows a repetition."),
        "archive": No("Cycles move done messages to the history."),
    },
    "chain of messages": {
        "redo": No("See message."),
        "retry": Operation(
            one=Route("POST /v1/addresses/messages/{message_id}/retry-chain", ("who", "reason")),
            many=ONE,
            filtered=No("A chain is what its first message links."),
            dry_run=No("A retry is safe at any time: modules that have applied a message are not called again."),
            console=Console(MESSAGES, "retryChain"),
            command=Command("ask", ("--method", "--body")),
        ),
        "skip": No("Each of its messages is skipped by itself: see message."),
        "split": No("Skip the message that links its parts."),
        "cancel": No("See message."),
        "pause and resume": No("Cycles are paused: see the cycle."),
        "put back": No("See message."),
        "delete": No("See message."),
        "resubmit": No("See message."),
        "archive": No("See message."),
    },
    "cycle of addresses": {
        "redo": No("The next cycle does what this one left."),
        "retry": No("The next cycle does what this one left."),
        "skip": No("Messages are skipped: see there."),
        "split": NOT_HERE,
        "cancel": No("Pause it: the running one ends in order."),
        "pause and resume": Operation(
            one=Route("POST /v1/addresses/cycle/pause", ("who", "reason")),
            many=No("There is one."),
            filtered=No("There is one."),
            dry_run=UNDO,
            console=Console("pages/addresses/status.js", "cycle/"),
            command=Command("addresses pause", ("--reason", "--who")),
        ),
        "put back": NO_QUEUE,
        "delete": No("It leaves nothing behind but the states of its messages."),
        "resubmit": NOT_REFUSED,
        "archive": No("It leaves nothing behind but the states of its messages."),
    },
    "module of addresses": {
        "redo": No("A comparison finds what differs; publishing a createUpdate again repairs it."),
        "retry": No("Messages that failed in it are retried: see message, with `module`."),
        "skip": No("A message is done in all modules or in none; skip the message."),
        "split": NOT_HERE,
        "cancel": ENDS,
        "pause and resume": Operation(
            one=Route("PATCH /v1/addresses/config", ("who", "reason", "options")),
            many=No("There are four."),
            filtered=No("There are four."),
            dry_run=No("It takes effect with the next cycle, and is undone by its opposite."),
            console=Console("pages/addresses/status.js", "modules: { [module]: { paused"),
            command=Command("addresses pause", ("--module", "--reason", "--who")),
        ),
        "put back": NO_QUEUE,
        "delete": No(
            "The four modules are columns of the log, and each message needs all: one without an address is paused."
        ),
        "resubmit": NOT_REFUSED,
        "archive": No("It is an outside service."),
    },
    "message in quarantine": {
        "redo": No("Its text cannot be read: see resubmit."),
        "retry": No("Its text would be as unreadable again: see resubmit."),
        "skip": No("Discard it: see delete."),
        "split": NOT_HERE,
        "cancel": ENDS,
        "pause and resume": No("Nothing is done with it."),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("POST /v1/addresses/quarantine/discard", ("ids", "who", "reason")),
            many=Route("POST /v1/addresses/quarantine/discard", ("ids",)),
            filtered=Console("pages/addresses/quarantine.js", "select: true"),
            dry_run=Console("pages/addresses/quarantine.js", "discardTitle", shows_first=True),
            console=Console("pages/addresses/quarantine.js", "quarantine/discard"),
            command=Command("addresses discard", ("--reason", "--who")),
        ),
        "resubmit": Operation(
            one=Route("POST /v1/addresses/quarantine/{quarantine_id}/mend", ("text", "who", "reason")),
            many=No("Each text is corrected by itself."),
            filtered=No("Each text is corrected by itself."),
            dry_run=No("A text that cannot be read is refused with the reason, and nothing changes."),
            console=Console("pages/addresses/quarantine.js", "/mend"),
            command=Command("addresses mend", ("--reason", "--who")),
        ),
        "archive": No("A mended one is kept with the message that it became."),
    },
    "logical delete": {
        "redo": No("A check asks the modules again."),
        "retry": No("A purge of those that failed is another purge."),
        "skip": No("Nothing waits behind it."),
        "split": NOT_HERE,
        "cancel": No("A createUpdate of its UPRN makes it an address again."),
        "pause and resume": No("Purges are made on request; `auto_purge` turns those of checks off."),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("POST /v1/addresses/logical-deletes/purge", ("address_ids", "who", "reason")),
            many=Route("POST /v1/addresses/logical-deletes/purge", ("address_ids",)),
            filtered=Console("pages/addresses/deletes.js", "removable: true"),
            dry_run=Route("GET /v1/addresses/logical-deletes", ("removable",)),
            console=Console("pages/addresses/deletes.js", "logical-deletes/purge"),
            command=Command("ask", ("--method", "--body")),
        ),
        "resubmit": NOT_REFUSED,
        "archive": No("A purged one stays listed."),
    },
    "task": {
        "redo": No("Put it back: an ended one is created again."),
        "retry": No("Put it back: see there."),
        "skip": No("Cancel it: nothing waits behind it."),
        "split": No("Only its creator knows its parts."),
        "cancel": Operation(
            one=Route("POST /v1/cancel_task"),
            many=Route("POST /v1/cancel_tasks", ("task_ids",)),
            filtered=Command("tasks cancel", ("--type", "--status", "--user")),
            dry_run=Command("tasks cancel", ("--dry-run",)),
            console=Console("pages/tasks/steering.js", "cancelMany", shows_first=True),
            command=Command("tasks cancel"),
        ),
        "pause and resume": No("Its type is paused: see there."),
        "put back": Operation(
            one=Route("POST /v1/put_back_tasks", ("task_list",)),
            many=Route("POST /v1/put_back_tasks", ("task_list",)),
            filtered=Command("tasks put-back", ("--type", "--status", "--user")),
            dry_run=Command("tasks put-back", ("--dry-run",)),
            console=Console("pages/tasks/steering.js", "putBackMany", shows_first=True),
            command=Command("tasks put-back"),
        ),
        "delete": BY_ITSELF,
        "resubmit": No("Put it back: an ended one is created again."),
        "archive": No("Its lane archives it when it ends."),
    },
    "task type": {
        "redo": No("Its tasks are put back: see there."),
        "retry": No("Its tasks are put back: see there."),
        "skip": No("Its tasks are cancelled: see there."),
        "split": No("Its lanes are split by themselves."),
        "cancel": ENDS,
        "pause and resume": Operation(
            one=Route("POST /v1/pause_task_type", ("task_type", "who", "reason")),
            many=Route("POST /v1/systems/{system}/pause"),
            filtered=ONE,
            dry_run=UNDO,
            console=Console("pages/tasks/type.js", "_task_type"),
            command=Command("tasks pause"),
        ),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("POST /v1/remove_task_type", ("task_type", "who", "reason")),
            many=ONE,
            filtered=ONE,
            dry_run=No("A type with unfinished tasks is refused, and registering it again undoes it."),
            console=Console("pages/tasks/type.js", "remove_task_type"),
            command=Command("tasks remove"),
        ),
        "resubmit": NOT_REFUSED,
        "archive": No("Its ended tasks are archived by their lanes."),
    },
    "system": {
        "redo": No("Its objects are: see there."),
        "retry": No("Its objects are: see there."),
        "skip": No("Its objects are: see there."),
        "split": NOT_HERE,
        "cancel": No("Its objects are: see there."),
        "pause and resume": Operation(
            one=Route("POST /v1/systems/{system}/pause", ("who", "reason")),
            many=ONE,
            filtered=No("There are five."),
            dry_run=UNDO,
            console=Console("pages/overview/card.js", "/v1/systems/"),
            command=Command("systems pause", ("--reason", "--who")),
        ),
        "put back": NO_QUEUE,
        "delete": No("A system that no worker serves does nothing."),
        "resubmit": NOT_REFUSED,
        "archive": No("Its objects are: see there."),
    },
    "schedule": {
        "redo": No("`temporal schedule trigger` runs it at once."),
        "retry": No("It runs again by itself; `temporal schedule trigger` runs it at once."),
        "skip": No("A run that is missed is made up by the next one."),
        "split": NOT_HERE,
        "cancel": No("`temporal workflow cancel` ends a run."),
        "pause and resume": No(
            "Housekeeping is paused by `temporal schedule toggle`; a platform's schedule by its platform."
        ),
        "put back": NO_QUEUE,
        "delete": No("`haulage migrate` would create it again."),
        "resubmit": NOT_REFUSED,
        "archive": No("The engine keeps its last runs."),
    },
    "worker": {
        "redo": ENDS,
        "retry": ENDS,
        "skip": ENDS,
        "split": No("`haulage worker --queues` divides the queues among processes."),
        "cancel": No("SIGTERM drains it: it takes up nothing more, and its activities have the graceful time to end."),
        "pause and resume": No("Drain it by SIGTERM and start it again; others of its queues go on."),
        "put back": No("What a killed worker had is given to another one."),
        "delete": No("A worker leaves nothing behind."),
        "resubmit": NOT_REFUSED,
        "archive": No("A worker leaves nothing behind."),
    },
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console, by the pattern of its route."""

    path: str


@dataclass(frozen=True, slots=True)
class Standstill:
    """What can stand still or fail, and how an operator learns of it and mends it."""

    what: str
    metric: str | No
    alert: str | No
    page: Page | No
    action: Route | Command | No


OVERVIEW: Final = Page("/console")
DOWNLOADS: Final = Page("/console/downloads")
TRANSFERS: Final = Page("/console/transfers")
PLATFORM: Final = Page("/console/orders/platforms/:platform")
ADDRESSES: Final = Page("/console/addresses")
TYPE: Final = Page("/console/tasks/types/:type")
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
        "A queue's workers are too few", "haulage_queue_wait_seconds", "HaulageQueueWaits", OVERVIEW, START_WORKER
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
        No("Each item's page says what is retried."),
        No("Mend what the log names; the engine retries."),
    ),
    Standstill(
        "An outside service is away",
        "haulage_service_calls_total",
        "HaulageServiceFails",
        No("Each item's page quotes it."),
        No("Its operator mends it; what waits goes on by itself."),
    ),
    Standstill("Downloads wait or hang", OLDEST, "HaulageDownloadsStandStill", DOWNLOADS, Command("downloads cancel")),
    Standstill("Downloads fail", ITEMS, "HaulageDownloadsFail", DOWNLOADS, Command("downloads retry", ("--cause",))),
    Standstill(
        "A webhook is not delivered",
        "haulage_activity_seconds",
        No("Its receiver belongs to the caller, who sees it; retries go on for about three days."),
        Page("/console/downloads/:id"),
        Route("POST /v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver"),
    ),
    Standstill("Targets wait or hang", OLDEST, "HaulageTransfersStandStill", TRANSFERS, Command("transfer cancel")),
    Standstill(
        "Targets fail",
        "haulage_transfer_targets_ended_total",
        "HaulageTransfersFail",
        TRANSFERS,
        Command("transfer retry", ("--reason",)),
    ),
    Standstill("Slices wait or hang", OLDEST, "HaulageOrdersStandStill", PLATFORM, Command("orders status")),
    Standstill(
        "A slice takes too long",
        "haulage_platform_slices_stale",
        No("It is an alarm to the platform's administrator, and the system's standstill."),
        PLATFORM,
        Command("orders redo"),
    ),
    Standstill(
        "Slices fail",
        "haulage_platform_slices_failed",
        "HaulageOrdersFail",
        PLATFORM,
        Command("orders redo", ("--code",)),
    ),
    Standstill(
        "A platform has no worker", "haulage_platform_unserved", "HaulageOrdersPlatformUnserved", PLATFORM, START_WORKER
    ),
    Standstill(
        "A platform refuses its credentials",
        "haulage_platform_credentials_refused",
        "HaulageOrdersCredentialsRefused",
        PLATFORM,
        No("Renew the file of its credentials; workers read it again."),
    ),
    Standstill(
        "A platform's clock cannot be read",
        "haulage_platform_clock_unread",
        "HaulageOrdersClockUnread",
        PLATFORM,
        No("Name another source of its time in its configuration."),
    ),
    Standstill(
        "Sweeps fail", "haulage_platform_sweeps_failed", "HaulageOrdersSweepsFail", PLATFORM, Command("orders redo")
    ),
    Standstill(
        "A platform is paused",
        "haulage_platform_claimed_age_seconds",
        No("Its administrator paused it; what settles is claimed afterwards."),
        PLATFORM,
        Command("orders resume"),
    ),
    Standstill(
        "A back-fill fails",
        "haulage_order_backfills_total",
        No("It is an alarm to the platform's administrator, who asked for it."),
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
        Page("/console/addresses/quarantine"),
        Command("addresses mend"),
    ),
    Standstill(
        "A module of addresses is paused",
        CONCERNS,
        No("An operator paused it; what needs it waits, and that has an alert."),
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

COMPONENT: Final = "parts"
"""The list of `GET /v1/overview` whose items the overview has a line for, where they do not answer."""
IN_LOG_ONLY: Final = No("An activity is no object: what it holds up waits or fails, and has a line for that.")

OVERVIEW_LINES: Final[Mapping[str, ConcernKind | str | No]] = {
    "A component does not answer": COMPONENT,
    "A queue has no worker": ConcernKind.NO_WORKER,
    "A queue's workers are too few": ConcernKind.QUEUE_WAITS,
    "A system is paused": ConcernKind.SYSTEM_PAUSED,
    "Activities fail": IN_LOG_ONLY,
    "An outside service is away": No("What needs it waits or fails, and has a line for that, which names the cause."),
    "Downloads wait or hang": ConcernKind.WAITING,
    "Downloads fail": ConcernKind.FAILED,
    "A webhook is not delivered": No("It belongs to the caller, and its item has its own page; an alert counts all."),
    "Targets wait or hang": ConcernKind.WAITING,
    "Targets fail": ConcernKind.FAILED,
    "Slices wait or hang": ConcernKind.WAITING,
    "A slice takes too long": ConcernKind.STALE,
    "Slices fail": ConcernKind.FAILED,
    "A platform has no worker": ConcernKind.UNSERVED,
    "A platform refuses its credentials": ConcernKind.CREDENTIALS_REFUSED,
    "A platform's clock cannot be read": ConcernKind.CLOCK_UNREAD,
    "Sweeps fail": ConcernKind.SWEEPS_FAILED,
    "A platform is paused": No(
        "Its schedule in the engine is paused, which is asked of one platform at a time: its page."
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

NO_STEERING: Final[Mapping[str, str]] = {
    "DELETE /v1/projects/{project_id}/keys/{key_id}": "keys",
    "PATCH /v1/platforms/{platform}/config": "configuration",
    "POST /v1/addresses/drift": "a comparison, which changes nothing",
    "POST /v1/addresses/logical-deletes/check": "it asks the modules, and changes nothing",
    "POST /v1/downloads/{task_id}/link": "a link to a file",
    "POST /v1/platforms/{platform}/reports": "a comparison, which changes nothing",
    "POST /v1/platforms/{platform}/trigger": "it does now what the schedule does within a minute",
    "POST /v1/platforms:try": "it reads one page, and keeps nothing",
    "POST /v1/projects": "projects",
    "POST /v1/projects/{project_id}/keys": "keys",
    "POST /v1/projects/{project_id}/keys/{key_id}/rotate": "keys",
    "POST /v1/projects/{project_id}/revoke": "projects",
    "POST /v1/projects/{project_id}/webhook-secret": "secrets",
    "POST /v1/register_task": "configuration",
    "POST /v1/register_task_type": "configuration",
    "PUT /v1/addresses/config": "configuration",
    "PUT /v1/platforms/{platform}": "configuration",
    "PUT /v1/platforms/{platform}/config": "configuration",
    "PUT /v1/projects/{project_id}/quotas": "configuration",
    "PUT /v1/projects/{project_id}/transfer-openings": "configuration",
}
"""Audited routes that act on no object of the table, and what they are about."""

SAME: Final[Mapping[str, str]] = {
    "POST /v1/addresses/cycle/resume": "POST /v1/addresses/cycle/pause",
    "POST /v1/platforms/{platform}/deliveries/{delivery_id}/redeliver": (
        "POST /v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver"
    ),
    "POST /v1/platforms/{platform}/resume": "POST /v1/platforms/{platform}/pause",
    "POST /v1/resume_task_type": "POST /v1/pause_task_type",
    "POST /v1/systems/{system}/resume": "POST /v1/systems/{system}/pause",
}
"""Routes that are the opposite or the twin of one in the table."""


def list_operations() -> Iterator[Operation]:
    """Yield every operation of the table."""
    for row in OPERATIONS.values():
        yield from (each for each in row.values() if isinstance(each, Operation))


def list_cells() -> Iterator[Cell]:
    """Yield every cell of both tables that is not a name."""
    for row in OPERATIONS.values():
        yield from (each for each in row.values() if isinstance(each, No))
    for operation in list_operations():
        yield from (
            operation.one,
            operation.many,
            operation.filtered,
            operation.dry_run,
            operation.console,
            operation.command,
        )
    yield from (each for each in OVERVIEW_LINES.values() if isinstance(each, No))
    for still in STANDSTILLS:
        yield from (each for each in (still.metric, still.alert, still.action, still.page) if isinstance(each, No))
        if not isinstance(still.action, No):
            yield still.action


BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"


def render() -> str:
    """Return both tables as Markdown."""
    lines = [
        "Every action is in the [audit log](../reference/callers.md): which key, when, and where the request names it,",
        "`who` and why. What has no command of its own is asked for by `haulage ask --method POST PATH`.",
        "",
        "| object | action | one | a list | by a filter | dry run | console | command line |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in OPERATIONS.items():
        for action, operation in row.items():
            if isinstance(operation, Operation):
                cells = (
                    operation.one,
                    operation.many,
                    operation.filtered,
                    operation.dry_run,
                    operation.console,
                    operation.command,
                )
                lines.append(f"| {name} | {action} | {' | '.join(map(_render_cell, cells))} |")
    lines += ["", "What there is not, and why:", "", "| object | | |", "|---|---|---|"]
    for name, row in OPERATIONS.items():
        reasons: dict[str, list[str]] = {}
        for action, operation in row.items():
            if isinstance(operation, No):
                reasons.setdefault(operation.reason, []).append(action)
        lines += [f"| {name} | {', '.join(actions)} | {reason} |" for reason, actions in reasons.items()]
    lines += [
        "",
        "### What can stand still",
        "",
        "The overview's line is the concern of `GET /v1/overview` that it shows, with causes and the way there.",
        "",
        "| what | metric | alert | overview's line | page | action |",
        "|---|---|---|---|---|---|",
    ]
    for still in STANDSTILLS:
        alert = f"[{still.alert}](#{still.alert.lower()})" if isinstance(still.alert, str) else still.alert.reason
        metric = f"`{still.metric}`" if isinstance(still.metric, str) else still.metric.reason
        line = OVERVIEW_LINES[still.what]
        shown = line.reason if isinstance(line, No) else f"`{line}`"
        page = f"`{still.page.path}`" if isinstance(still.page, Page) else still.page.reason
        lines.append(f"| {still.what} | {metric} | {alert} | {shown} | {page} | {_render_cell(still.action)} |")
    return "\n".join(lines)


def _render_cell(cell: Cell) -> str:
    match cell:
        case No():
            return cell.reason
        case Route():
            fields = f" ({', '.join(f'`{each}`' for each in cell.fields)})" if cell.fields else ""
            return f"`{cell.name}`{fields}"
        case Console():
            return "its question says what will be done" if cell.shows_first else "yes"
        case Command():
            return f"`{' '.join(('haulage', cell.name, *cell.options))}`"


def read_page() -> str:
    """Return the tables as the page has them."""
    found = re.search(f"{BEGIN}\n(.*)\n{END}", PAGE.read_text(), re.DOTALL)
    return found[1] if found else ""


def main() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{render()}\n{END}{tail}")


if __name__ == "__main__":
    main()
