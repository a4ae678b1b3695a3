"""The ways to a file: with the key, by a link without one, and the problems if there is no file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from sqlmodel import col, update
from yarl import URL

from api.downloads import files
from infra.settings import Settings
from stores.tables.downloads import Download
from tests.support.api import Reply
from tests.support.downloads import Downloads, running_downloads

SEED = 8


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


async def link(exports: Downloads, task_id: str, **query: int) -> Reply:
    """Ask for a link."""
    path = URL(f"/v1/downloads/{task_id}/link").with_query(query)
    return await exports.api_client.ask("POST", str(path), key=exports.key)


async def open_link(url: str, **headers: str) -> tuple[int, bytes]:
    """Fetch an address without a key; return status and body."""
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.read()


async def update_row(exports: Downloads, task_id: str, **values: object) -> None:
    """Change the row of a download."""
    async with exports.services.database.session() as session:
        await session.exec(update(Download).where(col(Download.task_id) == task_id).values(**values))


async def test_a_link_needs_no_key(exports: Downloads) -> None:
    """Anyone who has the link gets the file, ranges included, until it expires."""
    status = await exports.run(exports.source.url(rows=10, seed=SEED))
    made = await link(exports, status["task_id"], expires_in=3_600)
    assert made.status == 201, made.body
    left = datetime.fromisoformat(made.body["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)

    content = await exports.file(status["task_id"])
    assert await open_link(made.body["url"]) == (200, content)
    assert await open_link(made.body["url"], Range="bytes=5-9") == (206, content[5:10])


async def test_a_piece_is_one_of_the_file_that_the_caller_has(exports: Downloads) -> None:
    """With the file's `ETag` in `If-Range` a range is a piece; with another one, or a date, it is the whole file."""
    task_id = (await exports.run(exports.source.url(rows=10, seed=SEED)))["task_id"]
    url = (await link(exports, task_id)).body["url"]
    content = await exports.file(task_id)
    async with aiohttp.ClientSession() as session, session.head(url) as head:
        etag = head.headers["ETag"]

    with_key = {"Authorization": f"Bearer {exports.key}"}
    for address, key in ((url, {}), (f"{exports.api_client.address}/v1/downloads/{task_id}/file", with_key)):
        assert await open_link(address, Range="bytes=5-9", **{"If-Range": etag}, **key) == (206, content[5:10])
        for stale in ('"another"', f"W/{etag}", "Mon, 23 Nov 2026 10:00:00 GMT"):
            assert await open_link(address, Range="bytes=5-9", **{"If-Range": stale}, **key) == (200, content), stale

    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={"Range": "bytes=5-9", "If-Range": '"another"'}) as whole,
    ):
        assert (whole.headers["ETag"], whole.headers["Content-Length"]) == (etag, str(len(content)))


async def test_a_link_leads_to_a_new_address_each_time(exports: Downloads) -> None:
    """The address behind it is minted at the click, for five minutes, and is stored by no cache."""
    status = await exports.run(exports.source.url(rows=10), file_name="报表")
    made = await link(exports, status["task_id"])
    path = made.body["url"].removeprefix(exports.api_client.address)
    reply = await exports.api_client.ask("GET", path)
    assert (reply.status, reply.headers["Cache-Control"]) == (302, "no-store")
    target = URL(reply.headers["Location"], encoded=True)
    assert target.query["X-Amz-Expires"] == "300"
    assert "filename*=UTF-8''%E6%8A%A5%E8%A1%A8.csv" in target.query["response-content-disposition"]


async def test_links_begin_with_the_public_base(settings: Settings) -> None:
    """Behind a proxy the operator says under which name we are reached."""
    public = settings.api.model_copy(update={"public_base": "https://export.example.com/"})
    async with running_downloads(settings.model_copy(update={"api": public})) as exports:
        status = await exports.run(exports.source.url(rows=10))
        made = await link(exports, status["task_id"])
    assert made.body["url"].startswith("https://export.example.com/d/")


async def test_a_link_does_not_outlive_its_file(exports: Downloads) -> None:
    """It expires with the file at the latest, and says which of them it was."""
    status = await exports.run(exports.source.url(rows=10), expires_in=600)
    made = await link(exports, status["task_id"])
    assert datetime.fromisoformat(made.body["expires_at"]) <= datetime.fromisoformat(status["expires_at"])
    await update_row(exports, status["task_id"], expires_at=datetime.now(UTC) - timedelta(seconds=1))
    reply = await exports.api_client.ask("GET", made.body["url"].removeprefix(exports.api_client.address))
    assert (reply.status, reply.code) == (410, "download_expired")


async def test_an_address_in_the_store_does_not_outlive_its_file(exports: Downloads) -> None:
    """It ends with the file, though housekeeping may come to that only later."""
    status = await exports.run(exports.source.url(rows=10))
    await update_row(exports, status["task_id"], expires_at=datetime.now(UTC) + timedelta(seconds=40))
    made = await link(exports, status["task_id"])
    async with aiohttp.ClientSession() as session, session.get(made.body["url"], allow_redirects=False) as answer:
        seconds = int(URL(answer.headers["Location"], encoded=True).query["X-Amz-Expires"])
    assert 0 < seconds <= 40


async def test_an_expired_link_is_gone(exports: Downloads) -> None:
    """A link that we signed and whose time is over says so."""
    status = await exports.run(exports.source.url(rows=10))
    pepper = exports.api_client.settings.secrets.pepper.get_secret_value()
    past = datetime.now(UTC) - timedelta(seconds=1)
    token = files.sign_link(pepper, files.FileLink(exports.project_id, status["task_id"], past))
    reply = await exports.api_client.ask("GET", f"/d/{token}")
    assert (reply.status, reply.code) == (410, "link_expired")


