"""A change of the API that breaks clients is noticed, and one that only adds is not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.openapi_changes import Json, list_breaking_changes

TOYS: Json = {
    "paths": {
        "/toys": {
            "get": {
                "security": [{"project_key": []}, {"admin_key": []}],
                "parameters": [
                    {"name": "limit", "in": "query", "required": False, "schema": {"type": "integer", "maximum": 9}},
                    {"name": "after", "in": "query", "required": True, "schema": {"type": "string"}},
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Toys"}}}},
                    "404": {"description": "Not Found"},
                },
            },
            "post": {
                "security": [],
                "requestBody": {
                    "required": False,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewToy"}}},
                },
                "responses": {"201": {"description": "Created"}},
            },
        },
    },
    "components": {
        "schemas": {
            "NewToy": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 2, "maxLength": 9, "pattern": "^t"},
                    "colour": {"enum": ["red", "blue"], "type": "string"},
                    "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "made": {"type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/NewToy"}},
                },
                "required": ["name"],
            },
            "Toys": {
                "type": "object",
                "properties": {
                    "state": {"enum": ["new", "old"], "type": "string"},
                    "count": {"type": "integer"},
                    "kind": {"enum": ["car", "ball"], "type": "string", "x-extensible-enum": ["car", "ball"]},
                    "seen": {"type": "string", "format": "date-time"},
                    "all": {"type": "array", "items": {"$ref": "#/components/schemas/Toys"}},
                    "by_name": {"type": "object", "additionalProperties": {"type": "number"}},
                },
                "required": ["state", "count"],
            },
        }
    },
}

Change = Callable[[Json, Json, Json, Json], Any]
"""Of the operations `get` and `post`, and the fields of a request and a response."""

ALLOWED: dict[str, Change] = {
    "an operation": lambda get, post, new, toys: get.update(summary="Lists toys"),
    "an optional parameter": lambda get, post, new, toys: get["parameters"].append(
        {"name": "colour", "in": "query", "required": False, "schema": {"type": "string"}}
    ),
    "a parameter that need not be sent": lambda get, post, new, toys: get["parameters"][1].update(required=False),
    "an optional field of a request": lambda get, post, new, toys: new.update(weight={"type": "number"}),
    "a field of a response": lambda get, post, new, toys: toys.update(weight={"type": "number"}),
    "a value of a request": lambda get, post, new, toys: new["colour"]["enum"].append("green"),
    "a value of a response that is extensible": lambda get, post, new, toys: toys["kind"]["enum"].append("doll"),
    "a type of a request": lambda get, post, new, toys: new["size"]["anyOf"].append({"type": "string"}),
    "a field that takes any value": lambda get, post, new, toys: new["size"].pop("anyOf"),
    "a wider limit": lambda get, post, new, toys: new["name"].update(minLength=1, maxLength=10),
    "no limit": lambda get, post, new, toys: [new["name"].pop(word) for word in ("minLength", "maxLength", "pattern")],
    "another status": lambda get, post, new, toys: post["responses"].update({"202": {}}),
    "a problem less": lambda get, post, new, toys: get["responses"].pop("404"),
    "another key": lambda get, post, new, toys: get["security"].append({"session": []}),
    "no key": lambda get, post, new, toys: get["security"].clear(),
}
BREAKING: dict[str, Change] = {
    "GET /toys: query limit is gone": lambda get, post, new, toys: get["parameters"].pop(0),
    "GET /toys: query limit is required": lambda get, post, new, toys: get["parameters"][0].update(required=True),
    "GET /toys: query limit cannot be integer": lambda get, post, new, toys: get["parameters"][0]["schema"].update(
        type="string"
    ),
    "GET /toys: query limit has maximum 8, not 9": lambda get, post, new, toys: get["parameters"][0]["schema"].update(
        maximum=8
    ),
    "GET /toys: is not opened by admin_key": lambda get, post, new, toys: get["security"].pop(),
    "GET /toys: does not answer 200": lambda get, post, new, toys: get["responses"].update(
        {"206": get["responses"].pop("200")}
    ),
    "GET /toys: response 200 as application/json is gone": lambda get, post, new, toys: get["responses"].update(
        {"200": {"content": {"text/csv": {"schema": {}}}}}
    ),
    "GET /toys: response 200.count is gone": lambda get, post, new, toys: toys.pop("count"),
    "GET /toys: response 200.count can be number": lambda get, post, new, toys: toys["count"].update(type="number"),
    "GET /toys: response 200.count can be null": lambda get, post, new, toys: toys.update(
        count={"anyOf": [{"type": "integer"}, {"type": "null"}]}
    ),
    "GET /toys: response 200.state cannot be 'old'": lambda get, post, new, toys: toys["state"]["enum"].pop(),
    "GET /toys: response 200.state can be 'broken'": lambda get, post, new, toys: toys["state"]["enum"].append(
        "broken"
    ),
    "GET /toys: response 200.state may get further values": lambda get, post, new, toys: toys["state"].update(
        {"x-extensible-enum": ["new", "old"]}
    ),
    "GET /toys: response 200.kind cannot be 'ball'": lambda get, post, new, toys: toys["kind"]["enum"].pop(),
    "GET /toys: response 200.state can be any value": lambda get, post, new, toys: toys["state"].pop("enum"),
    "GET /toys: response 200.seen has the format None, not date-time": lambda get, post, new, toys: toys["seen"].pop(
        "format"
    ),
    "GET /toys: response 200.by_name{} can be string": lambda get, post, new, toys: toys["by_name"].update(
        additionalProperties={"type": "string"}
    ),
    "POST /toys: needs a key": lambda get, post, new, toys: post["security"].append({"admin_key": []}),
    "POST /toys: body is gone": lambda get, post, new, toys: post.pop("requestBody"),
    "POST /toys: body is required": lambda get, post, new, toys: post["requestBody"].update(required=True),
    "POST /toys: body.colour is gone": lambda get, post, new, toys: new.pop("colour"),
    "POST /toys: body.colour cannot be 'blue'": lambda get, post, new, toys: new["colour"]["enum"].pop(),
    "POST /toys: body.made can only be one of ['today']": lambda get, post, new, toys: new["made"].update(
        enum=["today"]
    ),
    "POST /toys: body.size cannot be null": lambda get, post, new, toys: new["size"]["anyOf"].pop(),
    "POST /toys: body.made has the format date, not None": lambda get, post, new, toys: new["made"].update(
        format="date"
    ),
    "POST /toys: body.name has minLength 3, not 2": lambda get, post, new, toys: new["name"].update(minLength=3),
    "POST /toys: body.made has maxLength 5, not None": lambda get, post, new, toys: new["made"].update(maxLength=5),
    "POST /toys: body.name has the pattern ^toy": lambda get, post, new, toys: new["name"].update(pattern="^toy"),
    "POST /toys: body.parts cannot be array": lambda get, post, new, toys: new.update(parts={"type": "object"}),
}


def change_copy(change: Change) -> Json:
    """Return the document with a change."""
    after = copy.deepcopy(TOYS)
    schemas, operations = after["components"]["schemas"], after["paths"]["/toys"]
    change(operations["get"], operations["post"], schemas["NewToy"]["properties"], schemas["Toys"]["properties"])
    return after


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_added_breaks_nothing(name: str) -> None:
    """Nor does what is taken more generously."""
    after = change_copy(ALLOWED[name])
    assert after != TOYS
    assert list_breaking_changes(TOYS, after) == []


@pytest.mark.parametrize("line", BREAKING)
def test_what_clients_rely_on_is_missed(line: str) -> None:
    """The line says where, and what became of it."""
    assert line in list_breaking_changes(TOYS, change_copy(BREAKING[line]))


def test_a_route_may_come_and_not_go() -> None:
    """Nor may one of its methods."""
    after = copy.deepcopy(TOYS)
    del after["paths"]["/toys"]["post"]
    assert list_breaking_changes(TOYS, after) == ["POST /toys: is gone"]
    assert list_breaking_changes(after, TOYS) == []


def test_required_fields_of_requests_are_fewer_and_of_responses_more() -> None:
    """What may be left out of a request, and what is in each response, only grows."""
    after = copy.deepcopy(TOYS)
    after["components"]["schemas"]["NewToy"]["required"] = ["name", "colour"]
    after["components"]["schemas"]["Toys"]["required"] = ["state"]
    changes = list_breaking_changes(TOYS, after)
    assert "GET /toys: response 200.count may be left out" in changes
    assert "POST /toys: body.colour is required" in changes
    assert list_breaking_changes(after, TOYS) == []


def test_fields_beside_those_that_are_named_stay_allowed() -> None:
    """Where any were."""
    after = copy.deepcopy(TOYS)
    after["components"]["schemas"]["NewToy"]["additionalProperties"] = False
    assert "POST /toys: body takes no other fields" in list_breaking_changes(TOYS, after)
    assert list_breaking_changes(after, TOYS) == []


def test_a_required_body_may_not_come() -> None:
    """A request without one was accepted."""
    before = copy.deepcopy(TOYS)
    body = before["paths"]["/toys"]["post"].pop("requestBody")
    after = copy.deepcopy(before)
    after["paths"]["/toys"]["post"]["requestBody"] = body | {"required": True}
    assert list_breaking_changes(before, after) == ["POST /toys: body is required"]
