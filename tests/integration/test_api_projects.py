"""Projects and keys, from the first to the revoked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from domain import secrets
from infra.database import Database
from infra.settings import Settings
from tests.support.api import ApiClient, running_api
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def api_client(settings: Settings) -> AsyncIterator[ApiClient]:
    """The whole API."""
    async with running_api(settings) as api_client:
        yield api_client


async def opens(api_client: ApiClient, project_id: str, key: str) -> bool:
    """Whether a key opens its project."""
    return (await api_client.ask("GET", f"/v1/projects/{project_id}", key=key)).status == 200


async def is_shut(api_client: ApiClient, project_id: str, key: str) -> bool:
    """Whether a key does not open its project."""
    return not await opens(api_client, project_id, key)


async def test_a_new_project_comes_with_a_key_that_opens_it(api_client: ApiClient) -> None:
    """One call is enough to begin."""
    made = await api_client.as_admin("POST", "/v1/projects", json={"name": "  Billing  "})
    project_id, key = made.body["project_id"], made.body["key"]["api_key"]
    read = await api_client.ask("GET", f"/v1/projects/{project_id}", key=key)
    assert made.status == 201
    assert (read.status, read.body["name"]) == (200, "Billing")
    assert read.body == {name: made.body[name] for name in read.body}
    assert read.body["created_at"].endswith("Z")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("", "name: it has 0 characters"), ("x" * 101, "name: it has 101 characters; send 1–100."), (5, "a string")],
)
async def test_a_project_needs_a_name(api_client: ApiClient, name: object, sentence: str) -> None:
    """A name that is no use is refused, and nothing is made."""
    refused = await api_client.as_admin("POST", "/v1/projects", json={"name": name})
    listed = await api_client.as_admin("GET", "/v1/projects")
    assert refused.status == 422
    assert sentence in refused.body["detail"]
    assert listed.body == {"items": [], "next_cursor": None}


async def test_projects_are_listed_newest_first_page_by_page(api_client: ApiClient) -> None:
    """Following the cursor shows each project once."""
    made = [(await api_client.make_project(f"project {number}"))[0] for number in range(5)]
    seen, cursor = [], ""
    while True:
        page = await api_client.as_admin("GET", f"/v1/projects?limit=2{cursor}")
        seen += [item["project_id"] for item in page.body["items"]]
        if page.body["next_cursor"] is None:
            break
        cursor = f"&cursor={page.body['next_cursor']}"
    assert seen == made[::-1]


async def test_a_made_up_cursor_is_refused(api_client: ApiClient) -> None:
    """A cursor that this API did not issue is refused."""
    reply = await api_client.as_admin("GET", "/v1/projects?cursor=abc")
    assert (reply.status, reply.code) == (422, "cursor_invalid")


async def test_a_secret_is_stored_only_as_a_hash(api_client: ApiClient, database: Database) -> None:
    """The whole database holds no key."""
    _, key = await api_client.make_project()
    parsed = secrets.parse_api_key(key)
    assert parsed is not None
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT api_keys::text, encode(hash, 'escape') FROM api_keys")
    assert len(rows) == 1
    assert parsed.key_id in str(rows)
    assert parsed.secret not in str(rows)


async def test_a_key_is_shown_once(api_client: ApiClient) -> None:
    """Lists show ids and last characters, never a key."""
    project_id, key = await api_client.make_project()
    listed = await api_client.ask("GET", f"/v1/projects/{project_id}/keys", key=key)
    (shown,) = listed.body["items"]
    assert shown.keys() == {
        "key_id",
        "last4",
        "name",
        "right",
        "systems",
        "created_at",
        "last_used_at",
        "revoked_at",
        "expires_at",
    }
    assert key.endswith(shown["last4"])
    assert key.split("_")[1] == shown["key_id"]
    assert shown["last_used_at"] is not None


async def test_keys_are_replaced_with_overlap(api_client: ApiClient) -> None:
    """Make a new key, change the callers, revoke the old one: the project is open all the time."""
    project_id, old = await api_client.make_project()
    made = await api_client.ask("POST", f"/v1/projects/{project_id}/keys", key=old)
    new = made.body["api_key"]
    assert made.status == 201
    assert await opens(api_client, project_id, old)
    assert await opens(api_client, project_id, new)
    revoked = await api_client.ask("DELETE", f"/v1/projects/{project_id}/keys/{old.split('_')[1]}", key=new)
    assert revoked.status == 204
    assert not await opens(api_client, project_id, old)
    assert await opens(api_client, project_id, new)


async def test_rotation_ends_the_old_key_when_the_overlap_ends(api_client: ApiClient) -> None:
    """The old key opens until then, and from then on it does not."""
    project_id, old = await api_client.make_project()
    rotate = f"/v1/projects/{project_id}/keys/{old.split('_')[1]}/rotate"
    rotated = await api_client.ask("POST", rotate, key=old, json={"overlap_seconds": 5})
    assert rotated.status == 201
    assert await opens(api_client, project_id, old)
    assert await opens(api_client, project_id, rotated.body["api_key"])
    ended: Callable[[], bool | Awaitable[bool]] = lambda: is_shut(api_client, project_id, old)  # noqa: E731
    await eventually(ended)
    again = await api_client.as_admin("POST", rotate, json={})
    assert (again.status, again.code) == (409, "key_revoked")


async def test_rotation_without_overlap_ends_the_old_key_at_once(api_client: ApiClient) -> None:
    """A leaked key is replaced in one call."""
    project_id, old = await api_client.make_project()
    rotate = f"/v1/projects/{project_id}/keys/{old.split('_')[1]}/rotate"
    rotated = await api_client.as_admin("POST", rotate, json={"overlap_seconds": 0})
    assert not await opens(api_client, project_id, old)
    assert await opens(api_client, project_id, rotated.body["api_key"])


async def test_revoking_again_changes_nothing(api_client: ApiClient) -> None:
    """The first revocation's time stays."""
    project_id, key = await api_client.make_project()
    path = f"/v1/projects/{project_id}/keys/{key.split('_')[1]}"
    listing = f"/v1/projects/{project_id}/keys"
    assert (await api_client.as_admin("DELETE", path)).status == 204
    first = (await api_client.as_admin("GET", listing)).body
    assert (await api_client.as_admin("DELETE", path)).status == 204
    assert (await api_client.as_admin("GET", listing)).body == first


