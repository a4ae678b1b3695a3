"""What a project may send: the operator opens it, its owner reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from api.auth import not_here
from api.models import Answer, Request
from api.projects import ProjectPath
from api.routes import Access, Call
from api.transfers.requests import AgentId, Folder, Id, Path, User
from api.transfers.room import desk, routes
from domain.faults import Conflict
from domain.transfers import openings as rules
from domain.transfers.openings import Opening
from infra import log
from infra.database import Session
from stores.shared import projects
from stores.transfers import openings

TAKEN = "transfer_opening_taken"
OPENINGS_MAX = 100
PREFIXES_MAX = 100
HOSTS_MAX = 1_000

_Host = Annotated[AgentId, AfterValidator(rules.sound_host)]


class NewOpening(Request):
    """Some transfers that the project may send. A list that is empty leaves that point open."""

    biz_id: Id
    app_id: Id | None = Field(default=None, description="null opens every app of the biz")
    path_prefixes: list[Path] = Field(
        default=[],
        max_length=PREFIXES_MAX,
        description="where files may lie in the repository, by whole steps: `/etc` opens `/etc/x`, not `/etcetera`",
    )
    folder_prefixes: list[Folder] = Field(
        default=[], max_length=PREFIXES_MAX, description="where they may be written on a target, by whole steps"
    )
    users: list[User] = Field(default=[], max_length=PREFIXES_MAX, description="who may write them there")
    hosts: list[_Host] = Field(
        default=[], max_length=HOSTS_MAX, description="ids of agents; one with `*` at its end opens all that begin so"
    )


class NewOpenings(Request):
    """All that is opened for a project from here on."""

    openings: list[NewOpening] = Field(max_length=OPENINGS_MAX, description="in the place of what was opened before")


class ShownOpening(Answer):
    """Some transfers that the project may send."""

    biz_id: int
    app_id: int | None
    path_prefixes: list[str]
    folder_prefixes: list[str]
    users: list[str]
    hosts: list[str]


class ShownOpenings(Answer):
    """What a project may send."""

    project_id: str
    is_restricted: bool = Field(
        description="false as long as nothing is opened for any project: then each may send everything"
    )
    openings: list[ShownOpening]


@routes.get("/v1/projects/{project_id}/transfer-openings", access=Access.OWNER)
async def browse_openings(call: Call, path: ProjectPath) -> ShownOpenings:
    """Read what a project may send.

    A target is sent to if one opening has its biz and app, the file's path, the folder, the user and the host.
    """
    async with call.services.database.session() as session:
        await _check_project(session, path.project_id)
    opened = await desk(call).openings.read(path.project_id)
    return _show(path.project_id, opened or [], is_restricted=opened is not None)


@routes.put("/v1/projects/{project_id}/transfer-openings", access=Access.ADMIN, problems={TAKEN: Conflict})
async def set_openings(call: Call, path: ProjectPath, body: NewOpenings) -> ShownOpenings:
    """Open transfers for a project.

    Sets the whole list. From the first opening of any project on, each project sends only what is opened for it; that
    counts within a second, for transfers and for retries that are asked for from then on. A biz and app opened for one
    project are bound to it: to open them for another is a conflict. An empty list takes back what was opened.
    """
    wanted = [Opening.model_validate(each.model_dump()) for each in body.openings]
    async with call.services.database.session() as session:
        await openings.lock(session)
        await _check_project(session, path.project_id)
        others = await openings.list_of_others(session, path.project_id, {each.biz_id for each in wanted})
        _check_free(wanted, others)
        await openings.replace(session, path.project_id, wanted)
        is_restricted = await openings.is_any(session)
    desk(call).openings.forget()
    log.get(__name__).info("transfer_openings_set", project_id=path.project_id, openings=len(wanted))
    return _show(path.project_id, wanted, is_restricted=is_restricted)


async def _check_project(session: Session, project_id: str) -> None:
    if await projects.find(session, project_id) is None:
        raise not_here()


def _check_free(wanted: Sequence[Opening], others: Sequence[tuple[str, Opening]]) -> None:
    if taken := rules.find_taken(wanted, others):
        opening, owner, other = taken
        raise Conflict(
            TAKEN,
            f"{opening.pair} cannot be opened here: {other.pair} is bound to the project {owner}.",
            f"Take it back there first, by PUT /v1/projects/{owner}/transfer-openings without it.",
        )


def _show(project_id: str, opened: Sequence[Opening], *, is_restricted: bool) -> ShownOpenings:
    return ShownOpenings(
        project_id=project_id,
        is_restricted=is_restricted,
        openings=[ShownOpening.model_validate(each.model_dump()) for each in opened],
    )
