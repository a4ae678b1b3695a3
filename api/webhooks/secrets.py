"""The secrets that sign a project's webhooks: which there are, and a new one."""

from __future__ import annotations

from datetime import timedelta

from pydantic import AwareDatetime, Field

from api.http.auth import build_not_found
from api.http.models import Request, Response
from api.http.routes import Access, Call
from api.webhooks.room import routes
from domain import projects
from domain.faults import Conflict
from domain.webhooks import deliveries as rules
from infra import log
from infra.database import Session
from stores.shared import projects as projects_store
from stores.tables.projects import Project
from stores.tables.webhooks import WebhookSecret
from stores.webhooks import signing

OVERLAP_MAX_SECONDS = 7 * 24 * 3600


class ProjectPath(Request):
    """A project."""

    project_id: str = Field(pattern=projects.PROJECT_ID_PATTERN)


class SecretRotation(Request):
    """How the secret is replaced."""

    overlap_seconds: int = Field(
        default=24 * 3600, ge=0, le=OVERLAP_MAX_SECONDS, description="how long the secrets before it sign as well"
    )


class ShownSecret(Response):
    """A secret, masked."""

    masked: str = Field(description="its prefix and last characters, to tell secrets apart")
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = Field(description="until when it signs; null if it stays")


class Secrets(Response):
    """The secrets that sign now."""

    secrets: list[ShownSecret] = Field(description="newest first; empty until the first is needed or asked for")


class NewSecret(ShownSecret):
    """A secret just made."""

    secret: str = Field(description="keep it now: it is shown this once and cannot be read again")


@routes.get("/v1/projects/{project_id}/webhook-secret", access=Access.OWNER)
async def read_secrets(call: Call, path: ProjectPath) -> Secrets:
    """Show which secrets sign, without showing them."""
    async with call.services.database.session() as session:
        await _project(session, path.project_id)
        rows = await signing.live(session, path.project_id)
    return Secrets(secrets=[ShownSecret(**_show_secret(row)) for row in rows])


@routes.post(
    "/v1/projects/{project_id}/webhook-secret",
    access=Access.OWNER,
    status=201,
    problems={"too_many_secrets": Conflict, "project_revoked": Conflict},
)
async def rotate_secret(call: Call, path: ProjectPath, body: SecretRotation) -> NewSecret:
    """Make a new secret and show it.

    It signs at once. The secrets before it sign as well until the overlap ends, so that receivers can be changed one by
    one: a message then carries several signatures, and one that matches is enough.
    """
    async with call.services.database.session() as session:
        project = await _project(session, path.project_id)
        if project.revoked_at is not None:
            raise Conflict("project_revoked", "This project was revoked, so it gets no new secret.", "Make a new one.")
        overlap = timedelta(seconds=body.overlap_seconds)
        minted = await signing.rotate(session, call.services.sealer, path.project_id, overlap)
    log.get(__name__).info("webhook_secret_rotated", project_id=path.project_id, last4=minted.row.last4)
    return NewSecret(**_show_secret(minted.row), secret=minted.text)


async def _project(session: Session, project_id: str) -> Project:
    project = await projects_store.find(session, project_id)
    if project is None:
        raise build_not_found()
    return project


def _show_secret(row: WebhookSecret) -> dict[str, object]:
    return {"masked": rules.masked(row.last4), "created_at": row.created_at, "expires_at": row.expires_at}
