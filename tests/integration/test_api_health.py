"""Health, figures and the reference: what answers without a key."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import make_url, text

import domain
from api.app import ROUTE_GROUPS
from api.http import openapi
from infra.database import Database
from infra.objects import StoreUnreachable, client
from infra.settings import Settings
from systems import SYSTEMS
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
        assert (reply.status, reply.body) == (200, {"components": {"database": "ok", "engine": "ok", "bucket": "ok"}})
        return True

    # A part of a busy machine may once take longer than it is waited for.
    assert await eventually(ready)


async def test_a_dead_database_is_named_wherever_one_looks(settings: Settings) -> None:
    """It makes the process unready, and nothing else is; the overview says it in a sentence, with since when."""
    url = SecretStr("postgresql+asyncpg://nobody:nothing@127.0.0.1:1/none")
    settings = settings.model_copy(update={"database": settings.database.model_copy(update={"url": url})})
    async with running_api(settings) as api_client:

        async def only_the_database_is_missed() -> bool:
            reply = await api_client.ask("GET", "/readyz")
            assert (reply.status, reply.code) == (503, "not_ready")
            assert reply.body["detail"].startswith("These components do not serve: database.")
            [error] = reply.body["errors"]
            assert error["path"] == "database"
            assert re.fullmatch(r"it does not answer\. Since .{19} UTC\.", error["message"])
            return True

        assert await eventually(only_the_database_is_missed)
        alive = await api_client.ask("GET", "/livez")

        async def read_overview_without_database() -> tuple[dict[str, Any], dict[str, Any]]:
            body = (await api_client.as_admin("GET", "/v1/overview")).body
            # Another component may once take longer than it is waited for, as above.
            missed = [each for each in body["components"] if not each["ok"]]
            assert len(missed) == 1, missed
            return body, missed[0]

        overview, down = await eventually(read_overview_without_database)
    assert alive.status == 200
    since = datetime.fromisoformat(down["down_since"])
    assert (down["name"], overview["systems"]) == ("database", [])
    assert overview["problem"] == (
        f"PostgreSQL does not serve since {since:%Y-%m-%d %H:%M:%S} UTC: it does not answer. "
        f"The figures of {', '.join(SYSTEMS)} cannot be read at present."
    )


@asynccontextmanager
async def _database_with(database: Database, setting: str) -> AsyncIterator[None]:
    """Have new connections to the database begin with a setting while the block runs."""
    name = make_url(database.settings.url.get_secret_value()).database
    async with database.session() as session:
        await session.execute(text(f'ALTER DATABASE "{name}" SET {setting}'))
    try:
        yield
    finally:
        async with database.session() as session:
            await session.execute(text("SET TRANSACTION READ WRITE"))
            await session.execute(text(f'ALTER DATABASE "{name}" RESET ALL'))


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        pytest.param("default_transaction_read_only = on", "it takes no writes: it is a standby", id="read-only"),
        # As on a full disk: PostgreSQL has the same class of errors for both.
        pytest.param("temp_file_limit = '1kB'", "it lacks disk space, memory or connections.", id="no-space"),
    ],
)
async def test_a_database_that_answers_and_takes_no_writes_is_not_ready(
    settings: Settings, database: Database, setting: str, problem: str
) -> None:
    """A trivial statement succeeds there, so readiness asks for more."""
    async with _database_with(database, setting), running_api(settings) as api_client:

        async def is_named() -> bool:
            reply = await api_client.ask("GET", "/readyz")
            assert (reply.status, reply.code) == (503, "not_ready")
            [error] = [each for each in reply.body["errors"] if each["path"] == "database"]
            assert error["message"].startswith(problem)
            return True

        assert await eventually(is_named)


async def test_a_store_that_takes_no_writes_is_not_ready(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bucket is there, and a write fails as on a full disk."""

    def refuse(*_arguments: object) -> None:
        raise StoreUnreachable("No space left.", key="", code="InternalError")

    monkeypatch.setattr(client, "put_object", refuse)
    async with running_api(settings) as api_client:

        async def is_named() -> bool:
            reply = await api_client.ask("GET", "/readyz")
            assert [each["path"] for each in reply.body["errors"]] == ["bucket"]
            return True

        assert await eventually(is_named)


async def test_refusals_are_counted_by_route_and_code(api_client: ApiClient) -> None:
    """Also those that the routes of tasks answer with 200, as flowSvr does."""
    _, key = await api_client.make_project()
    refused = await api_client.ask("GET", "/v1/downloads/none", key=key)
    enveloped = await api_client.ask("POST", "/v1/create_task", key=key, json={"task_data": {"task_type": "none"}})
    assert (enveloped.status, enveloped.body["code"] != 0) == (200, True)

    page = (await api_client.ask("GET", "/metrics")).body

    counted = re.findall(r'^haulage_request_refusals_total\{code="(\w+)",route="([^"]+)"\} \d', page, re.MULTILINE)
    assert (refused.code, "GET /v1/downloads/{task_id}") in counted
    assert "POST /v1/create_task" in {route for _, route in counted}


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
    assert (await api_client.ask("GET", "/openapi.json")).body == openapi.build_openapi_document(ROUTE_GROUPS)


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


@pytest.mark.parametrize(("path", "there"), [("/", "/console"), ("/docs/", "/docs")])
async def test_addresses_that_people_type_lead_to_a_page(api_client: ApiClient, path: str, there: str) -> None:
    """They were answered with 404."""
    reply = await api_client.ask("GET", path)
    assert (reply.status, reply.headers["Location"]) == (302, there)
    assert (await api_client.ask("GET", there)).status == 200
