"""How the console is served: one shell at every address, files that browsers keep, and headers that forbid the rest."""

from __future__ import annotations

import gzip

import pytest

from api import console
from api.console import CONTENT_SECURITY_POLICY
from tests.support.api import ApiClient

pytestmark = pytest.mark.stack

BASE = console.load_console_files().versioned_path
DEEP = ["/console", "/console/", "/console/downloads", "/console/a/b%2Fc:d?state=failed&x=1", "/console/assetsx"]


@pytest.fixture
def api_client(shared_api_client: ApiClient) -> ApiClient:
    """The whole API, one for all tests of this file."""
    return shared_api_client


@pytest.mark.parametrize("path", DEEP)
async def test_every_address_answers_the_shell(api_client: ApiClient, path: str) -> None:
    """Which page it is the shell decides by itself, and it needs no key."""
    reply = await api_client.ask("GET", path)
    assert reply.status == 200
    assert f"{BASE}/js/app.js" in reply.body
    assert reply.headers["Cache-Control"] == "no-cache"


async def test_headers_let_the_page_do_only_what_it_does(api_client: ApiClient) -> None:
    """Scripts and styles come from here and nowhere else, and nothing frames the page or sniffs its types."""
    for path in ("/console", f"{BASE}/js/app.js", f"{BASE}/css/base.css"):
        headers = (await api_client.ask("GET", path)).headers
        assert headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")


@pytest.mark.parametrize(("name", "media_type"), [("js/app.js", "text/javascript"), ("icon.svg", "image/svg+xml")])
async def test_files_of_this_version_are_kept_for_ever(api_client: ApiClient, name: str, media_type: str) -> None:
    """Their address holds a hash over all of them."""
    reply = await api_client.ask("GET", f"{BASE}/{name}")
    assert reply.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert reply.headers["Content-Type"] == f"{media_type}; charset=utf-8"
    assert reply.body == (console.FOLDER / name).read_text()


async def test_another_version_is_answered_but_not_kept(api_client: ApiClient) -> None:
    """While replicas are replaced a page may ask one for a file that another one named."""
    reply = await api_client.ask("GET", f"{console.BASE}/{'0' * 16}/js/app.js")
    assert (reply.status, reply.headers["Cache-Control"]) == (200, "no-cache")


async def test_what_is_known_is_not_sent_again(api_client: ApiClient) -> None:
    """The ETag is of the content, however it was pressed."""
    first = await api_client.ask("GET", "/console")
    again = await api_client.ask("GET", "/console", headers={"If-None-Match": first.headers["ETag"]})
    other = await api_client.ask("GET", "/console", headers={"If-None-Match": 'W/"0"'})
    assert (again.status, again.body, other.status) == (304, "", 200)
    assert again.headers["ETag"] == first.headers["ETag"]


@pytest.mark.parametrize(("accepted", "sent"), [("gzip, br", "gzip"), ("br", None), ("gzip;q=0", None)])
async def test_files_are_pressed_for_who_can_unfold_them(
    api_client: ApiClient, accepted: str, sent: str | None
) -> None:
    """They were pressed when the process began."""
    url = f"{api_client.address}{BASE}/js/router.js"
    async with api_client.session.get(url, headers={"Accept-Encoding": accepted}, auto_decompress=False) as answer:
        body = await answer.read()
    assert answer.headers.get("Content-Encoding") == sent
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert (gzip.decompress(body) if sent else body) == (console.FOLDER / "js/router.js").read_bytes()


@pytest.mark.parametrize("name", ["js/none.js", "../app.py", "app.py", "__init__.py", "%2e%2e/auth.py", "index.html"])
async def test_only_the_console_s_files_are_there(api_client: ApiClient, name: str) -> None:
    """No path leads out of them, and the sources of the server are none of them."""
    reply = await api_client.ask("GET", f"{BASE}/{name}")
    assert reply.status == 404 or "/js/app.js" in reply.body


async def test_the_console_is_at_no_other_address(api_client: ApiClient) -> None:
    """A name that only begins like it is nothing."""
    assert (await api_client.ask("GET", "/consoles")).status == 404
