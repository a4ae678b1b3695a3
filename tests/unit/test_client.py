"""The client says what it means, repeats what may be repeated, and tells what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from pydantic import BaseModel

from api.downloads import requests, responses
from domain.faults import FaultRecord
from haulage import (
    Align,
    ApiUnreachable,
    Client,
    DownloadRequest,
    Encoding,
    FileType,
    RequestRefused,
    Sheet,
    State,
    models,
    transport,
)
from haulage.projects import create_project
from tests.support.api_peer import TASK, ApiPeer, problem, running_api_peer, status

REQUEST = DownloadRequest(source_url="https://erp.example.com/orders")


@pytest.fixture
async def peer() -> AsyncIterator[ApiPeer]:
    """An API that says what it is told to."""
    async with running_api_peer() as running:
        yield running


@pytest.fixture
async def client(peer: ApiPeer) -> AsyncIterator[Client]:
    """A client of it."""
    async with Client(peer.url + "/", "hlg_key", patience_seconds=30.0) as opened:
        yield opened


async def test_only_what_was_set_is_sent(peer: ApiPeer, client: Client) -> None:
    """The API's defaults stay the API's."""
    peer.says(202, status())

    download = await client.create(REQUEST.model_copy(update={"encoding": Encoding.GB18030, "headers": {"A": "b"}}))

    [seen] = peer.seen
    assert seen.line == "POST /v1/downloads"
    assert seen.body == {"source_url": REQUEST.source_url, "encoding": "gb18030", "headers": {"A": "b"}}
    assert seen.headers["Authorization"] == "Bearer hlg_key"
    assert (download.task_id, download.state, download.created_at.year) == (TASK, State.RUNNING, 2026)


async def test_a_book_of_several_tables(peer: ApiPeer, client: Client) -> None:
    """Sheets, and what holds for all of them, go as the API takes them; rows keep their nulls."""
    files = {"files": 2, "left_out": ["id"], "warnings": ["Column A is empty."], "file_name": "orders.zip"}
    peer.says(202, status(**files))
    sheets = [Sheet(name="A", data=[{"a": None}]), Sheet(source_url="https://erp.example.com/b", template={"b": "B"})]

    download = await client.create(DownloadRequest(type=FileType.EXCEL, sheets=sheets, col_align=Align.LEFT))

    [seen] = peer.seen
    assert seen.body == {
        "type": "excel",
        "sheets": [
            {"name": "A", "data": [{"a": None}]},
            {"source_url": "https://erp.example.com/b", "template": {"b": "B"}},
        ],
        "col_align": "left",
    }
    assert (download.files, download.left_out, download.warnings) == (2, ("id",), ("Column A is empty.",))


async def test_a_repeated_request_cannot_start_twice(peer: ApiPeer, client: Client) -> None:
    """Whether the first attempt arrived or not, the idempotency key is the same."""
    peer.says(503, problem(503, "unavailable", "Try again."))
    peer.says(0, None)
    peer.says(202, status())

    await client.create(REQUEST)

    keys = [seen.headers["Idempotency-Key"] for seen in peer.seen]
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_what_would_be_made_twice_is_not_repeated(peer: ApiPeer) -> None:
    """A second project, after the connection was lost on which the first may have been created."""
    peer.says(0, None)
    with pytest.raises(ApiUnreachable, match=r"POST /v1/projects may have been carried out: look before you repeat"):
        await create_project(peer.url, "admin", "shop")
    peer.says(503, problem(503, "unavailable", "Try again."))
    with pytest.raises(RequestRefused, match=r"Try again\. POST /v1/projects may have been carried out"):
        await create_project(peer.url, "admin", "shop")
    peer.says(502, "<html>")
    with pytest.raises(RequestRefused, match=r"answered 502, not as Haulage does\. POST /v1/projects may have been"):
        await create_project(peer.url, "admin", "shop")
    assert len(peer.seen) == 3


async def test_what_was_not_begun_is_repeated(peer: ApiPeer) -> None:
    """A request over the limit of requests, or of a paused system, has made nothing."""
    peer.says(429, problem(429, "too_many_requests", "Wait."))
    peer.says(503, problem(503, "system_paused", "Wait for ann."))
    peer.says(201, {"key": {"api_key": "hlg_new"}})
    assert await create_project(peer.url, "admin", "shop") == "hlg_new"


async def test_the_same_request_on_purpose(peer: ApiPeer, client: Client) -> None:
    """Two calls are two downloads."""
    for _ in range(2):
        peer.says(202, status())
        await client.create(REQUEST)

    assert peer.seen[0].headers["Idempotency-Key"] != peer.seen[1].headers["Idempotency-Key"]


async def test_own_idempotency_key(peer: ApiPeer, client: Client) -> None:
    """A caller that has a name for the request gives it."""
    peer.says(202, status())

    await client.create(REQUEST, idempotency_key="order-7")

    assert peer.seen[0].headers["Idempotency-Key"] == "order-7"


async def test_a_refusal_says_why(peer: ApiPeer, client: Client) -> None:
    """Code for programs, sentence for people, and it is not asked again."""
    errors = [{"path": "page_size", "message": "7 is under 100."}]
    peer.says(422, problem(422, "invalid_request", "The request is wrong.", errors=errors))

    with pytest.raises(RequestRefused, match=r"The request is wrong\. page_size: 7 is under 100\.") as refused:
        await client.create(REQUEST)

    assert (refused.value.status, refused.value.code, refused.value.request_id) == (422, "invalid_request", "req-1")
    assert len(peer.seen) == 1


async def test_a_refusal_names_each_field_once(peer: ApiPeer, client: Client) -> None:
    """Its sentence names the first and counts the others, which follow instead."""
    errors = [{"path": "page_size", "message": "7 is under 100."}, {"path": "title", "message": "it is empty."}]
    detail = "page_size: 7 is under 100. 1 more under `errors`."
    peer.says(422, problem(422, "invalid_request", detail, errors=errors))

    with pytest.raises(RequestRefused) as refused:
        await client.create(REQUEST)

    assert str(refused.value) == "page_size: 7 is under 100. title: it is empty."


async def test_a_quota_that_outlasts_patience_is_a_refusal(peer: ApiPeer, client: Client) -> None:
    """Retry-After is believed: waiting less would be refused again."""
    peer.says(429, problem(429, "quota_exceeded", "60 a minute."), **{"Retry-After": "40"})

    with pytest.raises(RequestRefused, match="60 a minute"):
        await client.create(REQUEST)

    assert len(peer.seen) == 1


async def test_another_server_is_told_apart(peer: ApiPeer, client: Client) -> None:
    """A page of HTML is no Haulage API, whatever its status."""
    for code in (200, 404):
        peer.says(code, "<html>")
        with pytest.raises(RequestRefused, match=f"answered {code}, not as Haulage does"):
            await client.read(TASK)


async def test_an_address_without_an_api_is_said_while_it_is_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, so that a wrong port is seen before the end of the patience."""
    monkeypatch.setattr(transport, "NO_ANSWER_LOGGED_SECONDS", 0.1)
    async with Client("http://127.0.0.1:9", "k", patience_seconds=1.0) as lost:
        with pytest.raises(ApiUnreachable):
            await lost.read("dl_1")
    assert [record.getMessage() for record in caplog.records] == [
        "request_waits: for up to 1 s: http://127.0.0.1:9 does not answer (connection refused)."
    ]


