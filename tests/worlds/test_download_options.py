"""Each field of a request for a download is honoured: two of its values lead to outcomes that differ.

Whoever adds a field adds its case: a field without one fails here.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.downloads.creating import Once, Patience
from api.downloads.excel import SheetRequest
from api.downloads.requests import NewDownload
from infra.settings import Settings
from sims.receiver import Receiver, running_receiver
from tests.support.downloads import Downloads, running_downloads
from tests.support.waiting import eventually
from tests.worlds.downloads.playing import plenty

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
class Case:
    """Two values of a field, and a request in which they make a difference."""

    one: Any
    other: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the request."""
    source: Mapping[str, str | float] | None = None
    """What the source is asked for; by default the rows come along."""


TEMPLATE = {"text": "Text", "day": "Day"}
NEW: dict[str, Case] = {
    "source_url": Case("rows=3", "rows=4", {"data": None}, {}),
    "data": Case(ROWS, [*ROWS, *ROWS]),
    "headers": Case({"X-Caller": "one"}, {"X-Caller": "other"}, source={"rows": 3}),
    "page_size": Case(100, 200, source={"rows": 300}),
    "first_page": Case(0, 1, source={"rows": 300}),
    "force_continue": Case(False, True, {"page_size": 100}, {"rows": 300, "gaps": 1}),
    "allow_repeats": Case(False, True, {"page_size": 100}, {"rows": 300, "same_pages": 1}),
    "columns": Case("closed", "open", {"page_size": 100}, {"rows": 300, "late_from": 250}),
    "type": Case("csv", "parquet"),
    "file_name": Case("one", "other"),
    "encoding": Case("utf-8", "utf-8-bom"),
    "formula_guard": Case(True, False),
    "time_zone": Case("UTC", "Asia/Shanghai", EXCEL | {"template": {"day": {"title": "Day", "type": "date"}}}),
    "project_id": Case(None, "prj_somebody_else"),
    "operator_id": Case("one", "other"),
    "callback": Case(None, "the receiver"),
    "expires_in": Case(60, 3_600),
    "max_exec_time": Case(1, 60, {"page_size": 100}, {"rows": 2_000, "delay_ms": 150}),
    "default_width": Case(10, 40, EXCEL),
    "default_height": Case(15, 30, EXCEL),
    "col_align": Case("left", "right", EXCEL),
    "freeze": Case(True, False, EXCEL),
    "filter": Case(True, False, EXCEL),
    "title": Case("One", "Other", EXCEL),
    "summary": Case("One", "Other", EXCEL),
    "header": Case({"a": 1}, {"a": 2}, EXCEL),
    "footer": Case("one", "other", EXCEL),
    "template": Case(TEMPLATE, {"text": "Other"}, EXCEL),
    "multi": Case("page", "tab", EXCEL | {"data": [ROWS, ROWS]}),
    "sheets": Case([{"data": ROWS}], [{"data": ROWS}, {"data": ROWS}], EXCEL | {"data": None}),
}
SHEET: dict[str, Case] = {
    "name": Case("One", "Other"),
    "source_url": Case("rows=3", "rows=4", {"data": None}, {}),
    "headers": Case({"X-Caller": "one"}, {"X-Caller": "other"}, source={"rows": 3}),
    "data": Case(ROWS, [*ROWS, *ROWS]),
    "title": Case("One", "Other"),
    "summary": Case("One", "Other"),
    "header": Case({"a": 1}, {"a": 2}),
    "footer": Case("one", "other"),
    "template": Case(TEMPLATE, {"text": "Other"}),
}
STEADY = ("data", "page_size", "columns", "callback", "template", "sheets")
"""One of each kind of request."""
ELSEWHERE = {"wait": "tests/integration/test_download_requests.py", "idempotency_key": "the same"}
"""Fields that are no part of the body have tests of their own."""


