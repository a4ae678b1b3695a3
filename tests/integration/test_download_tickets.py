"""Tickets: a page in a browser watches one download by WebSocket without a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest

from api.http import sessions
from infra.settings import Settings
from tests.support import watchers
from tests.support.api import ApiClient
from tests.support.downloads import Downloads, running_downloads
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.stack


@pytest.fixture
async def exports(settings: Settings) -> AsyncIterator[Downloads]:
    """API, worker and source; keys of streams are looked at every few seconds."""
    # Not more often: who does not answer a ping within half of that, as on a busy machine, is dropped.
    settings = settings.model_copy(update={"api": settings.api.model_copy(update={"ping_seconds": 6.0})})
    async with running_downloads(settings) as running:
        yield running


async def create_ticket(exports: Downloads, task_id: str) -> str:
    """Ask for a ticket with the project's key; return the address to connect to."""
    reply = await exports.api_client.ask("POST", f"/v1/downloads/{task_id}/ticket", key=exports.key)
    assert reply.status == 201, reply.body
    return str(reply.body["url"])


async def read_refusal(api_client: ApiClient, url: str) -> str:
    """Return the code with which an address is refused."""
    parts = urlsplit(url)
    return (await api_client.ask("GET", f"{parts.path}?{parts.query}")).code


async def test_a_ticket_opens_a_socket_without_a_key(exports: Downloads) -> None:
    """Also twice, and from a page of another origin."""
    status = await exports.run(exports.source.url(rows=10))
    url = await create_ticket(exports, status["task_id"])
    for headers in ({}, {"Origin": "https://shop.example.com"}):
        async with exports.api_client.session.ws_connect(url, headers=headers) as socket:
            assert await watchers.read_messages(socket) == [status]


async def test_a_ticket_opens_nothing_else(exports: Downloads) -> None:
    """Neither another download, nor another route of the same one, nor does a changed ticket open anything."""
    first, second = [await exports.run(exports.source.url(rows=rows)) for rows in (10, 11)]
    url = await create_ticket(exports, first["task_id"])
    assert await read_refusal(exports.api_client, url.replace(first["task_id"], second["task_id"])) == "ticket_mismatch"
    assert await read_refusal(exports.api_client, url.replace("/ws?", "?")) == "key_missing"
    assert await read_refusal(exports.api_client, url.replace("/ws?", "/events?")) == "key_missing"
    assert await read_refusal(exports.api_client, url[:-8] + "AAAAAAAA") == "ticket_mismatch"
    assert await read_refusal(exports.api_client, url.partition("ticket=")[0] + "ticket=%FF") == "ticket_mismatch"
    cookie = {"Cookie": f"haulage_session={url.partition('ticket=')[2]}"}
    assert (await exports.api_client.ask("GET", "/v1/downloads", headers=cookie)).code == "session_expired"


async def test_no_ticket_is_given_for_the_download_of_another_project(exports: Downloads) -> None:
    """It is not there."""
    status = await exports.run(exports.source.url(rows=10))
    _, stranger = await exports.api_client.make_project("stranger")
    reply = await exports.api_client.ask("POST", f"/v1/downloads/{status['task_id']}/ticket", key=stranger)
    assert reply.code == "not_found"


async def test_a_ticket_ends(exports: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time it opens nothing, and what it opened goes on to the end of the download."""
    # It ends before the connection's key is looked at for the first time, and that before the download ends.
    task_id = await exports.start(exports.source.url(rows=4_000, delay_ms=250), page_size=100)
    monkeypatch.setattr("api.http.auth.TICKET_SECONDS", 5)
    url = await create_ticket(exports, task_id)
    async with exports.api_client.session.ws_connect(url) as socket:
        messages = await watchers.read_messages(socket)
    assert messages[-1]["state"] == "succeeded"
    assert await read_refusal(exports.api_client, url) == "ticket_expired"
    assert sessions.TICKET_SECONDS == 60


async def test_a_revoked_key_ends_what_its_ticket_opened(exports: Downloads) -> None:
    """And the ticket opens nothing more."""
    task_id = await exports.start(exports.source.url(rows=4_000, delay_ms=1_000), page_size=100)
    url = await create_ticket(exports, task_id)
    async with exports.api_client.session.ws_connect(url) as socket:
        await exports.api_client.as_admin("POST", f"/v1/projects/{exports.project_id}/revoke")
        while (message := await socket.receive(timeout=PATIENCE_SECONDS)).type is aiohttp.WSMsgType.TEXT:
            pass
    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.POLICY_VIOLATION)
    assert await read_refusal(exports.api_client, url) == "session_expired"


@pytest.mark.parametrize("host", [b"\xff", b"a\xc3(b:80", b"\xed\xa0\x80"])
async def test_an_address_is_built_of_a_host_that_is_no_text(exports: Downloads, host: bytes) -> None:
    """Addresses of tickets and of files name the request's host; of one that JSON cannot hold, what is ASCII."""
    status = await exports.run(exports.source.url(rows=10))
    for what, scheme in (("ticket", "ws"), ("link", "http")):
        line = f"POST /v1/downloads/{status['task_id']}/{what}"
        code, answer = await exports.api_client.send_bytes(line, b"Host: " + host, exports.key)
        assert code == 201, answer
        assert answer["url"].startswith(f"{scheme}://{host.decode('ascii', 'ignore')}/")


async def test_an_admin_gives_tickets_within_a_project(exports: Downloads) -> None:
    """As with a key of the project."""
    status = await exports.run(exports.source.url(rows=10))
    headers = {"Haulage-Project": exports.project_id}
    reply = await exports.api_client.as_admin("POST", f"/v1/downloads/{status['task_id']}/ticket", headers=headers)
    assert await read_refusal(exports.api_client, reply.body["url"]) == "upgrade_required"
    async with exports.api_client.session.ws_connect(reply.body["url"]) as socket:
        assert await watchers.read_messages(socket) == [status]
