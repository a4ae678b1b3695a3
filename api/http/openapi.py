"""OpenAPI: the document, built from the routes and models that serve the requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.http import auth, problems, sessions
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
Ignore fields and codes that you do not know. Enumerations with `x-extensible-enum` may get further values in answers;
those of `state`, `status` and `progress` do not.
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

_BEARER: Json = {"type": "http", "scheme": "bearer"}
_IN_QUERY: Json = {"type": "apiKey", "in": "query"}
_BASIC = "Either key as the password, for clients that accept only an address."
_WHICH = "The project that the admin key acts in."
_QUERY_INSTEAD = "The same for streams and files, which browsers open without headers."
_SESSION_NEEDS = f"The console session; requests other than GET also need `{sessions.CONSOLE_HEADER}: 1`."
_PUSH_OIDC = "The OIDC token that Google Pub/Sub signs for the configured audience and account."
_PUSH_ADDRESS = "The installation's push secret, in the address of the push endpoint."
_TICKET = "A ticket for this address, which a page in a browser may hold."
SCHEMES: Json = {
    "project_key": {**_BEARER, "bearerFormat": "hlg_…", "description": "A project's API key."},
    "admin_key": {**_BEARER, "description": "The installation's admin key."},
    "basic": {"type": "http", "scheme": "basic", "description": _BASIC},
    "project_header": {"type": "apiKey", "in": "header", "name": str(auth.PROJECT_HEADER), "description": _WHICH},
    "ticket": {**_IN_QUERY, "name": auth.TICKET_PARAMETER, "description": _TICKET},
    "project_parameter": {**_IN_QUERY, "name": auth.PROJECT_PARAMETER, "description": _QUERY_INSTEAD},
    "session": {"type": "apiKey", "in": "cookie", "name": sessions.COOKIE_NAME, "description": _SESSION_NEEDS},
    "push_token": {**_BEARER, "bearerFormat": "JWT", "description": _PUSH_OIDC},
    "push_secret": {**_IN_QUERY, "name": "token", "description": _PUSH_ADDRESS},
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
EXTENSIBLE = "x-extensible-enum"
EXTENSIBLE_SENTENCE = "In answers a later version may send further values."
STATES = frozenset({"state", "status"})
"""Fields that say how far work is; programs wait for their values, so none is added."""


def encode_openapi_document(groups: Iterable[Routes]) -> bytes:
    """Return the document of these routes as it is sent."""
    return json.dumps(build_openapi_document(groups)).encode()


def build_openapi_document(groups: Iterable[Routes]) -> Json:
    """Return the OpenAPI 3.1 document of these routes."""
    groups = list(groups)
    routes = [route for group in groups for route in group]
    schemas, definitions = _build_schemas(routes)
    answers = [schemas[route.response, "serialization"] for route in routes if route.response]
    _mark_extensible_enumerations(answers, definitions)
    licence = {"name": "MIT", "identifier": "MIT"}
    info = {"title": "Haulage", "version": VERSION, "description": DESCRIPTION, "license": licence}
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _build_operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": info,
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
    may_be = {
        (auth.ADMIN_KEY_NEEDED, HTTPStatus.FORBIDDEN): route.access is RouteAccess.ADMIN,
        (auth.KEY_LACKS_RIGHT, HTTPStatus.FORBIDDEN): route.is_closed_to_some_keys,
        ("ticket_expired", HTTPStatus.UNAUTHORIZED): route.takes_ticket,
        ("ticket_mismatch", HTTPStatus.UNAUTHORIZED): route.takes_ticket,
        ("project_key_needed", HTTPStatus.UNAUTHORIZED): route.access is RouteAccess.PROJECT,
        ("upgrade_required", HTTPStatus.UPGRADE_REQUIRED): route.status == HTTPStatus.SWITCHING_PROTOCOLS,
    }
    known |= {code: status for (code, status), is_so in may_be.items() if is_so}
    if route.access not in {RouteAccess.PUBLIC, RouteAccess.PUSH} or route.path_model:
        known["not_found"] = HTTPStatus.NOT_FOUND
    if route.body:
        known |= _WITH_BODY
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


def _mark_extensible_enumerations(answers: list[Json], definitions: Json) -> None:
    """Mark the enumerations of answers; one that a field of `STATES` has stays closed everywhere."""
    found = list(_list_enumerations(answers, "", set(), definitions))
    closed = {id(schema) for field, schema in found if field in STATES}
    for schema in {id(schema): schema for _, schema in found if id(schema) not in closed}.values():
        schema[EXTENSIBLE] = schema["enum"]
        schema["description"] = f"{schema.get('description', '')} {EXTENSIBLE_SENTENCE}".lstrip()


def _list_enumerations(schema: Any, field: str, known: set[tuple[str, str]], definitions: Json) -> Iterator[Any]:
    """Yield the enumerations within a schema, each with the field that has it."""
    match schema:
        case {"enum": _}:
            yield field, schema
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            if (name, field) not in known:
                known.add((name, field))
                yield from _list_enumerations(definitions[name], field, known, definitions)
        case {"properties": fields, **rest}:
            for name, each in fields.items():
                yield from _list_enumerations(each, name, known, definitions)
            yield from _list_enumerations(rest, field, known, definitions)
        case dict() | list():
            for each in schema.values() if isinstance(schema, dict) else schema:
                yield from _list_enumerations(each, field, known, definitions)


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
    if "anyOf" not in schema:
        return schema
    return {**schema, "anyOf": [_inline_references_of_parameter_schema(each, shared) for each in schema["anyOf"]]}


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
        has_own_form = status in _IN_ENVELOPE and route.render is not problems.render_problem
        model = (has_own_form and route.response) or problems.get_problem_model(status)
        media_type = JSON if model is route.response else problems.MEDIA_TYPE
        response = _build_response(description, media_type, schemas[model, "serialization"])
        yield status, {"description": description} if route.method == "HEAD" else response


def _build_untyped_response(status: HTTPStatus, media_type: str) -> Json:
    if status in _BODILESS:
        return {"description": problems.get_phrase(status)}
    schema = {} if media_type in _STRUCTURED else {"type": "string"}
    return _build_response(problems.get_phrase(status), media_type, schema)


def _build_response(description: str, media_type: str, schema: Json) -> Json:
    return {"description": description, "content": {media_type: {"schema": schema}}}
