"""The names that other versions, clients and histories rely on: `python -m tests.support.wire_names` renews the page.

From the first release on, a line may be added to the page; one that changes or goes breaks what was written before.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args, get_origin

import msgspec
import typer.main
from pydantic import BaseModel
from temporalio import workflow

import activities
import domain
import worker
from activities.orders.slice_attempts import FAILURE_TYPE
from api.app import ROUTE_GROUPS
from api.http import openapi
from cli.__main__ import app
from domain.faults import FaultRecord
from domain.orders.slices import SliceAttemptFailure
from infra import temporal
from infra.interceptors import FAULT_TYPE
from tests.support import observability, settings_reference

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "names-on-the-wire.txt"
HEAD = """\
# Names on the wire, written from the code by `python -m tests.support.wire_names`; a test says when they are out of
# date. Histories, stored objects, clients, dashboards and scripts rely on them. From 0.1.0 on lines are added, and none
# changes or goes.
"""
CODE = r"[a-z]+(_[a-z0-9]+)+"
LAYERS_WITH_CODES = ("domain", "infra", "clients", "stores", "services", "activities", "workflows", "api")
WORDS_OF_FAULTS = (
    "fault",
    "fail",
    "invalid",
    "forbidden",
    "missing",
    "conflict",
    "gone",
    "unauth",
    "problem",
    "refus",
    "quota",
    "paused",
    "rejected",
)
CALLS_WITH_STATUS = {"RequestRejected", "build_problem"}
"""Their first argument is the status, the second the code."""


class Placeholder(str):
    """Stands for an argument in the result of a function that builds a name."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self)

    def isoformat(self) -> str:
        """As a day would be."""
        return self


