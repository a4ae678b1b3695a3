"""What an operator can do to downloads, their webhooks, and transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.operations.cells import (
    BY_ITSELF,
    NO_QUEUE,
    NOT_HERE,
    NOT_REFUSED,
    ONE,
    ONE_SHOWN,
    Command,
    Console,
    NotOffered,
    Operation,
    Route,
    Row,
)

MANY_DOWNLOADS: Final = "pages/downloads/actions.js"

FILE_OPERATIONS: Final[Mapping[str, Row]] = {
    "download": {
        "redo": NotOffered("A download that has succeeded is complete; another export is another download."),
        "retry": Operation(
            one=Route("POST /v1/downloads/{task_id}/retry"),
            many=Console(MANY_DOWNLOADS, "eachOf"),
            filtered=Command("downloads retry", ("--cause", "--operator", "--host", "--after", "--before")),
            dry_run=Command("downloads retry", ("--dry-run",)),
            console=Console(MANY_DOWNLOADS, 'download.state === "failed"'),
            command=Command("downloads retry"),
        ),
        "skip": NotOffered("Nothing waits behind a download that failed."),
        "split": NotOffered("Its ranges are split by its own plan."),
        "cancel": Operation(
            one=Route("POST /v1/downloads/{task_id}/cancel"),
            many=Console(MANY_DOWNLOADS, "eachOf"),
            filtered=Command("downloads cancel", ("--state", "--operator", "--host", "--after", "--before")),
            dry_run=Command("downloads cancel", ("--dry-run",)),
            console=Console(MANY_DOWNLOADS, "isFinal(download)"),
            command=Command("downloads cancel"),
        ),
        "pause and resume": NotOffered("It is a matter of minutes: cancel it, or pause the system."),
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
        "redo": NotOffered("A redelivery is the same: see retry."),
        "retry": Operation(
            one=Route("POST /v1/downloads/{task_id}/deliveries/{delivery_id}/redeliver"),
            many=NotOffered("A receiver that was away gets its deliveries by their own retries, for about three days."),
            filtered=NotOffered(
                "A receiver that was away gets its deliveries by their own retries, for about three days."
            ),
            dry_run=NotOffered("The receiver has the id of the event, and takes a repetition for what it is."),
            console=Console("pages/downloads/deliveries.js", "redeliver"),
            command=Command("ask", ("--method",)),
        ),
        "skip": NotOffered("Nothing waits behind it."),
        "split": NOT_HERE,
        "cancel": NotOffered("A receiver that answers 410 ends it."),
        "pause and resume": NotOffered("A receiver that is away pauses it; its retries go on by themselves."),
        "put back": NO_QUEUE,
        "delete": BY_ITSELF,
        "resubmit": NOT_REFUSED,
        "archive": BY_ITSELF,
    },
    "transfer job": {
        "redo": NotOffered("Targets that have the file need it no second time."),
        "retry": Operation(
            one=Route("POST /v1/transfers/jobs/{job_id}/retry"),
            many=NotOffered("A retry is a job of the targets that failed in one job."),
            filtered=Route("POST /v1/transfers/jobs/{job_id}/retry", ("reason",)),
            dry_run=Console("pages/transfers/job.js", "transfers.retryTitle", shows_first=True),
            console=Console("pages/transfers/job.js", "/retry"),
            command=Command("transfers retry", ("--reason",)),
        ),
        "skip": NotOffered("Nothing waits behind it."),
        "split": NotOffered("Its shards are split by its own plan."),
        "cancel": Operation(
            one=Route("POST /v1/transfers/jobs/{job_id}/cancel"),
            many=ONE,
            filtered=NotOffered("Of a job, each target can be cancelled by its task."),
            dry_run=Console("pages/transfers/job.js", "transfers.cancelTitle", shows_first=True),
            console=Console("pages/transfers/job.js", "/cancel"),
            command=Command("transfers cancel"),
        ),
        "pause and resume": NotOffered("It is a matter of minutes: cancel it, or pause the system."),
        "put back": NO_QUEUE,
        "delete": BY_ITSELF,
        "resubmit": NOT_REFUSED,
        "archive": BY_ITSELF,
    },
    "target of a transfer": {
        "redo": NotOffered("A target that has the file needs it no second time."),
        "retry": NotOffered("The failed targets of a job are retried together: see its job."),
        "skip": NotOffered("Nothing waits behind it."),
        "split": NOT_HERE,
        "cancel": Operation(
            one=Route("POST /v1/transfers/{task_id}/cancel"),
            many=NotOffered("All targets of a job are cancelled by their job."),
            filtered=NotOffered("All targets of a job are cancelled by their job."),
            dry_run=ONE_SHOWN,
            console=Console("pages/transfers/task.js", "/cancel"),
            command=Command("ask", ("--method",)),
        ),
        "pause and resume": NotOffered("A host is taken out of use at GSE."),
        "put back": NO_QUEUE,
        "delete": BY_ITSELF,
        "resubmit": NOT_REFUSED,
        "archive": BY_ITSELF,
    },
}
