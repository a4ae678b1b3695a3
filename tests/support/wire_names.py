"""The names that other versions, clients and histories rely on: `python -m tests.support.wire_names` renews the pages.

They are in `docs/reference/`, and in `tests/frozen/VERSION/` as they were when a version was released. Until a version
has its heading in CHANGELOG.md its copies are renewed with the pages; from then on they stay as they are.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args, get_origin

import msgspec
import typer.main
from pydantic import BaseModel
from temporalio import workflow

import activities
import domain
import stores
import worker
from activities.orders.slice_attempts import FAILURE_TYPE
from api.app import ROUTE_GROUPS
from api.http import openapi
from cli.__main__ import app
from cli.command import ExitCode
from domain.downloads.models import DownloadResult, DownloadState, build_webhook_payload
from domain.faults import FaultRecord
from domain.orders.slices import SliceAttemptFailure
from infra import temporal
from infra.interceptors import FAULT_TYPE
from tests.support import observability, settings_reference, wire_formats

ROOT = Path(__file__).parents[2]
REFERENCE = Path("docs/reference")
FROZEN = Path("tests/frozen")
NAMES, API = "names-on-the-wire.txt", "openapi.json"
PAGE = ROOT / REFERENCE / NAMES
HEAD = """\
# Names on the wire, written from the code by `python -m tests.support.wire_names`; a test says when they are out of
# date. Histories, stored objects, clients, dashboards and scripts rely on them. From 0.1.0 on lines are added, and none
# changes or goes.
"""
CODE = r"[a-z]+(_[a-z0-9]+)+"
LAYERS = ("domain", "infra", "clients", "stores", "services", "activities", "workflows", "api")
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
            yield from (f"{path} is {value}" for value in args)
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
        yield from (f"{path} is {each.value}" for each in type_)
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


def list_formats() -> Iterator[str]:
    """List what the modules of names say: queues, kinds of workflows, schedules, and formats of ids and keys."""
    for module in list_modules(domain):
        if module.__name__.endswith((".names", "domain.webhooks")):
            yield from wire_formats.list_constants_and_formats(module)
    yield from wire_formats.list_ids_of_classes()
    yield from wire_formats.list_housekeeping_schedules()


def list_channels() -> Iterator[str]:
    """List the channels of the database on which processes notify each other."""
    for module in list_modules(stores):
        yield from (f"channel {value}" for name, value in vars(module).items() if name.endswith("CHANNEL"))


def list_webhooks() -> Iterator[str]:
    """List the types of webhooks, with the fields of their data."""
    fault = FaultRecord(code="failed", message="It failed.")
    for state in (DownloadState.SUCCEEDED, DownloadState.FAILED, DownloadState.CANCELLED):
        result = DownloadResult(state=state, fault=fault)
        yield from _list_webhook(f"download.{state}", build_webhook_payload(wire_formats.SPECS[0], result, 1))
    # Where an event is made, its type is written there, but for alarms: their types are at the calls of `build_alarm`.
    alarm_types = [ast.literal_eval(call.args[2]) for call in find_calls("build_alarm")]
    for call in find_calls("WebhookEvent"):
        type_, data = read_argument(call, "type"), read_argument(call, "data")
        if isinstance(data, ast.Dict):
            fields = {ast.literal_eval(key): "" for key in data.keys if key}
            if isinstance(type_, ast.Constant):
                types = [str(type_.value)]
            elif type_ and ast.unparse(type_) == "alarm.type":
                types = alarm_types
            else:
                raise ValueError(f"{ast.unparse(call)}: write its type there, as a text, or say here how it is found")
            for each in types:
                yield from _list_webhook(each, fields)


def _list_webhook(type_: str, data: Mapping[str, Any]) -> Iterator[str]:
    yield f"webhook {type_}"
    for name, value in data.items():
        inner = value if isinstance(value, Mapping) else {}
        yield from (f"webhook {type_}: {each}" for each in (name, *(f"{name}.{key}" for key in inner)))


def find_calls(name: str) -> Iterator[ast.Call]:
    """Find the calls of a function or class in the layers."""
    for tree in _parse_layers():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and read_name(node) == name:
                yield node


def read_name(call: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def read_argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return an argument that is passed by its name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


@cache
def _parse_layers() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def find_calls_with_codes() -> Iterator[tuple[str, ast.Call]]:
    """Find the calls in which a fault is made, each with the code that it says."""
    trees = _parse_layers()
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
    name = read_name(call)
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


def list_routes(document: Mapping[str, Any]) -> Iterator[str]:
    """List the routes with the names of their operations; `openapi.json` has all else of them."""
    for path, operations in document["paths"].items():
        yield from (f"{method.upper()} {path}: {each['operationId']}" for method, each in operations.items())


def list_commands(group: Any, path: str = "haulage") -> Iterator[str]:
    """List commands with their options."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from list_commands(each, f"{path} {name}")
        else:
            yield f"{path} {name}"
            for parameter in each.params:
                yield from (f"{path} {name}: {option}" for option in (*parameter.opts, *parameter.secondary_opts))


def build_pages() -> dict[str, str]:
    """Return both pages by the names of their files."""
    document = openapi.build_openapi_document(ROUTE_GROUPS)
    return {NAMES: build_page(document), API: json.dumps(document, ensure_ascii=False, indent=1) + "\n"}


def write_pages(pages: Mapping[str, str], root: Path, version: str) -> None:
    """Write the pages, and their copies of a version that is not released."""
    is_open = not is_released(version, (root / "CHANGELOG.md").read_text())
    for folder in (REFERENCE, FROZEN / version) if is_open else (REFERENCE,):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (root / folder / name).write_text(text)


def is_released(version: str, changelog: str) -> bool:
    """Return whether a version has its heading in the CHANGELOG, which comes with its tag."""
    return re.search(rf"^## \[?{re.escape(version)}\b", changelog, re.MULTILINE) is not None


def list_missing_lines(before: str, after: str) -> list[str]:
    """Return the names of a page of before that a page has no more."""
    now = set(after.splitlines())
    return [line for line in before.splitlines() if line and not line.startswith("#") and line not in now]


def build_page(document: Mapping[str, Any]) -> str:
    """Return the whole page."""
    sections = {
        "Workflows": list_workflows(),
        "Activities": list_activities(),
        "Types of errors in histories": list_failures(),
        "Queues, ids, schedules and keys": list_formats(),
        "Search attributes": (f"search attribute {each.name}" for each in temporal.SEARCH_ATTRIBUTES),
        "Channels of the database": list_channels(),
        "Webhooks": list_webhooks(),
        "Codes of problems and faults": (f"code {code}" for code, _ in find_calls_with_codes()),
        "Routes": list_routes(document),
        "Metrics": (f"metric {observability.name_metric(each)}" for each in observability.list_metrics()),
        "Settings": (f"setting {each.name}" for each in settings_reference.variables()),
        "Commands": list_commands(typer.main.get_command(app)),
        "Exit codes": (f"exit code {each.value}: {each.name}" for each in ExitCode),
    }
    text = HEAD
    for title, lines in sections.items():
        text += f"\n# {title}\n\n" + "\n".join(sorted(set(lines))) + "\n"
    return text


if __name__ == "__main__":
    write_pages(build_pages(), ROOT, domain.VERSION)
