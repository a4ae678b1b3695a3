"""What histories, clients and scripts rely on is listed, and none of it goes once it was released."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from domain import VERSION
from systems import SYSTEMS
from tests.support import wire_codes, wire_formats, wire_names
from tests.support.openapi_changes import list_breaking_changes
from tests.support.wire_names import API, FROZEN, NAMES, REFERENCE, ROOT

COPIES = sorted((ROOT / FROZEN).iterdir())
KINDS = {
    "workflow OrderSlice: signal end_pause": "a signal",
    "workflow OrderSlice: input.job.window.start is AwareDatetime": "a field of an input",
    "workflow DownloadWorkflow: input.spec.type is excel": "a value of a field",
    "activity order_read: input.settings.retries is int": "a field of an activity",
    "downloads: asked": "the key of a memo",
    "downloads: downloads-fetch": "a queue",
    "downloads: files/{project_id}/{task_id}/manifest.json": "the key of an object",
    "downloads: files/{project_id}/{task_id}/data.parquet": "a key by the type of a file",
    "orders: order-cycle:{platform}": "the id of a schedule",
    "orders: order-slice:{platform}:20260102T030405Z:20260103T000000Z:{suffix}": (
        "the id of a workflow, with what may be left out"
    ),
    "tasks: tasks/{project_id}/{name}/4": "the id of a lane",
    "transfers: AsyncDownloadJob:1:2:{path}:3.1": "the id of a job",
    "tasks: {key}_{name}_4": "the id of a task",
    "webhooks: webhooks-housekeeping": "a schedule of housekeeping",
    "webhooks: webhook-id: {delivery_id}": "a header of a webhook",
    "search attribute HaulageState": "a search attribute",
    "channel haulage_downloads": "a channel",
    "channel order_platforms": "another",
    "channel task_heads": "another",
    "webhook download.cancelled": "a type of a webhook",
    "webhook download.failed: fault.code": "a field of a webhook",
    "webhook orders.slice_failed": "a type of an alarm",
    "webhook orders.clock_off: message": "a field of an alarm",
    "code quota_exceeded": "a code",
    "tasks' routes: code 8020": "a number of flowSvr",
    "quota tasks_open": "a quota",
    "quota operator_downloads_active": "a quota of operators",
    "GET /v1/ping: health_ping": "a route",
    "setting HAULAGE_ORDERS__SERVE_SECONDS": "a setting",
    "haulage migrate": "a command",
    "haulage orders fetch: --json": "an option",
    "exit code 3: API_UNREACHABLE": "an exit code",
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """What the code makes of them."""
    return wire_names.build_pages()


@pytest.mark.parametrize("name", [NAMES, API])
def test_the_list_is_that_of_the_code(name: str, pages: dict[str, str]) -> None:
    """`make pages` renews it, and with it the copy of a version that is not released."""
    assert (ROOT / REFERENCE / name).read_text() == pages[name]
    if not wire_names.is_released(VERSION, (ROOT / "CHANGELOG.md").read_text()):
        assert (ROOT / FROZEN / VERSION / name).read_text() == pages[name]


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy.name)
def test_no_released_name_changes_or_goes(copy: Path, pages: dict[str, str]) -> None:
    """What was released goes on; `docs/reference/compatibility.md` says how it is deprecated."""
    assert wire_names.list_missing_lines((copy / NAMES).read_text(), pages[NAMES]) == []
    assert list_breaking_changes(json.loads((copy / API).read_text()), json.loads(pages[API])) == []


@pytest.mark.parametrize("line", KINDS)
def test_every_kind_of_name_is_listed(line: str, pages: dict[str, str]) -> None:
    """One of each, so that none is left out."""
    assert line in pages[NAMES].splitlines()


@pytest.mark.parametrize("line", KINDS)
def test_a_name_that_changes_or_goes_is_missed(line: str, pages: dict[str, str]) -> None:
    """And one that is added is not."""
    page = pages[NAMES]
    assert wire_names.list_missing_lines(page, page.replace(f"{line}\n", "")) == [line]
    assert wire_names.list_missing_lines(page, page.replace(f"{line}\n", f"{line}_2\n")) == [line]
    assert wire_names.list_missing_lines(page, f"{page}{line}_2\n") == []


def build_names(**names: Any) -> ModuleType:
    """Build a module of names."""
    module = ModuleType("names")
    vars(module).update(SYSTEM="toys", **names)
    for each in names.values():
        if callable(each):
            each.__module__ = "names"
    return module


def test_names_of_a_system_are_listed_without_their_names_in_python() -> None:
    """`domain/` is not part of what binds, so a refactoring changes nothing; what is no name is left out."""

    def build_key(toy: str) -> str:
        return f"toys/{toy}.json"

    def build_object_key(item: str) -> str:
        return f"toys/{item}.json"

    before = build_names(QUEUE="toys-made", QUEUES=("toys-made",), build_key=build_key, FOLDER="toys/")
    after = build_names(MADE_QUEUE="toys-made", build_object_key=build_object_key, CONTENT_TYPE="text/csv")
    first, second = ("\n".join(wire_formats.list_names_of_system(each)) for each in (before, after))

    assert set(first.splitlines()) == {"toys: toys", "toys: toys-made", "toys: toys/{toy}.json"}
    assert wire_names.list_missing_lines(first, second) == []


def test_a_value_of_a_system_that_changes_is_missed(pages: dict[str, str]) -> None:
    """Each of them, and that of a function as well as that of a constant."""
    lines = [line for line in pages[NAMES].splitlines() if re.match("[a-z]+: ", line)]
    assert len(lines) > 100
    assert {line.partition(":")[0] for line in lines} == {*SYSTEMS, "webhooks"}
    section = "\n".join(lines)
    for at, line in enumerate(lines):
        changed = "\n".join([*lines[:at], f"{line}x", *lines[at + 1 :]])
        assert wire_names.list_missing_lines(section, changed) == [line]

    def build_key(toy: str) -> str:
        return f"toys-2/{toy}.json"

    after = "\n".join(wire_formats.list_names_of_system(build_names(QUEUE="toys-2", build_key=build_key)))
    before = "toys: toys-made\ntoys: toys/{toy}.json"
    assert wire_names.list_missing_lines(before, after) == before.splitlines()


def test_a_route_or_a_field_that_goes_is_missed(pages: dict[str, str]) -> None:
    """In the document of this API; toys show each rule in `tests/unit/test_openapi_changes.py`."""
    document = json.loads(pages[API])
    del document["paths"]["/v1/ping"]
    document["components"]["schemas"]["DownloadRequest"]["properties"].pop("page_size")
    changes = list_breaking_changes(json.loads(pages[API]), document)
    assert {"GET /v1/ping: is gone", "POST /v1/downloads: body.page_size is gone"} <= set(changes)


def test_every_place_that_makes_an_event_is_listed() -> None:
    """Types of webhooks are read at these, so a further place is added to the list."""
    types = {wire_codes.read_argument(call, "type") for call in wire_codes.find_calls("WebhookEvent")}
    found = {ast.unparse(each) for each in types if not isinstance(each, ast.Constant | None)}
    # A type that is no text where the event is made is one that `list_webhooks` has to know of.
    assert found == {"f'download.{outcome.state}'", "alarm.type", "self.type"}


@pytest.mark.parametrize("heading", ["## 0.1.0 - 2026-11-30", "## [0.1.0] - 2026-11-30"])
def test_copies_stay_once_a_version_is_released(tmp_path: Path, heading: str) -> None:
    """The pages go on, and the next version has copies of its own."""
    for changelog, pages in (("## Unreleased", {NAMES: "one\n"}), (heading, {NAMES: "one\ntwo\n"})):
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}\n")
        wire_names.write_pages(pages, tmp_path, "0.1.0")
    wire_names.write_pages(pages, tmp_path, "0.2.0")

    texts = {
        folder: (tmp_path / folder / NAMES).read_text() for folder in (REFERENCE, FROZEN / "0.1.0", FROZEN / "0.2.0")
    }
    assert list(texts.values()) == ["one\ntwo\n", "one\n", "one\ntwo\n"]
