"""What a key may do: its right, its systems, its expiry; the admin keys, wrong keys, and the audit log of actions."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from pydantic import SecretStr

from api.app import ROUTE_GROUPS
from api.audit import is_audited
from api.http.routes import Route, RouteAccess
from domain import secrets
from domain.faults import Invalid
from domain.secrets import KeyRight
from infra.database import Database
from infra.settings import Settings
from systems import SYSTEMS
from tests.support.api import ApiClient, Reply, running_api
from tests.support.estates import IDS_OF_NOTHING, fill_path

pytestmark = pytest.mark.stack

ALICE = "alice-has-a-key-of-her-own-0123"
OPEN_TO_PROJECTS = [
    route
    for group in ROUTE_GROUPS
    for route in group
    if route.access in {RouteAccess.PROJECT, RouteAccess.PROJECTS, RouteAccess.OWNER}
]


@pytest.fixture
def api_client(shared_api_client: ApiClient) -> ApiClient:
    """The whole API, one for all tests of this file."""
    return shared_api_client


async def create_key(api_client: ApiClient, project_id: str, key: str, **permissions: Any) -> str:
    """Create a key with these permissions, and return it."""
    reply = await api_client.ask("POST", f"/v1/projects/{project_id}/keys", key=key, json=permissions)
    assert reply.status == 201, reply.body
    return str(reply.body["api_key"])


async def call_route(api_client: ApiClient, route: Route, project_id: str, key: str) -> str:
    """Call a route with ids that name nothing, but for the project; return the code of the answer."""
    path = fill_path(route, {**IDS_OF_NOTHING, "project_id": project_id})
    body = {"not a field": 1} if route.body else None
    reply = await api_client.ask(route.method, path, key=key, json=body)
    if not isinstance(reply.body, dict):
        return ""
    # The routes of tasks answer with a sentence and a number.
    is_refused = "This key has the right to" in str(reply.body.get("msg")) or "This key is not for" in str(
        reply.body.get("msg")
    )
    return "key_lacks_right" if is_refused else str(reply.body.get("code", ""))


@pytest.mark.parametrize("right", list(KeyRight))
async def test_a_key_does_what_its_right_includes_and_nothing_else(api_client: ApiClient, right: KeyRight) -> None:
    """Every route that a project may call refuses keys below the right that it needs, and no others."""
    project_id, key = await api_client.make_project()
    limited = await create_key(api_client, project_id, key, right=right)
    routes = [
        route for route in OPEN_TO_PROJECTS if route.status not in {101, 200} or not route.path.endswith("events")
    ]
    refused = {
        route.name
        for route in routes
        if route.method != "HEAD" and await call_route(api_client, route, project_id, limited) == "key_lacks_right"
    }
    assert refused == {
        route.name for route in routes if route.method != "HEAD" and not right.includes(route.needed_right)
    }


async def test_a_key_for_one_system_is_refused_by_the_others(api_client: ApiClient) -> None:
    """What belongs to no system stays open, but for the audit log, which has the actions of all."""
    project_id, key = await api_client.make_project()
    limited = await create_key(api_client, project_id, key, systems=["downloads"])
    reads = [route for route in OPEN_TO_PROJECTS if route.method == "GET" and "events" not in route.path]
    refused = {
        route.tag for route in reads if await call_route(api_client, route, project_id, limited) == "key_lacks_right"
    }
    assert refused == {route.tag for route in reads if route.tag in {*SYSTEMS, "audit"}} - {"downloads"}
    assert "downloads" in {route.tag for route in reads}


async def test_a_limited_key_makes_no_key_that_may_do_more(api_client: ApiClient) -> None:
    """Neither by creating one nor by rotating another."""
    project_id, key = await api_client.make_project()
    limited = await create_key(api_client, project_id, key, systems=["downloads"])
    keys = f"/v1/projects/{project_id}/keys"
    for body in ({}, {"systems": ["downloads", "tasks"]}):
        assert (await api_client.ask("POST", keys, key=limited, json=body)).code == "key_lacks_right"
    closed = await api_client.ask("POST", keys, key=key, json={"systems": ["downloads", "addresses"]})
    assert (closed.status, closed.body["errors"][0]["path"]) == (422, "systems")
    assert "needs the admin key" in closed.body["detail"]
    first = secrets.parse_api_key(key)
    assert first is not None
    rotated = await api_client.ask("POST", f"{keys}/{first.key_id}/rotate", key=limited, json={})
    assert rotated.code == "key_lacks_right"
    own = secrets.parse_api_key(limited)
    assert own is not None
    renewed = await api_client.ask("POST", f"{keys}/{own.key_id}/rotate", key=limited, json={})
    assert renewed.body["systems"] == ["downloads"]


async def test_a_key_does_nothing_to_keys_and_secrets_beyond_itself(api_client: ApiClient) -> None:
    """Neither one for some systems nor one that expires; each may still manage keys within its own limits."""
    project_id, key = await api_client.make_project()
    soon = datetime.now(UTC) + timedelta(hours=1)
    later = str(soon + timedelta(hours=1))
    limits = ({"systems": ["orders"]}, {"expires_at": str(soon)})
    full = secrets.parse_api_key(key)
    assert full is not None
    project = f"/v1/projects/{project_id}"
    for limit in limits:
        limited = await create_key(api_client, project_id, key, **limit)
        beyond = [
            ("DELETE", f"/keys/{full.key_id}", None),
            ("POST", f"/keys/{full.key_id}/rotate", {}),
            ("POST", "/keys", {"expires_at": later}),
            ("POST", "/keys", {}),
            ("POST", "/webhook-secrets", {"overlap_seconds": 0}),
        ]
        for method, path, body in beyond:
            reply = await api_client.ask(method, project + path, key=limited, json=body)
            assert (reply.status, reply.code) == (403, "key_lacks_right"), (limit, method, path)
        within = secrets.parse_api_key(await create_key(api_client, project_id, limited, **limit))
        assert within is not None
        assert (await api_client.ask("DELETE", f"{project}/keys/{within.key_id}", key=limited)).status == 204
    assert (await api_client.ask("GET", project, key=key)).status == 200


async def test_a_rotated_key_keeps_its_permissions(api_client: ApiClient) -> None:
    """Right, systems, expiry and name."""
    project_id, key = await api_client.make_project()
    expires_at = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    permissions = {
        "name": "nightly export",
        "right": "write",
        "systems": ["downloads"],
        "expires_at": expires_at.isoformat(),
    }
    limited = secrets.parse_api_key(await create_key(api_client, project_id, key, **permissions))
    assert limited is not None
    rotated = await api_client.ask("POST", f"/v1/projects/{project_id}/keys/{limited.key_id}/rotate", key=key, json={})
    shown = {name: rotated.body[name] for name in permissions}
    assert shown == permissions | {"expires_at": expires_at.isoformat().replace("+00:00", "Z")}


async def test_a_key_of_twenty_is_rotated_without_an_overlap_only(api_client: ApiClient) -> None:
    """The twenty-first would be live beside the old one."""
    project_id, key = await api_client.make_project()
    for _ in range(18):
        await create_key(api_client, project_id, key)
    last = secrets.parse_api_key(await create_key(api_client, project_id, key))
    assert last is not None
    path = f"/v1/projects/{project_id}/keys/{last.key_id}/rotate"
    overlapping = await api_client.ask("POST", path, key=key, json={"overlap_seconds": 1})
    assert (overlapping.status, overlapping.code) == (409, "too_many_keys")
    assert (await api_client.ask("POST", path, key=key, json={"overlap_seconds": 0})).status == 201


async def test_an_expired_key_is_refused_as_an_unknown_one(settings: Settings, database: Database) -> None:
    """Also the session that began with it; it does not count among the twenty, and no key replaces it."""
    async with running_api(settings) as api_client:
        project_id, key = await api_client.make_project()
        soon = datetime.now(UTC) + timedelta(hours=1)
        limited = await create_key(api_client, project_id, key, expires_at=soon.isoformat())
        session = await api_client.ask("POST", "/v1/session", json={"api_key": limited})
        cookie = {"Cookie": session.headers["Set-Cookie"].partition(";")[0]}
        assert (await api_client.ask("GET", "/v1/downloads", key=limited)).status == 200
        assert (await api_client.ask("GET", "/v1/downloads", headers=cookie)).status == 200
        async with database.connection() as connection:
            await connection.execute("UPDATE api_keys SET expires_at = now() WHERE expires_at IS NOT NULL")
        assert (await api_client.ask("GET", "/v1/downloads", key=limited)).code == "key_unknown"
        assert (await api_client.ask("GET", "/v1/downloads", headers=cookie)).code == "session_expired"
        expired = secrets.parse_api_key(limited)
        assert expired is not None
        path = f"/v1/projects/{project_id}/keys/{expired.key_id}/rotate"
        rotated = await api_client.ask("POST", path, key=key, json={})
        assert (rotated.status, rotated.body.get("code")) == (409, "key_expired")
        for _ in range(19):
            await create_key(api_client, project_id, key)


async def test_a_key_does_not_expire_before_it_begins(api_client: ApiClient) -> None:
    """A time that is over is refused."""
    project_id, key = await api_client.make_project()
    past = {"expires_at": "2020-01-01T00:00:00Z"}
    reply = await api_client.ask("POST", f"/v1/projects/{project_id}/keys", key=key, json=past)
    assert (reply.status, reply.code) == (422, "expiry_in_past")


async def test_there_may_be_several_admin_keys_each_with_a_name(settings: Settings) -> None:
    """Each opens what the first opens, begins sessions of its own, and is named by the audit log."""
    async with running_api(settings, admin_keys={"alice": SecretStr(ALICE)}) as api_client:
        made = await api_client.ask("POST", "/v1/projects", key=ALICE, json={"name": "Billing"})
        signed_in = await api_client.ask("POST", "/v1/session", json={"api_key": ALICE})
        cookie = {"Cookie": signed_in.headers["Set-Cookie"].partition(";")[0], "Haulage-Console": "1"}
        await api_client.ask("POST", f"/v1/projects/{made.body['project_id']}/revoke", headers=cookie)
        listed = await api_client.as_admin("GET", "/v1/audit?actor=admin%20alice")
    actions = [(entry["action"], entry["project_id"], entry["status"]) for entry in listed.body["items"]]
    assert actions == [
        ("POST /v1/projects/{project_id}/revoke", made.body["project_id"], 200),
        ("POST /v1/projects", None, 201),
    ]
    async with running_api(settings) as without:
        assert (await without.ask("GET", "/v1/projects", headers=cookie)).code == "session_expired"


async def test_a_short_admin_key_is_refused_at_the_start(settings: Settings) -> None:
    """It could be guessed."""
    for keys in ({"admin_key": SecretStr("x" * 23)}, {"admin_keys": {"bob": SecretStr("x" * 23)}}):
        with pytest.raises(Invalid, match="fewer than 24 characters"):
            async with running_api(settings, **keys):
                pytest.fail("It serves.")


async def test_refusals_of_wrong_keys_come_later_and_later(settings: Settings) -> None:
    """A right key from the same address is served at once; beyond some seconds the refusal is 429."""
    async with running_api(settings, wrong_keys_per_minute=30) as api_client:
        _, key = await api_client.make_project()

        async def guess() -> tuple[Reply, float]:
            started = time.monotonic()
            reply = await api_client.ask("GET", "/v1/downloads", key="hlg_wrong")
            return reply, time.monotonic() - started

        wrong = asyncio.gather(*(guess() for _ in range(40)))
        await asyncio.sleep(0.5)
        started = time.monotonic()
        assert (await api_client.ask("GET", "/v1/downloads", key=key)).status == 200
        served_seconds = time.monotonic() - started
        outcomes = await wrong
    refused = [reply for reply, _ in outcomes if reply.status == 429]
    assert len(outcomes) - len(refused) >= 31
    assert len(refused) >= 5
    assert {(reply.code, int(reply.headers["Retry-After"]) > 5) for reply in refused} == {("too_many_wrong_keys", True)}
    assert max(seconds for reply, seconds in outcomes if reply.status == 401) > max(1.5, served_seconds)


@pytest.mark.parametrize(
    "cookie", [b"haulage_session=\xff", b"haulage_session=\xc3\xa9; x=\xff", b"\xff", b"=;=;\x01=\xfe"]
)
async def test_a_cookie_that_is_no_text_is_no_session(api_client: ApiClient, cookie: bytes) -> None:
    """The answer is 401, as without one."""
    status, answer = await api_client.send_bytes("GET /v1/downloads", b"Cookie: " + cookie)
    assert status in {401, 400}, answer


async def test_an_action_is_in_the_audit_log_whether_it_succeeds_or_not(api_client: ApiClient) -> None:
    """With its caller, its path, the status of its answer, and the request's id; the project sees its own alone."""
    project_id, key = await api_client.make_project()
    stranger_id, stranger = await api_client.make_project("stranger")
    parsed = secrets.parse_api_key(key)
    assert parsed is not None
    created = await api_client.ask("POST", f"/v1/projects/{project_id}/keys", key=key)
    missing = await api_client.ask("DELETE", f"/v1/projects/{project_id}/keys/{'0' * 12}", key=key)
    await api_client.ask("POST", f"/v1/projects/{stranger_id}/keys", key=stranger)
    listed = await api_client.ask("GET", "/v1/audit", key=key)
    seen = [(each["actor"], each["action"], each["status"], each["request_id"]) for each in listed.body["items"]]
    assert seen == [
        (
            f"key {parsed.key_id}",
            "DELETE /v1/projects/{project_id}/keys/{key_id}",
            404,
            missing.body["request_id"],
        ),
        (f"key {parsed.key_id}", "POST /v1/projects/{project_id}/keys", 201, created.headers["X-Request-Id"]),
    ]