@dataclass
class Options:
    """An API with a worker, a source and a receiver."""

    downloads: Downloads
    receiver: Receiver

    async def outcome(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What comes of a request, without what differs each time."""
        downloads = self.downloads
        told = len(self.receiver.received(TAG))
        reply = await downloads.api_client.ask("POST", "/v1/downloads", key=downloads.key, json=dict(body))
        if reply.status != 202:
            return {"refused": reply.code, "said": reply.body.get("errors")}
        status = await downloads.ended(reply.body["task_id"])
        if body.get("callback"):
            await eventually(lambda: len(self.receiver.received(TAG)) > told)
        kept = status["expires_at"] and status["expires_at"][:16]
        content = _parts(await downloads.file(status["task_id"])) if status["state"] == "succeeded" else {}
        return {
            "status": {name: value for name, value in status.items() if name not in VOLATILE},
            "kept_until": kept if body["expires_in"] != 604_800 else None,
            "content": content,
            "asked": self._asked(),
            "told": len(self.receiver.received(TAG)) - told,
        }

    def _asked(self) -> Any:
        """What the source was asked for, and by whom; then it forgets that."""
        source = self.downloads.source
        asked = sorted(source.counts.items()), source.callers.pop(TAG, None)
        source.counts.clear()
        return asked


def _parts(content: bytes) -> dict[str, str]:
    """A digest of each part of a file; of a book not of the one that says when it was made."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return {"": hashlib.sha256(content).hexdigest()}
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        names = [name for name in book.namelist() if name != "docProps/core.xml"]
        return {name: hashlib.sha256(book.read(name)).hexdigest() for name in names}


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[type[Any], dict[str, Case]]]:
    """The request models, and the cases of their fields."""
    return {"NewDownload": (NewDownload, NEW), "SheetRequest": (SheetRequest, SHEET)}


@pytest.fixture
async def options(settings: Settings) -> AsyncIterator[Options]:
    """API, worker, source and receiver."""
    async with running_receiver() as receiver:
        guard = settings.guard.model_copy(update={"allow": [receiver.base.removeprefix("http://")]})
        settings = settings.model_copy(update={"guard": guard, "downloads": plenty(settings.downloads)})
        async with running_downloads(settings) as downloads:
            yield Options(downloads, receiver)


def test_every_field_has_a_case(models: dict[str, tuple[type[Any], dict[str, Case]]]) -> None:
    """A field that nobody shows to matter may be one that nobody heeds."""
    for model, cases in models.values():
        assert set(model.model_fields) == set(cases), model
    assert {*Patience.model_fields, *Once.model_fields} == set(ELSEWHERE)


@pytest.mark.stack
async def test_every_field_makes_a_difference(options: Options) -> None:
    """With the other value of a field a request has another outcome; the same request twice has one, for comparison."""
    unheeded = []
    for name, case in NEW.items():
        bodies = [_body(options, name, case, value) for value in (case.one, case.other)]
        if await options.outcome(bodies[0]) == await options.outcome(bodies[1]):
            unheeded.append(name)
    for name, case in SHEET.items():
        bodies = [_sheet(options, name, case, value) for value in (case.one, case.other)]
        if await options.outcome(bodies[0]) == await options.outcome(bodies[1]):
            unheeded.append(f"sheets.{name}")
    assert unheeded == []
    for name in STEADY:
        body = _body(options, name, NEW[name], NEW[name].one)
        outcome = await options.outcome(body)
        assert outcome == await options.outcome(body), name
        assert "refused" not in outcome


def _body(options: Options, name: str, case: Case, value: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"file_name": "x", "expires_in": 604_800, "data": ROWS, **case.beside}
    if case.source is not None:
        body |= {"data": None, "source_url": options.downloads.source.url(seed=SEED, tag=TAG, **case.source)}
    return body | {name: _value(options, name, value)}


def _sheet(options: Options, name: str, case: Case, value: Any) -> dict[str, Any]:
    sheet: dict[str, Any] = {"data": ROWS, **case.beside}
    if case.source is not None:
        sheet |= {"data": None, "source_url": options.downloads.source.url(seed=SEED, tag=TAG, **case.source)}
    sheet[name] = _value(options, name, value)
    return {"file_name": "x", "expires_in": 604_800, **EXCEL, "sheets": [sheet]}


def _value(options: Options, name: str, value: Any) -> Any:
    if name == "source_url":
        return f"{options.downloads.source.base}/rows?{value}&seed={SEED}&tag={TAG}"
    if name == "callback" and value is not None:
        return options.receiver.url(tag=TAG)
    return json.loads(json.dumps(value))
