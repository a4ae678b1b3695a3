"""Asking for a download: the seed's request, every bound with its sentence, rows sent along, and keys to ask once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from api.downloads import creation
from api.downloads.requests import DownloadRequest
from domain.downloads.models import DownloadSpec
from stores.tables.downloads import Download
from tests.support.downloads import Downloads, expected_rows, parse_csv

SEED = 8
SECRET = "planted-secret-of-a-header"


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


async def create(exports: Downloads, **request: Any) -> tuple[int, str, str]:
    """Send a request; return status, code and the joined messages of all fields."""
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json=request)
    if reply.status == 202:
        return 202, "", reply.body["task_id"]
    sentences = [f"{error['path']}: {error['message']}" for error in reply.body["errors"]]
    return reply.status, reply.code, " ".join(sentences) or reply.body["detail"]


async def test_the_seed_s_request_works_word_for_word(exports: Downloads) -> None:
    """Every field that the seed names is taken; those for spreadsheets change nothing in a CSV."""
    request = {
        "source_url": exports.source.url(rows=1_234, seed=SEED),
        "project_id": exports.project_id,
        "file_name": "充值明细",
        "title": "充值明细表",
        "summary": "四月<br>全部油站",
        "type": "csv",
        "operator_id": "10086",
        "template": [{"name": "source", "title": "来源方式"}, {"title": "充值", "children": [{"name": "wechat"}]}],
        "callback": f"{exports.source.base}/done",
        "page_size": 500,
    }
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json=request)
    assert reply.status == 202, reply.body
    assert reply.headers["Location"] == f"/v1/downloads/{reply.body['task_id']}"
    status = await exports.wait_for_end(reply.body["task_id"])
    assert (status["state"], status["file_name"], status["operator_id"]) == ("succeeded", "充值明细.csv", "10086")
    assert parse_csv(await exports.file(status["task_id"])) == expected_rows(SEED, range(1_234))


async def test_what_is_left_out_has_the_seed_s_defaults(exports: Downloads) -> None:
    """CSV, 500 rows a page, and a name of date, time and random letters."""
    status = await exports.run(exports.source.url(rows=501))
    assert status["type"] == "csv"
    assert set(exports.source.requests(page_size=500)) == {0, 1}
    name, _, extension = status["file_name"].rpartition(".")
    day, time, letters = name.split("-")
    assert (len(day), len(time), extension) == (8, 6, "csv")
    assert letters


SENTENCES: list[tuple[dict[str, Any], str]] = [
    ({"source_url": ""}, "source_url: it has 0 characters; send 1–4000."),
    ({"source_url": "http://a.example/" + "x" * 4_000}, "source_url: it has 4,017 characters; send 1–4000."),
    ({"source_url": None}, "it has neither of source_url and data; send one of them."),
    ({"data": [{"a": 1}]}, "it has both of source_url and data; send one of them."),
    ({"source_url": None, "data": [], "headers": {"A": "b"}}, "it has headers for a source, but the rows come as data"),
    ({"source_url": None, "data": [1]}, "data[0]: a number was sent where an object belongs; send an object."),
    ({"source_url": None, "data": 1}, "data: a number was sent where an array belongs; send an array."),
    ({"source_url": None, "data": {}}, "data: an object of row lists belongs to row heads, which only Excel has;"),
    ({"source_url": None, "data": [], "first_page": 1}, "first_page: it is about the pages of a source, but the rows"),
    ({"source_url": None, "data": [], "columns": "open"}, "columns: it is about the pages of a source, but the rows"),
    ({"source_url": None, "data": [], "allow_repeats": True}, "allow_repeats: it is about the pages of a source"),
    (
        {"type": "parquet", "encoding": "utf-8"},
        "encoding: it is about CSV files, and the type is parquet; leave it out",
    ),
    ({"type": "excel", "formula_guard": False}, "formula_guard: it is about CSV files, and the type is excel; leave"),
    ({"page_size": 99}, "page_size: 99 is outside 100–1000; choose a value in that range."),
    ({"page_size": 1_001}, "page_size: 1001 is outside 100–1000; choose a value in that range."),
    ({"page_size": "500"}, "page_size: “500” is a string; send an integer, without quotes."),
    ({"type": "pdf"}, "type: “pdf” is not one of 'csv', 'parquet' or 'excel'; choose one of them."),
    ({"type": "excel", "template": [{"width": "x"}]}, "template[0].width: it is “x”; send a number from"),
    ({"multi": "page", "title": ["a", "b"]}, "type: a csv file holds one table, and 2 are asked for; send excel, or"),
    ({"encoding": "latin-1"}, "encoding: “latin-1” is not one of 'utf-8-bom', 'utf-8' or 'gb18030'"),
    ({"columns": "any"}, "columns: “any” is not one of 'closed' or 'open'; choose one of them."),
    ({"time_zone": "Mars/Olympus"}, "time_zone: “Mars/Olympus” is no IANA time zone; send one like Asia/Shanghai."),
    ({"time_zone": "../etc/passwd"}, "is no IANA time zone"),
    ({"expires_in": 59}, "expires_in: 59 is outside 60–2592000; choose a value in that range."),
    ({"expires_in": 2_592_001}, "expires_in: 2592001 is outside 60–2592000"),
    ({"max_exec_time": 0}, "max_exec_time: 0 is outside 1–86400; choose a value in that range."),
    ({"force_continue": "yes"}, "force_continue: a string was sent where true or false belongs; send true or false."),
    ({"formula_guard": 1}, "formula_guard: a number was sent where true or false belongs; send true or false."),
    ({"file_name": "x" * 201}, "file_name: it has 201 characters; send 200 or less."),
    ({"title": "x" * 201}, "title: it has 201 characters; send 200 or less."),
    ({"summary": "x" * 8_001}, "summary: it has 8,001 characters; send 8000 or less."),
    ({"operator_id": "x" * 65}, "operator_id: it has 65 characters; send 64 or less."),
    ({"template": "name"}, "template: it is neither an object nor an array; send a tree of column heads."),
    ({"template": ["x" * 100_000]}, "template: it has 100,004 characters; send 100,000 or less."),
    ({"headers": {"A b": "c"}}, "headers: “A b” is no name of a header; use 1–100 letters, digits and hyphens."),
    ({"headers": {"Host": "c"}}, "headers: Host cannot be set: HTTP or we ourselves decide it. Remove it."),
    ({"headers": {"content-LENGTH": "7"}}, "headers: content-LENGTH cannot be set"),
    ({"headers": {"A": "b\r\nC: d"}}, "headers: the value of A is not 0–4000 printable ASCII characters"),
    ({"headers": {"A": "密"}}, "headers: the value of A is not 0–4000 printable ASCII characters"),
    ({"headers": {"A": "1", "a": "2"}}, "headers: a name comes twice, in different cases; send it once."),
    ({"headers": {f"A{n}": "x" * 3_999 for n in range(5)}}, "headers: they have 20,005 characters in all; send 16,000"),
    ({"headers": {f"A{n}": "x" for n in range(51)}}, "headers: it has 51 entries; send 50 or less."),
    ({"headers": {"A": 1}}, "headers.A: a number was sent where a string belongs; send a string."),
    ({"source_urls": "x"}, "source_urls: there is no such field; did you mean source_url?"),
]


@pytest.mark.parametrize(("change", "sentence"), SENTENCES, ids=lambda value: str(value)[:60])
async def test_each_bound_has_its_sentence(exports: Downloads, change: dict[str, Any], sentence: str) -> None:
    """The message has the value and what is allowed, and nothing is started."""
    status, code, told = await create(exports, **{"source_url": exports.source.url(rows=10)} | change)
    assert (status, code) == (422, "invalid_request")
    assert sentence in told
    listed = await exports.api_client.ask("GET", "/v1/downloads", key=exports.key)
    assert listed.body["items"] == []


@pytest.mark.parametrize(
    ("field", "url", "code"),
    [
        ("source_url", "ftp://example.com/x", "invalid_url"),
        ("source_url", "http://user:word@example.com/", "invalid_url"),
        ("source_url", "http://169.254.169.254/latest", "address_denied"),
        ("callback", "javascript:alert(1)", "invalid_url"),
        ("callback", "http://10.0.0.7/done", "address_denied"),
    ],
)
async def test_addresses_are_judged_at_the_door(exports: Downloads, field: str, url: str, code: str) -> None:
    """Source and callback alike must be addresses that we may call."""
    status, told, _ = await create(exports, **{"source_url": exports.source.url(rows=10)} | {field: url})
    assert (status, told) == (422, code)


async def test_another_project_s_id_is_not_there(exports: Downloads) -> None:
    """The project is that of the key: naming another one reveals nothing about it."""
    foreign, _ = await exports.api_client.make_project("stranger")
    for project_id in (foreign, "prj_" + "0" * 16, "any"):
        told = await create(exports, source_url=exports.source.url(rows=10), project_id=project_id)
        assert told[:2] == (404, "not_found")


async def test_rows_sent_along_keep_every_digit(exports: Downloads) -> None:
    """Numbers and texts arrive as they were written, not as a parser would write them again."""
    body = """{"file_name": "inline", "data": [
        {"id": 12345678901234567890123, "price": 1.10, "tiny": 1e-7, "name": "表\\u0041, \\"x\\"", "none": null},
        {"id": -0, "price": 0.1000000000000000055511151231257827, "tiny": 0.0, "name": "", "none": true}
    ]}"""
    headers = {"Content-Type": "application/json"}
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, data=body.encode(), headers=headers)
    assert reply.status == 202, reply.body
    status = await exports.wait_for_end(reply.body["task_id"])
    assert (status["state"], status["rows"]) == ("succeeded", 2), status
    assert parse_csv(await exports.file(status["task_id"])) == [
        ["id", "price", "tiny", "name", "none"],
        ["12345678901234567890123", "1.10", "1e-7", '表A, "x"', ""],
        ["-0", "0.1000000000000000055511151231257827", "0.0", "", "true"],
    ]
    kept = await exports.leftovers()
    assert [key for key in kept if not key.startswith("files/")] == []


async def test_source_address_and_headers_are_sealed_everywhere(exports: Downloads) -> None:
    """Neither the catalogue nor the engine's history holds what may be a password."""
    url = exports.source.url(rows=10, token=SECRET)
    callback = f"{exports.source.base}/done?{SECRET}"
    task_id = await exports.start(url, headers={"Authorization": f"Bearer {SECRET}"}, callback=callback)
    await exports.wait_for_end(task_id)
    async with exports.services.database.session() as session:
        row = await session.get(Download, task_id)
    assert row is not None
    handle = exports.services.engine.get_workflow_handle(f"download:{exports.project_id}:{task_id}")
    history = await handle.fetch_history()
    assert SECRET not in json.dumps(row.request) + history.to_json()
    order = DownloadSpec.model_validate(row.request)
    assert order.source_headers is not None
    assert json.loads(exports.services.sealer.open(order.source_headers)) == {"Authorization": f"Bearer {SECRET}"}


