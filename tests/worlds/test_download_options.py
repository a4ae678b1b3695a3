"""Each field of a request for a download is honoured: two of its values lead to outcomes that differ.

A new field needs a case: a field without one fails here.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import api.downloads as downloads_api
from api.downloads.actions import DeliveryPath
from api.downloads.context import DownloadPath
from api.downloads.creation import FileWaitQuery, IdempotencyHeaders
from api.downloads.events import ReconnectHeaders
from api.downloads.files import LinkPath, LinkQuery
from api.downloads.preview import PreviewRequest
from api.downloads.queries import AttemptLimitQuery, DownloadsQuery
from api.downloads.quotas import QuotasQuery
from api.downloads.requests import DownloadRequest, TableOnOwnSheetRequest
from api.http.models import Request
from api.http.pagination import PageQuery
from infra.settings import Settings
from sims.receiver import Receiver, running_receiver
from tests.support.downloads import Downloads, running_downloads
from tests.support.waiting import eventually
from tests.worlds.downloads.playing import raise_limits

ROOT = Path(__file__).parents[2]
SEED = 5
TAG = "options"
EXCEL = {"type": "excel"}
ROWS = [{"day": "2026-01-01T23:30:00Z", "text": "=1+1", "number": 12.5}]
VOLATILE = {
    "task_id",
    "workflow_id",
    "created_at",
    "started_at",
    "finished_at",
    "expires_at",
    "rows_per_second",
    "etag",
    "bytes",
}


@dataclass(frozen=True)
class DownloadOptionCase:
    """Two values of a field, and a request in which they make a difference."""

    one: Any
    other: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the request."""
    source: Mapping[str, str | float] | None = None
    """What the source is asked for; by default the rows come along."""


