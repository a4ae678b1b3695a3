"""Names of tasks, types and lanes: a task's id says in which lane of its type it is.

Projects choose the names of their types without regard to each other. So a *type* is a name with its project,
`prj_…/video`: lanes, heads, keys and the archive know it by that. A task's id has the name alone, as flowSvr's have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

TYPE_MAX_CHARACTERS: Final = 100
POS_MAX: Final = 999_999_999
FIRST_POS: Final = 1

_FORM: Final = re.compile(rf"([0-9a-f]{{32}})_([A-Za-z0-9_.-]{{1,{TYPE_MAX_CHARACTERS}}})_([1-9][0-9]{{0,8}})")


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task: its key within its lane, and the lane. A name may hold underscores; neither key nor position do."""

    key: str
    name: str
    """Of its type, within the project of whoever asks."""
    pos: int

    def __str__(self) -> str:
        return f"{self.key}_{self.name}_{self.pos}"


def read(text: str) -> TaskId | None:
    """The task that a text names, if it has the form of our ids."""
    match = _FORM.fullmatch(text)
    return TaskId(match[1], match[2], int(match[3])) if match else None


def make_type(project_id: str, name: str) -> str:
    """The type that a project has under a name."""
    return f"{project_id}/{name}"


def split_type(type_: str) -> tuple[str, str]:
    """The project and the name of a type."""
    project_id, _, name = type_.rpartition("/")
    return project_id, name
