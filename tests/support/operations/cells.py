"""Cells of the tables in `docs/how-to/operate.md`: what carries an action out, or why nothing does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

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
class NotOffered:
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


Cell: TypeAlias = Route | Console | Command | NotOffered


@dataclass(frozen=True, slots=True)
class Operation:
    """An action on an object: on one, on a list, on all that a filter finds; tried without effect; and where."""

    one: Route | NotOffered
    many: Route | Console | Command | NotOffered
    filtered: Route | Console | Command | NotOffered
    dry_run: Route | Console | Command | NotOffered
    console: Console | NotOffered
    command: Command | NotOffered


Row: TypeAlias = Mapping[str, Operation | NotOffered]

ENDS: Final = NotOffered("It is not a run: there is nothing to cancel.")
BY_ITSELF: Final = NotOffered("Housekeeping removes it after its retention.")
NOT_HERE: Final = NotOffered("It has no parts.")
ONE: Final = NotOffered("One at a time: each is a decision of its own.")
ONE_SHOWN: Final = NotOffered("It concerns the one that is shown.")
NO_QUEUE: Final = NotOffered("It waits in no queue of workers.")
NOT_REFUSED: Final = NotOffered("What was refused was never taken in: its caller sends it again.")
UNDO: Final = NotOffered("It takes effect at once, and is undone by its opposite.")