async def test_the_same_key_and_body_are_the_same_download(exports: Downloads) -> None:
    """However often it is sent, also at once and in another spelling, one download is made."""
    wanted = {"source_url": exports.source.url(rows=10), "page_size": 200}
    spelled = {"page_size": 200, "type": "csv", **wanted}

    async def ask(body: dict[str, Any]) -> Any:
        return await exports.api_client.ask(
            "POST", "/v1/downloads", key=exports.key, json=body, headers={"Idempotency-Key": "order-4711"}
        )

    replies = await asyncio.gather(*(ask(body) for body in [wanted, spelled] * 5))
    assert {reply.status for reply in replies} == {202}
    task_ids = {reply.body["task_id"] for reply in replies}
    assert len(task_ids) == 1
    status = await exports.wait_for_end(task_ids.pop())
    replayed = await ask(wanted)
    assert replayed.body == status
    assert replayed.headers["Idempotency-Replayed"] == "true"
    listed = await exports.api_client.ask("GET", "/v1/downloads", key=exports.key)
    assert [item["task_id"] for item in listed.body["items"]] == [status["task_id"]]


async def test_the_same_key_with_another_body_is_refused(exports: Downloads) -> None:
    """A key belongs to one request; it is free for every other project."""
    headers = {"Idempotency-Key": "order-4711"}
    wanted = {"source_url": exports.source.url(rows=10)}
    first = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json=wanted, headers=headers)
    other = {**wanted, "page_size": 200}
    second = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json=other, headers=headers)
    assert (second.status, second.code) == (422, "idempotency_key_reused")
    _, stranger = await exports.api_client.make_project("stranger")
    third = await exports.api_client.ask("POST", "/v1/downloads", key=stranger, json=other, headers=headers)
    assert (first.status, third.status) == (202, 202)
    assert first.body["task_id"] != third.body["task_id"]