async def test_the_audit_log_says_what_a_body_names(api_client: ApiClient) -> None:
    """Ids and values, no other texts; the refusal of a route of tasks by its code; a platform's project sees it."""
    project_id, key = await api_client.make_project()
    body = {"project_id": project_id, "kind": "shopify", "shop": "s", "base_url": "https://u:hidden@example.com"}
    await api_client.as_admin("PUT", "/v1/platforms/audited-1", json=body | {"is_paused": True})
    await api_client.as_admin("PUT", f"/v1/projects/{project_id}/quotas", json={"tasks_open": 7})
    cancelled = await api_client.ask("POST", "/v1/cancel_task", key=key, json={"task_id": "no-such/1/x"})
    newest, quotas, platform = (await api_client.ask("GET", "/v1/audit", key=key)).body["items"]
    assert newest["given"] == {"task_id": "no-such/1/x"}
    assert newest["status"] == cancelled.status
    assert newest["code"] is not None
    assert (quotas["given"], quotas["code"]) == ({"tasks_open": 7}, None)
    assert platform["given"] == {"project_id": project_id, "is_paused": True}


async def test_an_action_on_a_path_with_a_nul_is_in_the_audit_log(api_client: ApiClient) -> None:
    """No text in PostgreSQL holds one: it is written as it was sent, and the request is answered as any other."""
    _, key = await api_client.make_project()
    reply = await api_client.ask("POST", "/v1/transfers/%00/cancel", key=key)
    [entry] = (await api_client.ask("GET", "/v1/audit", key=key)).body["items"]
    assert (entry["path"], entry["status"], reply.status) == ("/v1/transfers/%00/cancel", 404, 404)


