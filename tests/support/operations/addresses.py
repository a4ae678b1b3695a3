"""What an operator can do to messages, cycles and modules of addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.operations.cells import (
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

MESSAGES: Final = "pages/addresses/actions.js"

ADDRESS_OPERATIONS: Final[Mapping[str, Row]] = {
    "message of addresses": {
        "redo": NotOffered("A message that is done is in all modules; publish it again to write it once more."),
        "retry": Operation(
            one=Route("POST /v1/addresses/messages/{message_id}/retry", ("who", "reason")),
            many=Route("POST /v1/addresses/messages:retry", ("ids",)),
            filtered=Route("POST /v1/addresses/messages:retry", ("topic", "module", "kind", "state", "created_after")),
            dry_run=Route("GET /v1/addresses/messages:count"),
            console=Console(MESSAGES, "retryMany", shows_first=True),
            command=Command("addresses retry", ("--topic", "--module", "--kind", "--dry-run", "--reason")),
        ),
        "skip": Operation(
            one=Route("POST /v1/addresses/messages/{message_id}/skip", ("who", "reason", "though_touched")),
            many=Route("POST /v1/addresses/messages:skip", ("ids",)),
            filtered=Route("POST /v1/addresses/messages:skip", ("topic", "module", "kind", "state", "created_after")),
            dry_run=Route("GET /v1/addresses/messages:count"),
            console=Console(MESSAGES, "skipMany", shows_first=True),
            command=Command("addresses skip", ("--topic", "--module", "--kind", "--dry-run", "--reason")),
        ),
        "split": NOT_HERE,
        "cancel": NotOffered("Skip it: a module may have applied it already."),
        "pause and resume": NotOffered("Cycles are paused: see the cycle."),
        "put back": NotOffered("Retry puts it back into the next cycle."),
        "delete": NotOffered("The log keeps every message; skip it."),
        "resubmit": NotOffered("Publish it again; the log knows a repetition."),
        "archive": NotOffered("Cycles move done messages to the history."),
    },
    "chain of messages": {
        "redo": NotOffered("See message."),
        "retry": Operation(
            one=Route("POST /v1/addresses/messages/{message_id}/retry-chain", ("who", "reason")),
            many=ONE,
            filtered=NotOffered("A chain is what its first message links."),
            dry_run=NotOffered(
                "A retry is safe at any time: modules that have applied a message are not called again."
            ),
            console=Console(MESSAGES, "retryChain"),
            command=Command("ask", ("--method", "--body")),
        ),
        "skip": NotOffered("Each of its messages is skipped by itself: see message."),
        "split": NotOffered("Skip the message that links its parts."),
        "cancel": NotOffered("See message."),
        "pause and resume": NotOffered("Cycles are paused: see the cycle."),
        "put back": NotOffered("See message."),
        "delete": NotOffered("See message."),
        "resubmit": NotOffered("See message."),
        "archive": NotOffered("See message."),
    },
    "cycle of addresses": {
        "redo": NotOffered("The next cycle does what this one left."),
        "retry": NotOffered("The next cycle does what this one left."),
        "skip": NotOffered("Messages are skipped: see there."),
        "split": NOT_HERE,
        "cancel": NotOffered("Pause it: the running one ends in order."),
        "pause and resume": Operation(
            one=Route("POST /v1/addresses/cycle/pause", ("who", "reason")),
            many=NotOffered("There is one."),
            filtered=NotOffered("There is one."),
            dry_run=UNDO,
            console=Console("pages/addresses/status.js", "cycle/"),
            command=Command("addresses pause", ("--reason", "--who")),
        ),
        "put back": NO_QUEUE,
        "delete": NotOffered("It leaves nothing behind but the states of its messages."),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("It leaves nothing behind but the states of its messages."),
    },
    "module of addresses": {
        "redo": NotOffered("A comparison finds what differs; publishing a createUpdate again repairs it."),
        "retry": NotOffered("Messages that failed in it are retried: see message, with `module`."),
        "skip": NotOffered("A message is done in all modules or in none; skip the message."),
        "split": NOT_HERE,
        "cancel": ENDS,
        "pause and resume": Operation(
            one=Route("PATCH /v1/addresses/config", ("who", "reason", "options")),
            many=NotOffered("There are four."),
            filtered=NotOffered("There are four."),
            dry_run=NotOffered("It takes effect with the next cycle, and is undone by its opposite."),
            console=Console("pages/addresses/status.js", "modules: { [module]: { paused"),
            command=Command("addresses pause", ("--module", "--reason", "--who")),
        ),
        "put back": NO_QUEUE,
        "delete": NotOffered(
            "The four modules are columns of the log, and each message needs all: one without an address is paused."
        ),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("It is an outside service."),
    },
    "message in quarantine": {
        "redo": NotOffered("Its text cannot be read: see resubmit."),
        "retry": NotOffered("Its text would be as unreadable again: see resubmit."),
        "skip": NotOffered("Discard it: see delete."),
        "split": NOT_HERE,
        "cancel": ENDS,
        "pause and resume": NotOffered("Nothing is done with it."),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("POST /v1/addresses/quarantine:discard", ("ids", "who", "reason")),
            many=Route("POST /v1/addresses/quarantine:discard", ("ids",)),
            filtered=Console("pages/addresses/quarantine.js", "select: true"),
            dry_run=Console("pages/addresses/quarantine.js", "discardTitle", shows_first=True),
            console=Console("pages/addresses/quarantine.js", "quarantine:discard"),
            command=Command("addresses discard", ("--reason", "--who")),
        ),
        "resubmit": Operation(
            one=Route("POST /v1/addresses/quarantine/{quarantine_id}/mend", ("text", "who", "reason")),
            many=NotOffered("Each text is corrected by itself."),
            filtered=NotOffered("Each text is corrected by itself."),
            dry_run=NotOffered("A text that cannot be read is refused with the reason, and nothing changes."),
            console=Console("pages/addresses/quarantine.js", "/mend"),
            command=Command("addresses mend", ("--reason", "--who")),
        ),
        "archive": NotOffered("A mended one is kept with the message that it became."),
    },
    "logical delete": {
        "redo": NotOffered("A check asks the modules again."),
        "retry": NotOffered("A purge of those that failed is another purge."),
        "skip": NotOffered("Nothing waits behind it."),
        "split": NOT_HERE,
        "cancel": NotOffered("A createUpdate of its UPRN makes it an address again."),
        "pause and resume": NotOffered("Purges are made on request; `auto_purge` turns those of checks off."),
        "put back": NO_QUEUE,
        "delete": Operation(
            one=Route("POST /v1/addresses/logical-deletes:purge", ("address_ids", "who", "reason")),
            many=Route("POST /v1/addresses/logical-deletes:purge", ("address_ids",)),
            filtered=Console("pages/addresses/deletes.js", "removable: true"),
            dry_run=Route("GET /v1/addresses/logical-deletes", ("removable",)),
            console=Console("pages/addresses/deletes.js", "logical-deletes:purge"),
            command=Command("ask", ("--method", "--body")),
        ),
        "resubmit": NOT_REFUSED,
        "archive": NotOffered("A purged one stays listed."),
    },
}