TEMPLATE = {"text": "Text", "day": "Day"}
NEW: dict[str, DownloadOptionCase] = {
    "source_url": DownloadOptionCase("rows=3", "rows=4", {"data": None}, {}),
    "data": DownloadOptionCase(ROWS, [*ROWS, *ROWS]),
    "headers": DownloadOptionCase({"X-Caller": "one"}, {"X-Caller": "other"}, source={"rows": 3}),
    "page_size": DownloadOptionCase(100, 200, source={"rows": 300}),
    "first_page": DownloadOptionCase(0, 1, source={"rows": 300}),
    "force_continue": DownloadOptionCase(False, True, {"page_size": 100}, {"rows": 300, "gaps": 1}),
    "allow_repeats": DownloadOptionCase(False, True, {"page_size": 100}, {"rows": 300, "same_pages": 1}),
    "columns": DownloadOptionCase("closed", "open", {"page_size": 100}, {"rows": 300, "late_from": 250}),
    "type": DownloadOptionCase("csv", "parquet"),
    "file_name": DownloadOptionCase("one", "other"),
    "encoding": DownloadOptionCase("utf-8", "utf-8-bom"),
    "formula_guard": DownloadOptionCase(True, False),
    "time_zone": DownloadOptionCase(
        "UTC", "Asia/Shanghai", EXCEL | {"template": {"day": {"title": "Day", "type": "date"}}}
    ),
    "project_id": DownloadOptionCase(None, "prj_somebody_else"),
    "operator_id": DownloadOptionCase("one", "other"),
    "callback": DownloadOptionCase(None, "the receiver"),
    "expires_in": DownloadOptionCase(60, 3_600),
    "max_exec_time": DownloadOptionCase(1, 60, {"page_size": 100}, {"rows": 2_000, "delay_ms": 150}),
    "default_width": DownloadOptionCase(10, 40, EXCEL),
    "default_height": DownloadOptionCase(15, 30, EXCEL),
    "col_align": DownloadOptionCase("left", "right", EXCEL),
    "freeze": DownloadOptionCase(True, False, EXCEL),
    "filter": DownloadOptionCase(True, False, EXCEL),
    "title": DownloadOptionCase("One", "Other", EXCEL),
    "summary": DownloadOptionCase("One", "Other", EXCEL),
    "header": DownloadOptionCase({"a": 1}, {"a": 2}, EXCEL),
    "footer": DownloadOptionCase("one", "other", EXCEL),
    "template": DownloadOptionCase(TEMPLATE, {"text": "Other"}, EXCEL),
    "multi": DownloadOptionCase("page", "tab", EXCEL | {"data": [ROWS, ROWS]}),
    "sheets": DownloadOptionCase([{"data": ROWS}], [{"data": ROWS}, {"data": ROWS}], EXCEL | {"data": None}),
}
SHEET: dict[str, DownloadOptionCase] = {
    "name": DownloadOptionCase("One", "Other"),
    "source_url": DownloadOptionCase("rows=3", "rows=4", {"data": None}, {}),
    "headers": DownloadOptionCase({"X-Caller": "one"}, {"X-Caller": "other"}, source={"rows": 3}),
    "data": DownloadOptionCase(ROWS, [*ROWS, *ROWS]),
    "title": DownloadOptionCase("One", "Other"),
    "summary": DownloadOptionCase("One", "Other"),
    "header": DownloadOptionCase({"a": 1}, {"a": 2}),
    "footer": DownloadOptionCase("one", "other"),
    "template": DownloadOptionCase(TEMPLATE, {"text": "Other"}),
}
LOOKS = ("default_width", "default_height", "col_align", "freeze", "filter")
PREVIEW: dict[str, DownloadOptionCase] = {
    **{name: DownloadOptionCase(NEW[name].one, NEW[name].other) for name in LOOKS},
    **{name: SHEET[name] for name in ("title", "summary", "header", "footer", "template", "data")},
    "time_zone": DownloadOptionCase("UTC", "Asia/Shanghai", {"template": {"day": {"title": "Day", "type": "date"}}}),
}
REFUSED_ALONE = {"project_id": "whoever names another project than its key's is refused, and nothing else is meant"}
"""Fields whose only effect is that a value is refused."""
STEADY = ("data", "page_size", "columns", "callback", "template", "sheets")
"""One of each kind of request."""
ELSEWHERE: dict[type[Request], str] = {
    FileWaitQuery: "tests/integration/test_download_streams.py::test_waiting_gets_the_file_itself",
    IdempotencyHeaders: "tests/integration/test_download_requests.py::test_the_same_key_and_body_are_the_same_download",
    ReconnectHeaders: "tests/integration/test_download_streams.py::test_events_go_on_where_a_browser_left",
    PageQuery: "tests/integration/test_webhooks.py::test_deliveries_come_a_page_at_a_time",
}
"""Headers, and pages of deliveries, have tests of their own."""
NAMES: set[type[Request]] = {DownloadPath, LinkPath, DeliveryPath}
"""They only name what a request is about."""
ASKED: set[type[Request]] = {DownloadsQuery, QuotasQuery, AttemptLimitQuery, LinkQuery}
"""Queries: `test_every_field_of_a_question_makes_a_difference` has their fields."""


