"""Projects and keys: who may use this installation. A key is shown once and stored only as a hash."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Annotated, TypeVar

from pydantic import AwareDatetime, Field, StringConstraints

from api.http import pagination
from api.http.auth import build_not_found
from api.http.models import Request, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call, Routes
from domain import projects as rules
from domain.faults import Conflict, Invalid
from infra import log
from infra.database import Session
from stores.shared import projects as store
from stores.tables.projects import ApiKey, Project

LIVE_KEYS_MAX = 20
OVERLAP_MAX_SECONDS = 7 * 24 * 3600

KEY_PROBLEMS = {"too_many_keys": Conflict, "project_revoked": Conflict}

routes = Routes("projects", "Projects and their keys: whatever is made with a key belongs to its project.")

Found = TypeVar("Found")
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class ProjectPath(Request):
    """A project."""

    project_id: str = Field(pattern=rules.PROJECT_ID_PATTERN)


class KeyPath(ProjectPath):
    """A key of a project."""

    key_id: str = Field(pattern=rules.KEY_ID_PATTERN)


class NewProject(Request):
    """A project to be."""

    name: Name = Field(description="for people; it need not be unique", examples=["Billing"])


class Rotation(Request):
    """How a key is replaced."""

    overlap_seconds: int = Field(
        default=24 * 3600, ge=0, le=OVERLAP_MAX_SECONDS, description="how long the old key still opens"
    )


class ShownProject(Response):
    """A project."""

    project_id: str
    name: str
    created_at: AwareDatetime
    revoked_at: AwareDatetime | None = Field(description="since when none of its keys opens anything; null if it lives")


class ShownKey(Response):
    """A key, without its secret."""

    key_id: str = Field(description="the part of the key between its underscores")
    last4: str = Field(description="the key's last characters, to tell keys apart")
    created_at: AwareDatetime
    last_used_at: AwareDatetime | None = Field(description="to the minute; null if it was never used")
    revoked_at: AwareDatetime | None = Field(description="from when on it opens nothing; null if it stays")


class NewKey(ShownKey):
    """A key just made."""

    api_key: str = Field(description="keep it now: it is shown this once and cannot be read again")


class MadeProject(ShownProject):
    """A project just made, with its first key."""

    key: NewKey


@routes.post("/v1/projects", access=Access.ADMIN, status=201)
async def create(call: Call, body: NewProject) -> MadeProject:
    """Make a project and its first key."""
    async with call.services.database.session() as session:
        project = await store.add(session, f"prj_{_random(rules.PROJECT_ID_LENGTH)}", body.name)
        key = await _mint(call, session, project.project_id)
    log.get(__name__).info("project_made", project_id=project.project_id)
    return MadeProject(**_show_project(project).model_dump(), key=key)


@routes.get("/v1/projects", access=Access.ADMIN, problems={"cursor_invalid": Invalid})
async def browse(call: Call, query: PageQuery) -> PageResponse[ShownProject]:
    """List projects, newest first."""
    async with call.services.database.session() as session:
        rows = await store.list_page(session, query.after, query.limit)
    return pagination.build_page(rows, query.limit, _show_project, lambda row: (row.created_at, row.project_id))


@routes.get("/v1/projects/{project_id}", access=Access.OWNER)
async def read(call: Call, path: ProjectPath) -> ShownProject:
    """Read one project."""
    async with call.services.database.session() as session:
        return _show_project(_require(await store.find(session, path.project_id)))


@routes.post("/v1/projects/{project_id}/revoke", access=Access.ADMIN)
async def revoke(call: Call, path: ProjectPath) -> ShownProject:
    """Revoke a project, at once and for ever: none of its keys opens anything any more.

    What it owns stays. Revoking it again changes nothing.
    """
    async with call.services.database.session() as session:
        project = _require(await store.revoke(session, path.project_id))
    log.get(__name__).info("project_revoked", project_id=path.project_id)
    return _show_project(project)


@routes.post("/v1/projects/{project_id}/keys", access=Access.OWNER, status=201, problems=KEY_PROBLEMS)
async def create_key(call: Call, path: ProjectPath) -> NewKey:
    """Make another key.

    Several keys of a project open the same doors. A project has at most 20 that are not revoked.
    """
    async with call.services.database.session() as session:
        return await _another(call, session, path.project_id)


@routes.get("/v1/projects/{project_id}/keys", access=Access.OWNER, problems={"cursor_invalid": Invalid})
async def browse_keys(call: Call, path: ProjectPath, query: PageQuery) -> PageResponse[ShownKey]:
    """List a project's keys, newest first, revoked ones too."""
    async with call.services.database.session() as session:
        _require(await store.find(session, path.project_id))
        rows = await store.list_keys(session, path.project_id, query.after, query.limit)
    return pagination.build_page(rows, query.limit, _show_key, lambda row: (row.created_at, row.key_id))


