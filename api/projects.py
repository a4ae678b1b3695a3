"""Projects and their API keys. A key is shown once and stored only as a hash."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

from pydantic import AliasChoices, AwareDatetime, Field, StringConstraints, field_validator

from api.http import pagination
from api.http.auth import build_missing_to_caller_fault
from api.http.models import Request, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, Caller, RouteAccess, Routes
from api.http.validation import BodyTimestamp
from domain import secrets as rules
from domain.faults import Conflict, Forbidden, Invalid
from domain.secrets import KeyRight
from infra import log
from infra.database import Database, Session
from stores import projects as store
from stores.projects import KeyPermissions
from stores.tables.shared import ApiKey, Project
from systems import SYSTEMS, System

LIVE_KEYS_MAX = 20
OVERLAP_MAX_SECONDS = 7 * 24 * 3600

_OTHER_KEY_HINT = "Use another key of the project."
KEY_PROBLEMS = {"too_many_keys": Conflict, "project_revoked": Conflict}

routes = Routes("projects", "Projects and their keys: what a key creates belongs to its project.")

Found = TypeVar("Found")
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class ProjectPath(Request):
    """A project."""

    project_id: str = Field(pattern=rules.PROJECT_ID_PATTERN)


class KeyPath(ProjectPath):
    """A key of a project."""

    key_id: str = Field(pattern=rules.KEY_ID_PATTERN)


class CreateProjectRequest(Request):
    """The project to create."""

    name: Name = Field(description="for people; it need not be unique", examples=["Billing"])


class CreateKeyRequest(Request):
    """What a key may do; without a field, everything that the project may, for good."""

    name: Name | None = Field(default=None, description="for people", examples=["nightly export"])
    right: KeyRight = Field(
        default=KeyRight.OPERATE,
        description="`read`; `write`, which also creates and changes; `operate`, which also manages keys and secrets",
    )
    systems: Annotated[list[System], Field(min_length=1, max_length=len(SYSTEMS))] | None = Field(
        default=None, description="the systems that the key may use; null for all", examples=[["downloads"]]
    )
    expires_at: BodyTimestamp | None = Field(default=None, description="from when on it is refused; null for never")

    @field_validator("systems")
    @classmethod
    def _require_systems_open_to_projects(cls, systems: list[System] | None) -> list[System] | None:
        if systems is not None and "addresses" in systems:
            raise ValueError("no key of a project opens a route of addresses, which needs the admin key; leave it out.")
        return systems


class RotateKeyRequest(Request):
    """How to replace a key."""

    overlap_seconds: int = Field(
        default=24 * 3600, ge=0, le=OVERLAP_MAX_SECONDS, description="how long the old key is still accepted"
    )


class ProjectResponse(Response):
    """A project."""

    project_id: str
    name: str
    created_at: AwareDatetime
    revoked_at: AwareDatetime | None = Field(description="since when its keys are refused; null if it is active")


class KeyResponse(Response):
    """A key, without its secret."""

    key_id: str = Field(description="the part of the key between its underscores")
    last4: str = Field(description="the key's last characters, to tell keys apart")
    created_at: AwareDatetime
    last_used_at: AwareDatetime | None = Field(description="to the minute; null if it was never used")
    name: str | None
    right: KeyRight = Field(
        validation_alias=AliasChoices("right", "key_right"), description="what it may do; each includes those before it"
    )
    systems: list[str] | None = Field(description="the systems that it may use; null for all")
    revoked_at: AwareDatetime | None = Field(description="from when on it is refused; null if it is not revoked")
    expires_at: AwareDatetime | None = Field(description="from when on it is refused; null if it does not expire")


class NewKeyResponse(KeyResponse):
    """A new key."""

    api_key: str = Field(description="keep it now: it is shown this once and cannot be read again")


class NewProjectResponse(ProjectResponse):
    """A new project with its first key."""

    key: NewKeyResponse


@routes.post("/v1/projects", access=RouteAccess.ADMIN, status=201)
async def create_project(call: Call, body: CreateProjectRequest) -> NewProjectResponse:
    """Create a project and its first key."""
    async with call.services.database.session() as session:
        project = await store.create_project(session, f"prj_{_create_random_text(rules.PROJECT_ID_LENGTH)}", body.name)
        key = await _create_key(call, session, project.project_id, KeyPermissions(KeyRight.OPERATE))
    log.get(__name__).info("project_created", project_id=project.project_id)
    _log_created_key(project.project_id, key)
    return NewProjectResponse(**_build_project_response(project).model_dump(), key=key)


@routes.get("/v1/projects", access=RouteAccess.ADMIN, problems={"cursor_invalid": Invalid})
async def list_projects(call: Call, query: PageQuery) -> PageResponse[ProjectResponse]:
    """List projects, newest first."""
    async with call.services.database.session() as session:
        rows = await store.list_project_page_plus_one(session, query.after, query.limit)
    return pagination.build_page(
        rows, query.limit, _build_project_response, lambda row: (row.created_at, row.project_id)
    )


@routes.get("/v1/projects/{project_id}", access=RouteAccess.OWNER)
async def read_project(call: Call, path: ProjectPath) -> ProjectResponse:
    """Read one project."""
    async with call.services.database.session() as session:
        return _build_project_response(_return_row_or_raise_missing(await store.find_project(session, path.project_id)))


@routes.post("/v1/projects/{project_id}/revoke", access=RouteAccess.ADMIN)
async def revoke_project(call: Call, path: ProjectPath) -> ProjectResponse:
    """Revoke a project for good: all its keys are refused from now on.

    What it owns is kept. Revoking it again changes nothing.
    """
    async with call.services.database.session() as session:
        project = _return_row_or_raise_missing(await store.revoke_project(session, path.project_id))
    log.get(__name__).info("project_revoked", project_id=path.project_id)
    return _build_project_response(project)


@routes.post(
    "/v1/projects/{project_id}/keys",
    access=RouteAccess.OWNER,
    status=201,
    body_optional=True,
    problems={**KEY_PROBLEMS, "expiry_in_past": Invalid, "key_lacks_right": Forbidden},
)
async def create_key(call: Call, path: ProjectPath, body: CreateKeyRequest) -> NewKeyResponse:
    """Create another key.

    A key that is limited to some systems creates keys for these only, and one that expires creates keys that expire no
    later. A project has at most 20 keys that are neither revoked nor expired.
    """
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise Invalid("expiry_in_past", "The key would have expired already.", "Send a time that is to come.")
    systems = None if body.systems is None else frozenset[str](body.systems)
    permissions = KeyPermissions(body.right, systems, body.expires_at, body.name)
    _require_key_no_wider_than_callers(call, permissions, "Name these as `systems`, or use another key of the project.")
    async with call.services.database.session() as session:
        key = await _create_key_within_limit(call, session, path.project_id, permissions)
    _log_created_key(path.project_id, key)
    return key


@routes.get("/v1/projects/{project_id}/keys", access=RouteAccess.OWNER, problems={"cursor_invalid": Invalid})
async def list_keys(call: Call, path: ProjectPath, query: PageQuery) -> PageResponse[KeyResponse]:
    """List a project's keys, newest first, revoked ones too."""
    async with call.services.database.session() as session:
        _return_row_or_raise_missing(await store.find_project(session, path.project_id))
        rows = await store.list_key_page_plus_one(session, path.project_id, query.after, query.limit)
    return pagination.build_page(rows, query.limit, _build_key_response, lambda row: (row.created_at, row.key_id))


