"""What a new OpenAPI document takes from clients that were written by an older one.

A client sends what the older document allows, ignores fields that it does not know, and relies on those that it does.
So routes, optional fields of requests, fields of responses, values of requests, and values of responses that the older
document marks as extensible may be added; nothing may go, become required or change its type, and no limit of what is
sent may become narrower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final, Literal

from api.http.openapi import EXTENSIBLE

Json = dict[str, Any]
Side = Literal["request", "response"]

LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def list_breaking_changes(before: Json, after: Json) -> list[str]:
    """Return a line for each change that breaks a client of the document before."""
    return list(_DocumentComparison(before, after).compare_routes())


class _DocumentComparison:
    """Two documents, and what is known of the models that were compared."""

    def __init__(self, before: Json, after: Json) -> None:
        self._before = before
        self._after = after
        self._changes: dict[tuple[str, str, Side], list[str]] = {}

    def compare_routes(self) -> Iterator[str]:
        """Yield the breaking changes of all routes of before."""
        for path, operations in self._before["paths"].items():
            for method, operation in operations.items():
                route, new = f"{method.upper()} {path}", self._after["paths"].get(path, {}).get(method)
                changes: Iterable[str] = ["is gone"] if new is None else self._compare_operations(operation, new)
                yield from (f"{route}: {change}" for change in changes)

    def _compare_operations(self, before: Json, after: Json) -> Iterator[str]:
        ways = [set(way) for way in after.get("security", [])]
        if ways and not before.get("security"):
            yield "needs a key"
        yield from (
            f"is not opened by {' and '.join(way)}"
            for way in before.get("security", [])
            if ways and set(way) not in ways
        )
        yield from self._compare_parameters(_index_parameters(before), _index_parameters(after))
        yield from self._compare_bodies(before.get("requestBody"), after.get("requestBody"))
        for status, response in before["responses"].items():
            new = after["responses"].get(status)
            if new is not None:
                yield from self._compare_contents(response, new, "response", f"response {status}")
            elif int(status) < HTTPStatus.BAD_REQUEST:
                yield f"does not answer {status}"

    def _compare_parameters(self, before: Json, after: Json) -> Iterator[str]:
        for name, parameter in before.items():
            if name in after:
                yield from self._compare(parameter["schema"], after[name]["schema"], "request", name)
            else:
                yield f"{name} is gone"
        for name, parameter in after.items():
            if parameter.get("required") and not before.get(name, {}).get("required"):
                yield f"{name} is required"

    def _compare_bodies(self, before: Json | None, after: Json | None) -> Iterator[str]:
        if after and after.get("required") and not (before and before.get("required")):
            yield "body is required"
        if before and after:
            yield from self._compare_contents(before, after, "request", "body")
        elif before:
            yield "body is gone"

    def _compare_contents(self, before: Json, after: Json, side: Side, place: str) -> Iterator[str]:
        for media_type, content in before.get("content", {}).items():
            if media_type in after.get("content", {}):
                yield from self._compare(content["schema"], after["content"][media_type]["schema"], side, place)
            else:
                yield f"{place} as {media_type} is gone"

    def _compare(self, before: Json, after: Json, side: Side, place: str) -> list[str]:
        """Compare two schemas: each type that may be sent must still be taken, and each that may come be known."""
        pair = before.get("$ref", ""), after.get("$ref", ""), side
        if not (pair[0] and pair[1]):
            changes = self._compare_alternatives(before, after, side)
        elif pair in self._changes:
            changes = self._changes[pair]
        else:
            self._changes[pair] = []  # a model within itself
            changes = self._changes[pair] = self._compare_alternatives(before, after, side)
        return [f"{place}{change}" for change in changes]

    def _compare_alternatives(self, before: Json, after: Json, side: Side) -> list[str]:
        old, new = list(_list_alternatives(before, self._before)), list(_list_alternatives(after, self._after))
        changes: list[str] = []
        for each in old if side == "request" else new:
            pairs = [(each, other) for other in new] if side == "request" else [(other, each) for other in old]
            found = [list(self._compare_alternative(*pair, side)) for pair in pairs if _have_one_type(*pair, side)]
            if found:
                fewest: list[str] = min(found, key=len)
                changes += fewest
            else:
                changes.append(f" {'cannot' if side == 'request' else 'can'} be {_name_type(each)}")
        return changes

    def _compare_alternative(self, before: Json, after: Json, side: Side) -> Iterator[str]:
        if _is_any_value(after if side == "request" else before):
            return
        yield from _compare_values(before, after, side)
        form, new_form = before.get("format"), after.get("format")
        if form != new_form and (new_form if side == "request" else form):
            yield f" has the format {new_form}, not {form}"
        if side == "request":
            yield from _compare_limits(before, after)
        fields, new_fields = before.get("properties", {}), after.get("properties", {})
        for name, schema in fields.items():
            if name in new_fields:
                yield from self._compare(schema, new_fields[name], side, f".{name}")
            else:
                yield f".{name} is gone"
        required, new_required = set(before.get("required", [])), set(after.get("required", []))
        if side == "request":
            yield from (f".{name} is required" for name in sorted(new_required - required))
        else:
            yield from (f".{name} may be left out" for name in sorted((required - new_required) & new_fields.keys()))
        for word, sign in (("items", "[]"), ("additionalProperties", "{}")):
            match before.get(word), after.get(word):
                case dict(inner), dict(new_inner):
                    yield from self._compare(inner, new_inner, side, sign)
                case ((None | True | dict()), False) if side == "request":
                    yield " takes no other fields"


def _index_parameters(operation: Json) -> Json:
    return {f"{each['in']} {each['name']}": each for each in operation.get("parameters", [])}


def _list_alternatives(schema: Json, document: Json) -> Iterator[Json]:
    """Yield the schemas without references and alternatives that a value may have."""
    if "$ref" in schema:
        yield from _list_alternatives(document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document)
    elif branches := schema.get("anyOf") or schema.get("oneOf"):
        for branch in branches:
            yield from _list_alternatives(branch, document)
    else:
        yield schema


def _have_one_type(before: Json, after: Json, side: Side) -> bool:
    """Return whether they are of one type; what takes any value takes each, and what any value was may be each."""
    return before.get("type") == after.get("type") or _is_any_value(after if side == "request" else before)


def _is_any_value(schema: Json) -> bool:
    return not {"type", "enum", "const"} & schema.keys()


def _name_type(schema: Json) -> str:
    return str(schema.get("type", "any value"))


def _compare_values(before: Json, after: Json, side: Side) -> Iterator[str]:
    old, new = (each.get("enum", [each["const"]] if "const" in each else []) for each in (before, after))
    if new:
        yield from (f" cannot be {value!r}" for value in old if value not in new)
    if side == "request" and new and not old:
        yield f" can only be one of {new}"
    if side == "response" and old and not new:
        yield " can be any value"
    if side == "response" and old and EXTENSIBLE not in before:
        yield from (f" can be {value!r}" for value in new if value not in old)
    if side == "response" and EXTENSIBLE in after and old and EXTENSIBLE not in before:
        yield " may get further values"


def _compare_limits(before: Json, after: Json) -> Iterator[str]:
    for words, is_narrower in ((LEAST, float.__gt__), (MOST, float.__lt__)):
        for word in words:
            if word in after and (word not in before or is_narrower(float(after[word]), float(before[word]))):
                yield f" has {word} {after[word]}, not {before.get(word)}"
    if after.get("pattern", before.get("pattern")) != before.get("pattern"):
        yield f" has the pattern {after['pattern']}"