async def test_a_project_has_a_bounded_number_of_keys(api_client: ApiClient) -> None:
    """The twenty-first key is refused until one is revoked."""
    project_id, key = await api_client.make_project()
    path = f"/v1/projects/{project_id}/keys"
    for _ in range(19):
        assert (await api_client.ask("POST", path, key=key)).status == 201
    refused = await api_client.ask("POST", path, key=key)
    assert (refused.status, refused.code) == (409, "too_many_keys")
    (newest, *_) = (await api_client.ask("GET", path, key=key)).body["items"]
    await api_client.ask("DELETE", f"{path}/{newest['key_id']}", key=key)
    assert (await api_client.ask("POST", path, key=key)).status == 201


async def test_a_revoked_project_is_shut_for_ever(api_client: ApiClient) -> None:
    """All its keys end at once, it gets no new ones, and the first revocation's time stays."""
    project_id, key = await api_client.make_project()
    revoked = await api_client.as_admin("POST", f"/v1/projects/{project_id}/revoke")
    assert revoked.status == 200
    assert revoked.body["revoked_at"] is not None
    assert not await opens(api_client, project_id, key)
    refused = await api_client.as_admin("POST", f"/v1/projects/{project_id}/keys")
    assert (refused.status, refused.code) == (409, "project_revoked")
    assert (await api_client.as_admin("POST", f"/v1/projects/{project_id}/revoke")).body == revoked.body


async def test_a_revoked_project_takes_no_work_from_the_admin_key(api_client: ApiClient) -> None:
    """What it owns can still be read."""
    project_id, _ = await api_client.make_project()
    await api_client.as_admin("POST", f"/v1/projects/{project_id}/revoke")
    named = {"Haulage-Project": project_id}
    platform = {"project_id": project_id, "kind": "shopify", "shop": "s", "base_url": "https://example.com"}
    works = [
        ("POST", "/v1/downloads", {"source_url": "https://example.com/rows"}),
        ("POST", "/v1/transfers", {}),
        ("PUT", "/v1/platforms/revoked-1", platform),
    ]
    for method, path, body in works:
        reply = await api_client.as_admin(method, path, json=body, headers=named)
        assert (reply.status, reply.code) == (409, "project_revoked"), reply.body
    task = await api_client.as_admin("POST", "/v1/create_task", json={"task_type": "t"}, headers=named)
    assert "was revoked" in task.body["msg"]
    assert (await api_client.as_admin("GET", "/v1/downloads", headers=named)).status == 200


async def test_ids_that_name_nothing_are_missing(api_client: ApiClient) -> None:
    """For the admin too."""
    project_id, key = await api_client.make_project()
    for path in (f"/v1/projects/prj_{'0' * 16}", f"/v1/projects/prj_{'0' * 16}/keys", "/v1/projects/%00"):
        reply = await api_client.as_admin("GET", path)
        assert (reply.status, reply.code) == (404, "not_found")
    reply = await api_client.ask("DELETE", f"/v1/projects/{project_id}/keys/{'0' * 12}", key=key)
    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize("written", ["1_0", "%2B10", "10.0", "%2010", "010%20"])
async def test_a_number_in_a_query_is_plain_digits(api_client: ApiClient, written: str) -> None:
    """What two programs could read differently is refused, with the number that it looks like."""
    reply = await api_client.as_admin("GET", f"/v1/projects?limit={written}")
    assert (reply.status, reply.code) == (422, "invalid_request")
    assert "is no number in plain digits; send 10." in reply.body["detail"]
