"""`haulage ask`: what it asks, of which project, and what it prints."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli import asking, command
from tests.support.api_peer import TASK, ApiPeer, problem, running_api_peer


@pytest.fixture
async def peer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiPeer]:
    """An API with scripted responses."""
    monkeypatch.setenv(command.KEY_VARIABLE, "hlg_key")
    async with running_api_peer() as running:
        yield running


@pytest.mark.parametrize(
    ("code", "answer", "printed"),
    [(204, "", ""), (200, "haulage_component_up 1\n", "haulage_component_up 1\n"), (200, {"a": 1}, '{\n  "a": 1\n}\n')],
    ids=["nothing", "a text", "JSON"],
)
async def test_whatever_a_request_is_answered_with_is_printed(
    peer: ApiPeer, tmp_path: Path, code: int, answer: Any, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that was revoked was said to be refused, as there is no JSON in the answer."""
    peer.says(code, answer, **{"X-Request-Id": "req-1"})
    assert await asking.send_request(tmp_path, peer.url, "DELETE", "/v1/projects/p/keys/k", None) == 0
    assert capsys.readouterr().out == printed


async def test_the_address_of_a_file_is_printed(
    peer: ApiPeer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An export that found no room for the file names this request."""
    assert await asking.send_request(tmp_path, peer.url, "GET", f"/v1/downloads/{TASK}/file", None) == 0
    assert capsys.readouterr().out == f"{peer.url}/store/file?sig=a%2Fb\n"


async def test_a_page_of_something_else_is_no_answer(
    peer: ApiPeer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as the page of a proxy."""
    peer.says(200, "<html>")
    assert await asking.send_request(tmp_path, peer.url, "GET", "/v1/systems", None) == 3
    assert "answered 200, not as Haulage does" in capsys.readouterr().err


NEEDS_PROJECT = problem(
    401, "project_key_needed", "It works on one project. Name it in the header Haulage-Project, or use a key of it."
)


async def test_a_request_about_one_project_is_repeated_for_the_own_one(
    peer: ApiPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The admin key belongs to none, and the command had no way to name one."""

    async def find_peer(url: str | None, *_: Any, **__: Any) -> command.ApiAddress:
        return command.ApiAddress(url or peer.url, "hlg_admin")

    monkeypatch.setattr(command, "find_api_address_and_key", find_peer)
    (tmp_path / command.KEY_FILE).write_text("hlg_own\n")
    peer.says(401, NEEDS_PROJECT)
    peer.says(200, {"a": 1}, **{"X-Request-Id": "req-1"})
    assert await asking.send_request(tmp_path, None, "POST", "/v1/x", "{}") == 0
    assert [each.headers["Authorization"] for each in peer.seen] == ["Bearer hlg_admin", "Bearer hlg_own"]
    assert [each.body for each in peer.seen] == [{}, {}]

    # Neither for another refusal, nor at another machine's API, nor where no project was made yet.
    peer.says(403, problem(403, "forbidden", "No."))
    assert await asking.send_request(tmp_path, None, "POST", "/v1/x", "{}") == 2
    peer.says(401, NEEDS_PROJECT)
    assert await asking.send_request(tmp_path, peer.url, "POST", "/v1/x", "{}") == 2
    (tmp_path / command.KEY_FILE).unlink()
    peer.says(401, NEEDS_PROJECT)
    capsys.readouterr()
    assert await asking.send_request(tmp_path, None, "POST", "/v1/x", "{}") == 2
    assert "Name it by --project (`haulage ask /v1/projects` lists them), or use" in capsys.readouterr().err
    assert (len(peer.seen), list(tmp_path.iterdir())) == (5, [])


async def test_a_project_is_named_by_an_option(peer: ApiPeer, tmp_path: Path) -> None:
    """In the header that the API reads; one that no header can hold is refused."""
    peer.says(200, {"a": 1}, **{"X-Request-Id": "req-1"})
    assert await asking.send_request(tmp_path, peer.url, "GET", "/v1/downloads", None, "prj_1") == 0
    assert peer.seen[0].headers["Haulage-Project"] == "prj_1"
    assert await asking.send_request(tmp_path, peer.url, "GET", "/v1/downloads", None, "prj_1\n") == 2
    assert len(peer.seen) == 1
