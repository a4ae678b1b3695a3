"""Lists of downloads: filters, pages, and nothing of another project."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from domain.downloads.models import StoredFile
from infra.settings import Settings
from services import services
from stores.tables.downloads import Download
from tests.support.api import ApiClient, running_api

pytestmark = pytest.mark.stack

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(number: int, project_id: str, **changes: Any) -> Download:
    """The row of a download that succeeded *number* minutes past noon."""
    task_id = f"dl_{number:024d}"
    moment = NOON + timedelta(minutes=number)
    values: dict[str, Any] = {
        "task_id": task_id,
        "project_id": project_id,
        "operator_id": f"op-{number % 3}",
        "source_hosts": [f"shop-{number % 4}.example.com"],
        "file_name": f"Report_{number}.csv",
        "type": "csv",
        "state": "succeeded",
        "created_at": moment,
        "started_at": moment,
        "finished_at": moment + timedelta(seconds=10),
        "processings": 1,
        "total_rows": 1_000,
        "rows": 1_000,
        "bytes": 5_000,
        "file": {},
        "expires_at": datetime(2100, 1, 1, tzinfo=UTC),
        "request": {},
    }
    return Download(**values | changes)


@pytest.fixture
async def api_client(settings: Settings) -> AsyncIterator[ApiClient]:
    """The whole API; each test fills tables of its own."""
    async with running_api(settings) as api_client:
        yield api_client


async def insert_rows(api_client: ApiClient, *rows: Download) -> None:
    """Put rows into the catalogue."""
    async with services.open_services(api_client.settings) as held, held.database.session() as session:
        session.add_all(rows)


async def list_numbers(api_client: ApiClient, key: str, **query: str | int) -> list[int]:
    """The numbers of the downloads that a query finds, in order."""
    reply = await api_client.ask("GET", f"/v1/downloads?{urlencode(query)}", key=key)
    assert reply.status == 200, reply.body
    return [int(item["task_id"].removeprefix("dl_")) for item in reply.body["items"]]


async def test_pages_hold_everything_once_newest_first(api_client: ApiClient) -> None:
    """The cursor of each page leads to the next, also among downloads of the same moment."""
    project_id, key = await api_client.make_project()
    moments = [NOON + timedelta(minutes=number // 4) for number in range(23)]
    await insert_rows(
        api_client, *(row(number, project_id, created_at=moment) for number, moment in enumerate(moments))
    )
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        reply = await api_client.ask("GET", f"/v1/downloads?{urlencode({'limit': 5, **cursor})}", key=key)
        seen += [int(item["task_id"].removeprefix("dl_")) for item in reply.body["items"]]
        if reply.body["next_cursor"] is None:
            break
        cursor = {"cursor": reply.body["next_cursor"]}
    assert seen == list(reversed(range(23)))


async def test_each_filter_selects(api_client: ApiClient) -> None:
    """State, operator, type, a part of the name, and times; several together narrow down."""
    project_id, key = await api_client.make_project()
    await insert_rows(
        api_client,
        *(row(number, project_id) for number in range(6)),
        row(6, project_id, state="failed", fault={"code": "x", "message": "y"}, file=None, expires_at=None),
        row(7, project_id, state="running", rows=None, bytes=None, finished_at=None, file=None, expires_at=None),
        row(8, project_id, expires_at=NOON),
        row(9, project_id, state="expired", type="parquet", file_name="50%_销售.parquet"),
    )
    times = {"created_after": "2026-01-01T12:02:00Z", "created_before": "2026-01-01T20:04:00+08:00"}
    expected: list[tuple[dict[str, str | int], list[int]]] = [
        ({"state": "succeeded"}, [5, 4, 3, 2, 1, 0]),
        ({"state": "failed"}, [6]),
        ({"project_id": project_id, "state": "running"}, [7]),
        ({"task_id": "dl_" + "0" * 23 + "3"}, [3]),
        ({"task_id": "dl_" + "0" * 23 + "3", "state": "failed"}, []),
        ({"state": "running"}, [7]),
        ({"state": "expired"}, [9, 8]),
        ({"state": "pending"}, []),
        ({"type": "parquet"}, [9]),
        ({"operator_id": "op-1"}, [7, 4, 1]),
        ({"source_host": "Shop-2.example.com"}, [6, 2]),
        ({"source_host": "shop"}, []),
        ({"file_name": "PORT_5"}, [5]),
        ({"file_name": "%_销"}, [9]),
        ({"file_name": "_"}, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (dict(times), [3, 2]),
        ({"operator_id": "op-1", "state": "succeeded", "limit": 1}, [4]),
    ]
    assert [await list_numbers(api_client, key, **query) for query, _ in expected] == [
        numbers for _, numbers in expected
    ]


async def test_a_line_tells_what_the_catalogue_knows(api_client: ApiClient) -> None:
    """State and label, sizes and times; a file whose time is over has expired before anything swept it away."""
    project_id, key = await api_client.make_project()
    await insert_rows(api_client, row(1, project_id), row(2, project_id, expires_at=NOON))
    reply = await api_client.ask("GET", "/v1/downloads", key=key)
    gone, kept = reply.body["items"]
    assert kept == {
        "task_id": "dl_" + "0" * 23 + "1",
        "project_id": project_id,
        "state": "succeeded",
        "state_label": "处理成功",
        "type": "csv",
        "file_name": "Report_1.csv",
        "operator_id": "op-1",
        "source_hosts": ["shop-1.example.com"],
        "rows": 1_000,
        "total": 1_000,
        "bytes": 5_000,
        "files": None,
        "left_out": [],
        "warnings": [],
        "times_processed": 1,
        "fault": None,
        "created_at": "2026-01-01T12:01:00Z",
        "started_at": "2026-01-01T12:01:00Z",
        "finished_at": "2026-01-01T12:01:10Z",
        "expires_at": "2100-01-01T00:00:00Z",
        "workflow_id": f"download:{project_id}:dl_{'0' * 23}1",
    }
    assert (gone["state"], gone["state_label"]) == ("expired", "已过期")
    alone = await api_client.ask("GET", f"/v1/downloads/{kept['task_id']}", key=key)
    assert alone.body == {**kept, "phase": "done", "trouble": None, "fetchers": None, "rows_per_second": 100}


async def test_a_line_tells_what_became_of_the_file(api_client: ApiClient) -> None:
    """How many books it holds, what they leave out, and what one should know of them."""
    project_id, key = await api_client.make_project()
    told: dict[str, Any] = {"files": 3, "left_out": ["id"], "warnings": ["The column City is empty."]}
    file = StoredFile(key="k", name="report.zip", rows=1_000, bytes=5_000, etag="e", **told)
    await insert_rows(api_client, row(1, project_id, file=file.model_dump()))
    [line] = (await api_client.ask("GET", "/v1/downloads", key=key)).body["items"]
    alone = await api_client.ask("GET", f"/v1/downloads/{line['task_id']}", key=key)
    for answer in (line, alone.body):
        assert {name: answer[name] for name in told} == told


async def test_failures_are_listed_by_their_cause(api_client: ApiClient) -> None:
    """By the code of the fault, with the other filters and in pages; a download without a fault has no cause."""
    project_id, key = await api_client.make_project()
    other, _ = await api_client.make_project("other")
    causes = ["source_status", "source_not_json", "source_status", None, "source_status"]
    rows = [
        row(number, project_id, state="failed", fault={"code": cause, "message": "m", "hint": "h"} if cause else None)
        for number, cause in enumerate(causes)
    ]
    await insert_rows(
        api_client, *rows, row(9, other, state="failed", fault={"code": "source_status", "message": "m", "hint": "h"})
    )
    assert await list_numbers(api_client, key, cause="source_status") == [4, 2, 0]
    assert await list_numbers(api_client, key, cause="source_status", operator_id="op-1", state="failed") == [4]
    assert await list_numbers(api_client, key, cause="source_timeout") == []
    page = await api_client.ask("GET", "/v1/downloads?cause=source_status&limit=2", key=key)
    assert await list_numbers(api_client, key, cause="source_status", cursor=page.body["next_cursor"]) == [0]
    everywhere = await api_client.as_admin("GET", "/v1/downloads?cause=source_status")
    assert [item["project_id"] for item in everywhere.body["items"]] == [other, *[project_id] * 3]


async def test_another_project_s_downloads_are_not_there(api_client: ApiClient) -> None:
    """Lists hold the caller's own, whatever is asked for; a stranger's cursor opens nothing."""
    mine, theirs = await api_client.make_project("mine"), await api_client.make_project("theirs")
    await insert_rows(api_client, row(1, mine[0]), row(2, mine[0]), row(3, theirs[0]))
    assert await list_numbers(api_client, mine[1]) == [2, 1]
    page = await api_client.ask("GET", "/v1/downloads?limit=1", key=mine[1])
    assert await list_numbers(api_client, theirs[1], cursor=page.body["next_cursor"]) == []


async def test_the_admin_sees_the_downloads_of_all_projects(api_client: ApiClient) -> None:
    """Without a project everything is listed and says whose it is; with one, or asked for one, only its own."""
    (one, key), (other, _) = await api_client.make_project("one"), await api_client.make_project("other")
    await insert_rows(api_client, row(1, one), row(2, other), row(3, one))
    pages = [
        await api_client.as_admin("GET", "/v1/downloads"),
        await api_client.as_admin("GET", "/v1/downloads", headers={"Haulage-Project": other}),
        await api_client.as_admin("GET", f"/v1/downloads?project_id={one}"),
        await api_client.ask("GET", "/v1/downloads", key=key),
    ]

    assert [[item["project_id"] for item in page.body["items"]] for page in pages] == [
        [one, other, one],
        [other],
        [one, one],
        [one, one],
    ]


async def test_another_project_s_id_is_not_there(api_client: ApiClient) -> None:
    """Only the caller's own project can be named, whether or not the other exists."""
    (mine, key), (theirs, _) = await api_client.make_project("mine"), await api_client.make_project("theirs")
    assert (await api_client.ask("GET", f"/v1/downloads?project_id={mine}", key=key)).status == 200
    for stranger in (theirs, "nobody"):
        reply = await api_client.ask("GET", f"/v1/downloads?project_id={stranger}", key=key)
        assert (reply.status, reply.code) == (404, "not_found")


