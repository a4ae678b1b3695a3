"""A source that repeats the caller's secrets in its answers: they are in no fault, history, table or log."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from domain.downloads import names
from infra.settings import Settings
from stores.tables.downloads import Download
from tests.support.downloads import Downloads, running_downloads
from tests.support.selecting import combine_and_mark_long_except

BEARER = "Zq7-bearer-wyzr0x/vktqpl"
PASSWORD = "Kx9:hunter/2"
SIGNATURE = "Wm4signature8zqxjv"
HEADERS = {
    "Authorization": f"Bearer {BEARER}",
    "X-Login": f"Basic {base64.b64encode(PASSWORD.encode()).decode()}",
}
PIECES = (BEARER[:4], "wyzr0x", "vktqpl", "hunter", SIGNATURE[:4], "zqxjv", HEADERS["X-Login"][6:12])
"""No part of a secret that would show which one it is. None looks like a piece of an id: histories hold many."""
CONTROL = "echo-of-"
"""The text before it in each answer, which shows that the right texts are searched."""
CODES = {
    "refusal": "source_status",
    "busy": "source_status",
    "broken": "source_not_json",
    "cut": "source_cut_off",
    "envelope": "source_refused",
    "total": "source_bad_total",
    "late_key": "source_new_column",
}
PADDINGS = (0, 50)
OFTEN = tuple(zip(itertools.cycle(PADDINGS), CODES, strict=False))
"""Each kind of echo with one padding or the other."""

pytestmark = pytest.mark.stack


def answer(kind: str, page: int, size: int, said: str) -> web.Response:
    """What a source says that repeats what it was asked with."""
    rows = [{"id": n} for n in range(page * size, (page + 1) * size)]
    match kind:
        case "refusal":
            return web.Response(status=403, text=f"{CONTROL}{said}")
        case "busy":
            return web.Response(status=429, text=f"{CONTROL}{said}", headers={"Retry-After": "2"})
        case "broken":
            return web.Response(text=f"{CONTROL}{said}")
        case "cut":
            return web.Response(text=json.dumps({CONTROL: said})[:-1])
        case "envelope":
            return web.json_response({"status": 500, "msg": f"{CONTROL}{said}", "data": []})
        case "total":
            return web.json_response({"total": f"{CONTROL}{said}", "data": rows})
    keys = {f"{CONTROL}{said}": 1} if page == 1 else {}
    return web.json_response({"total": 2_000, "data": [row | keys for row in rows]})


@asynccontextmanager
async def echoing_source() -> AsyncIterator[str]:
    """A source that repeats headers and address; what it answers first of kind `busy` is a request to wait."""
    asked: dict[str, int] = {}

    async def rows(request: web.Request) -> web.Response:
        kind, padding = request.match_info["kind"], int(request.match_info["padding"])
        asked[kind] = asked.get(kind, 0) + 1
        credentials = request.headers["X-Login"].removeprefix("Basic ")
        said = " ".join(
            (
                *("-" * padding, request.headers["Authorization"], credentials),
                *(base64.b64decode(credentials).decode(), request.query["sign"], str(request.rel_url)),
            )
        )
        is_over = kind == "busy" and asked[kind] > 2
        page, size = int(request.query["page"]), int(request.query["page_size"])
        return answer("refusal" if is_over else kind, page, size, said)

    app = web.Application()
    app.router.add_get("/{kind}/{padding}", rows)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """The address of a source that repeats what it is asked with."""
    async with echoing_source() as base:
        yield base


@pytest.fixture
async def exports(settings: Settings, echo: str) -> AsyncIterator[Downloads]:
    """API and worker that may ask this source."""
    guard = settings.guard.model_copy(update={"allow": [echo.removeprefix("http://")]})
    async with running_downloads(settings.model_copy(update={"guard": guard})) as running:
        yield running


@pytest.mark.parametrize(("padding", "kind"), combine_and_mark_long_except(PADDINGS, CODES, often=OFTEN))
async def test_an_echo_of_a_secret_goes_nowhere(
    exports: Downloads, echo: str, kind: str, padding: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused, busy, broken, or a wrong page: no quote contains a secret, whole or cut."""
    with capture_logs() as logs:
        url = f"{echo}/{kind}/{padding}?sign={SIGNATURE}"
        status = await exports.run(url, headers=HEADERS, page_size=100)
    assert (status["state"], status["fault"]["code"]) == ("failed", CODES[kind])
    async with exports.services.database.session() as session:
        row = await session.get(Download, status["task_id"])
    handle = exports.services.engine.get_workflow_handle(
        names.build_download_workflow_id(exports.project_id, status["task_id"])
    )
    attempts = await exports.api_client.ask("GET", f"/v1/downloads/{status['task_id']}/attempts", key=exports.key)
    places = {
        "status": json.dumps(status),
        "attempts": json.dumps(attempts.body),
        "table": repr(row),
        "history": _plain(json.loads((await handle.fetch_history()).to_json())),
        "log": repr(logs) + caplog.text,
    }

    # Everything else is quoted in faults.
    assert {place for place, text in places.items() if CONTROL not in text} == set()
    assert [(place, piece) for place, text in places.items() for piece in PIECES if piece in text] == []


def _plain(value: object) -> str:
    """All texts of a history; payloads are base64 in its JSON form."""
    match value:
        case {"data": str() as data, "metadata": _}:
            return base64.b64decode(data).decode(errors="replace")
        case dict():
            return " ".join(map(_plain, value.values()))
        case list():
            return " ".join(map(_plain, value))
        case _:
            return str(value)
