"""The table: rows that could not work are refused when they are declared, and the public ones are pinned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from api.app import ROUTE_GROUPS, build_aiohttp_path_excluding_words_of_other_paths, group_remainders_by_slash_prefix
from api.http.models import Deprecated, Request, Response
from api.http.routes import Call, Route, RouteAccess, Routes

ROUTES = [route for group in ROUTE_GROUPS for route in group]

# Every route that answers without a key. Think twice before this list grows.
PUBLIC = {
    "GET /",  # they lead to the next two pages
    "GET /docs/",
    "GET /console",  # files that are the same for everybody; what they show they ask the API for
    "GET /console/",
    "GET /console/assets/{version}/{file}",
    "GET /console/{page}",
    "DELETE /v1/session",  # it takes a cookie away
    "POST /v1/session",  # the key is in its body
    "GET /d/{token}",  # the token is the key: we signed it, and it opens one file until a moment
    "HEAD /d/{token}",
    "GET /docs",
    "GET /docs/docs.css",
    "GET /docs/docs.js",
    "GET /livez",
    "GET /metrics",
    "GET /openapi.json",
    "GET /readyz",
    "GET /v1/ping",
}


def test_only_these_routes_need_no_key() -> None:
    """A route becomes public only by a change to this list."""
    assert {route.name for route in ROUTES if route.access is RouteAccess.PUBLIC} == PUBLIC


def test_operations_have_names_of_their_own() -> None:
    """Generated clients get one method for each operation."""
    names = [route.operation_id for route in ROUTES]
    assert len(names) == len(set(names))


class Loose(BaseModel):
    """An input that would swallow typing errors."""

    name: str = ""


class ThingPath(Request):
    """A path of one variable."""

    item_id: str


async def loose_body(call: Call, body: Loose) -> Response:
    """Take anything."""
    return Response()


async def no_docstring(call: Call) -> Response:
    return Response()


async def path_without_variable(call: Call, path: ThingPath) -> Response:
    """Name a variable that the path does not have."""
    return Response()


async def other_parameter(call: Call, boddy: ThingPath) -> Response:
    """Misspell a parameter."""
    return Response()


async def plain(call: Call) -> Response:
    """Do nothing."""
    return Response()


@pytest.mark.parametrize(
    ("handler", "path", "access", "sentence"),
    [
        (loose_body, "/items", RouteAccess.PUBLIC, "forbids unknown fields; see body"),
        (no_docstring, "/items", RouteAccess.PUBLIC, "docstring is its summary"),
        (path_without_variable, "/items", RouteAccess.PUBLIC, "same variables; see item_id"),
        (plain, "/items/{item_id}", RouteAccess.PUBLIC, "same variables; see item_id"),
        (other_parameter, "/items", RouteAccess.PUBLIC, "takes only call, body, query, headers and path; see boddy"),
        (plain, "/items", RouteAccess.OWNER, "needs project_id in its path"),
    ],
)
def test_a_row_that_cannot_work_is_refused(
    handler: Callable[..., Awaitable[Response]], path: str, access: RouteAccess, sentence: str
) -> None:
    """TypeError is raised at import, not at the first call."""
    with pytest.raises(TypeError, match=sentence):
        Routes("items", "").get(path, access=access)(handler)


def test_only_what_changes_nothing_reads_ahead_of_the_check_of_its_key() -> None:
    """Whatever it did would be done for a key that may turn out to be revoked."""
    with pytest.raises(TypeError, match="reads ahead changes nothing"):
        Routes("items", "").post("/items", access=RouteAccess.PROJECT, reads_ahead=True)(plain)


@pytest.mark.parametrize(
    ("path", "others", "pattern"),
    [
        ("/items/{item_id}", [], "/items/{item_id}"),
        ("/items/{item_id}/parts", ["/items/{item_id}"], "/items/{item_id}/parts"),
        ("/items/{item_id}", ["/items/ws"], "/items/{item_id:(?!(?:ws)(?:/|$))[^/]+}"),
        ("/items/{item_id}", ["/items/a.b/c", "/items/ws"], "/items/{item_id:(?!(?:a\\.b|ws)(?:/|$))[^/]+}"),
        (
            "/items/{item_id}/parts/{part_id}",
            ["/items/ws", "/items/{item_id}/parts/all"],
            "/items/{item_id:(?!(?:ws)(?:/|$))[^/]+}/parts/{part_id:(?!(?:all)(?:/|$))[^/]+}",
        ),
    ],
)
def test_a_variable_matches_no_word_of_another_path(path: str, others: list[str], pattern: str) -> None:
    """So that what a word's own address allows is announced without what its neighbours allow."""
    assert (
        build_aiohttp_path_excluding_words_of_other_paths(path, group_remainders_by_slash_prefix([path, *others]))
        == pattern
    )


@pytest.mark.parametrize(
    ("path", "others", "pattern"),
    [
        ("/items/{item_id}", [], "/items/{item_id:.+}"),
        ("/items/{item_id}/end", ["/items/{item_id}"], "/items/{item_id:.+}/end"),
        ("/items/{item_id}", ["/items/{item_id}/end"], "/items/{item_id:.+(?<!/end)}"),
        ("/items/{item_id}", ["/items/ws/{id}"], "/items/{item_id:(?!(?:ws)(?:/|$)).+}"),
    ],
)
def test_a_variable_with_slashes_leaves_other_paths_their_own(path: str, others: list[str], pattern: str) -> None:
    """Neither words before it nor what follows it elsewhere."""
    assert (
        build_aiohttp_path_excluding_words_of_other_paths(
            path, group_remainders_by_slash_prefix([path, *others]), "item_id"
        )
        == pattern
    )


def _inputs(route: Route) -> Iterator[tuple[str, dict[str, Any]]]:
    for model in (route.body, route.query, route.headers, route.path_model):
        if model:
            schema = model.model_json_schema()
            yield from _scalars(f"{route.name} {model.__name__}", schema)
            for name, definition in schema.get("$defs", {}).items():
                yield from _scalars(f"{route.name} {name}", definition)


def _scalars(where: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield where, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _scalars(f"{where}.{name}", inner)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from _scalars(f"{where}[]", schema[keyword])
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _scalars(where, branch)


def _is_bounded(schema: dict[str, Any]) -> bool:
    match schema.get("type"):
        case "integer":
            return {"minimum", "maximum"} <= schema.keys() and -(2**63) <= schema["minimum"] <= schema[
                "maximum"
            ] < 2**63
        case "string":
            return bool(schema.keys() & {"maxLength", "pattern", "enum", "const", "format"})
        case "array":
            return "maxItems" in schema
        case "object" if "properties" not in schema:
            return "maxProperties" in schema
        case _:
            return True


def test_every_input_is_bounded() -> None:
    """No number outgrows a PostgreSQL column, and no text, list or map is as long as its sender likes."""
    unbounded = [where for route in ROUTES for where, schema in _inputs(route) if not _is_bounded(schema)]
    assert unbounded == []


def test_what_is_deprecated_works_for_half_a_year() -> None:
    """A shorter time is refused where it is declared."""
    with pytest.raises(ValueError, match="180 days"):
        Deprecated(since=date(2027, 1, 1), until=date(2027, 6, 29), instead="Use another.")