@routes.post(
    "/v1/projects/{project_id}/keys/{key_id}/rotate",
    access=Access.OWNER,
    status=201,
    problems={**KEY_PROBLEMS, "key_revoked": Conflict},
)
async def rotate_key(call: Call, path: KeyPath, body: Rotation) -> NewKey:
    """Replace a key.

    The new key opens at once. The old one opens until the overlap ends, so that callers can be changed one by one.
    """
    async with call.services.database.session() as session:
        old = _require(await store.find_key(session, path.project_id, path.key_id))
        if old.revoked_at is not None:
            raise Conflict("key_revoked", "This key was already revoked or replaced.", "Make a new key instead.")
        new = await _another(call, session, path.project_id)
        await store.revoke_key(session, old, after=timedelta(seconds=body.overlap_seconds))
    log.get(__name__).info("key_rotated", key_id=old.key_id, new_key_id=new.key_id)
    return new


@routes.delete("/v1/projects/{project_id}/keys/{key_id}", access=Access.OWNER)
async def revoke_key(call: Call, path: KeyPath) -> None:
    """Revoke a key, at once and for ever.

    Revoking it again changes nothing.
    """
    async with call.services.database.session() as session:
        await store.revoke_key(session, _require(await store.find_key(session, path.project_id, path.key_id)))
    log.get(__name__).info("key_revoked", key_id=path.key_id)


def _require(row: Found | None) -> Found:
    if row is None:
        raise build_not_found()
    return row


async def _another(call: Call, session: Session, project_id: str) -> NewKey:
    # The project's row is locked, so that two calls at once cannot both make the last key.
    project = _require(await store.find(session, project_id, lock=True))
    if project.revoked_at is not None:
        raise Conflict("project_revoked", "This project was revoked, so it gets no new keys.", "Make a new project.")
    if await store.count_live_keys(session, project_id) >= LIVE_KEYS_MAX:
        raise Conflict("too_many_keys", f"This project has {LIVE_KEYS_MAX} keys already.", "Revoke one first.")
    return await _mint(call, session, project_id)


async def _mint(call: Call, session: Session, project_id: str) -> NewKey:
    key = rules.ApiKeyText(key_id=_random(rules.KEY_ID_LENGTH), secret=_random(rules.SECRET_LENGTH))
    secret_hash = rules.digest_secret(call.services.settings.secrets.pepper.get_secret_value(), key.secret)
    row = await store.add_key(session, project_id, key.key_id, secret_hash, key.text[-4:])
    log.get(__name__).info("key_made", key_id=key.key_id, project_id=project_id)
    return NewKey(**_show_key(row).model_dump(), api_key=key.text)


def _random(length: int) -> str:
    return "".join(secrets.choice(rules.ALPHABET) for _ in range(length))


def _show_project(row: Project) -> ShownProject:
    return ShownProject.model_validate(row, from_attributes=True)


def _show_key(row: ApiKey) -> ShownKey:
    return ShownKey.model_validate(row, from_attributes=True)
