"""Who signed in: what the cookie is, what it opens, from where, and until when; and the admin within one project."""

from __future__ import annotations

from http.cookies import Morsel, SimpleCookie

import aiohttp
import pytest
from pydantic import SecretStr

from api.http import sessions
from domain import secrets
from domain.secrets import SealedText
from infra.secrets import SecretSealer
from infra.settings import Settings
from tests.support.api import ApiClient, Reply, running_api

pytestmark = pytest.mark.stack

CONSOLE_HEADERS = {"Haulage-Console": "1"}


@pytest.fixture
def api_client(shared_api_client: ApiClient) -> ApiClient:
    """The whole API, one for all tests of this file."""
    return shared_api_client


def morsel(reply: Reply) -> Morsel[str]:
    """The cookie that an answer sets."""
    return SimpleCookie(reply.headers["Set-Cookie"])[sessions.COOKIE_NAME]


def admin_key(api_client: ApiClient) -> str:
    """The admin key."""
    return api_client.settings.api.admin_key.get_secret_value()


async def sign_in(api_client: ApiClient, key: str) -> dict[str, str]:
    """The header that a browser sends from then on."""
    reply = await api_client.ask("POST", "/v1/session", json={"api_key": key})
    assert reply.status == 200, reply.body
    return {"Cookie": f"{sessions.COOKIE_NAME}={morsel(reply).value}"}


async def test_a_key_shown_once_becomes_a_cookie_that_scripts_cannot_read(api_client: ApiClient) -> None:
    """And the cookie identifies its owner as the key would."""
    project_id, key = await api_client.make_project("Billing")
    reply = await api_client.ask("POST", "/v1/session", json={"api_key": key})
    cookie = morsel(reply)
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Strict", "/", "")
    assert 0 < int(cookie["max-age"]) <= api_client.settings.api.session_hours * 3600
    assert (reply.body["project_id"], reply.body["project_name"], reply.body["is_admin"]) == (
        project_id,
        "Billing",
        False,
    )
    known = await api_client.ask("GET", "/v1/session", headers=await sign_in(api_client, key))
    assert known.body["project_id"] == project_id
    assert known.body["expires_at"] is not None
    by_key = await api_client.ask("GET", "/v1/session", key=key)
    assert by_key.body == {**known.body, "expires_at": None}


async def test_only_the_administrator_gets_the_address_of_the_engine_s_pages(settings: Settings) -> None:
    """They show the workflows of all projects."""
    engine = settings.engine.model_copy(update={"ui_url": "http://temporal.example.com"})
    async with running_api(settings.model_copy(update={"engine": engine})) as api_client:
        project_id, key = await api_client.make_project()
        own = await api_client.ask("GET", "/v1/session", key=key)
        assert (own.body["ui_url"], own.body["namespace"]) == (None, None)
        within = await api_client.as_admin("GET", "/v1/session", headers={"Haulage-Project": project_id})
        assert (within.body["is_admin"], within.body["project_id"]) == (True, project_id)
        assert within.body["ui_url"] == "http://temporal.example.com"
        assert (await api_client.as_admin("GET", "/v1/session")).body["project_id"] is None


async def test_the_cookie_holds_no_key(api_client: ApiClient) -> None:
    """It holds no more than the key's id, even for a reader with the sealing keys."""
    _, key = await api_client.make_project()
    header = await sign_in(api_client, key)
    token = header["Cookie"].partition("=")[2]
    text = SecretSealer(api_client.settings.secrets).open(SealedText(token=token + "=" * (-len(token) % 4)))
    parsed = secrets.parse_api_key(key)
    assert parsed is not None
    assert parsed.key_id in text
    assert parsed.secret not in text


async def test_a_wrong_key_begins_no_session(api_client: ApiClient) -> None:
    """The same answers as a wrong key gets everywhere."""
    unknown = secrets.ApiKeyText(key_id="0" * 12, secret="0" * 32).text
    for key, code in {"not-a-key": "key_malformed", unknown: "key_unknown"}.items():
        reply = await api_client.ask("POST", "/v1/session", json={"api_key": key})
        assert (reply.status, reply.code) == (401, code)
        assert "Set-Cookie" not in reply.headers
        assert "`admin_key` in `.haulage/secrets.json`" in reply.body["detail"], "it says where keys are"
        assert "`.haulage/project-key`" in reply.body["detail"]


