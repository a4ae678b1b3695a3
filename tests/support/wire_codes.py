"""The codes of problems and faults: those at the places that make them, and those that the OpenAPI document names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from api.app import ROUTE_GROUPS
from api.http import openapi
from api.tasks.responses import ResponseCode

ROOT = Path(__file__).parents[2]
LAYERS = ("domain", "infra", "clients", "stores", "services", "activities", "workflows", "api")
CODE = r"[a-z]+(_[a-z0-9]+)*"
FAULT = "Fault"
"""The class of errors whose first argument is the code."""
POSITIONS = {FAULT: 0, "FaultRecord": 0, "RequestRejected": 1, "build_problem": 1}
"""Where these have the code, if it is not passed by its name."""
PARAMETERS_OF_CODES = {"code", "cause"}
"""Parameters and fields of requests that take the code of a fault, and enumerate the codes."""


@cache
def read_document() -> dict[str, Any]:
    """Return the OpenAPI document of the API."""
    return openapi.build_openapi_document(ROUTE_GROUPS)


@cache
def parse_layers() -> list[ast.Module]:
    """Parse the modules of the layers."""
    return [ast.parse(path.read_text()) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def find_calls(name: str) -> Iterator[ast.Call]:
    """Find the calls of a function or class in the layers."""
    for tree in parse_layers():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and read_name(node) == name:
                yield node


def read_name(call: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    return _read_last_part(call.func)


def read_argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return an argument that is passed by its name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def list_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """List the lines of all codes; routes of tasks answer with flowSvr's numbers instead."""
    yield from (f"code {code}" for code in list_codes(document))
    yield from (f"tasks' routes: code {each.value}" for each in ResponseCode)


def list_codes(document: Mapping[str, Any]) -> set[str]:
    """List the codes that the code makes, and those that the document names."""
    made = {code for code, _ in find_calls_with_codes()}
    return made | list_codes_of_tables() | list_documented_codes(document)


def list_documented_codes(document: Mapping[str, Any]) -> set[str]:
    """List the codes that responses of routes name, and those that requests take."""
    operations = [each for path in document["paths"].values() for each in path.values()]
    named = {
        code
        for operation in operations
        for status, response in operation["responses"].items()
        if int(status) >= HTTPStatus.BAD_REQUEST
        for code in re.findall(r"`(\w+)`", response["description"])
    }
    fields = [(each["name"], each["schema"]) for operation in operations for each in operation["parameters"]]
    for schema in document["components"]["schemas"].values():
        fields += schema.get("properties", {}).items()
    return named | {code for name, schema in fields if name in PARAMETERS_OF_CODES for code in _list_values(schema)}


def _list_values(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (each for each in schema.get("enum", []) if isinstance(each, str))
    for branch in schema.get("anyOf", []):
        yield from _list_values(branch)


def list_codes_of_tables() -> set[str]:
    """List the codes of tables by which the code is chosen: those whose name ends with `_CODES`."""
    return {
        value.value
        for tree in parse_layers()
        for name, table in _find_assignments(tree)
        if name.endswith("_CODES") and isinstance(table, ast.Dict)
        for value in table.values
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def find_calls_with_codes() -> Iterator[tuple[str, ast.Call]]:
    """Find the calls in which a fault is made, each with the code that it says."""
    positions = _find_positions()
    everywhere = {name: value for tree in parse_layers() for name, value in _find_constants(tree)}
    for tree in parse_layers():
        constants = everywhere | dict(_find_constants(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and read_name(node) in positions:
                yield from ((code, node) for code in _find_codes(node, positions[read_name(node)], constants))


def _find_positions() -> dict[str, int]:
    """Return where each function and class has the code: a class of faults has it where its base does."""
    bases = {
        node.name: {_read_last_part(each) for each in node.bases}
        for tree in parse_layers()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    faults = {FAULT}
    while more := {name for name, own in bases.items() if own & faults} - faults:
        faults |= more
    return POSITIONS | dict.fromkeys(faults, POSITIONS[FAULT])


def _find_codes(call: ast.Call, position: int, constants: Mapping[str, str]) -> Iterator[str]:
    given = [*call.args[position : position + 1], *(each.value for each in call.keywords if each.arg == "code")]
    for each in given:
        value = each.value if isinstance(each, ast.Constant) else constants.get(_read_last_part(each))
        if isinstance(value, str) and re.fullmatch(CODE, value):
            yield value


def _find_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for name, value in _find_assignments(tree):
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and re.fullmatch(CODE, value.value):
            yield name, value.value


def _find_assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a module gives, each with what it is of; several may be given at once."""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from ((_read_last_part(each), value) for each, value in zip(names, values, strict=True))


def _read_last_part(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