def test_the_type_comes_from_the_name_of_the_file() -> None:
    """The API would write CSV under the name of a workbook."""
    assert DownloadRequest(file_name="a.xlsx").body() == {"file_name": "a.xlsx", "type": "excel"}
    assert DownloadRequest(file_name="a.xlsx", type=FileType.CSV).body()["type"] == "csv"
    assert "type" not in DownloadRequest(file_name="a").body()


async def test_nobody_there(client: Client, peer: ApiPeer) -> None:
    """Patience ends."""
    async with Client("http://127.0.0.1:9", "k", patience_seconds=0.3) as lost:
        with pytest.raises(ApiUnreachable, match=r"http://127\.0\.0\.1:9 does not answer"):
            await lost.read(TASK)


async def test_watch_tells_each_change_to_the_end(peer: ApiPeer, client: Client) -> None:
    """The same twice is told once; the end is the last."""
    for rows in (0, 5, 5):
        peer.says(200, status(rows=rows, total=9))
    peer.says(200, status(state="failed", rows=5, fault={"code": "c", "message": "Broken.", "hint": "Mend it."}))

    told = [download async for download in client.watch(TASK)]

    assert [(one.state, one.rows) for one in told] == [("running", 0), ("running", 5), ("failed", 5)]
    assert told[-1].fault is not None
    assert told[-1].fault.sentence == "Broken. Mend it."