async def test_the_same_key_with_other_digits_is_refused(exports: Downloads) -> None:
    """Rows that come along are the same when their text is: neither digits nor the order of columns are overlooked."""

    async def ask(rows: str) -> tuple[int, str]:
        headers = {"Idempotency-Key": "order-4711", "Content-Type": "application/json"}
        reply = await exports.api_client.ask(
            "POST", "/v1/downloads", key=exports.key, data=f'{{"data": {rows}}}', headers=headers
        )
        return reply.status, reply.body.get("code", reply.body.get("task_id"))

    first = await ask('[{"a": 1.0, "b": 2}]')
    assert first[0] == 202
    assert await ask('[{"a": 1.0, "b": 2}]') == first
    for other in ('[{"a": 1.00000000000000000001, "b": 2}]', '[{"b": 2, "a": 1.0}]'):
        assert await ask(other) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", "x" * 256, "two words", "schlüssel"])
async def test_a_key_that_is_none_is_told(exports: Downloads, key: str) -> None:
    """1 to 255 visible ASCII characters."""
    wanted = {"source_url": exports.source.url(rows=10)}
    reply = await exports.api_client.ask(
        "POST", "/v1/downloads", key=exports.key, json=wanted, headers={"Idempotency-Key": key}
    )
    assert (reply.status, reply.code) == (422, "invalid_request")
    [error] = reply.body["errors"]
    assert error["path"] == "Idempotency-Key"
    assert error["message"] == "it has another form; send 1 to 255 visible ASCII characters, without spaces."


async def test_a_claim_whose_start_failed_is_taken_up(exports: Downloads) -> None:
    """A request that broke off after its key was noted does not block the key: sent again, it starts the download."""
    wanted, task_id = {"source_url": exports.source.url(rows=10)}, "dl_" + "7" * 24
    fingerprint = creation.fingerprint_request(DownloadRequest.model_validate(wanted))
    await creation.claim_idempotency_key(
        exports.services.database, exports.project_id, "order-4711", fingerprint, task_id
    )
    reply = await exports.api_client.ask(
        "POST", "/v1/downloads", key=exports.key, json=wanted, headers={"Idempotency-Key": "order-4711"}
    )
    assert (reply.status, reply.body["task_id"]) == (202, task_id)
    assert (await exports.wait_for_end(task_id))["state"] == "succeeded"
