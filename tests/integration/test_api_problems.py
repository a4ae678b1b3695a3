"""Problems: whatever goes wrong, the answer has one shape, one stable code and one sentence that helps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from api.http.openapi import build_openapi_document
from infra.settings import Settings
from tests.support.api import ApiClient, running_api
from tests.support.toy_routes import enveloped, toys

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
async def api_client(shared_settings: Settings) -> AsyncIterator[ApiClient]:
    """The toys, one API for all tests of this file."""
    async with running_api(shared_settings, [toys, enveloped]) as api_client:
        yield api_client


JSON_HEADERS = {"Content-Type": "application/json"}

# Bodies that are not one well-formed JSON document, or that no table could store.
BODIES = [
    (b"", 400, "malformed_json", "not JSON"),
    (b'{"size": 1', 400, "malformed_json", "line 1 column"),
    (b'{"size": 1} {}', 400, "malformed_json", "not JSON"),
    (b'{"size": NaN}', 400, "malformed_json", "NaN"),
    (b'{"size": -Infinity}', 400, "malformed_json", "-Infinity"),
    (b'{"size": 1, "size": 2}', 400, "malformed_json", "“size” more than once"),
    (b'{"size": ' + b"9" * 5_000 + b"}", 400, "malformed_json", "thousands of digits"),
    (b"[" * 100_000, 400, "malformed_json", "nested deeper"),
    (b'{"parts": ' + b"[" * 80 + b"]" * 80 + b"}", 400, "malformed_json", "nested deeper than 64"),
    (b'{"size": 1, "name": "\xff"}', 400, "malformed_json", "Byte 21"),
    ('{"size": 1}'.encode("utf-16"), 400, "malformed_json", "UTF-8"),
    (b'\xef\xbb\xbf\xef\xbb\xbf{"size": 1}', 400, "malformed_json", "not JSON"),
    (b'{"size": 1, "name": "\\u0000"}', 422, "invalid_request", "name: it holds a NUL"),
    (b'{"size": 1, "parts": ["a", "\\ud800"]}', 422, "invalid_request", "parts[1]: it holds a NUL"),
    (b'{"size": 1, "\\ud800": 1}', 422, "invalid_request", "half a surrogate pair"),
    (b'{"size": 9223372036854775808}', 422, "invalid_request", "size: 9223372036854775808 is outside"),
    (b'{"size": ' + b"9" * 4_000 + b"}", 422, "invalid_request", "is outside"),
    (b'{"size": 1e400}', 422, "invalid_request", "not an integer"),
    (b'{"size": "1"}', 422, "invalid_request", "without quotes"),
    (b'{"size": 1, "colour": "red"}', 422, "invalid_request", "colour: there is no such field"),
    (b"null", 422, "invalid_request", "The body: null was sent where an object belongs"),
]


@pytest.mark.parametrize("method", ["GET", "POST", "QUERY"])
async def test_an_unknown_address_gets_404(api_client: ApiClient, method: str) -> None:
    """What is not in the table is a problem too."""
    reply = await api_client.ask(method, "/nothing/here")
    assert (reply.status, reply.code) == (404, "not_found")


async def test_a_wrong_method_gets_405_with_the_right_ones(api_client: ApiClient) -> None:
    """The answer names what the address takes."""
    reply = await api_client.ask("PUT", "/toys")
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert set(reply.headers["Allow"].split(",")) == {"DELETE", "GET", "POST"}
    assert "Use DELETE, GET, POST." in reply.body["detail"]


async def test_bad_bodies_get_their_sentence(api_client: ApiClient) -> None:
    """Every body that cannot be taken is the caller's fault, explained in one sentence, and never a 500."""
    for body, status, code, sentence in BODIES:
        reply = await api_client.ask("POST", "/toys", data=body, headers=JSON_HEADERS)
        assert (reply.status, reply.code) == (status, code), (body[:80], reply.body)
        assert sentence in reply.body["detail"], body[:80]


async def test_all_wrong_fields_are_listed_with_their_paths(api_client: ApiClient) -> None:
    """One answer names everything that is wrong."""
    reply = await api_client.ask("POST", "/toys", json={"name": 7, "parts": ["a", 1], "shape": "round"})
    assert [error["path"] for error in reply.body["errors"]] == ["size", "name", "parts[1]", "shape"]
    assert reply.body["detail"] == "size: this field is missing; add it. 3 more under `errors`."


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "unsupported_media_type"),
        ({"Content-Type": "text/plain"}, "unsupported_media_type"),
        ({"Content-Type": "application/json; charset=latin-1"}, "unsupported_media_type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "unsupported_media_type"),
        (JSON_HEADERS | {"Content-Encoding": "gzip"}, "unsupported_encoding"),
    ],
)
async def test_only_plain_json_is_taken(api_client: ApiClient, headers: dict[str, str], code: str) -> None:
    """A body that does not say that it is JSON is not read as JSON."""
    reply = await api_client.ask(
        "POST", "/toys", data=b'{"size": 1}', headers=headers, skip_auto_headers=["Content-Type"]
    )
    assert (reply.status, reply.code) == (415, code)


