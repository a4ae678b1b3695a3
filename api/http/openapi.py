"""OpenAPI: the document, made from the same table and models that serve the requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.http import cookies, problems
from api.http.auth import PROJECT_HEADER, PROJECT_PARAMETER
from api.http.routes import JSON, Access, Route, Routes
from domain import VERSION

REFERENCE = "#/components/schemas/{model}"

Json = dict[str, Any]
Mode = Literal["validation", "serialization"]

DESCRIPTION = """\
Haulage moves data for business systems, durably.

Send a key as `Authorization: Bearer hlg_…`. A key opens its own project: whatever belongs to another one is
answered with 404, as if it were not there. The admin key opens any project that the header `Haulage-Project` names.
Fields that this document does not name are refused. Errors are `application/problem+json` with a stable `code`, and a
sentence that says what was wrong and what to do. Only the routes of tasks answer all but a missing key with 200, and a
number as `code` that is 0 when all is well.
"""

_WITHIN: Json = {"admin_key": [], "project_header": []}
_SESSION: Json = {"session": []}
SECURITY: dict[Access, list[Json]] = {
    Access.PUBLIC: [],
    Access.PROJECT: [{"project_key": []}, _WITHIN, _SESSION],
    Access.PROJECTS: [{"project_key": []}, {"admin_key": []}, _WITHIN, _SESSION],
    Access.OWNER: [{"project_key": []}, {"admin_key": []}, _SESSION],
    Access.ADMIN: [{"admin_key": []}, _SESSION],
    Access.PUSH: [{"push_token": []}, {"push_secret": []}],
}
SCHEMES: Json = {
    "project_key": {"type": "http", "scheme": "bearer", "bearerFormat": "hlg_…", "description": "A project's API key."},
    "admin_key": {"type": "http", "scheme": "bearer", "description": "The installation's admin key."},
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "Either key as the password: for clients that take nothing but an address.",
    },
    "project_header": {
        "type": "apiKey",
        "in": "header",
        "name": str(PROJECT_HEADER),
        "description": "The project that the admin key acts in.",
    },
    "project_parameter": {
        "type": "apiKey",
        "in": "query",
        "name": PROJECT_PARAMETER,
        "description": "The same for what browsers open by themselves: streams and files.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": cookies.COOKIE_NAME,
        "description": f"Of who signed in; what is no GET needs the header `{cookies.CONSOLE_HEADER}: 1` with it.",
    },
    "push_token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The OIDC token that Google Pub/Sub signs for the audience and account that were agreed on.",
    },
    "push_secret": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The installation's push secret, in the address that Pub/Sub was given.",
    },
}

# What the door itself may answer, before and around any handler.
_ALWAYS: dict[str, HTTPStatus] = {
    "invalid_request": HTTPStatus.UNPROCESSABLE_ENTITY,
    "malformed_request": HTTPStatus.BAD_REQUEST,
    "internal_error": HTTPStatus.INTERNAL_SERVER_ERROR,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
}
_WITH_KEY: dict[str, HTTPStatus] = dict.fromkeys(
    ("key_missing", "key_malformed", "key_unknown", "session_over", "session_not_enough"), HTTPStatus.UNAUTHORIZED
)
_WITH_BODY: dict[str, HTTPStatus] = {
    "malformed_json": HTTPStatus.BAD_REQUEST,
    "body_timeout": HTTPStatus.REQUEST_TIMEOUT,
    "body_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unsupported_media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "unsupported_encoding": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
}

_OUTSIDE = {HTTPStatus.UNAUTHORIZED, _ALWAYS["malformed_request"]}
_STRUCTURED = {JSON, "text/event-stream"}
_BODILESS = {HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.NO_CONTENT, HTTPStatus.FOUND}


def encode_document(rooms: Iterable[Routes]) -> bytes:
    """Return the document of these rooms as it is sent."""
    return json.dumps(build_document(rooms)).encode()


def build_document(rooms: Iterable[Routes]) -> Json:
    """The OpenAPI 3.1 document of these rooms."""
    rooms = list(rooms)
    routes = [route for room in rooms for route in room]
    schemas, definitions = _schemas(routes)
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Haulage",
            "version": VERSION,
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": room.tag, "description": room.description} for room in rooms],
        "paths": paths,
        "components": {"schemas": definitions, "securitySchemes": SCHEMES},
    }


def list_security(route: Route) -> list[Json]:
    """What opens a route: any one of these."""
    opens = SECURITY[route.access]
    if route.headerless and route.access is not Access.PUBLIC:
        opens = [*opens, {"basic": []}]
    return [*opens, {"admin_key": [], "project_parameter": []}] if route.project_in_query else opens


def list_problem_codes(route: Route) -> dict[HTTPStatus, list[str]]:
    """The problem codes that a route may answer, by status."""
    known = dict(_ALWAYS)
    if route.access is Access.PUSH:
        known["push_refused"] = HTTPStatus.UNAUTHORIZED
    elif route.access is not Access.PUBLIC:
        known |= _WITH_KEY
    if route.access is Access.PROJECT:
        known["project_key_needed"] = HTTPStatus.UNAUTHORIZED
    if route.access not in {Access.PUBLIC, Access.PUSH} or route.variables:
        known["not_found"] = HTTPStatus.NOT_FOUND
    if route.body:
        known |= _WITH_BODY
    if route.status == HTTPStatus.SWITCHING_PROTOCOLS:
        known["upgrade_required"] = HTTPStatus.UPGRADE_REQUIRED
    known |= {code: problems.get_fault_status(kind) for code, kind in route.problems.items()}
    if route.render is not problems.render_problem:
        # What comes out of such a room has its room's form; only what never came in has ours.
        known = {code: status for code, status in known.items() if status in _OUTSIDE}
    by_status: dict[HTTPStatus, list[str]] = {}
    for code, status in sorted(known.items()):
        by_status.setdefault(status, []).append(code)
    return dict(sorted(by_status.items()))


Schemas = Mapping[tuple[type, Mode], Json]


def _schemas(routes: list[Route]) -> tuple[Schemas, Json]:
    """A reference to each body's and answer's schema, and the schemas themselves."""
    wanted: dict[tuple[type[BaseModel], Mode], None] = {}
    for route in routes:
        wanted |= {(problems.get_problem_model(status), "serialization"): None for status in list_problem_codes(route)}
        if route.body:
            wanted[route.body, "validation"] = None
        if route.answer:
            wanted[route.answer, "serialization"] = None
    schemas, shared = models_json_schema(list(wanted), ref_template=REFERENCE)
    return {(model, mode): schema for (model, mode), schema in schemas.items()}, shared["$defs"]


def _operation(route: Route, schemas: Schemas) -> Json:
    operation: Json = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "security": list_security(route),
        "parameters": [
            *_parameters(route.variables, "path"),
            *_parameters(route.query, "query"),
            *_parameters(route.headers, "header"),
        ],
        "responses": {str(int(status)): response for status, response in _responses(route, schemas)},
    }
    if route.description:
        operation["description"] = route.description
    if route.body:
        content = {JSON: {"schema": schemas[route.body, "validation"]}}
        operation["requestBody"] = {"required": not route.body_optional, "content": content}
    return operation


def _parameters(model: type[BaseModel] | None, place: Literal["path", "query", "header"]) -> list[Json]:
    if model is None:
        return []
    schema = model.model_json_schema()
    required, shared = schema.get("required", []), schema.get("$defs", {})
    return [
        _parameter(name, place, _inlined(inner, shared), required=name in required)
        for name, inner in schema["properties"].items()
    ]


def _inlined(schema: Json, shared: Json) -> Json:
    """A parameter's schema without references: it is the only user of its choices."""
    if "$ref" in schema:
        found = shared[schema["$ref"].rpartition("/")[2]]
        return {word: value for word, value in found.items() if word != "description"} | {
            word: value for word, value in schema.items() if word != "$ref"
        }
    branches = {"anyOf": [_inlined(branch, shared) for branch in schema["anyOf"]]} if "anyOf" in schema else {}
    return schema | branches


