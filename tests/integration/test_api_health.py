"""Health, figures and the reference: what answers without a key."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

import domain
from api.app import ROUTE_GROUPS
from api.http import openapi
from infra.settings import Settings
from tests.support.api import ApiClient, running_api
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def api_client(settings: Settings) -> AsyncIterator[ApiClient]:
    """The whole API."""
    async with running_api(settings) as api_client:
        yield api_client


async def test_ping_and_liveness_need_no_key(api_client: ApiClient) -> None:
    """Neither needs a key or any other part."""
    pong = {"code": 0, "msg": "SUCCESS", "service": "haulage", "version": domain.VERSION}
    assert (await api_client.ask("GET", "/v1/ping")).body == pong
    assert (await api_client.ask("GET", "/livez")).body == {"status": "ok"}


async def test_readiness_asks_every_part(api_client: ApiClient) -> None:
    """The real database, engine and bucket all answer."""

    async def ready() -> bool:
        reply = await api_client.ask("GET", "/readyz")
        assert (reply.status, reply.body) == (200, {"parts": {"database": "ok", "engine": "ok", "bucket": "ok"}})
        return True

    # A part of a busy machine may once take longer than it is waited for.
    assert await eventually(ready)


async def test_readiness_names_the_parts_that_fail(settings: Settings) -> None:
    """A dead database makes the process unready; the others are still reported by name."""
    url = SecretStr("postgresql+asyncpg://nobody:nothing@127.0.0.1:1/none")
    settings = settings.model_copy(update={"database": settings.database.model_copy(update={"url": url})})
    async with running_api(settings) as api_client:

        async def only_the_database_is_missed() -> bool:
            reply = await api_client.ask("GET", "/readyz")
            assert (reply.status, reply.code) == (503, "not_ready")
            assert reply.body["detail"].startswith("These components do not answer: database.")
            assert [error["path"] for error in reply.body["errors"]] == ["database"]
            return True

        assert await eventually(only_the_database_is_missed)
        alive = await api_client.ask("GET", "/livez")
    assert alive.status == 200


async def test_metrics_count_requests_by_route_and_hold_the_sdk_s_figures(api_client: ApiClient) -> None:
    """One page for both; the path's template is the label, so that ids do not multiply it."""
    project_id, key = await api_client.make_project()
    await api_client.ask("GET", f"/v1/projects/{project_id}", key=key)
    page = (await api_client.ask("GET", "/metrics")).body
    assert re.search(
        r'^haulage_request_seconds_count\{route="GET /v1/projects/\{project_id\}",status="200"\} \d', page, re.MULTILINE
    )
    assert project_id not in page
    assert "temporal_request" in page


async def test_the_document_is_served_as_it_is_made(api_client: ApiClient) -> None:
    """What the tests judge is what callers read."""
    assert (await api_client.ask("GET", "/openapi.json")).body == openapi.build_document(ROUTE_GROUPS)


async def test_the_reference_works_under_a_strict_policy(api_client: ApiClient) -> None:
    """Nothing inline, nothing from elsewhere, and every file that the page names is there."""
    page = await api_client.ask("GET", "/docs")
    named = re.findall(r'(?:src|href)="(/[^"]+)"', page.body)
    files = {path: await api_client.ask("GET", path) for path in named}
    policy = page.headers["Content-Security-Policy"]
    assert page.status == 200
    assert {"/docs/docs.css", "/docs/docs.js", "/openapi.json"} <= files.keys()
    assert all(reply.status == 200 for reply in files.values())
    assert not re.search(r"<script>|<style|style=|\son\w+=|https?://", page.body)
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