@routes.post(
    "/v1/projects/{project_id}/keys/{key_id}/rotate",
    access=RouteAccess.OWNER,
    status=201,
    problems={**KEY_PROBLEMS, "key_revoked": Conflict, "key_expired": Conflict, "key_lacks_right": Forbidden},
)
async def rotate_key(call: Call, path: KeyPath, body: RotateKeyRequest) -> NewKeyResponse:
    """Replace a key.

    The new key is accepted at once, with the rights, the systems and the expiry of the old one. The old one is accepted
    until the overlap ends, so that callers can be changed one by one.

    A key that may do more, or expires later, than the one that you call with is not rotated.
    """
    async with call.services.database.session() as session:
        old = _return_row_or_raise_missing(await store.find_and_lock_key(session, path.project_id, path.key_id))
        permissions = _build_permissions_of_key(old)
        _require_key_no_wider_than_callers(call, permissions, _OTHER_KEY_HINT)
        if old.revoked_at is not None:
            raise Conflict("key_revoked", "This key was already revoked or replaced.", "Make a new key instead.")
        if old.expires_at is not None and old.expires_at <= datetime.now(UTC):
            raise Conflict("key_expired", "This key has expired, and so would the new one.", "Make a new key instead.")
        # Before the keys are counted: without an overlap the old one is no longer live.
        await store.revoke_key(session, old, after=timedelta(seconds=body.overlap_seconds))
        new = await _create_key_within_limit(call, session, path.project_id, permissions)
    _log_created_key(path.project_id, new)
    log.get(__name__).info("key_rotated", key_id=old.key_id, new_key_id=new.key_id)
    return new


@routes.delete(
    "/v1/projects/{project_id}/keys/{key_id}", access=RouteAccess.OWNER, problems={"key_lacks_right": Forbidden}
)
async def revoke_key(call: Call, path: KeyPath) -> None:
    """Revoke a key for good.

    Revoking it again changes nothing. A key that may do more, or expires later, than the one that you call with is not
    revoked.
    """
    async with call.services.database.session() as session:
        key = _return_row_or_raise_missing(await store.find_and_lock_key(session, path.project_id, path.key_id))
        _require_key_no_wider_than_callers(call, _build_permissions_of_key(key), _OTHER_KEY_HINT)
        await store.revoke_key(session, key)
    log.get(__name__).info("key_revoked", key_id=path.key_id)


