"""Names of tasks and lanes: a task's id says in which lane of its type it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

TYPE_MAX_CHARACTERS: Final = 100
POS_MAX: Final = 999_999_999
FIRST_POS: Final = 1

_TYPE: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{TYPE_MAX_CHARACTERS}}}")
_FORM: Final = re.compile(rf"([0-9a-f]{{32}})_([A-Za-z0-9_.-]{{1,{TYPE_MAX_CHARACTERS}}})_([1-9][0-9]{{0,8}})")


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task: its key within its lane, and the lane. A type may hold underscores; neither key nor position do."""

    key: str
    type: str
    pos: int

    def __str__(self) -> str:
        return f"{self.key}_{self.type}_{self.pos}"


def read(text: str) -> TaskId | None:
    """The task that a text names, if it has the form of our ids."""
    match = _FORM.fullmatch(text)
    return TaskId(match[1], match[2], int(match[3])) if match else None


def is_type(text: str) -> bool:
    """Whether a type of tasks can have this name."""
    return _TYPE.fullmatch(text) is not None


def lane_id(type_: str, pos: int) -> str:
    """The id of the workflow that is a lane."""
    return f"tasks/{type_}/{pos}"