def list_modules(package: ModuleType) -> Iterator[ModuleType]:
    """Import and list the modules of a package."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def list_workflows() -> Iterator[str]:
    """List workflows and their handlers, with the fields of what goes in and out."""
    for class_ in worker.list_workflows():
        found = workflow._Definition.must_from_class(class_)
        yield from _list_call(f"workflow {found.name}", found)
        for kind, handlers in (("signal", found.signals), ("query", found.queries), ("update", found.updates)):
            for name, handler in handlers.items():
                yield from _list_call(f"workflow {found.name}: {kind} {name}", handler)


def list_activities() -> Iterator[str]:
    """List activities with the fields of what goes in and out."""
    for module in list_modules(activities):
        for holder in (module, *(each for _, each in inspect.getmembers(module, inspect.isclass))):
            for _, function in inspect.getmembers(holder, callable):
                if found := getattr(function, "__temporal_activity_definition", None):
                    yield from _list_call(f"activity {found.name}", found)


def _list_call(name: str, definition: Any) -> Iterator[str]:
    yield name
    for number, type_ in enumerate(definition.arg_types or ()):
        yield from _list_fields(type_, f"{name}: input{number or ''}", ())
    yield from _list_fields(getattr(definition, "ret_type", None), f"{name}: result", ())


def _list_fields(type_: Any, path: str, around: tuple[Any, ...]) -> Iterator[str]:
    """List the fields of a model with what they hold; of a model within itself nothing."""
    if type_ in around:
        return
    match get_origin(type_), get_args(type_):
        case None, _:
            yield from _list_fields_of_class(type_, path, around)
        case (typing.Annotated, args):
            yield from _list_fields(args[0], path, around)
        case (typing.Literal, args):
            yield f"{path} is {' | '.join(sorted(map(str, args)))}"
        case (origin, args) if origin in (typing.Union, UnionType):
            for each in args:
                yield from _list_fields(each, path, around)
        case (origin, args) if isinstance(origin, type) and issubclass(origin, Mapping):
            yield from _list_fields(args[1], f"{path}{{}}", around)
        case _, args:
            for each in args:
                yield from _list_fields(each, f"{path}[]", around) if each is not ... else ()


def _list_fields_of_class(type_: Any, path: str, around: tuple[Any, ...]) -> Iterator[str]:
    if type_ is None or not isinstance(type_, type):
        return
    fields = _find_fields(type_)
    if issubclass(type_, Enum):
        yield f"{path} is {' | '.join(sorted(str(each.value) for each in type_))}"
    elif not fields and type_ is not type(None):
        yield f"{path} is {type_.__name__}"
    for name, field in fields.items():
        yield from _list_fields(field, f"{path}.{name}", (*around, type_))


def _find_fields(type_: type) -> Mapping[str, Any]:
    hints = typing.get_type_hints(type_) if type_.__module__ != "builtins" else {}
    if issubclass(type_, BaseModel):
        return {field.serialization_alias or name: hints[name] for name, field in type_.model_fields.items()}
    if issubclass(type_, msgspec.Struct):
        return {name: hints[name] for name in type_.__struct_fields__}
    return (
        {each.name: hints[each.name] for each in dataclasses.fields(type_)} if dataclasses.is_dataclass(type_) else {}
    )


def list_failures() -> Iterator[str]:
    """List the types of errors that workflows compare, with the fields of their first detail."""
    for name, detail in {FAULT_TYPE: FaultRecord, FAILURE_TYPE: SliceAttemptFailure}.items():
        yield f"failure {name}"
        yield from _list_fields(detail, f"failure {name}: detail", ())


def list_constants_and_formats() -> Iterator[str]:
    """List what the modules `names` say: queues, kinds of workflows, schedules, and formats of ids and keys."""
    for module in list_modules(domain):
        if not module.__name__.endswith((".names", "domain.webhooks")):
            continue
        for name, value in sorted(vars(module).items()):
            if name.isupper() and not name.startswith("_") and isinstance(value, str | int | tuple | frozenset):
                yield f"{module.__name__}.{name} = {sorted(value) if isinstance(value, frozenset) else value!r}"
            elif name.startswith("build_") and getattr(value, "__module__", "") == module.__name__:
                yield f"{module.__name__}.{name} → {_call_with_placeholders(value)}"


def _call_with_placeholders(function: Callable[..., Any]) -> str:
    """Return what a function makes of the names of its arguments; of those with defaults nothing is passed."""
    parameters = inspect.signature(function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty]
    try:
        return str(function(*(Placeholder(f"{{{each.name}}}") for each in needed)))
    except (TypeError, ValueError, AttributeError):
        return f"({', '.join(each.name for each in parameters)})"


def list_codes() -> Iterator[str]:
    """List the codes of problems and faults."""
    yield from (f"code {code}" for code, _ in find_calls_with_codes())


def find_calls_with_codes() -> Iterator[tuple[str, ast.Call]]:
    """Find the calls in which a fault is made, each with the code that it says."""
    trees = [
        ast.parse(path.read_text()) for layer in LAYERS_WITH_CODES for path in sorted((ROOT / layer).rglob("*.py"))
    ]
    constants = {name: value for tree in trees for name, value in _find_constants(tree) if re.fullmatch(CODE, value)}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from ((code, node) for code in _find_codes(node, constants))


def _find_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield target.id, value.value


def _find_codes(call: ast.Call, constants: Mapping[str, str]) -> Iterator[str]:
    name = ast.unparse(call.func).rsplit(".", 1)[-1]
    makes_fault = any(word in name.lower() for word in WORDS_OF_FAULTS)
    position = 1 if name in CALLS_WITH_STATUS else 0
    given = [
        *(call.args[position : position + 1] if makes_fault else ()),
        *(each.value for each in call.keywords if each.arg == "code"),
    ]
    for each in given:
        value = each.value if isinstance(each, ast.Constant) else constants.get(ast.unparse(each).rsplit(".", 1)[-1])
        if isinstance(value, str) and re.fullmatch(CODE, value):
            yield value


def list_api() -> Iterator[str]:
    """List the routes, and the fields of requests and responses."""
    document = openapi.build_openapi_document(ROUTE_GROUPS)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            inputs = ", ".join(sorted(f"{each['in']} {each['name']}" for each in operation.get("parameters", ())))
            yield f"{method.upper()} {path}: {operation['operationId']}({inputs})"
    for name, schema in document["components"]["schemas"].items():
        for field in schema.get("properties", ()):
            yield f"json {name}.{field}"


def list_commands(group: Any, path: str = "haulage") -> Iterator[str]:
    """List commands with their options."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from list_commands(each, f"{path} {name}")
        else:
            options = [option for parameter in each.params for option in (*parameter.opts, *parameter.secondary_opts)]
            yield f"{path} {name} {' '.join(sorted(options))}".rstrip()


def build_page() -> str:
    """Return the whole page."""
    sections = {
        "Workflows": list_workflows(),
        "Activities": list_activities(),
        "Types of errors in histories": list_failures(),
        "Queues, ids, schedules and keys": list_constants_and_formats(),
        "Search attributes": (f"search attribute {each.name}" for each in temporal.SEARCH_ATTRIBUTES),
        "Codes of problems and faults": list_codes(),
        "API": list_api(),
        "Metrics": (f"metric {observability.name_metric(each)}" for each in observability.list_metrics()),
        "Settings": (f"setting {each.name}" for each in settings_reference.variables()),
        "Commands": list_commands(typer.main.get_command(app)),
    }
    text = HEAD
    for title, lines in sections.items():
        text += f"\n# {title}\n\n" + "\n".join(sorted(set(lines))) + "\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(build_page())
