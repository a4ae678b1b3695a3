"""Answers that take their time: no limit for who asked to wait, request ids on streams, and no half answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import aiohttp
import pytest
from aiohttp import web
from pydantic import Field

from api.http.models import Request, Response
from api.http.routes import Call, RouteAccess, Routes
from infra.settings import Settings
from tests.support.api import ApiClient, running_api

pytestmark = pytest.mark.stack

LIMIT_SECONDS = 1.0

gate = asyncio.Event()
toys = Routes("toys", "Routes that stream.")


class Labels(Request):
    """A header that a route reads."""

    label: str | None = Field(default=None, alias="X-Label", pattern="^[a-z]{1,9}$")


class Label(Response):
    """What it was."""

    label: str | None


@toys.get("/toys/patient", access=RouteAccess.PUBLIC)
async def patient(call: Call) -> Label:
    """Wait for as long as the caller does."""
    call.remove_time_limit()
    await gate.wait()
    return Label(label="done")


@toys.get("/toys/half", access=RouteAccess.PUBLIC, media_type="text/plain")
async def half(call: Call) -> web.StreamResponse:
    """Break in the middle of the answer."""
    response = web.StreamResponse()
    await response.prepare(call.request)
    await response.write(b"half")
    raise LookupError("the other half is nowhere")


@toys.get("/toys/label", access=RouteAccess.PUBLIC, also={HTTPStatus.NO_CONTENT: ""})
async def label(_call: Call, headers: Labels) -> Label | web.Response:
    """Return the header."""
    return Label(label=headers.label) if headers.label else web.Response(status=204)


@pytest.fixture
async def api_client(settings: Settings) -> AsyncIterator[ApiClient]:
    """The toys, with a short time limit."""
    gate.clear()
    async with running_api(settings, [toys], request_timeout_seconds=LIMIT_SECONDS) as api_client:
        yield api_client


async def test_a_route_may_lift_its_time_limit(api_client: ApiClient) -> None:
    """An answer that waits on purpose is not cut off by the limit on ordinary work."""
    pending = asyncio.create_task(api_client.ask("GET", "/toys/patient"))
    await asyncio.wait({pending}, timeout=2 * LIMIT_SECONDS)
    assert not pending.done()
    gate.set()
    assert (await pending).body == {"label": "done"}


async def test_half_an_answer_never_looks_whole(api_client: ApiClient) -> None:
    """A stream that fails is cut: the caller sees an error, not a shorter file."""
    async with api_client.session.get(f"{api_client.address}/toys/half") as answer:
        assert answer.status == 200
        assert len(answer.headers["X-Request-Id"]) == 32
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_headers_are_read_by_their_model(api_client: ApiClient) -> None:
    """A declared header is checked like any field; what is not declared is ignored."""
    assert (await api_client.ask("GET", "/toys/label")).status == 204
    assert (await api_client.ask("GET", "/toys/label", headers={"x-label": "abc", "X-Other": "1"})).body == {
        "label": "abc"
    }
    wrong = await api_client.ask("GET", "/toys/label", headers={"X-Label": "ABC"})
    assert (wrong.status, wrong.code) == (422, "invalid_request")
    assert wrong.body["errors"] == [
        {"path": "X-Label", "message": "“ABC” does not have the form ^[a-z]{1,9}$; correct it."}
    ]


async def test_a_header_counts_once(api_client: ApiClient) -> None:
    """Two values for one header are refused; neither is chosen."""
    async with api_client.session.get(
        f"{api_client.address}/toys/label", headers=[("X-Label", "a"), ("X-Label", "b")]
    ) as answer:
        assert answer.status == 422
        assert "more than once" in (await answer.json())["detail"]
