"""OpenAPI: the document, built from the routes and models that serve the requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.http import problems, sessions
from api.http.auth import (
    ADMIN_KEY_NEEDED,
    KEY_LACKS_RIGHT,
    PROJECT_HEADER,
    PROJECT_PARAMETER,
    TICKET_PARAMETER,
)
from api.http.routes import JSON, Route, RouteAccess, Routes
from domain import VERSION
from domain.quotas import QUOTA_EXCEEDED

REFERENCE = "#/components/schemas/{model}"

Json = dict[str, Any]
Mode = Literal["validation", "serialization"]

DESCRIPTION = """\
Haulage moves data for business systems, durably.

Send a key as `Authorization: Bearer hlg_…`. A key gives access to its own project; what belongs to another one is
answered with 404, and what needs the admin key with 403. The admin key gives access to any project that the header
`Haulage-Project` names.

Unknown fields are refused. Errors are `application/problem+json` with a stable `code`, and a sentence that says what
was wrong and what to do. Only the routes of tasks answer everything but a missing key with 200, and with a number as
`code` that is 0 on success.
"""

_WITHIN: Json = {"admin_key": [], "project_header": []}
_SESSION: Json = {"session": []}
SECURITY: dict[RouteAccess, list[Json]] = {
    RouteAccess.PUBLIC: [],
    RouteAccess.PROJECT: [{"project_key": []}, _WITHIN, _SESSION],
    RouteAccess.PROJECTS: [{"project_key": []}, {"admin_key": []}, _WITHIN, _SESSION],
    RouteAccess.OWNER: [{"project_key": []}, {"admin_key": []}, _SESSION],
    RouteAccess.ADMIN: [{"admin_key": []}, _SESSION],
    RouteAccess.PUSH: [{"push_token": []}, {"push_secret": []}],
}
SCHEMES: Json = {
    "project_key": {"type": "http", "scheme": "bearer", "bearerFormat": "hlg_…", "description": "A project's API key."},
    "admin_key": {"type": "http", "scheme": "bearer", "description": "The installation's admin key."},
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "Either key as the password, for clients that accept only an address.",
    },
    "project_header": {
        "type": "apiKey",
        "in": "header",
        "name": str(PROJECT_HEADER),
        "description": "The project that the admin key acts in.",
    },
    "ticket": {
        "type": "apiKey",
        "in": "query",
        "name": TICKET_PARAMETER,
        "description": "A ticket for this address, which a page in a browser may hold.",
    },
    "project_parameter": {
        "type": "apiKey",
        "in": "query",
        "name": PROJECT_PARAMETER,
        "description": "The same for streams and files, which browsers open without headers.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": sessions.COOKIE_NAME,
        "description": f"The console session; requests other than GET also need `{sessions.CONSOLE_HEADER}: 1`.",
    },
    "push_token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "The OIDC token that Google Pub/Sub signs for the configured audience and account.",
    },
    "push_secret": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The installation's push secret, in the address of the push endpoint.",
    },
}

# The problems that the framework itself raises, before and around any handler.
_ALWAYS: dict[str, HTTPStatus] = {
    "invalid_request": HTTPStatus.UNPROCESSABLE_ENTITY,
    "malformed_request": HTTPStatus.BAD_REQUEST,
    "internal_error": HTTPStatus.INTERNAL_SERVER_ERROR,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
}
_WITH_KEY: dict[str, HTTPStatus] = dict.fromkeys(
    ("key_missing", "key_malformed", "key_unknown", "session_expired", "session_origin_unproven"),
    HTTPStatus.UNAUTHORIZED,
) | {QUOTA_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS, "too_many_wrong_keys": HTTPStatus.TOO_MANY_REQUESTS}
_WITH_BODY: dict[str, HTTPStatus] = {
    "malformed_json": HTTPStatus.BAD_REQUEST,
    "body_timeout": HTTPStatus.REQUEST_TIMEOUT,
    "body_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unsupported_media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "unsupported_encoding": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
}

_OUTSIDE = {HTTPStatus.UNAUTHORIZED, _ALWAYS["malformed_request"]}
_IN_ENVELOPE = {HTTPStatus.TOO_MANY_REQUESTS}
"""Statuses that routes with a form of problems of their own answer in that form."""
_STRUCTURED = {JSON, "text/event-stream"}
_BODILESS = {HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.NO_CONTENT, HTTPStatus.FOUND}


def encode_openapi_document(groups: Iterable[Routes]) -> bytes:
    """Return the document of these routes as it is sent."""
    return json.dumps(build_openapi_document(groups)).encode()


def build_openapi_document(groups: Iterable[Routes]) -> Json:
    """Return the OpenAPI 3.1 document of these routes."""
    groups = list(groups)
    routes = [route for group in groups for route in group]
    schemas, definitions = _build_schemas(routes)
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _build_operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Haulage",
            "version": VERSION,
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": group.tag, "description": group.description} for group in groups],
        "paths": paths,
        "components": {"schemas": definitions, "securitySchemes": SCHEMES},
    }


def list_accepted_credentials(route: Route) -> list[Json]:
    """Return the credentials of a route, any one of which is enough."""
    schemes = SECURITY[route.access]
    if route.headerless and route.access is not RouteAccess.PUBLIC:
        schemes = [*schemes, {"basic": []}]
    if route.takes_ticket:
        schemes = [*schemes, {"ticket": []}]
    return [*schemes, {"admin_key": [], "project_parameter": []}] if route.allows_project_in_query else schemes


def list_problem_codes(route: Route) -> dict[HTTPStatus, list[str]]:
    """Return the problem codes that a route may answer, by status."""
    known = dict(_ALWAYS)
    if route.access is RouteAccess.PUSH:
        known["push_refused"] = HTTPStatus.UNAUTHORIZED
    elif route.access is not RouteAccess.PUBLIC:
        known |= _WITH_KEY
    is_refused = {ADMIN_KEY_NEEDED: route.access is RouteAccess.ADMIN, KEY_LACKS_RIGHT: route.is_closed_to_some_keys}
    known |= {code: HTTPStatus.FORBIDDEN for code, may_be in is_refused.items() if may_be}
    if route.access is RouteAccess.PROJECT:
        known["project_key_needed"] = HTTPStatus.UNAUTHORIZED
    if route.access not in {RouteAccess.PUBLIC, RouteAccess.PUSH} or route.path_model:
        known["not_found"] = HTTPStatus.NOT_FOUND
    if route.body:
        known |= _WITH_BODY
    if route.status == HTTPStatus.SWITCHING_PROTOCOLS:
        known["upgrade_required"] = HTTPStatus.UPGRADE_REQUIRED
    known |= {code: problems.get_fault_status(kind) for code, kind in route.problems.items()}
    if route.render is not problems.render_problem:
        # Such routes render their own problems; only those raised before the route is known have the usual form.
        known = {code: status for code, status in known.items() if status in _OUTSIDE | _IN_ENVELOPE}
    by_status: dict[HTTPStatus, list[str]] = {}
    for code, status in sorted(known.items()):
        by_status.setdefault(status, []).append(code)
    return dict(sorted(by_status.items()))


Schemas = Mapping[tuple[type, Mode], Json]


def _build_schemas(routes: list[Route]) -> tuple[Schemas, Json]:
    """Return a reference to the schema of each body and response, and the schemas themselves."""
    models: dict[tuple[type[BaseModel], Mode], None] = {}
    for route in routes:
        models |= {(problems.get_problem_model(status), "serialization"): None for status in list_problem_codes(route)}
        if route.body:
            models[route.body, "validation"] = None
        if route.response:
            models[route.response, "serialization"] = None
    schemas, shared = models_json_schema(list(models), ref_template=REFERENCE)
    return {(model, mode): schema for (model, mode), schema in schemas.items()}, shared["$defs"]


def _build_operation(route: Route, schemas: Schemas) -> Json:
    operation: Json = {
        "operationId": route.operation_id,
        "tags": [route.tag],
        "summary": route.summary,
        "security": list_accepted_credentials(route),
        "parameters": [
            *_list_parameters(route.path_model, "path"),
            *_list_parameters(route.query, "query"),
            *_list_parameters(route.headers, "header"),
        ],
        "responses": {str(int(status)): response for status, response in _list_responses(route, schemas)},
    }
    if route.description:
        operation["description"] = route.description
    if route.deprecated:
        operation["deprecated"] = True
    if route.body:
        content = {JSON: {"schema": schemas[route.body, "validation"]}}
        operation["requestBody"] = {"required": not route.body_optional, "content": content}
    return operation


def _list_parameters(model: type[BaseModel] | None, place: Literal["path", "query", "header"]) -> list[Json]:
    if model is None:
        return []
    schema = model.model_json_schema()
    required, shared = schema.get("required", []), schema.get("$defs", {})
    return [
        _build_parameter(name, place, _inline_references_of_parameter_schema(inner, shared), required=name in required)
        for name, inner in schema["properties"].items()
    ]


def _inline_references_of_parameter_schema(schema: Json, shared: Json) -> Json:
    """Return the schema of a parameter without references."""
    if "$ref" in schema:
        found = shared[schema["$ref"].rpartition("/")[2]]
        return {word: value for word, value in found.items() if word != "description"} | {
            word: value for word, value in schema.items() if word != "$ref"
        }
    branches = (
        {"anyOf": [_inline_references_of_parameter_schema(branch, shared) for branch in schema["anyOf"]]}
        if "anyOf" in schema
        else {}
    )
    return schema | branches


def _build_parameter(name: str, place: str, schema: Json, *, required: bool) -> Json:
    """Return a parameter; a value that may be null in the model may be left out of the address."""
    schema = {word: value for word, value in schema.items() if word != "title" and value is not None}
    description = schema.pop("description", "")
    match [branch for branch in schema.get("anyOf", []) if branch != {"type": "null"}]:
        case [only]:
            schema = {**{word: value for word, value in schema.items() if word != "anyOf"}, **only}
    parameter = {"name": name, "in": place, "required": required, "schema": schema}
    return parameter | ({"description": description} if description else {})


def _list_responses(route: Route, schemas: Schemas) -> Iterator[tuple[HTTPStatus, Json]]:
    success = HTTPStatus(route.status)
    if route.method == "HEAD":
        yield success, {"description": problems.get_phrase(success)}
    elif route.response:
        yield success, _build_response(problems.get_phrase(success), JSON, schemas[route.response, "serialization"])
    else:
        yield success, _build_untyped_response(success, route.media_type)
    for status, media_type in route.also.items():
        yield status, _build_untyped_response(status, media_type)
    for status, names in list_problem_codes(route).items():
        description = f"{problems.get_phrase(status)}: {', '.join(f'`{name}`' for name in names)}"
        if route.method == "HEAD":
            yield status, {"description": description}
            continue
        if status in _IN_ENVELOPE and route.response and route.render is not problems.render_problem:
            yield status, _build_response(description, JSON, schemas[route.response, "serialization"])
            continue
        yield (
            status,
            _build_response(
                description, problems.MEDIA_TYPE, schemas[problems.get_problem_model(status), "serialization"]
            ),
        )


def _build_untyped_response(status: HTTPStatus, media_type: str) -> Json:
    if status in _BODILESS:
        return {"description": problems.get_phrase(status)}
    return _build_response(
        problems.get_phrase(status), media_type, {} if media_type in _STRUCTURED else {"type": "string"}
    )


def _build_response(description: str, media_type: str, schema: Json) -> Json:
    return {"description": description, "content": {media_type: {"schema": schema}}}