def require_key_of_all_systems(caller: Caller, purpose: str) -> None:
    """Require that a caller's key is not limited to some systems.

    Args:
        purpose: What concerns all systems, as the subject of a sentence.

    Raises:
        Forbidden: It is.
    """
    if caller.systems is not None:
        raise Forbidden(
            "key_lacks_right",
            f"{purpose} concerns all systems of the project, and this key is for {', '.join(sorted(caller.systems))}.",
            "Use another key of the project.",
        )


def require_key_without_expiry(caller: Caller, purpose: str) -> None:
    """Require that a caller's key does not expire.

    Args:
        purpose: What outlasts the key, as the subject of a sentence.

    Raises:
        Forbidden: It expires.
    """
    if caller.expires_at is not None:
        raise Forbidden(
            "key_lacks_right",
            f"{purpose} would outlast this key, which expires at {caller.expires_at.isoformat()}.",
            "Use a key of the project that does not expire.",
        )


async def require_active_project(database: Database, project_id: str) -> None:
    """Require that a project in which the admin key acts is not revoked; raises Conflict."""
    async with database.session() as session:
        require_not_revoked(_return_row_or_raise_missing(await store.find_project(session, project_id)))


def require_not_revoked(project: Project) -> None:
    """Require that a project may take new work; raises Conflict."""
    if project.revoked_at is not None:
        raise Conflict(
            "project_revoked",
            f"The project {project.project_id} was revoked, so it takes no new work.",
            "Use another project; what this one owns can still be read, cancelled and removed.",
        )


def _build_permissions_of_key(key: ApiKey) -> KeyPermissions:
    systems = None if key.systems is None else frozenset(key.systems)
    return KeyPermissions(KeyRight(key.key_right), systems, key.expires_at, key.name)


def _require_key_no_wider_than_callers(call: Call, key: KeyPermissions, systems_hint: str) -> None:
    """Require that a key that is created, rotated or revoked has no system and no time that the caller's has not.

    The right needs no comparison: the highest one manages keys.
    """
    caller = call.caller
    if caller.systems is not None and not (key.systems is not None and caller.systems.issuperset(key.systems)):
        raise Forbidden(
            "key_lacks_right",
            f"This key is for {', '.join(sorted(caller.systems))} alone, so that it manages keys for these alone.",
            systems_hint,
        )
    if caller.expires_at is not None and (key.expires_at is None or key.expires_at > caller.expires_at):
        raise Forbidden(
            "key_lacks_right",
            f"This key expires at {caller.expires_at.isoformat()}, so that it manages only keys that expire no later.",
            "Send an earlier `expires_at` for a new key, or use another key of the project.",
        )


def _return_row_or_raise_missing(row: Found | None) -> Found:
    if row is None:
        raise build_missing_to_caller_fault()
    return row


async def _create_key_within_limit(
    call: Call, session: Session, project_id: str, permissions: KeyPermissions
) -> NewKeyResponse:
    # The project's row is locked, so that two calls at once cannot both create the last key.
    project = _return_row_or_raise_missing(await store.find_project(session, project_id, lock=True))
    if project.revoked_at is not None:
        raise Conflict("project_revoked", "This project was revoked, so it gets no new keys.", "Make a new project.")
    if await store.count_live_keys(session, project_id) >= LIVE_KEYS_MAX:
        raise Conflict("too_many_keys", f"This project has {LIVE_KEYS_MAX} keys already.", "Revoke one first.")
    return await _create_key(call, session, project_id, permissions)


async def _create_key(call: Call, session: Session, project_id: str, permissions: KeyPermissions) -> NewKeyResponse:
    key = rules.ApiKeyText(
        key_id=_create_random_text(rules.KEY_ID_LENGTH), secret=_create_random_text(rules.SECRET_LENGTH)
    )
    pepper = call.services.settings.secrets.list_peppers()[0]
    row = await store.insert_api_key(session, project_id, key, pepper, permissions)
    return NewKeyResponse(**_build_key_response(row).model_dump(), api_key=key.text)


def _log_created_key(project_id: str, key: NewKeyResponse) -> None:
    log.get(__name__).info("key_created", key_id=key.key_id, project_id=project_id)


def _create_random_text(length: int) -> str:
    return "".join(secrets.choice(rules.ALPHABET) for _ in range(length))


def _build_project_response(row: Project) -> ProjectResponse:
    return ProjectResponse.model_validate(row, from_attributes=True)


def _build_key_response(row: ApiKey) -> KeyResponse:
    return KeyResponse.model_validate(row, from_attributes=True)