async def test_a_revoked_project_s_links_open_nothing(exports: Downloads) -> None:
    """What a project handed out ends with it."""
    status = await exports.run(exports.source.url(rows=10))
    made = await link(exports, status["task_id"])
    assert (await exports.api_client.as_admin("POST", f"/v1/projects/{exports.project_id}/revoke")).status == 200
    reply = await exports.api_client.ask("GET", made.body["url"].removeprefix(exports.api_client.address))
    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize("expires_in", [59, 604_801])
async def test_a_link_s_time_is_bounded(exports: Downloads, expires_in: int) -> None:
    """From a minute to a week."""
    status = await exports.run(exports.source.url(rows=10))
    reply = await link(exports, status["task_id"], expires_in=expires_in)
    assert (reply.status, reply.code) == (422, "invalid_request")
    assert "60–604800" in reply.body["detail"]


@pytest.mark.parametrize(
    ("state", "status", "code", "sentence"),
    [
        ("running", 409, "download_unfinished", "Wait until its state is succeeded."),
        ("cancelled", 409, "download_cancelled", "This download was cancelled, so there is no file."),
        ("expired", 410, "download_expired", "The file is gone. It was kept until "),
        ("failed", 409, "download_failed", "This download failed, so there is no file. Too odd. Mend it."),
    ],
)
async def test_where_there_is_no_file_it_is_told_why(
    exports: Downloads, state: str, status: int, code: str, sentence: str
) -> None:
    """File and link alike say what became of it."""
    task_id = (await exports.run(exports.source.url(rows=10)))["task_id"]
    fault = {"code": "x", "message": "Too odd.", "hint": "Mend it."}
    await update_row(exports, task_id, state=state, fault=fault if state == "failed" else None)
    for method, path in (("GET", "file"), ("POST", "link")):
        reply = await exports.api_client.ask(method, f"/v1/downloads/{task_id}/{path}", key=exports.key)
        assert (reply.status, reply.code) == (status, code)
        assert sentence in reply.body["detail"]


async def test_a_head_tells_what_a_get_sends(exports: Downloads) -> None:
    """Name, type, length and digest are those of the file, with a key and by a link; nothing changes."""
    status = await exports.run(exports.source.url(rows=10), file_name="报表", page_size=100)
    made = await link(exports, status["task_id"])
    path = f"{exports.api_client.address}/v1/downloads/{status['task_id']}/file"
    before = await exports.status(status["task_id"])
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {exports.key}"}) as session:
        for url in (path, made.body["url"]):
            async with session.get(url) as whole:
                content = await whole.read()
            async with session.head(url, allow_redirects=True) as head:
                assert (head.status, head.history, await head.read()) == (200, (), b"")
            told = ("Content-Type", "Content-Length", "Content-Disposition", "Accept-Ranges", "ETag")
            assert {name: head.headers[name] for name in told} == {name: whole.headers[name] for name in told}
            assert head.headers["Content-Length"] == str(len(content))
            assert head.headers["Cache-Control"] == "no-store"
    assert await exports.status(status["task_id"]) == before


async def test_a_head_of_what_is_not_there_says_so_by_its_status(exports: Downloads) -> None:
    """As a GET does, without a body; another project's file stays hidden."""
    task_id = (await exports.run(exports.source.url(rows=10)))["task_id"]
    token = (await link(exports, task_id)).body["url"].removeprefix(exports.api_client.address)
    _, stranger = await exports.api_client.make_project()
    statuses = {"running": 409, "cancelled": 409, "expired": 410}
    async with aiohttp.ClientSession(base_url=exports.api_client.address) as session:

        async def head(path: str, key: str) -> int:
            async with session.head(path, headers={"Authorization": f"Bearer {key}"}) as answer:
                assert await answer.read() == b""
                return answer.status

        path = f"/v1/downloads/{task_id}/file"
        assert await head(path, stranger) == 404
        assert await head(path, "hlg_wrong") == 401
        assert await head(f"/d/{'x' * 60}.{'x' * 43}", "") == 404
        for state, status in statuses.items():
            await update_row(exports, task_id, state=state)
            assert (await head(path, exports.key), await head(token, "")) == (status, status)


@pytest.mark.parametrize(
    ("request_", "content_type"),
    [
        ({}, "text/csv; charset=utf-8"),
        ({"encoding": "gb18030"}, "text/csv; charset=gb18030"),
        ({"type": "parquet"}, "application/vnd.apache.parquet"),
    ],
)
async def test_files_are_served_as_what_they_are(
    exports: Downloads, request_: dict[str, str], content_type: str
) -> None:
    """The address behind the redirect says the type, and so does the answer that is the file itself."""
    wanted = {"source_url": exports.source.url(rows=10), **request_}
    headers, session = {"Authorization": f"Bearer {exports.key}"}, exports.api_client.session
    async with session.post(
        f"{exports.api_client.address}/v1/downloads?wait=30", json=wanted, headers=headers
    ) as answer:
        assert answer.status == 200
        content = await answer.read()
        assert answer.headers["Content-Type"] == content_type
    path = f"{answer.headers['Location']}/file"
    async with session.get(exports.api_client.address + path, headers=headers) as behind:
        assert behind.headers["Content-Type"] == content_type
        assert await behind.read() == content
