"""Sessions: a browser that shows a key once, and from then on a cookie that its scripts cannot read."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web
from pydantic import AwareDatetime, Field

from api.http.auth import AUTHENTICATOR
from api.http.models import Request, Response
from api.http.routes import JSON, Access, Call, Caller, Routes
from domain.faults import Denied
from stores.shared import projects

routes = Routes("session", "Who is signed in to the console.")

_DENIED = dict.fromkeys(("key_malformed", "key_unknown"), Denied)


class SignIn(Request):
    """A key, shown once."""

    api_key: str = Field(min_length=1, max_length=1_000, description="a project's key, or the admin key")


class WhoAmI(Response):
    """Who calls, and what they may see."""

    is_admin: bool = Field(description="true for the admin key, which sees all projects")
    project_id: str | None = Field(description="the caller's, or the one that the admin key names; null for all")
    project_name: str | None
    expires_at: AwareDatetime | None = Field(description="when the session ends; null for who sends a key")
    ui_url: str | None = Field(description="Temporal's Web UI, which shows all projects: only the admin key is told")
    namespace: str | None = Field(description="where workflow ids are to be found there")


@routes.post("/v1/session", access=Access.PUBLIC, problems=_DENIED)
async def begin(call: Call, body: SignIn) -> WhoAmI | web.Response:
    """Sign in.

    The answer sets the cookie `haulage_session`, which stands for the key until it ends, the key is revoked, or someone
    signs out. Whatever is no GET needs the header `Haulage-Console: 1` with it, or `Sec-Fetch-Site: same-origin`, which
    browsers send by themselves.
    """
    authenticator = call.request.app[AUTHENTICATOR]
    caller, session = await authenticator.sign_in(body.api_key.strip())
    known = Caller(caller.project_id, caller.key_id, caller.is_admin, session.until)
    response = web.Response(body=(await _shown(call, known)).model_dump_json().encode(), content_type=JSON)
    authenticator.cookies.set_cookie(call.request, response, session)
    return response


@routes.get("/v1/session", access=Access.PROJECTS)
async def read(call: Call) -> WhoAmI:
    """Read who is signed in, or whose key this is."""
    return await _shown(call, call.caller)


@routes.delete("/v1/session", access=Access.PUBLIC, status=HTTPStatus.NO_CONTENT)
async def end(call: Call) -> web.Response:
    """Sign out: the browser forgets its cookie.

    Revoke a key to end every session that was begun with it.
    """
    response = web.Response(status=HTTPStatus.NO_CONTENT)
    call.request.app[AUTHENTICATOR].cookies.delete_cookie(call.request, response)
    return response


async def _shown(call: Call, caller: Caller) -> WhoAmI:
    return WhoAmI(
        is_admin=caller.is_admin,
        project_id=caller.project_id,
        project_name=await projects.find_name(call.services.database, caller.project_id),
        expires_at=caller.until,
        ui_url=(call.services.settings.engine.ui_url or None) if caller.is_admin else None,
        namespace=call.services.engine.namespace if caller.is_admin else None,
    )