async def test_list_follows_the_pages(peer: ApiPeer, client: Client) -> None:
    """All pages are one list; the filter goes with each."""
    peer.says(200, {"items": [status(), status(rows=1)], "next_cursor": "more"})
    peer.says(200, {"items": [status(rows=2)], "next_cursor": None})

    found = [download.rows async for download in client.list(state=State.RUNNING, operator_id="op", source_host="h")]

    assert found == [0, 1, 2]
    assert [seen.query for seen in peer.seen] == [
        {"state": "running", "operator_id": "op", "source_host": "h"},
        {"state": "running", "operator_id": "op", "source_host": "h", "cursor": "more"},
    ]


async def test_cancel(peer: ApiPeer, client: Client) -> None:
    """Cancelling answers where the download stands."""
    peer.says(200, status(state="cancelled"))

    assert (await client.cancel(TASK)).state is State.CANCELLED
    assert peer.seen[0].line == f"POST /v1/downloads/{TASK}/cancel"


@pytest.mark.parametrize(
    ("server", "client_model", "only_server"),
    [
        pytest.param(requests.DownloadRequest, models.DownloadRequest, {"project_id"}, id="request"),
        pytest.param(requests.TableOnOwnSheetRequest, models.Sheet, (), id="sheet"),
        pytest.param(FaultRecord, models.Fault, {"retryable"}, id="fault"),
        pytest.param(
            responses.DownloadResponse,
            models.Download,
            {
                "fetchers",
                "state_label",
                "operator_id",
                "times_processed",
                "project_id",
                "rows_per_second",
                "started_at",
                "type",
            },
            id="download",
        ),
    ],
)
def test_models_have_the_fields_of_the_api(
    server: type[BaseModel], client_model: type[BaseModel], only_server: Iterable[str]
) -> None:
    """Except for those that are named here with the pair: what the API adds is noticed."""
    assert server.model_fields.keys() - client_model.model_fields.keys() == set(only_server)
    assert client_model.model_fields.keys() - server.model_fields.keys() == set()


async def test_an_answer_that_calls_the_request_deprecated_is_logged_once(
    peer: ApiPeer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is newer than the client says until when it takes the request."""
    for _ in range(2):
        peer.says(200, status(), Deprecation="@1796083200", Sunset="Tue, 01 Jun 2027 00:00:00 GMT")
        await client.read(TASK)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("request_deprecated: GET ")
    assert line.endswith(" may fail after Tue, 01 Jun 2027 00:00:00 GMT; update the client")


async def test_what_speaks_no_http_is_no_api() -> None:
    """Such as the port of a database: a sentence, where it was an error of the HTTP library."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}", "hlg_key", patience_seconds=0.1) as client:
            with pytest.raises(ApiUnreachable, match="does not answer: what answers there speaks no HTTP"):
                await client.read(TASK)
