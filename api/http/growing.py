"""Enumerations of answers that a later version may extend, marked in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]

MARK = "x-extensible-enum"
SENTENCE = "In answers a later version may send further values."
STATES = frozenset({"state", "status", "progress"})
"""Fields that say how far work is; programs wait for their values, so none is added."""
_INNER = ("items", "additionalProperties", "propertyNames")
_ALTERNATIVES = ("anyOf", "oneOf", "allOf", "prefixItems")


def mark_extensible_enumerations(responses: Iterable[Json], definitions: Mapping[str, Json]) -> None:
    """Mark the enumerations that responses have outside of `STATES`; one that a state has stays closed everywhere."""
    found: dict[int, tuple[Json, set[str]]] = {}
    known: set[str] = set()
    for response in responses:
        for field, schema in _list_enumerations(response, "", definitions, known):
            found.setdefault(id(schema), (schema, set()))[1].add(field)
    for schema, fields in found.values():
        if fields.isdisjoint(STATES):
            schema[MARK] = schema["enum"]
            schema["description"] = " ".join(filter(None, (schema.get("description"), SENTENCE)))


def _list_enumerations(
    schema: Json, field: str, definitions: Mapping[str, Json], known: set[str]
) -> Iterator[tuple[str, Json]]:
    """Yield the enumerations within a schema, each with the field that has it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if "enum" in definitions[name]:
            yield field, definitions[name]
        elif name not in known:
            known.add(name)
            yield from _list_enumerations(definitions[name], field, definitions, known)
    elif "enum" in schema:
        yield field, schema
    for name, each in schema.get("properties", {}).items():
        yield from _list_enumerations(each, name, definitions, known)
    inner = [schema[word] for word in _INNER if isinstance(schema.get(word), dict)]
    for each in [*inner, *(branch for word in _ALTERNATIVES for branch in schema.get(word, []))]:
        yield from _list_enumerations(each, field, definitions, known)
