"""Who may call what, for every route of the table: no key, a wrong one, a revoked one, another project's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiohttp import web

from api.app import ROUTE_GROUPS
from api.http.routes import Route, RouteAccess
from domain import secrets
from infra.settings import Settings
from tests.support.api import ApiClient, Reply, running_api
from tests.support.estates import IDS_OF_NOTHING, fill_path

pytestmark = pytest.mark.stack

LOCKED = [
    route for group in ROUTE_GROUPS for route in group if route.access not in {RouteAccess.PUBLIC, RouteAccess.PUSH}
]
# Bodies are judged after the caller, so that any JSON will do where the caller is refused.
ANY_BODY: dict[str, Any] = {"json": {}}


@dataclass(frozen=True)
class OwnProject:
    """A project with a download, and its key."""

    project_id: str
    key: str
    key_id: str
    task_id: str

    def path(self, route: Route) -> str:
        """The address of what this project owns; of a kind of which it has nothing, that of nothing."""
        return fill_path(route, {**IDS_OF_NOTHING, **vars(self)})


@pytest.fixture
def api_client(shared_api_client: ApiClient) -> ApiClient:
    """The whole API, one for all tests of this file."""
    return shared_api_client


async def make_own_project(api_client: ApiClient) -> OwnProject:
    """Make a project that owns a download."""
    project_id, key = await api_client.make_project()
    body = {"source_url": "http://example.com/rows"}
    download = await api_client.ask("POST", "/v1/downloads", key=key, json=body)
    assert download.status == 202, download.body
    parsed = secrets.parse_api_key(key)
    assert parsed is not None
    return OwnProject(project_id, key, parsed.key_id, download.body["task_id"])


async def refusals(
    api_client: ApiClient, routes: list[Route], project: OwnProject, key: str | None
) -> dict[str, tuple[int, str]]:
    """What each route answers to a key."""
    replies: dict[str, Reply] = {
        route.name: await api_client.ask(route.method, project.path(route), key=key, **(ANY_BODY if route.body else {}))
        for route in routes
    }
    return {name: (reply.status, _has_code(name) and reply.code) for name, reply in replies.items()}


def all_answer(routes: list[Route], status: int, code: str) -> dict[str, tuple[int, str]]:
    """The same answer from each route."""
    return {route.name: (status, _has_code(route.name) and code) for route in routes}


def _has_code(name: str) -> str:
    """Return the name of a route whose answers have a body; an answer to HEAD has none, and so no code."""
    return "" if name.startswith("HEAD ") else name


async def test_every_locked_route_refuses_a_caller_without_a_right_key(api_client: ApiClient) -> None:
    """No key, a malformed key, an unknown id, a known id with another secret: 401 everywhere."""
    project = await make_own_project(api_client)
    unknown = secrets.ApiKeyText(key_id="0" * 12, secret="0" * 32).text
    forged = secrets.ApiKeyText(key_id=project.key_id, secret="0" * 32).text
    wrong = {None: "key_missing", "not-a-key": "key_malformed", unknown: "key_unknown", forged: "key_unknown"}
    for key, code in wrong.items():
        assert await refusals(api_client, LOCKED, project, key) == all_answer(LOCKED, 401, code)


async def test_every_locked_route_refuses_a_revoked_key_at_once(api_client: ApiClient) -> None:
    """The request after the revocation is already too late, on every route."""
    project = await make_own_project(api_client)
    served = await api_client.ask("GET", f"/v1/projects/{project.project_id}", key=project.key)
    revoked = await api_client.as_admin("DELETE", f"/v1/projects/{project.project_id}/keys/{project.key_id}")
    assert (served.status, revoked.status) == (200, 204)
    assert await refusals(api_client, LOCKED, project, project.key) == all_answer(LOCKED, 401, "key_unknown")


async def test_what_belongs_to_another_project_is_not_there(api_client: ApiClient) -> None:
    """A right key of another project sees 404, as if the id named nothing."""
    project, stranger = await make_own_project(api_client), await api_client.make_project("stranger")
    routes = [route for route in LOCKED if route.path_model and route.access is not RouteAccess.ADMIN]
    # Those of each system whose routes have an id in their path.
    assert {route.tag for route in routes} == {"projects", "downloads", "webhooks", "transfers", "quotas"}
    assert await refusals(api_client, routes, project, stranger[1]) == all_answer(routes, 404, "not_found")


async def test_what_needs_the_admin_key_says_so(api_client: ApiClient) -> None:
    """A project's key gets 403 whatever the path names, and learns of nothing that there is."""
    project = await make_own_project(api_client)
    routes = [route for route in LOCKED if route.access is RouteAccess.ADMIN]
    assert await refusals(api_client, routes, project, project.key) == all_answer(routes, 403, "admin_key_needed")
    detail = (await api_client.ask("GET", "/v1/projects", key=project.key)).body["detail"]
    assert detail.startswith("This needs the admin key, and this is a key of a project. Use that of the server:")
    assert "`haulage up` keeps the admin key as `admin_key` in `.haulage/secrets.json`" in detail


async def test_the_admin_key_has_no_project_to_work_on(api_client: ApiClient) -> None:
    """The tenant comes from the credential alone, and the admin key is no tenant."""
    project = await make_own_project(api_client)
    routes = [route for route in LOCKED if route.access is RouteAccess.PROJECT]
    admin = api_client.settings.api.admin_key.get_secret_value()
    assert await refusals(api_client, routes, project, admin) == all_answer(routes, 401, "project_key_needed")


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic {key}", "{key}", "Bearer {key} {key}", "Bearer {key}é"]
)
async def test_a_key_counts_only_as_one_bearer(api_client: ApiClient, header: str) -> None:
    """Nothing but `Authorization: Bearer <key>` is read as a credential."""
    project_id, key = await api_client.make_project()
    reply = await api_client.ask("GET", f"/v1/projects/{project_id}", headers={"Authorization": header.format(key=key)})
    assert reply.status == 401
    assert reply.code in {"key_missing", "key_malformed"}
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")


async def test_without_an_admin_key_no_caller_is_admin(settings: Settings) -> None:
    """An empty setting locks the administration; it does not open it."""
    async with running_api(settings, admin_key=type(settings.api.admin_key)("")) as api_client:
        for key in ("", " ", "x"):
            reply = await api_client.ask("GET", "/v1/projects", headers={"Authorization": f"Bearer {key}"})
            assert reply.status == 401


async def test_the_whole_api_sends_json_in_one_piece(api_client: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that one system sets by a signal of the application cost all others their head that is built once."""
    _, key = await api_client.make_project()
    prepared = AsyncMock(side_effect=LookupError)
    monkeypatch.setattr(web.StreamResponse, "prepare", prepared)
    reply = await api_client.ask("GET", "/v1/quotas", key=key)

    assert (reply.status, prepared.await_count) == (200, 0)
