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
from cli.__main__ import app
from cli.command import ExitCode
from domain.downloads.models import DownloadResult, DownloadState, build_webhook_payload
from domain.faults import FaultRecord
from domain.limits import LimitDecision
from domain.orders.slices import SliceAttemptFailure
from domain.quotas import PREVIEWS_OF_PROJECT_QUOTA, PREVIEWS_QUOTA, STREAMS_QUOTA, QuotaLimits
from infra import temporal
from infra.interceptors import FAULT_TYPE
from stores.downloads.quotas import QuotaKind, QuotaScope, QuotaWithDecision
from tests.support import observability, settings_reference, wire_codes, wire_formats

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
_PLACE = re.compile(r"\{\w+\}")


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
    """List by system what the modules of names say: queues, schedules, and formats of ids and keys."""
    for module in list_modules(domain):
        if module.__name__.endswith((".names", "domain.webhooks")):
            yield from wire_formats.list_names_of_system(module)
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
    alarm_types = [ast.literal_eval(call.args[2]) for call in wire_codes.find_calls("build_alarm")]
    for call in wire_codes.find_calls("WebhookEvent"):
        type_, data = wire_codes.read_argument(call, "type"), wire_codes.read_argument(call, "data")
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


def list_quotas() -> Iterator[str]:
    """List the names of quotas, as settings, headers and `violated-policies` have them."""
    decision = LimitDecision(allowed=True, remaining=0, reset_seconds=0.0)
    of_downloads = [QuotaWithDecision(scope, kind, 0, decision).name for scope in QuotaScope for kind in QuotaKind]
    fixed = (STREAMS_QUOTA, PREVIEWS_QUOTA, PREVIEWS_OF_PROJECT_QUOTA)
    yield from (f"quota {name}" for name in (*QuotaLimits.model_fields, *of_downloads, *fixed))


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
    document = wire_codes.read_document()
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
    """Return the names of a page of before that a page has no more; what a place in braces is called may change."""
    now = {_PLACE.sub("{}", line) for line in after.splitlines()}
    names = [line for line in before.splitlines() if line and not line.startswith("#")]
    return [line for line in names if _PLACE.sub("{}", line) not in now]


def build_page(document: Mapping[str, Any]) -> str:
    """Return the whole page."""
    sections = {
        "Workflows": list_workflows(),
        "Activities": list_activities(),
        "Types of errors in histories": list_failures(),
        "Queues, ids, schedules and keys of each system": list_formats(),
        "Search attributes": (f"search attribute {each.name}" for each in temporal.SEARCH_ATTRIBUTES),
        "Channels of the database": list_channels(),
        "Webhooks": list_webhooks(),
        "Codes of problems and faults": wire_codes.list_lines(document),
        "Quotas": list_quotas(),
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
