"""Openings: which transfers an operator lets a project send. Once one project has any, all others need theirs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict

from domain.faults import Forbidden
from domain.transfers.models import File

NOT_OPENED: Final = "transfer_not_opened"
HOSTS_NAMED_MAX: Final = 3
"""How many refused hosts a refusal names; of the others it says how many there are."""
ANY_ENDING: Final = "*"

Steps: TypeAlias = tuple[str, ...]

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_HINT = (
    "Ask the operator of this installation, whose admin key opens it: "
    "PUT /v1/projects/{project_id}/transfer-openings. GET shows what is opened."
)


def normal_prefix(path: str) -> str:
    """A prefix of files' paths in the form that these have: `etc//app/` becomes `/etc/app`."""
    return "/" + "/".join(_steps(path))


def sound_host(pattern: str) -> str:
    """An agent's id, or the beginning of ids followed by `*`.

    Raises:
        ValueError: A `*` stands elsewhere, with a sentence.
    """
    if ANY_ENDING in pattern[:-1]:
        raise ValueError("it holds a `*` before its end; send a whole agent id, or a beginning followed by one `*`.")
    return pattern


class Opening(BaseModel):
    """Some transfers that a project may send. An empty list leaves that point open."""

    model_config = ConfigDict(frozen=True)

    biz_id: int
    app_id: int | None = None
    """None opens every app of the biz."""
    path_prefixes: tuple[Annotated[str, AfterValidator(normal_prefix)], ...] = ()
    """Of the file in its repository."""
    folder_prefixes: tuple[str, ...] = ()
    """Of the folder on the target."""
    users: tuple[str, ...] = ()
    hosts: tuple[Annotated[str, AfterValidator(sound_host)], ...] = ()

    @property
    def pair(self) -> str:
        """The biz and the app, for sentences."""
        return _pair(self.biz_id, self.app_id)

    def overlaps(self, other: Opening) -> bool:
        """Whether some biz and app are in both."""
        return self.biz_id == other.biz_id and (
            self.app_id is None or other.app_id is None or self.app_id == other.app_id
        )

    def opens_file(self, file: File) -> bool:
        """Whether it is about this biz and app."""
        return self.biz_id == file.biz_id and self.app_id in (None, file.app_id)

    def opens_path(self, path: str) -> bool:
        """Whether a file's path begins with the steps of a prefix: `/etc` opens `/etc/x` and not `/etcetera`."""
        steps = _steps(path)
        return not self.path_prefixes or any(_begins_with(steps, each) for each in self._path_beginnings)

    def opens_folder(self, folder: str) -> bool:
        """Whether a folder on a target is one of the prefixes, or below one."""
        steps = _folder_steps(folder)
        return not self.folder_prefixes or any(_begins_with(steps, each) for each in self._folder_beginnings)

    def opens_user(self, user: str) -> bool:
        """Whether files may be written by this user."""
        return not self.users or user in self.users

    def opens_host(self, agent_id: str) -> bool:
        """Whether files may be sent to this host, or to a container on it."""
        return not self.hosts or agent_id in self._hosts or agent_id.startswith(self._host_beginnings)

    @cached_property
    def _path_beginnings(self) -> list[Steps]:
        return [_steps(prefix) for prefix in self.path_prefixes]

    @cached_property
    def _folder_beginnings(self) -> list[Steps]:
        return [_folder_steps(prefix) for prefix in self.folder_prefixes]

    @cached_property
    def _hosts(self) -> frozenset[str]:
        return frozenset(host for host in self.hosts if not host.endswith(ANY_ENDING))

    @cached_property
    def _host_beginnings(self) -> tuple[str, ...]:
        return tuple(host.removesuffix(ANY_ENDING) for host in self.hosts if host.endswith(ANY_ENDING))


def check_opened(openings: Iterable[Opening], file: File, user: str, folder: str, agent_ids: Collection[str]) -> None:
    """Pass if each host is in an opening that also has the file, its path, the folder and the user.

    Raises:
        Forbidden: One is not; it says what the request has that is not opened.
    """
    left = _narrowed([each for each in openings if each.opens_file(file)], _pair(file.biz_id, file.app_id))
    left = _narrowed([each for each in left if each.opens_path(file.path)], f"The path {file.path!r}")
    left = _narrowed([each for each in left if each.opens_folder(folder)], f"The folder {folder!r}")
    left = _narrowed([each for each in left if each.opens_user(user)], f"The user {user!r}")
    refused = [agent_id for agent_id in agent_ids if not any(each.opens_host(agent_id) for each in left)]
    if refused:
        raise _hosts_not_opened(refused)


def find_taken(wanted: Iterable[Opening], others: Sequence[tuple[str, Opening]]) -> tuple[Opening, str, Opening] | None:
    """The first opening whose biz and app another project has: it, that project's id, and the opening there."""
    for opening in wanted:
        for project_id, other in others:
            if opening.overlaps(other):
                return opening, project_id, other
    return None


def _narrowed(left: list[Opening], what: str) -> list[Opening]:
    if not left:
        raise _not_opened(what)
    return left


def _not_opened(what: str, verb: str = "is") -> Forbidden:
    return Forbidden(NOT_OPENED, f"{what} {verb} not opened for this project's transfers.", _HINT)


def _hosts_not_opened(refused: Sequence[str]) -> Forbidden:
    if len(refused) == 1:
        return _not_opened(f"The host {refused[0]!r}")
    named = ", ".join(repr(agent_id) for agent_id in refused[:HOSTS_NAMED_MAX])
    more = len(refused) - HOSTS_NAMED_MAX
    return _not_opened(f"The hosts {named}{f' and {more:,} more' if more > 0 else ''}", "are")


def _pair(biz_id: int, app_id: int | None) -> str:
    return f"Biz {biz_id}" if app_id is None else f"Biz {biz_id} with app {app_id}"


def _steps(path: str) -> Steps:
    return tuple(step for step in path.split("/") if step)


def _folder_steps(folder: str) -> Steps:
    """The steps of a folder; on Windows either slash parts them, and case means nothing."""
    if _DRIVE.match(folder):
        return tuple(step for step in re.split(r"[/\\]", folder.lower()) if step)
    return ("/", *_steps(folder))


def _begins_with(steps: Steps, beginning: Steps) -> bool:
    return steps[: len(beginning)] == beginning