@dataclass
class DownloadOptions:
    """An API with a worker, a source and a receiver."""

    downloads: Downloads
    receiver: Receiver

    async def outcome(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What comes of a request, without what differs each time."""
        downloads = self.downloads
        told = len(self.receiver.list_received(TAG))
        reply = await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, json=dict(body))
        if reply.status != 202:
            return {"refused": reply.code, "said": reply.body.get("errors")}
        status = await downloads.wait_for_end(reply.body["task_id"])
        if body.get("callback"):
            await eventually(lambda: len(self.receiver.list_received(TAG)) > told)
        kept = status["expires_at"] and status["expires_at"][:16]
        content = _list_parts(await downloads.file(status["task_id"])) if status["state"] == "succeeded" else {}
        return {
            "status": {name: value for name, value in status.items() if name not in VOLATILE},
            "kept_until": kept if body["expires_in"] != 604_800 else None,
            "content": content,
            "asked": self._take_requests(),
            "told": len(self.receiver.list_received(TAG)) - told,
        }

    async def preview(self, body: Mapping[str, Any]) -> dict[str, str]:
        """The parts of the book that is drawn."""
        downloads = self.downloads
        path = f"{downloads.api_client.address}/v1/templates/preview"
        headers = {"Authorization": f"Bearer {downloads.key}"}
        async with downloads.api_client.session.post(path, json=dict(body), headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            return _list_parts(await answer.read())

    async def run_request(self, **body: Any) -> dict[str, Any]:
        """A download that has ended."""
        answer = await self.ask("POST", "/v1/downloads", json=body)
        return await self.downloads.wait_for_end(answer["task_id"])

    async def ask(self, method: str, path: str, *, is_admin: bool = False, **options: Any) -> dict[str, Any]:
        """An answer that is no refusal."""
        client = self.downloads.api_client
        key = client.settings.api.admin_key.get_secret_value() if is_admin else self.downloads.key
        reply = await client.ask(method, path, key=key, **options)
        assert reply.status < 300, reply.body
        answer: dict[str, Any] = reply.body
        return answer

    def _take_requests(self) -> Any:
        """What the source was asked for, and by whom; then it forgets that."""
        source = self.downloads.source
        asked = sorted(source.counts.items()), source.callers.pop(TAG, None)
        source.counts.clear()
        return asked


def _list_parts(content: bytes) -> dict[str, str]:
    """A digest of each part of a file; of a book not of the one that says when it was made."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return {"": hashlib.sha256(content).hexdigest()}
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        names = [name for name in book.namelist() if name != "docProps/core.xml"]
        return {name: hashlib.sha256(book.read(name)).hexdigest() for name in names}


@pytest.fixture(scope="module")
def request_models() -> dict[str, tuple[type[Any], dict[str, DownloadOptionCase]]]:
    """The request models, and the cases of their fields."""
    return {
        "NewDownload": (DownloadRequest, NEW),
        "TableOnOwnSheetRequest": (TableOnOwnSheetRequest, SHEET),
        "NewPreview": (PreviewRequest, PREVIEW),
    }


@pytest.fixture
async def options(settings: Settings) -> AsyncIterator[DownloadOptions]:
    """API, worker, source and receiver."""
    async with running_receiver() as receiver:
        guard = settings.guard.model_copy(update={"allow": [receiver.base.removeprefix("http://")]})
        settings = raise_limits(settings).model_copy(update={"guard": guard})
        async with running_downloads(settings) as downloads:
            yield DownloadOptions(downloads, receiver)


def test_every_field_has_a_case(request_models: dict[str, tuple[type[Any], dict[str, DownloadOptionCase]]]) -> None:
    """A field without a case may be one that has no effect."""
    for model, cases in request_models.values():
        assert set(model.model_fields) == set(cases), model


def test_every_request_is_here(request_models: dict[str, tuple[type[Any], dict[str, DownloadOptionCase]]]) -> None:
    """All that routes of downloads take has its cases, a test of its own, or only names what it is about."""
    taken = {
        model
        for route in downloads_api.routes
        for model in (route.body, route.query, route.headers, route.path_model)
        if model is not None
    }
    assert taken == {model for model, _ in request_models.values()} - {TableOnOwnSheetRequest} | ASKED | NAMES | set(
        ELSEWHERE
    )
    for test in ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_makes_a_difference(options: DownloadOptions) -> None:
    """With the other value of a field a request has another outcome; the same request twice has one, for comparison."""
    unheeded = []
    for name, case in NEW.items():
        bodies = [_build_body(options, name, case, value) for value in (case.one, case.other)]
        if not _differ(name, *[await options.outcome(body) for body in bodies]):
            unheeded.append(name)
    for name, case in SHEET.items():
        bodies = [_build_sheet(options, name, case, value) for value in (case.one, case.other)]
        if not _differ(name, *[await options.outcome(body) for body in bodies]):
            unheeded.append(f"sheets.{name}")
    assert unheeded == []
    for name in STEADY:
        body = _build_body(options, name, NEW[name], NEW[name].one)
        outcome = await options.outcome(body)
        assert outcome == await options.outcome(body), name
        assert "refused" not in outcome


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_preview_makes_a_difference(options: DownloadOptions) -> None:
    """Another book is drawn; the same request twice draws the same."""
    unheeded = []
    for name, case in PREVIEW.items():
        one, other, again = [
            await options.preview({"data": ROWS, "template": TEMPLATE, **case.beside, name: value})
            for value in (case.one, case.other, case.one)
        ]
        assert one == again, name
        unheeded += [name] if one == other else []
    assert unheeded == []


@pytest.mark.long
@pytest.mark.stack
async def test_every_field_of_a_question_makes_a_difference(options: DownloadOptions) -> None:
    """Which downloads are listed, whose quotas, how many steps, and how long a link is good."""
    first = await options.run_request(operator_id="one", file_name="first", type="csv", data=ROWS)
    second = await options.run_request(
        operator_id="other",
        file_name="second",
        type="excel",
        page_size=100,
        source_url=options.downloads.source.url(rows=300, faults="404", only_page=1),
    )
    assert [first["state"], second["state"]] == ["succeeded", "failed"]
    begin = await options.ask("GET", "/v1/downloads?limit=1")
    other_project, _ = await options.downloads.api_client.make_project()
    moments = first["created_at"].replace("+", "%2B"), second["created_at"].replace("+", "%2B")
    wanted = {
        "limit": ("1", "2"),
        "cursor": ("", quote(begin["next_cursor"])),
        "project_id": (options.downloads.project_id, other_project),
        "task_id": (first["task_id"], second["task_id"]),
        "state": ("succeeded", "failed"),
        "cause": ("source_status", "source_timeout"),
        "type": ("csv", "excel"),
        "operator_id": ("one", "other"),
        "source_host": ("127.0.0.1", "elsewhere"),
        "file_name": ("first", "second"),
        "created_after": moments,
        "created_before": moments,
    }
    assert set(wanted) == set(DownloadsQuery.model_fields)
    questions = [
        ("GET", "/v1/downloads?limit=1&" if name == "cursor" else "/v1/downloads?", name, pair)
        for name, pair in wanted.items()
    ]
    questions += [
        ("GET", "/v1/downloads/quotas?", "operator_id", ("one", "somebody-else")),
        ("GET", f"/v1/downloads/{second['task_id']}/attempts?", "limit", ("1", "2")),
        ("POST", f"/v1/downloads/{first['task_id']}/link?", "expires_in", ("60", "3600")),
    ]
    others = {name for model in (QuotasQuery, AttemptLimitQuery, LinkQuery) for name in model.model_fields}
    assert {name for _, _, name, _ in questions[len(wanted) :]} == others
    unheeded = []
    for method, path, name, values in questions:
        paths = [path + (f"{name}={value}" if value else "") for value in values]
        one, other = [await options.ask(method, each, is_admin=name == "project_id") for each in paths]
        unheeded += [f"{path}{name}"] if _remove_links(one) == _remove_links(other) else []
    assert unheeded == []


def _remove_links(answer: Any) -> Any:
    """An answer without what differs each time, to the minute."""
    told = {name: value for name, value in answer.items() if name not in ("url", "next_cursor")}
    return told | {"expires_at": told["expires_at"][:16]} if "expires_at" in told else told


def _differ(name: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two outcomes differ by more than that one of them is a refusal."""
    is_refused = "refused" in one or "refused" in other
    return one != other and (not is_refused or name in REFUSED_ALONE)


def _build_body(options: DownloadOptions, name: str, case: DownloadOptionCase, value: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"file_name": "x", "expires_in": 604_800, "data": ROWS, **case.beside}
    if case.source is not None:
        body |= {"data": None, "source_url": options.downloads.source.url(seed=SEED, tag=TAG, **case.source)}
    return body | {name: _build_value(options, name, value)}


def _build_sheet(options: DownloadOptions, name: str, case: DownloadOptionCase, value: Any) -> dict[str, Any]:
    sheet: dict[str, Any] = {"data": ROWS, **case.beside}
    if case.source is not None:
        sheet |= {"data": None, "source_url": options.downloads.source.url(seed=SEED, tag=TAG, **case.source)}
    sheet[name] = _build_value(options, name, value)
    return {"file_name": "x", "expires_in": 604_800, **EXCEL, "sheets": [sheet]}


def _build_value(options: DownloadOptions, name: str, value: Any) -> Any:
    if name == "source_url":
        return f"{options.downloads.source.base}/rows?{value}&seed={SEED}&tag={TAG}"
    if name == "callback" and value is not None:
        return options.receiver.url(tag=TAG)
    return json.loads(json.dumps(value))