async def test_what_no_worker_has_taken_up_is_pending(api_client: ApiClient) -> None:
    """Without a worker they are listed at once, among all and by page and filter, newest first."""
    project_id, key = await api_client.make_project()
    _, stranger = await api_client.make_project("stranger")
    task_ids: list[str] = []
    for number in range(3):
        body = {"data": [{"a": 1}], "operator_id": f"op-{number % 2}", "file_name": f"Waiting_{number}"}
        started = await api_client.ask("POST", "/v1/downloads", key=key, json=body)
        assert started.status == 202, started.body
        task_ids.insert(0, started.body["task_id"])

    async def list_pending(key: str = key, **query: str) -> list[str]:
        reply = await api_client.ask("GET", f"/v1/downloads?{urlencode({'state': 'pending', **query})}", key=key)
        assert reply.status == 200, reply.body
        return [item["task_id"] for item in reply.body["items"]]

    every = await api_client.ask("GET", "/v1/downloads", key=key)
    assert [item["task_id"] for item in every.body["items"]] == await list_pending() == task_ids
    assert await list_pending(operator_id="op-0") == [task_ids[0], task_ids[2]]
    assert await list_pending(task_id=task_ids[1], file_name="waiting_1", type="csv", project_id=project_id) == [
        task_ids[1]
    ]
    assert (
        await list_pending(type="parquet")
        == await list_pending(key=stranger)
        == await list_pending(created_before="2026-01-01T00:00:00Z")
        == []
    )
    first = await api_client.ask("GET", "/v1/downloads?state=pending&limit=2", key=key)
    assert [item["task_id"] for item in first.body["items"]] == task_ids[:2]
    assert {item["state_label"] for item in first.body["items"]} == {"待处理"}
    assert await list_pending(cursor=first.body["next_cursor"]) == task_ids[2:]
    everywhere = await api_client.as_admin("GET", "/v1/downloads?state=pending")
    assert [(item["task_id"], item["project_id"]) for item in everywhere.body["items"]] == [
        (task_id, project_id) for task_id in task_ids
    ]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("state=done", "state: “done” is not one of"),
        ("type=pdf", "type: “pdf” is not one of 'csv', 'parquet' or 'excel'"),
        ("status=failed", "status: there is no such field; did you mean state?"),
        ("created_after=yesterday", "created_after: “yesterday” is not a time such as 2026-01-31T08:00:00Z"),
        (
            "created_after=2026-01-01",
            "created_after: “2026-01-01” does not say its time zone; send a time with",
        ),
        ("created_after=2026-01-01T00:00:00", "send a time with its zone, e.g. 2026-01-01T00:00:00Z."),
        ("created_before=0001-01-01T00:00:00%2B23:59", "created_before: it is outside 1970–2200"),
        ("limit=0", "limit: “0” is outside 1–200"),
        ("limit=201", "limit: “201” is outside 1–200"),
        ("file_name=", "file_name: it has 0 characters; send 1–200."),
        ("operator=7", "operator: there is no such field; did you mean operator_id?"),
        ("cursor=nonsense", "This cursor was not issued by this API."),
        ("state=failed&state=running", "state: it is given more than once; give it once."),
    ],
)
async def test_wrong_queries_are_told(api_client: ApiClient, query: str, sentence: str) -> None:
    """A filter that cannot be is an error, not an empty list."""
    _, key = await api_client.make_project()
    reply = await api_client.ask("GET", f"/v1/downloads?{query}", key=key)
    assert reply.status == 422
    assert sentence in reply.body["detail"]
