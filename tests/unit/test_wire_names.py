"""What histories, clients and scripts rely on is listed, and none of it goes once it was released."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from domain import VERSION
from tests.support import wire_names
from tests.support.openapi_changes import list_breaking_changes
from tests.support.wire_names import API, FROZEN, NAMES, REFERENCE, ROOT

COPIES = sorted((ROOT / FROZEN).iterdir())
KINDS = {
    "workflow OrderSlice: signal end_pause": "a signal",
    "workflow OrderSlice: input.job.window.start is AwareDatetime": "a field of an input",
    "workflow DownloadWorkflow: input.spec.type is excel": "a value of a field",
    "activity order_read: input.settings.retries is int": "a field of an activity",
    "domain.downloads.names.REQUEST_MEMO = 'asked'": "the key of a memo",
    "domain.downloads.names.QUEUES = 'downloads-fetch'": "a queue",
    "domain.downloads.names.build_manifest_key → files/{project_id}/{task_id}/manifest.json": "the key of an object",
    "domain.downloads.names.build_file_key → files/{project_id}/{task_id}/data.parquet": "a key by the type of a file",
    "domain.orders.names.build_cycle_schedule_id → order-cycle:{platform}": "the id of a schedule",
    "domain.orders.names.build_slice_workflow_id → order-slice:{platform}:20260102T030405Z:20260103T000000Z:{suffix}": (
        "the id of a workflow, with what may be left out"
    ),
    "domain.tasks.names.build_lane_workflow_id → tasks/{project_id}/{name}/4": "the id of a lane",
    "job of transfers, retried → AsyncDownloadJob:1:2:{path}:3.1": "the id of a job",
    "task of tasks → {key}_{name}_4": "the id of a task",
    "schedule webhooks-housekeeping": "a schedule of housekeeping",
    "search attribute HaulageState": "a search attribute",
    "channel haulage_downloads": "a channel",
    "channel order_platforms": "another",
    "channel task_heads": "another",
    "webhook download.cancelled": "a type of a webhook",
    "webhook download.failed: fault.code": "a field of a webhook",
    "webhook orders.slice_failed": "a type of an alarm",
    "webhook orders.clock_off: message": "a field of an alarm",
    "code quota_exceeded": "a code",
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


def test_a_route_or_a_field_that_goes_is_missed(pages: dict[str, str]) -> None:
    """In the document of this API; toys show each rule in `tests/unit/test_openapi_changes.py`."""
    document = json.loads(pages[API])
    del document["paths"]["/v1/ping"]
    document["components"]["schemas"]["DownloadRequest"]["properties"].pop("page_size")
    changes = list_breaking_changes(json.loads(pages[API]), document)
    assert {"GET /v1/ping: is gone", "POST /v1/downloads: body.page_size is gone"} <= set(changes)


def test_every_place_that_makes_an_event_is_listed() -> None:
    """Types of webhooks are read at these, so a further place is added to the list."""
    types = {wire_names.read_argument(call, "type") for call in wire_names.find_calls("WebhookEvent")}
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
