"""Permissions: which transfers a project may send. Once any project has a permission, each project needs its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict

from domain.faults import Forbidden
from domain.transfers.models import FileByBizAppAndPath

NOT_PERMITTED: Final = "transfer_not_permitted"
HOSTS_NAMED_MAX: Final = 3
"""How many refused hosts an error names; the others are counted."""
ANY_ENDING: Final = "*"

Steps: TypeAlias = tuple[str, ...]

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_HINT = (
    "Ask the operator of this installation, whose admin key permits it: "
    "PUT /v1/projects/{project_id}/transfer-permissions. GET shows what is permitted."
)


def normalize_slashes_of_prefix(path: str) -> str:
    """Return a prefix of paths in normalized form: `etc//app/` becomes `/etc/app`."""
    return "/" + "/".join(_split_path(path))


def validate_host_pattern(pattern: str) -> str:
    """Return a pattern of agent ids: an id, or the beginning of ids followed by `*`.

    Raises:
        ValueError: A `*` is not at the end.
    """
    if ANY_ENDING in pattern[:-1]:
        raise ValueError("it holds a `*` before its end; send a whole agent id, or a beginning followed by one `*`.")
    return pattern


class TransferPermission(BaseModel):
    """Some transfers that a project may send. An empty list allows everything."""

    model_config = ConfigDict(frozen=True)

    biz_id: int
    app_id: int | None = None
    """None allows every app of the business."""
    path_prefixes: tuple[Annotated[str, AfterValidator(normalize_slashes_of_prefix)], ...] = ()
    """Prefixes of the file's path in the repository."""
    folder_prefixes: tuple[str, ...] = ()
    """Prefixes of the folder on the target."""
    users: tuple[str, ...] = ()
    hosts: tuple[Annotated[str, AfterValidator(validate_host_pattern)], ...] = ()

    @property
    def pair(self) -> str:
        """The business and the app, for messages."""
        return _describe_pair(self.biz_id, self.app_id)

    def shares_biz_and_app(self, other: TransferPermission) -> bool:
        """Return whether both allow some business and app."""
        return self.biz_id == other.biz_id and (
            self.app_id is None or other.app_id is None or self.app_id == other.app_id
        )

    def allows_biz_and_app(self, file: FileByBizAppAndPath) -> bool:
        """Return whether it is for the business and app of a file."""
        return self.biz_id == file.biz_id and self.app_id in (None, file.app_id)

    def allows_path(self, path: str) -> bool:
        """Return whether a path begins with the steps of a prefix: `/etc` allows `/etc/x`, not `/etcetera`."""
        steps = _split_path(path)
        return not self.path_prefixes or any(_begins_with(steps, each) for each in self._path_prefix_steps)

    def allows_folder(self, folder: str) -> bool:
        """Return whether a folder on a target is one of the prefixes, or below one."""
        steps = _split_folder(folder)
        return not self.folder_prefixes or any(_begins_with(steps, each) for each in self._folder_prefix_steps)

    def allows_user(self, user: str) -> bool:
        """Return whether this user may write files."""
        return not self.users or user in self.users

    def allows_host(self, agent_id: str) -> bool:
        """Return whether files may be sent to this host, or to a container on it."""
        return not self.hosts or agent_id in self._exact_hosts or agent_id.startswith(self._host_prefixes)

    @cached_property
    def _path_prefix_steps(self) -> list[Steps]:
        return [_split_path(prefix) for prefix in self.path_prefixes]

    @cached_property
    def _folder_prefix_steps(self) -> list[Steps]:
        return [_split_folder(prefix) for prefix in self.folder_prefixes]

    @cached_property
    def _exact_hosts(self) -> frozenset[str]:
        return frozenset(host for host in self.hosts if not host.endswith(ANY_ENDING))

    @cached_property
    def _host_prefixes(self) -> tuple[str, ...]:
        return tuple(host.removesuffix(ANY_ENDING) for host in self.hosts if host.endswith(ANY_ENDING))


def require_transfers_allowed_to_all_hosts(
    permissions: Iterable[TransferPermission],
    file: FileByBizAppAndPath,
    user: str,
    folder: str,
    agent_ids: Collection[str],
) -> None:
    """Check that each host is in a permission that also allows the file, its path, the folder and the user.

    Raises:
        Forbidden: A host is not; the message names what is not permitted.
    """
    left = _require_permissions(
        [each for each in permissions if each.allows_biz_and_app(file)], _describe_pair(file.biz_id, file.app_id)
    )
    left = _require_permissions([each for each in left if each.allows_path(file.path)], f"The path {file.path!r}")
    left = _require_permissions([each for each in left if each.allows_folder(folder)], f"The folder {folder!r}")
    left = _require_permissions([each for each in left if each.allows_user(user)], f"The user {user!r}")
    refused = [agent_id for agent_id in agent_ids if not any(each.allows_host(agent_id) for each in left)]
    if refused:
        raise _build_hosts_not_permitted_fault(refused)


def filter_allowed_hosts(
    permissions: Iterable[TransferPermission],
    file: FileByBizAppAndPath,
    user: str,
    folder: str,
    agent_ids: Iterable[str],
) -> set[str]:
    """Return the hosts that are in a permission that also allows the file, its path, the folder and the user."""
    left = [
        each
        for each in permissions
        if each.allows_biz_and_app(file)
        and each.allows_path(file.path)
        and each.allows_folder(folder)
        and each.allows_user(user)
    ]
    return {agent_id for agent_id in agent_ids if any(each.allows_host(agent_id) for each in left)}


def find_overlap_with_other_project(
    permissions: Iterable[TransferPermission], others: Sequence[tuple[str, TransferPermission]]
) -> tuple[TransferPermission, str, TransferPermission] | None:
    """Return the first permission that overlaps one of another project, with that project's id and permission."""
    for permission in permissions:
        for project_id, other in others:
            if permission.shares_biz_and_app(other):
                return permission, project_id, other
    return None


def _require_permissions(permissions: list[TransferPermission], subject: str) -> list[TransferPermission]:
    if not permissions:
        raise _build_not_permitted_fault(subject)
    return permissions


def _build_not_permitted_fault(subject: str, verb: str = "is") -> Forbidden:
    return Forbidden(NOT_PERMITTED, f"{subject} {verb} not permitted for this project's transfers.", _HINT)


def _build_hosts_not_permitted_fault(refused: Sequence[str]) -> Forbidden:
    if len(refused) == 1:
        return _build_not_permitted_fault(f"The host {refused[0]!r}")
    named = ", ".join(repr(agent_id) for agent_id in refused[:HOSTS_NAMED_MAX])
    more = len(refused) - HOSTS_NAMED_MAX
    return _build_not_permitted_fault(f"The hosts {named}{f' and {more:,} more' if more > 0 else ''}", "are")


def _describe_pair(biz_id: int, app_id: int | None) -> str:
    return f"Biz {biz_id}" if app_id is None else f"Biz {biz_id} with app {app_id}"


def _split_path(path: str) -> Steps:
    return tuple(step for step in path.split("/") if step)


def _split_folder(folder: str) -> Steps:
    """Return the steps of a folder; on Windows separated by either slash, in lower case."""
    if _DRIVE.match(folder):
        return tuple(step for step in re.split(r"[/\\]", folder.lower()) if step)
    return ("/", *_split_path(folder))


def _begins_with(steps: Steps, beginning: Steps) -> bool:
    return steps[: len(beginning)] == beginning
