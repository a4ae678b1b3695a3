"""What an operator can do to platforms and slices of orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.operations.cells import (
    ENDS,
    NO_QUEUE,
    NOT_REFUSED,
    ONE,
    ONE_SHOWN,
    UNDO,
    Command,
    Console,
    NotOffered,
    Operation,
    Route,
    Row,
)

SLICES: Final = "pages/orders/deeds.js"
STEER_SLICES: Final = Console(SLICES, "export async function steer", shows_first=True)

ORDER_OPERATIONS: Final[Mapping[str, Row]] = {
    "platform": {
        "redo": NotOffered("Its slices are redone: see there, and back-fill."),
        "retry": NotOffered("Its slices are retried: see there."),
        "skip": NotOffered("Its slices are skipped: see there."),
        "split": NotOffered("Its slices are split: see there."),
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
        "archive": NotOffered("Its orders stay when it is removed."),
    },
    "slice of orders": {
        "redo": Operation(
            one=Route("POST /v1/platforms/{platform}/slices/{slice}/redo"),
            many=Route("POST /v1/platforms/{platform}/slices:redo", ("slices",)),
            filtered=Route("POST /v1/platforms/{platform}/slices:redo", ("start", "end", "cause", "all")),
            dry_run=Route("POST /v1/platforms/{platform}/slices:redo", ("dry_run",)),
            console=STEER_SLICES,
            command=Command("orders redo", ("--cause", "--dry-run")),
        ),
        "retry": NotOffered("It is retried by itself while it is open; once it has failed, redo it."),
        "skip": Operation(
            one=Route("POST /v1/platforms/{platform}/slices/{slice}/skip", ("reason",)),
            many=Route("POST /v1/platforms/{platform}/slices:skip", ("slices", "reason")),
            filtered=Route("POST /v1/platforms/{platform}/slices:skip", ("start", "end", "cause", "all")),
            dry_run=Route("POST /v1/platforms/{platform}/slices:skip", ("dry_run",)),
            console=STEER_SLICES,
            command=Command("orders skip", ("--reason", "--cause", "--dry-run")),
        ),
        "split": Operation(
            one=Route("POST /v1/platforms/{platform}/slices/{slice}/split"),
            many=Route("POST /v1/platforms/{platform}/slices:split", ("slices",)),
            filtered=Route("POST /v1/platforms/{platform}/slices:split", ("start", "end", "cause", "all")),
            dry_run=Route("POST /v1/platforms/{platform}/slices:split", ("dry_run",)),
            console=STEER_SLICES,
            command=Command("orders split", ("--cause", "--dry-run")),
        ),
        "cancel": NotOffered("An open slice is a gap: it is finished, or fails and is skipped."),
        "pause and resume": NotOffered("Its platform is paused: see there."),
        "put back": NO_QUEUE,
        "delete": NotOffered("The ledger of slices is never deleted; it goes with its platform."),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("The ledger of slices is the archive."),
    },
    "back-fill": {
        "redo": Operation(
            one=Route("POST /v1/platforms/{platform}/backfill", ("start", "end", "who")),
            many=ONE,
            filtered=NotOffered("A back-fill is a time of one platform."),
            dry_run=Console(SLICES, "askTimes", shows_first=True),
            console=Console(SLICES, "/backfill"),
            command=Command("orders backfill", ("--who",)),
        ),
        "retry": NotOffered("Start another one of the same time: what was read again is read once more."),
        "skip": NotOffered("Nothing waits behind it."),
        "split": NotOffered("It reads slice by slice."),
        "cancel": NotOffered("Terminate its workflow in the engine: its record is closed, and no watermark has moved."),
        "pause and resume": NotOffered("It is a matter of minutes to hours: terminate it, and start another one."),
        "put back": NO_QUEUE,
        "delete": NotOffered("Its record stays with its platform."),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("Its record stays with its platform."),
    },
}