@pytest.mark.parametrize(
    "header", [{"X-Forwarded-Proto": "https"}, {}], ids=["behind a proxy that says so", "by the public address"]
)
async def test_where_there_is_https_the_cookie_keeps_to_it(settings: Settings, header: dict[str, str]) -> None:
    """A proxy ends it before us."""
    async with running_api(settings, public_base="" if header else "https://haulage.example.com") as api_client:
        reply = await api_client.ask("POST", "/v1/session", json={"api_key": admin_key(api_client)}, headers=header)
        assert morsel(reply)["secure"] is True


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Sec-Fetch-Site": "cross-site"}, 401),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Sec-Fetch-Site": "none"}, 401),
        ({"Sec-Fetch-Site": "cross-site", **CONSOLE_HEADERS}, 401),
        ({"Haulage-Console": ""}, 401),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        (CONSOLE_HEADERS, 201),
    ],
)
async def test_a_cookie_alone_changes_nothing(api_client: ApiClient, headers: dict[str, str], status: int) -> None:
    """Any page could have made a browser send it; only our own pages send what it needs besides."""
    project_id, key = await api_client.make_project()
    cookie = await sign_in(api_client, key)
    path = f"/v1/projects/{project_id}/keys"
    reply = await api_client.ask("POST", path, headers=cookie | headers)
    assert reply.status == status
    assert status == 201 or reply.code == "session_origin_unproven"
    keys = await api_client.ask("GET", path, headers=cookie)
    assert len(keys.body["items"]) == (2 if status == 201 else 1)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 401),
        ("https://evil.example.com", 401),
        ("null", 401),
        ("http://[::1", 401),
        ("http://127.0.0.1:1", 401),
        ("same", 101),
    ],
)
async def test_sockets_are_opened_with_a_cookie_by_our_own_pages_only(
    api_client: ApiClient, origin: str | None, status: int
) -> None:
    """A page of a sister domain would get the cookie, and no browser asks us first."""
    _, key = await api_client.make_project()
    headers = await sign_in(api_client, key) | (
        {"Origin": api_client.address if origin == "same" else origin} if origin else {}
    )
    assert await socket_status(api_client, headers) == status


async def socket_status(api_client: ApiClient, headers: dict[str, str]) -> int:
    """What the attempt to open a socket is answered with."""
    try:
        async with api_client.session.ws_connect(f"{api_client.address}/v1/downloads/ws", headers=headers):
            return 101
    except aiohttp.WSServerHandshakeError as error:
        return error.status


async def test_a_key_counts_before_the_cookie(api_client: ApiClient) -> None:
    """Where both are sent, the key decides, also if it is invalid."""
    first, second = await api_client.make_project(), await api_client.make_project()
    cookie = await sign_in(api_client, first[1])
    known = await api_client.ask("GET", "/v1/session", key=second[1], headers=cookie)
    assert known.body["project_id"] == second[0]
    assert (await api_client.ask("GET", "/v1/session", key="wrong", headers=cookie)).code == "key_malformed"


async def test_a_session_ends_with_its_key_at_once(api_client: ApiClient) -> None:
    """The call after the revocation is too late; so it is when the project is revoked."""
    for revoke in ("keys/{key_id}", "revoke"):
        project_id, key = await api_client.make_project()
        cookie = await sign_in(api_client, key)
        assert (await api_client.ask("GET", "/v1/session", headers=cookie)).status == 200
        parsed = secrets.parse_api_key(key)
        assert parsed is not None
        path = f"/v1/projects/{project_id}/{revoke}".format(key_id=parsed.key_id)
        await api_client.as_admin("POST" if revoke == "revoke" else "DELETE", path)
        reply = await api_client.ask("GET", "/v1/session", headers=cookie)
        assert (reply.status, reply.code) == (401, "session_expired")


async def test_the_admin_s_session_ends_with_the_admin_key(api_client: ApiClient) -> None:
    """Another admin key, or none, ends all sessions."""
    cookie = await sign_in(api_client, admin_key(api_client))
    assert (await api_client.ask("GET", "/v1/projects", headers=cookie)).status == 200
    for key in ("another" * 6, ""):
        async with running_api(api_client.settings, admin_key=SecretStr(key)) as changed:
            assert (await changed.ask("GET", "/v1/projects", headers=cookie)).code == "session_expired"


