"""Console sessions: a browser signs in with a key once, and then uses a cookie that scripts cannot read."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from aiohttp import web
from pydantic import AwareDatetime, Field

from api.http.auth import AUTHENTICATOR
from api.http.models import Request, Response
from api.http.routes import JSON, Call, Caller, RouteAccess, Routes
from domain.faults import QuotaExhausted, Unauthenticated
from domain.secrets import KeyRight
from stores import projects

routes = Routes("session", "The session of the console.")

_DENIED = {"key_malformed": Unauthenticated, "key_unknown": Unauthenticated, "too_many_wrong_keys": QuotaExhausted}


class SignInRequest(Request):
    """The key to sign in with."""

    api_key: str = Field(min_length=1, max_length=1_000, description="a project's key, or the admin key")


class SessionResponse(Response):
    """The caller and their project."""

    is_admin: bool = Field(description="true for the admin key, which sees all projects")
    project_id: str | None = Field(description="the caller's, or the one that the admin key names; null for all")
    project_name: str | None
    right: KeyRight = Field(description="what the caller may do; each right includes those before it")
    systems: list[str] | None = Field(description="the systems that the caller may use; null for all")
    expires_at: AwareDatetime | None = Field(description="when the session ends; null for a caller with a key")
    ui_url: str | None = Field(description="Temporal's Web UI, which shows all projects; only for the admin key")
    namespace: str | None = Field(description="the namespace of the workflows there")


@routes.post("/v1/session", access=RouteAccess.PUBLIC, problems=_DENIED)
async def sign_in(call: Call, body: SignInRequest) -> SessionResponse | web.Response:
    """Sign in.

    The response sets the cookie `haulage_session`, which is accepted instead of the key until it expires, the key is
    revoked, or the session is ended. Requests other than GET also need the header `Haulage-Console: 1`, or
    `Sec-Fetch-Site: same-origin`, which browsers send.
    """
    authenticator = call.request.app[AUTHENTICATOR]
    caller, session = await authenticator.sign_in(body.api_key.strip(), call.request.remote)
    signed_in = replace(caller, until=session.until)
    response = web.Response(
        body=(await _build_session_response(call, signed_in)).model_dump_json().encode(), content_type=JSON
    )
    authenticator.cookies.set_cookie(call.request, response, session)
    return response


@routes.get("/v1/session", access=RouteAccess.PROJECTS)
async def read_session(call: Call) -> SessionResponse:
    """Read the caller of the session or the key."""
    return await _build_session_response(call, call.caller)


@routes.delete("/v1/session", access=RouteAccess.PUBLIC, status=HTTPStatus.NO_CONTENT)
async def sign_out(call: Call) -> web.Response:
    """Sign out: the cookie is deleted.

    Revoke a key to end all its sessions.
    """
    response = web.Response(status=HTTPStatus.NO_CONTENT)
    call.request.app[AUTHENTICATOR].cookies.delete_cookie(call.request, response)
    return response


async def _build_session_response(call: Call, caller: Caller) -> SessionResponse:
    return SessionResponse(
        is_admin=caller.is_admin,
        project_id=caller.project_id,
        project_name=await projects.find_project_name(call.services.database, caller.project_id),
        right=caller.right,
        systems=None if caller.systems is None else sorted(caller.systems),
        expires_at=caller.until,
        ui_url=(call.services.settings.engine.ui_url or None) if caller.is_admin else None,
        namespace=call.services.engine.namespace if caller.is_admin else None,
    )
