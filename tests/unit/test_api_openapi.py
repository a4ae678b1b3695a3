"""The OpenAPI document: valid, complete, and true to the table."""

from __future__ import annotations

import tomllib
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import domain
from api.app import ROUTE_GROUPS
from api.http import openapi
from api.http.routes import RouteAccess
from tests.support.wire_codes import read_document

ROUTES = [route for group in ROUTE_GROUPS for route in group]

Json = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Json:
    """The document of the API."""
    return read_document()


def test_the_document_is_valid_openapi_3_1(document: Json) -> None:
    """Any tool that reads OpenAPI can read ours."""
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_the_document_names_every_route_and_no_other(document: Json) -> None:
    """What is served is documented, and what is documented is served."""
    documented = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}
    assert documented == {route.name for route in ROUTES}


def test_each_operation_says_which_keys_open_it(document: Json) -> None:
    """Only public operations need no key."""
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["security"] == openapi.list_accepted_credentials(route)
        needs_key = route.access is not RouteAccess.PUBLIC or route.name == "POST /v1/session"
        assert ("401" in operation["responses"]) == needs_key


def test_a_route_s_own_problems_are_documented(document: Json) -> None:
    """A program finds the codes that it may meet beside their status."""
    rotate = document["paths"]["/v1/projects/{project_id}/keys/{key_id}/rotate"]["post"]
    assert "`key_revoked`" in rotate["responses"][str(HTTPStatus.CONFLICT.value)]["description"]


def test_a_route_that_a_limited_key_does_not_open_says_so(document: Json) -> None:
    """Each that belongs to a system, or changes something, once; routes of tasks answer it in their envelope."""
    for path, method, is_declared in (
        ("/v1/downloads", "get", True),
        ("/v1/downloads", "post", True),
        ("/v1/projects/{project_id}/keys", "post", True),
        ("/v1/projects/{project_id}/keys", "get", False),
        ("/v1/create_task", "post", False),
        ("/v1/addresses/config", "put", False),
    ):
        refused = document["paths"][path][method]["responses"].get("403", {"description": ""})
        assert ("`key_lacks_right`" in refused["description"]) == is_declared, (method, path)


def test_every_schema_is_referred_to_and_every_reference_leads_to_one(document: Json) -> None:
    """The document holds no loose ends."""
    text = str(document)
    named = {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == document["components"]["schemas"].keys()


def test_each_field_of_a_platform_s_record_is_described(document: Json) -> None:
    """Who writes one for a platform of their own finds its fields here; a part of several fields describes itself."""
    schemas = document["components"]["schemas"]
    body = schemas["PlatformSetupRequest"]["properties"]["capability"]
    assert {"$ref": openapi.REFERENCE.format(model="Capability")} in body["anyOf"]
    waiting, described = ["Capability"], set[str]()
    while waiting:
        described.add(name := waiting.pop())
        for field, schema in schemas[name].get("properties", {}).items():
            parts = [part.split("'")[0] for part in str(schema).split("#/components/schemas/")[1:]]
            waiting += [part for part in parts if part not in described]
            assert schema.get("description") or all(schemas[part].get("description") for part in parts), (name, field)
            assert schema.get("description") or parts, (name, field)

    assert {"Capability", "Paging", "ErrorRule", "TimeFormat", "TokenRenewal"} <= described


def test_the_version_is_the_package_s(document: Json) -> None:
    """The document and the package take their version from one place."""
    pyproject = tomllib.loads(Path("pyproject.toml").read_text())
    source = Path(pyproject["tool"]["hatch"]["version"]["path"])
    assert pyproject["project"]["dynamic"] == ["version"]
    assert source == Path(domain.__file__).relative_to(Path.cwd())
    assert document["info"]["version"] == domain.VERSION


def test_enumerations_of_answers_are_marked_unless_a_state_has_them(document: Json) -> None:
    """A client has to take values of the former that it does not know; `docs/reference/compatibility.md` says so."""
    schemas = document["components"]["schemas"]
    marked = {name for name, schema in schemas.items() if "x-extensible-enum" in schema}
    assert {"WaitKind", "Module", "ConcernKind", "DownloadPhase", "FailureReason"} <= marked
    assert marked.isdisjoint({"DownloadState", "TransferState", "MessageState", "SliceState", "WorkflowProgress"})
    assert schemas["AddressPauseResponse"]["properties"]["of"]["x-extensible-enum"] == ["system", "cycle", "module"]
    assert openapi.EXTENSIBLE_SENTENCE in schemas["WaitKind"]["description"]
    assert "x-extensible-enum" not in schemas["TextEncoding"], "only requests have it"


@pytest.mark.parametrize("name", sorted(openapi.STATES))
def test_an_enumeration_that_a_state_has_stays_closed_elsewhere(name: str) -> None:
    """A program waits for its values, whatever other field has them; a model may hold itself."""
    letters = {"enum": ["a", "b"], "type": "string"}
    fields = {
        name: {"$ref": "#/Letters"},
        "before": {"anyOf": [{"$ref": "#/Letters"}, {"type": "null"}]},
        "kinds": {"type": "array", "items": {"$ref": "#/Kind"}},
        "inner": {"$ref": "#/Toy"},
    }
    definitions: dict[str, Any] = {
        "Letters": {**letters},
        "Kind": {**letters, "description": "A kind."},
        "Toy": {"properties": fields},
    }
    openapi._mark_extensible_enumerations([{"$ref": "#/Toy"}], definitions)
    assert definitions["Letters"] == letters
    assert definitions["Kind"] == {
        **letters,
        "description": f"A kind. {openapi.EXTENSIBLE_SENTENCE}",
        "x-extensible-enum": ["a", "b"],
    }