async def test_an_action_that_is_done_is_answered_so_whatever_becomes_of_its_entry(
    api_client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status stays unknown; the key that was made is shown."""

    async def lose_connection(*_: Any) -> None:
        raise asyncpg.InterfaceError("connection is closed")

    project_id, key = await api_client.make_project()
    with monkeypatch.context() as patch:
        patch.setattr("stores.audit.write_outcome_of_audited_action", lose_connection)
        await create_key(api_client, project_id, key)
    listed = await api_client.ask("GET", "/v1/audit", key=key)
    assert [each["status"] for each in listed.body["items"]] == [None]


async def test_the_audit_log_names_the_operator_and_the_reason(api_client: ApiClient) -> None:
    """Where a request holds them; and it is read page by page."""
    for reason in ("first look", "second look", "third look"):
        await api_client.as_admin("POST", "/v1/addresses/cycle/pause", json={"who": "ann", "reason": reason})
    seen: list[tuple[str, str]] = []
    cursor = ""
    action = "POST%20/v1/addresses/cycle/pause"
    while True:
        page = await api_client.as_admin("GET", f"/v1/audit?limit=1&action={action}{cursor}")
        seen += [(each["who"], each["reason"]) for each in page.body["items"]]
        if page.body["next_cursor"] is None:
            break
        cursor = f"&cursor={page.body['next_cursor']}"
    assert seen == [("ann", "third look"), ("ann", "second look"), ("ann", "first look")]
    await api_client.as_admin("POST", "/v1/addresses/cycle/resume", json={"who": "ann", "reason": "goes on"})


def test_every_route_that_changes_something_is_audited_or_submits_work() -> None:
    """The list of what is left out grows only on purpose."""
    left_out = {
        route.name
        for group in ROUTE_GROUPS
        for route in group
        if not route.is_read_only
        and not is_audited(route)
        and route.access not in {RouteAccess.PUBLIC, RouteAccess.PUSH}
    }
    assert left_out == {
        "POST /v1/codec/decode",
        "POST /v1/codec/encode",
        "POST /v1/create_task",
        "POST /v1/create_tasks",
        "POST /v1/downloads",
        "POST /v1/downloads/{task_id}/ticket",
        "POST /v1/heartbeat_tasks",
        "POST /v1/hold_task",
        "POST /v1/hold_tasks",
        "POST /v1/set_task",
        "POST /v1/set_tasks",
        "POST /v1/templates/preview",
        "POST /v1/transfers",
        "POST /v1/transfers:batch",
    }
