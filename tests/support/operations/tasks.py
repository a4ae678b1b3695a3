"""What an operator can do to tasks, and to what all systems have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.operations.cells import (
    BY_ITSELF,
    ENDS,
    NO_QUEUE,
    NOT_HERE,
    NOT_REFUSED,
    ONE,
    UNDO,
    Command,
    Console,
    NotOffered,
    Operation,
    Route,
    Row,
)

TASK_OPERATIONS: Final[Mapping[str, Row]] = {
    "task": {
        "redo": NotOffered("Put it back: an ended one is created again."),
        "retry": NotOffered("Put it back: see there."),
        "skip": NotOffered("Cancel it: nothing waits behind it."),
        "split": NotOffered("Only its creator knows its parts."),
        "cancel": Operation(
            one=Route("POST /v1/cancel_task"),
            many=Route("POST /v1/cancel_tasks", ("task_ids",)),
            filtered=Command("tasks cancel", ("--type", "--status", "--user")),
            dry_run=Command("tasks cancel", ("--dry-run",)),
            console=Console("pages/tasks/steering.js", "cancelMany", shows_first=True),
            command=Command("tasks cancel"),
        ),
        "pause and resume": NotOffered("Its type is paused: see there."),
        "put back": Operation(
            one=Route("POST /v1/put_back_tasks", ("task_list",)),
            many=Route("POST /v1/put_back_tasks", ("task_list",)),
            filtered=Command("tasks put-back", ("--type", "--status", "--user")),
            dry_run=Command("tasks put-back", ("--dry-run",)),
            console=Console("pages/tasks/steering.js", "putBackMany", shows_first=True),
            command=Command("tasks put-back"),
        ),
        "delete": BY_ITSELF,
        "resubmit": NotOffered("Put it back: an ended one is created again."),
        "archive": NotOffered("Its lane archives it when it ends."),
    },
    "task type": {
        "redo": NotOffered("Its tasks are put back: see there."),
        "retry": NotOffered("Its tasks are put back: see there."),
        "skip": NotOffered("Its tasks are cancelled: see there."),
        "split": NotOffered("Its lanes are split by themselves."),
        "cancel": ENDS,
        "pause and resume": Operation(
            one=Route("POST /v1/pause_task_type", ("task_type", "who", "reason")),
            many=Route("POST /v1/systems/{system}/pause"),
            filtered=ONE,
            dry_run=UNDO,
            console=Console("pages/tasks/type.js", "_task_type"),
            command=Command("tasks pause", ("--reason", "--who")),
        ),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("POST /v1/remove_task_type", ("task_type", "who", "reason")),
            many=ONE,
            filtered=ONE,
            dry_run=NotOffered("A type with unfinished tasks is refused, and registering it again undoes it."),
            console=Console("pages/tasks/type.js", "remove_task_type"),
            command=Command("tasks remove", ("--reason", "--who")),
        ),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("Its ended tasks are archived by their lanes."),
    },
    "system": {
        "redo": NotOffered("Its objects are: see there."),
        "retry": NotOffered("Its objects are: see there."),
        "skip": NotOffered("Its objects are: see there."),
        "split": NOT_HERE,
        "cancel": NotOffered("Its objects are: see there."),
        "pause and resume": Operation(
            one=Route("POST /v1/systems/{system}/pause", ("who", "reason")),
            many=ONE,
            filtered=NotOffered("There are five."),
            dry_run=UNDO,
            console=Console("pages/overview/card.js", "/v1/systems/"),
            command=Command("systems pause", ("--reason", "--who")),
        ),
        "put back": NO_QUEUE,
        "delete": NotOffered("A system that no worker serves does nothing."),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("Its objects are: see there."),
    },
    "schedule": {
        "redo": NotOffered("`temporal schedule trigger` runs it at once."),
        "retry": NotOffered("It runs again by itself; `temporal schedule trigger` runs it at once."),
        "skip": NotOffered("A run that is missed is made up by the next one."),
        "split": NOT_HERE,
        "cancel": NotOffered("`temporal workflow cancel` ends a run."),
        "pause and resume": NotOffered(
            "Housekeeping is paused by `temporal schedule toggle`; a platform's schedule by its platform."
        ),
        "put back": NO_QUEUE,
        "delete": NotOffered("`haulage migrate` would create it again."),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("The engine keeps its last runs."),
    },
    "worker": {
        "redo": ENDS,
        "retry": ENDS,
        "skip": ENDS,
        "split": NotOffered("`haulage worker --queues` divides the queues among processes."),
        "cancel": NotOffered(
            "SIGTERM drains it: it takes up nothing more, and its activities have the graceful time to end."
        ),
        "pause and resume": NotOffered("Drain it by SIGTERM and start it again; others of its queues go on."),
        "put back": NotOffered("What a killed worker had is given to another one."),
        "delete": NotOffered("A worker leaves nothing behind."),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("A worker leaves nothing behind."),
    },
}
