"""Watching downloads: WebSocket, server-sent events, waiting; one poller however many watch."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web
from pydantic import Field
from sqlalchemy import func, select
from temporalio.client import WorkflowHandle

from api import projects
from api.downloads import events, responses
from api.downloads.responses import DownloadMemo
from api.downloads.watching import LatestStatesSubscription
from api.http.models import Request
from api.http.routes import Call, RouteAccess, Routes
from domain.downloads.models import DownloadStatus, FileType
from domain.faults import FaultRecord
from infra.database import Database
from infra.settings import Settings
from stores.downloads.catalogue import CHANNEL
from tests.support import watchers
from tests.support.api import ApiClient, running_api
from tests.support.downloads import Downloads, expected_rows, parse_csv, running_downloads
from tests.support.waiting import PATIENCE_SECONDS, eventually

SEED = 8


@pytest.fixture
async def exports(settings: Settings) -> AsyncIterator[Downloads]:
    """API, worker and source; keys of streams are looked at every few seconds."""
    settings = settings.model_copy(update={"api": settings.api.model_copy(update={"ping_seconds": 6.0})})
    async with running_downloads(settings) as running:
        yield running


async def slow_download(exports: Downloads, rows: int = 4_000) -> str:
    """A download of forty pages that takes about four seconds."""
    return await exports.start(exports.source.url(rows=rows, seed=SEED, delay_ms=100), page_size=100)


async def test_a_websocket_tells_progress_and_the_end(exports: Downloads) -> None:
    """Rows only grow, phases go forward, the last message is the final answer, and then the socket is closed."""
    task_id = await slow_download(exports)
    async with watchers.socket(exports.api_client, exports.key, f"/v1/downloads/{task_id}/ws") as socket:
        messages = await watchers.read_messages(socket)

    rows = [message["rows"] for message in messages]
    assert rows == sorted(rows)
    assert any(0 < count < 4_000 for count in rows)
    assert messages[0]["state"] in ("pending", "running")
    assert messages[-1] == await exports.status(task_id)
    assert (messages[-1]["state"], messages[-1]["state_label"]) == ("succeeded", "处理成功")
    assert socket.close_code == aiohttp.WSCloseCode.OK


async def test_a_websocket_on_a_finished_download_tells_it_once(exports: Downloads) -> None:
    """A late watcher receives the end at once."""
    status = await exports.run(exports.source.url(rows=10))
    async with watchers.socket(exports.api_client, exports.key, f"/v1/downloads/{status['task_id']}/ws") as socket:
        assert await watchers.read_messages(socket) == [status]


@pytest.mark.long
async def test_a_project_hears_of_all_its_downloads_and_of_no_other_s(exports: Downloads) -> None:
    """One socket sends starts, progress and ends of everything that the project makes."""
    _, stranger = await exports.api_client.make_project("stranger")
    foreign = {"source_url": exports.source.url(rows=10)}
    async with watchers.socket(exports.api_client, exports.key, "/v1/downloads/ws") as socket:
        made = {await slow_download(exports), await slow_download(exports)}
        assert (await exports.api_client.ask("POST", "/v1/downloads", key=stranger, json=foreign)).status == 202
        messages: list[watchers.Answer] = []
        while sum(message["state"] == "succeeded" for message in messages) < 2:
            messages.append(await socket.receive_json(timeout=PATIENCE_SECONDS))

    assert {message["task_id"] for message in messages} == made
    assert {"running", "succeeded"} <= {message["state"] for message in messages}
    for task_id in made:
        rows = [message["rows"] for message in messages if message["task_id"] == task_id]
        assert rows == sorted(rows)


async def test_a_project_s_socket_begins_with_what_runs(exports: Downloads) -> None:
    """A watcher that connects in the middle receives what is under way."""
    task_id = await slow_download(exports, 400_000)
    await eventually(lambda: is_running(exports, task_id))
    async with watchers.socket(exports.api_client, exports.key, "/v1/downloads/ws") as socket:
        first = await socket.receive_json(timeout=PATIENCE_SECONDS)
    assert first["task_id"] == task_id


async def test_a_project_hears_of_all_its_downloads_by_events(exports: Downloads) -> None:
    """Server-sent events report starts and ends of everything, and begin at once, also before the first event."""
    headers = {"Authorization": f"Bearer {exports.key}"}
    async with exports.api_client.session.get(
        f"{exports.api_client.address}/v1/downloads/events", headers=headers
    ) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        made = {await slow_download(exports, 400), await slow_download(exports, 400)}
        ended: set[str] = set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while ended != made:
                line = (await answer.content.readline()).decode()
                told = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
                ended |= {told["task_id"]} if told.get("state") == "succeeded" else set()


async def is_running(exports: Downloads, task_id: str) -> bool:
    """Whether it is listed as running."""
    reply = await exports.api_client.ask("GET", "/v1/downloads?state=running", key=exports.key)
    return task_id in [item["task_id"] for item in reply.body["items"]]


async def test_events_tell_progress_and_the_end(exports: Downloads) -> None:
    """Server-sent events say the same as the WebSocket, each under an id of its own."""
    task_id = await slow_download(exports)
    async with watchers.events(exports.api_client, exports.key, task_id) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        told = await watchers.read_events(answer)

    rows = [event.data["rows"] for event in told]
    assert rows == sorted(rows)
    assert any(0 < count < 4_000 for count in rows)
    assert told[-1].data == await exports.status(task_id)
    assert len({event.identity for event in told}) == len(told)


async def test_events_go_on_where_a_browser_left(exports: Downloads) -> None:
    """The last event is not sent again, and after the end a client is made to stop reconnecting."""
    status = await exports.run(exports.source.url(rows=10))
    async with watchers.events(exports.api_client, exports.key, status["task_id"]) as answer:
        (last,) = await watchers.read_events(answer)
    assert last.data == status
    async with watchers.events(exports.api_client, exports.key, status["task_id"], last.identity) as again:
        assert again.status == 204
    async with watchers.events(exports.api_client, exports.key, status["task_id"], "unknown") as other:
        assert [event.data for event in await watchers.read_events(other)] == [status]


async def test_quiet_streams_are_pinged(settings: Settings) -> None:
    """While nothing happens a comment goes out, so that no proxy takes the line for dead."""
    # Not for sockets: who does not answer their pings in time, as on a busy machine, is dropped.
    often = settings.model_copy(update={"api": settings.api.model_copy(update={"ping_seconds": 0.5})})
    async with running_downloads(often) as exports:
        task_id = await exports.start(exports.source.url(rows=1_000, delay_ms=1_500), page_size=100)
        async with watchers.events(exports.api_client, exports.key, task_id) as answer:
            text = ""
            while ": ping\n\n" not in text:
                text += (await answer.content.readany()).decode()


async def test_watchers_share_one_poller(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty watchers and a caller who asks all the time cost the engine two questions a second, not forty."""
    asked: list[float] = []
    describe = WorkflowHandle.describe

    async def describe_and_count(handle: WorkflowHandle[object, object], **options: object) -> object:
        asked.append(asyncio.get_running_loop().time())
        return await describe(handle, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(WorkflowHandle, "describe", describe_and_count)
    task_id = await slow_download(exports)
    path = f"/v1/downloads/{task_id}/ws"

    async def watch() -> list[watchers.Answer]:
        async with watchers.socket(exports.api_client, exports.key, path) as socket:
            return await watchers.read_messages(socket)

    told, status = await asyncio.gather(asyncio.gather(*(watch() for _ in range(20))), exports.wait_for_end(task_id))

    assert all(messages[-1] == status for messages in told)
    assert len(asked) >= 3
    assert all(later - earlier >= 0.45 for earlier, later in pairwise(asked))


class StreamConnection:
    """The connection over which an API listens for downloads. Until it is up, no notification arrives."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up = asyncio.Event()
        self.up.set()
        self.pid: int | None = None
        listen = asyncpg.Connection.add_listener

        async def add_listener(connection: asyncpg.Connection[asyncpg.Record], channel: str, callback: Any) -> None:
            if channel == CHANNEL:
                await self.up.wait()
            await listen(connection, channel, callback)
            if channel == CHANNEL:
                self.pid = connection.get_server_pid()

        monkeypatch.setattr(asyncpg.Connection, "add_listener", add_listener)

    async def cut(self, database: Database) -> None:
        """Have PostgreSQL end it, once it listens, until it is up again."""
        await eventually(lambda: self.pid)
        self.up.clear()
        async with database.session() as session:
            ended = await session.execute(select(func.pg_terminate_backend(self.pid, round(1000 * PATIENCE_SECONDS))))
        assert ended.scalar_one() is True


async def test_what_could_not_be_heard_is_caught_up_with(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins and ends while the notifying connection is broken is sent when it is up again."""
    line = StreamConnection(monkeypatch)
    async with (
        running_downloads(settings) as exports,
        watchers.socket(exports.api_client, exports.key, "/v1/downloads/ws") as socket,
    ):
        await line.cut(exports.services.database)
        status = await exports.run(exports.source.url(rows=10))
        line.up.set()
        assert await socket.receive_json(timeout=PATIENCE_SECONDS) == status
    assert status["state"] == "succeeded"


class StreamKind(Request):
    """Which kind of stream."""

    kind: str = Field(pattern="^(ws|events)$")


async def keep_publishing(watcher: LatestStatesSubscription) -> None:
    """Push long updates, without end."""
    fault = FaultRecord(code="x", message="x" * 8_000)
    for rows in itertools.count():
        status = DownloadStatus(rows=rows, fault=fault)
        kept = DownloadMemo(type=FileType.CSV, file_name="x.csv", operator_id=None)
        watcher.queue_or_end_if_too_slow(
            responses.build_response_from_run("prj_1", "dl_1", kept, status, datetime.now(UTC))
        )
        await asyncio.sleep(0)


async def test_a_watcher_that_takes_nothing_is_dropped(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens a stream and never reads it holds neither memory nor a connection for long."""
    monkeypatch.setattr(events, "SEND_SECONDS", 0.2)
    toys, ended = Routes("toys", "A stream without end."), asyncio.Event()

    @toys.get("/toys/{kind}", access=RouteAccess.PROJECT)
    async def flood(call: Call, path: StreamKind) -> web.StreamResponse:
        """Push more than anyone reads."""
        watcher = LatestStatesSubscription()
        telling = asyncio.create_task(keep_publishing(watcher))
        try:
            if path.kind == "ws":
                return await events.send_updates_over_socket(call, watcher)
            return await events.send_updates_as_events(call, watcher, None)
        finally:
            telling.cancel()
            ended.set()

    async with running_api(settings, [projects.routes, toys]) as api_client:
        _, key = await api_client.make_project()
        for kind in ("ws", "events"):
            ended.clear()
            _, writer = await asyncio.open_connection(*api_client.host_and_port, limit=1_024)
            upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            head = f"GET /toys/{kind} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            writer.write(f"{head}{upgrade if kind == 'ws' else ''}\r\n".encode())
            await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
            writer.close()


async def test_a_plain_request_is_told_to_upgrade(exports: Downloads) -> None:
    """The address of a socket says what it is, to those who may know that it is there."""
    for path in ("/v1/downloads/ws", f"/v1/downloads/{await slow_download(exports)}/ws"):
        reply = await exports.api_client.ask("GET", path, key=exports.key)
        assert (reply.status, reply.code) == (426, "upgrade_required")
    other = await exports.api_client.ask("DELETE", "/v1/downloads/ws", key=exports.key)
    assert (other.status, other.headers["Allow"]) == (405, "GET")


async def test_a_revoked_key_ends_its_streams(exports: Downloads) -> None:
    """A stream does not outlive the key that opened it."""
    async with watchers.socket(exports.api_client, exports.key, "/v1/downloads/ws") as socket:
        revoked = await exports.api_client.as_admin("POST", f"/v1/projects/{exports.project_id}/revoke")
        assert revoked.status == 200
        message = await socket.receive(timeout=PATIENCE_SECONDS)
    assert message.type is aiohttp.WSMsgType.CLOSE
    assert message.data == aiohttp.WSCloseCode.POLICY_VIOLATION


async def test_a_project_holds_only_so_many_streams(settings: Settings) -> None:
    """One project cannot take all connections of a process; a stream that ends frees one."""
    async with running_api(settings, streams_per_project=2) as api_client:
        _, key = await api_client.make_project()
        async with watchers.socket(api_client, key, "/v1/downloads/ws"):
            async with watchers.socket(api_client, key, "/v1/downloads/ws"):
                reply = await api_client.ask("GET", "/v1/downloads/ws", key=key)
                assert (reply.status, reply.code) == (429, "too_many_streams")
                assert int(reply.headers["Retry-After"]) > 0

            async def has_free_slot() -> bool:
                return (await api_client.ask("GET", "/v1/downloads/ws", key=key)).status == 426

            await eventually(has_free_slot)


async def test_streams_end_when_the_server_stops(settings: Settings) -> None:
    """A deployment does not wait for its watchers: they are asked to reconnect."""
    async with aiohttp.ClientSession() as session:
        async with running_api(settings) as api_client:
            _, key = await api_client.make_project()
            headers = {"Authorization": f"Bearer {key}"}
            made = await api_client.ask(
                "POST", "/v1/downloads", key=key, json={"source_url": "http://example.com/rows"}
            )
            task = f"{api_client.address}/v1/downloads/{made.body['task_id']}"
            sockets = [await session.ws_connect(f"{task}/ws", headers=headers)]
            sockets.append(await session.ws_connect(f"{api_client.address}/v1/downloads/ws", headers=headers))
            events = await session.get(f"{task}/events", headers=headers)
            reading = [asyncio.create_task(watchers.read_messages(socket)) for socket in sockets]
            waiting = asyncio.create_task(
                session.post(f"{api_client.address}/v1/downloads?wait=60", headers=headers, json={"data": []})
            )
            await eventually(lambda: has_watchers(api_client, 4))
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 30
        await asyncio.gather(*reading)
        assert [socket.close_code for socket in sockets] == [aiohttp.WSCloseCode.GOING_AWAY] * 2
        assert "data: " in await events.text()
        assert (await waiting).status == 202


async def has_watchers(api_client: ApiClient, count: int) -> bool:
    """Whether as many watchers are connected, by the metrics of the process."""
    reply = await api_client.ask("GET", "/metrics")
    return f"haulage_download_watchers {count:.1f}\n" in reply.body


async def test_waiting_gets_the_file_itself(exports: Downloads) -> None:
    """A small export is one request: the answer is the file, under its name."""
    reply = await exports.api_client.session.post(
        f"{exports.api_client.address}/v1/downloads?wait=30",
        headers={"Authorization": f"Bearer {exports.key}"},
        json={"source_url": exports.source.url(rows=100, seed=SEED), "file_name": "对账"},
    )
    assert reply.status == 200
    assert parse_csv(await reply.read()) == expected_rows(SEED, range(100))
    assert reply.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert "filename*=UTF-8''%E5%AF%B9%E8%B4%A6.csv" in reply.headers["Content-Disposition"]
    assert (await exports.api_client.ask("GET", reply.headers["Location"], key=exports.key)).body[
        "state"
    ] == "succeeded"


async def test_waiting_ends_in_time(exports: Downloads) -> None:
    """What is not ready in time goes on in the background, and the response has its state."""
    wanted = {"source_url": exports.source.url(rows=1_000, delay_ms=500), "page_size": 100}
    reply = await exports.api_client.ask("POST", "/v1/downloads?wait=1", key=exports.key, json=wanted)
    assert (reply.status, reply.body["state"] in ("pending", "running")) == (202, True)
    assert (await exports.wait_for_end(reply.body["task_id"]))["state"] == "succeeded"


async def test_waiting_tells_a_failure(exports: Downloads) -> None:
    """An export that fails in time is a problem with the source's sentence, and says which download it was."""
    wanted = {"source_url": f"{exports.source.base}/rows?faults=404&rate=1"}
    reply = await exports.api_client.ask("POST", "/v1/downloads?wait=30", key=exports.key, json=wanted)
    assert (reply.status, reply.code) == (502, "download_failed")
    assert "answered 404" in reply.body["detail"]
    assert (await exports.api_client.ask("GET", reply.headers["Location"], key=exports.key)).body["state"] == "failed"