async def test_a_session_ends_in_time(settings: Settings) -> None:
    """Whatever the browser does with a cookie, we look at the clock."""
    async with running_api(settings, session_hours=1e-9) as api_client:
        cookie = await sign_in(api_client, admin_key(api_client))
        assert (await api_client.ask("GET", "/v1/session", headers=cookie)).code == "session_expired"


async def test_nothing_but_what_we_made_as_a_session_is_one(api_client: ApiClient) -> None:
    """Not rubbish, not a changed letter, not text sealed for another purpose."""
    token = (await sign_in(api_client, admin_key(api_client)))["Cookie"].partition("=")[2]
    sealer = SecretSealer(api_client.settings.secrets)
    made = ["https://example.com/rows", f"haulage_session 9999999999 {'00' * 32} "]
    others = [sealer.seal(text).token.rstrip("=") for text in made]
    for wrong in ("", "x", "é", token[:-4] + "AAAA", *others):
        reply = await api_client.ask("GET", "/v1/session", headers={"Cookie": f"{sessions.COOKIE_NAME}={wrong}"})
        assert (reply.status, reply.code) == (401, "session_expired"), wrong


async def test_who_signs_out_has_no_cookie_any_more(api_client: ApiClient) -> None:
    """Also where the session was over already."""
    for headers in ({}, await sign_in(api_client, admin_key(api_client))):
        reply = await api_client.ask("DELETE", "/v1/session", headers=headers)
        assert (reply.status, morsel(reply).value, morsel(reply)["max-age"]) == (204, "", "0")


async def test_the_admin_key_works_within_the_project_that_it_names(api_client: ApiClient) -> None:
    """What is made there is that project's, and what is another's is not there."""
    (mine, key), (other, _) = await api_client.make_project(), await api_client.make_project()
    body = {"source_url": "http://example.com/rows"}
    made = await api_client.as_admin("POST", "/v1/downloads", json=body, headers={"Haulage-Project": mine})
    assert made.status == 202
    path = f"/v1/downloads/{made.body['task_id']}"
    assert (await api_client.ask("GET", path, key=key)).status == 200
    cookie = await sign_in(api_client, admin_key(api_client))
    assert (await api_client.ask("GET", path, headers=cookie | {"Haulage-Project": mine})).status == 200
    for project_id in (other, "prj_" + "0" * 16, "%", ""):
        assert (await api_client.as_admin("GET", path, headers={"Haulage-Project": project_id})).code == "not_found"
    assert (await api_client.as_admin("GET", path)).code == "project_key_needed"


async def test_streams_and_files_take_the_project_from_the_query(api_client: ApiClient) -> None:
    """A browser that opens them sends no such headers; every other route still refuses the parameter."""
    (mine, _), (other, _) = await api_client.make_project(), await api_client.make_project()
    body = {"source_url": "http://example.com/rows"}
    made = await api_client.as_admin("POST", "/v1/downloads", json=body, headers={"Haulage-Project": mine})
    path = f"/v1/downloads/{made.body['task_id']}"
    assert (await api_client.as_admin("GET", f"{path}/file?project={mine}")).code == "download_unfinished"
    assert (await api_client.as_admin("GET", f"{path}/file?project={other}")).code == "not_found"
    assert (await api_client.as_admin("GET", f"{path}/file?project={mine}&project={other}")).code == "not_found"
    assert (await api_client.as_admin("GET", f"{path}/file?project=%00")).code == "not_found"
    two = await api_client.as_admin("GET", f"{path}/file?project={mine}", headers={"Haulage-Project": other})
    assert two.code == "not_found"
    refused = await api_client.as_admin("GET", f"{path}?project={mine}", headers={"Haulage-Project": mine})
    assert refused.code == "invalid_request"


async def test_a_project_s_key_names_no_project_but_its_own(api_client: ApiClient) -> None:
    """A foreign one and none at all get the same answer, by key and by cookie."""
    (mine, key), (other, _) = await api_client.make_project(), await api_client.make_project()
    cookie = await sign_in(api_client, key)
    for project_id, status in {mine: 200, other: 404, "prj_" + "0" * 16: 404, "": 404}.items():
        for headers in (cookie, {"Authorization": f"Bearer {key}"}):
            reply = await api_client.ask("GET", "/v1/downloads", headers=headers | {"Haulage-Project": project_id})
            assert reply.status == status
            assert status == 200 or reply.code == "not_found"
