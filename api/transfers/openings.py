"""Openings, which restrict what a project may send: the operator sets them, the project reads them."""

from __future__ import annotations

from collections.abc import Sequence

from api.http.auth import build_missing_problem
from api.http.routes import Access, Call
from api.projects import ProjectPath
from api.transfers.context import get_context, routes
from api.transfers.requests import SetOpeningsRequest
from api.transfers.responses import OpeningResponse, OpeningsResponse
from domain.faults import Conflict
from domain.transfers import openings as rules
from domain.transfers.openings import Opening
from infra import log
from infra.database import Session
from stores import projects
from stores.transfers import openings

TAKEN = "transfer_opening_taken"


@routes.get("/v1/projects/{project_id}/transfer-openings", access=Access.OWNER)
async def list_openings(call: Call, path: ProjectPath) -> OpeningsResponse:
    """Read what a project may send.

    A file is sent to a target if one opening allows biz and app, the file's path, the folder, the user and the host.
    """
    async with call.services.database.session() as session:
        await _check_project(session, path.project_id)
    opened = await get_context(call).openings.load(path.project_id)
    return _build_response(path.project_id, opened or [], is_restricted=opened is not None)


@routes.put("/v1/projects/{project_id}/transfer-openings", access=Access.ADMIN, problems={TAKEN: Conflict})
async def set_openings(call: Call, path: ProjectPath, body: SetOpeningsRequest) -> OpeningsResponse:
    """Open transfers for a project.

    The list replaces the previous one. Once any project has an opening, each project sends only what is opened for it.
    A change takes effect within a second, for transfers and retries that are requested from then on. A biz and app
    opened for one project are bound to it: to open them for another is a conflict. An empty list removes all openings.
    """
    new = [Opening.model_validate(each.model_dump()) for each in body.openings]
    async with call.services.database.session() as session:
        await openings.lock(session)
        await _check_project(session, path.project_id)
        others = await openings.list_for_others(session, path.project_id, {each.biz_id for each in new})
        _check_conflicts(new, others)
        await openings.replace(session, path.project_id, new)
        is_restricted = await openings.has_any(session)
    get_context(call).openings.invalidate()
    log.get(__name__).info("transfer_openings_set", project_id=path.project_id, openings=len(new))
    return _build_response(path.project_id, new, is_restricted=is_restricted)


async def _check_project(session: Session, project_id: str) -> None:
    if await projects.find(session, project_id) is None:
        raise build_missing_problem()


def _check_conflicts(new: Sequence[Opening], others: Sequence[tuple[str, Opening]]) -> None:
    if conflict := rules.find_conflict(new, others):
        opening, owner, other = conflict
        raise Conflict(
            TAKEN,
            f"{opening.pair} cannot be opened here: {other.pair} is bound to the project {owner}.",
            f"Take it back there first, by PUT /v1/projects/{owner}/transfer-openings without it.",
        )


def _build_response(project_id: str, opened: Sequence[Opening], *, is_restricted: bool) -> OpeningsResponse:
    return OpeningsResponse(
        project_id=project_id,
        is_restricted=is_restricted,
        openings=[OpeningResponse.model_validate(each.model_dump()) for each in opened],
    )