@pytest.mark.parametrize(
    ("query", "path", "sentence"),
    [
        ("colour=red", "colour", "there is no such field; remove it. Known fields are limit, word."),
        ("limt=5", "limt", "did you mean limit?"),
        ("limit=0", "limit", "“0” is outside 1–100; choose a value in that range."),
        ("limit=ten", "limit", "“ten” is not an integer; send an integer."),
        ("limit=1&limit=2", "limit", "it is given more than once; give it once."),
        ("word=%00", "word", "it holds a NUL character or half a surrogate pair; remove it."),
        ("limit=99999999999999999999999999999", "limit", "is outside 1–100"),
    ],
)
async def test_a_wrong_query_gets_its_sentence(api_client: ApiClient, query: str, path: str, sentence: str) -> None:
    """The parameter is named with the values that it takes."""
    reply = await api_client.ask("GET", f"/toys?{query}")
    assert (reply.status, reply.code) == (422, "invalid_request")
    (error,) = reply.body["errors"]
    assert error["path"] == path
    assert sentence in error["message"]


async def test_a_route_without_query_names_what_it_does_not_take(api_client: ApiClient) -> None:
    """A parameter that nothing reads is an error, not silence."""
    reply = await api_client.ask("DELETE", "/toys?force=true")
    assert reply.status == 422
    assert reply.body["detail"] == "force: nothing can be set here; remove it."


async def test_right_requests_reach_their_handlers(api_client: ApiClient) -> None:
    """Body, query and an empty answer work as declared."""
    made = await api_client.ask("POST", "/toys", json={"size": 1})
    asked = await api_client.ask("GET", "/toys?limit=5&word=a")
    cleared = await api_client.ask("DELETE", "/toys")
    assert (made.status, made.body) == (201, {"seen": {"size": 1, "name": "", "parts": []}})
    assert asked.body == {"seen": {"limit": 5, "word": "a"}}
    assert (cleared.status, cleared.body) == (204, "")


async def test_a_byte_order_mark_before_a_body_is_passed_over(api_client: ApiClient) -> None:
    """Editors and some libraries write one."""
    made = await api_client.ask("POST", "/toys", data=b'\xef\xbb\xbf{"size": 1}', headers=JSON_HEADERS)
    assert (made.status, made.body) == (201, {"seen": {"size": 1, "name": "", "parts": []}})


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("Invalid", 422),
        ("Unauthenticated", 401),
        ("Missing", 404),
        ("Conflict", 409),
        ("Gone", 410),
        ("QuotaExhausted", 429),
        ("SourceFault", 502),
    ],
)
async def test_each_kind_of_fault_has_its_status(api_client: ApiClient, kind: str, status: int) -> None:
    """A fault raised anywhere below becomes a problem with its own code and both sentences."""
    reply = await api_client.ask("GET", f"/toys/faults/{kind}")
    assert (reply.status, reply.code) == (status, "toy_fault")
    assert reply.body["detail"] == "The toy is wrong. Take another."


async def test_an_internal_failure_shows_only_the_request_id(api_client: ApiClient) -> None:
    """The answer gives nothing away; the log has the reason under the same id."""
    with capture_logs() as logs:
        reply = await api_client.ask("GET", "/toys/broken", headers={"X-Request-Id": "ticket-1234"})
    assert (reply.status, reply.code) == (500, "internal_error")
    assert "swordfish" not in str(reply.body)
    assert "ticket-1234" in reply.body["detail"]
    (failed,) = [entry for entry in logs if entry["event"] == "request_failed"]
    assert "swordfish" in repr(failed["exc_info"])


async def test_a_part_that_is_down_gets_503_and_a_pause(api_client: ApiClient) -> None:
    """An outage says that the same request may work in a moment, and nothing about our insides."""
    reply = await api_client.ask("GET", "/toys/outage")
    assert (reply.status, reply.code) == (503, "unavailable")
    assert int(reply.headers["Retry-After"]) > 0
    assert "5432" not in str(reply.body)


async def test_a_database_that_is_down_gets_503(settings: Settings) -> None:
    """So does a key that cannot be looked up."""
    url = SecretStr("postgresql+asyncpg://nobody:nothing@127.0.0.1:1/none")
    settings = settings.model_copy(update={"database": settings.database.model_copy(update={"url": url})})
    async with running_api(settings) as api_client:
        reply = await api_client.as_admin("GET", "/v1/projects")
    assert (reply.status, reply.code) == (503, "unavailable")