def _parameter(name: str, place: str, schema: Json, *, required: bool) -> Json:
    """A parameter. What may be null in a model is simply left out of an address."""
    schema = {word: value for word, value in schema.items() if word != "title" and value is not None}
    description = schema.pop("description", "")
    match [branch for branch in schema.get("anyOf", []) if branch != {"type": "null"}]:
        case [only]:
            schema = {**{word: value for word, value in schema.items() if word != "anyOf"}, **only}
    parameter = {"name": name, "in": place, "required": required, "schema": schema}
    return parameter | ({"description": description} if description else {})


def _responses(route: Route, schemas: Schemas) -> Iterator[tuple[HTTPStatus, Json]]:
    success = HTTPStatus(route.status)
    if route.method == "HEAD":
        yield success, {"description": success.phrase}
    elif route.answer:
        yield success, _response(success.phrase, JSON, schemas[route.answer, "serialization"])
    else:
        yield success, _without_model(success, route.media_type)
    for status, media_type in route.also.items():
        yield status, _without_model(status, media_type)
    for status, names in list_problem_codes(route).items():
        description = f"{status.phrase}: {', '.join(f'`{name}`' for name in names)}"
        if route.method == "HEAD":
            yield status, {"description": description}
            continue
        yield (
            status,
            _response(description, problems.MEDIA_TYPE, schemas[problems.get_problem_model(status), "serialization"]),
        )


def _without_model(status: HTTPStatus, media_type: str) -> Json:
    if status in _BODILESS:
        return {"description": status.phrase}
    return _response(status.phrase, media_type, {} if media_type in _STRUCTURED else {"type": "string"})


def _response(description: str, media_type: str, schema: Json) -> Json:
    return {"description": description, "content": {media_type: {"schema": schema}}}