async def test_routes_can_render_problems_in_their_own_envelope(api_client: ApiClient) -> None:
    """Faults, validation and failures of such routes all go through their renderer."""
    _, key = await opened_project(api_client)
    denied = await api_client.ask("POST", "/enveloped", json={"size": 1})
    wrong = await api_client.ask("POST", "/enveloped", key=key, json={"size": -1})
    assert (denied.status, denied.body["code"]) == (200, 401)
    assert (wrong.status, wrong.body["code"]) == (200, 422)
    assert wrong.body["msg"].startswith("size: -1 is outside")


async def opened_project(api_client: ApiClient) -> tuple[str, str]:
    """A project made through the whole API, for an API that serves only these routes."""
    async with running_api(api_client.settings) as whole:
        return await whole.make_project()


@pytest.mark.parametrize("given", ["0123456789abcdef", "a.b:c_d-e", "A" * 64])
async def test_a_sane_request_id_comes_back(api_client: ApiClient, given: str) -> None:
    """Callers can follow their own id through our logs."""
    with capture_logs() as logs:
        reply = await api_client.ask("GET", "/toys", headers={"X-Request-Id": given})
    assert reply.headers["X-Request-Id"] == given
    assert [entry["route"] for entry in logs if entry["event"] == "request_served"] == ["GET /toys"]


@pytest.mark.parametrize("given", ["", "short", "A" * 65, "has space inside", "semi;colon;here", "ümlaut-ümlaut"])
async def test_another_request_id_is_replaced(api_client: ApiClient, given: str) -> None:
    """What could confuse a log does not reach it."""
    reply = await api_client.ask("GET", "/toys", headers={"X-Request-Id": given})
    assert reply.headers["X-Request-Id"] != given
    assert len(reply.headers["X-Request-Id"]) == 32


async def test_an_unknown_expectation_is_a_problem(api_client: ApiClient) -> None:
    """It is refused before the router has found a route."""
    reply = await api_client.ask("GET", "/toys", headers={"Expect": "coffee"})
    assert (reply.status, reply.code) == (417, "malformed_request")
    assert "Server" not in reply.headers


async def test_an_expectation_that_is_no_text_is_a_problem(api_client: ApiClient) -> None:
    """aiohttp fails to quote it where no route takes the request."""
    status, problem = await api_client.send_bytes("GET /toys", b"Expect: \xff")
    assert (status, problem["code"]) == (417, "malformed_request")
    status, problem = await api_client.send_bytes("GET /nothing", b"Expect: \xff")
    assert (status, problem["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("path", ["/toys", "/nothing", "/toys/broken", "/toys?limit=0"])
async def test_every_answer_is_dressed(api_client: ApiClient, path: str) -> None:
    """Security headers are on every answer, and none says which server wrote it."""
    with capture_logs():
        reply = await api_client.ask("GET", path)
    assert "Server" not in reply.headers
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["X-Frame-Options"] == "DENY"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert reply.headers["Cache-Control"] == "no-store"


async def test_an_unreadable_path_variable_names_nothing(api_client: ApiClient) -> None:
    """An id that cannot exist is missing, whatever it contains."""
    for kind in ("%00", "1", "%ff", "a%2Fb", "%F0%9F%9A%9A"):
        reply = await api_client.ask("GET", f"/toys/faults/{kind}")
        assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "body", "used"),
    [
        ("GET", "/toys/old", None, ["GET /toys/old"]),
        ("PUT", "/toys/old", {"length": 1}, ["length"]),
        ("PUT", "/toys/old", {"parts": [{}, {"weight": 2}]}, ["parts.weight"]),
        ("PUT", "/toys/old", {"size": 1, "parts": [{}]}, []),
    ],
)
async def test_what_is_deprecated_is_named_by_headers_and_once_in_the_log(
    api_client: ApiClient, method: str, path: str, body: dict[str, Any] | None, used: list[str]
) -> None:
    """A route, a field, and a field within; each works as before."""
    with capture_logs() as lines:
        replies = [await api_client.ask(method, path, json=body) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 200]
    for reply in replies:
        assert reply.headers.get("Deprecation") == ("@1796083200" if used else None)
        assert reply.headers.get("Sunset") == ("Tue, 01 Jun 2027 00:00:00 GMT" if used else None)
    logged = [line for line in lines if line["event"] == "deprecated_name_used"]
    assert [(line["name"], line["instead"]) for line in logged] == [(name, "Send `size`.") for name in used]


def test_the_reference_marks_what_is_deprecated() -> None:
    """Readers and generated clients see it before they use it."""
    document = build_openapi_document([toys])
    assert document["paths"]["/toys/old"]["get"]["deprecated"]
    fields = document["components"]["schemas"]["OldToy"]["properties"]
    assert [name for name, schema in fields.items() if schema.get("deprecated")] == ["length"]
    assert fields["length"]["description"] == "the size"
