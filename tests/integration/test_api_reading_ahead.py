"""Routes that read while the key of the request is checked: nothing is answered before the key is known to be good."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from api import projects
from api.http.models import Response
from api.http.routes import Call, RouteAccess, Routes
from infra.database import Database
from infra.settings import Settings
from tests.support.api import running_api
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

reading = Routes("reading", "What is read while the key is checked.")
began: list[str] = []


class NothingRead(Response):
    """An answer."""


@reading.get("/reads", access=RouteAccess.PROJECT, reads_ahead=True)
async def read_ahead(call: Call) -> NothingRead:
    """Read something."""
    began.append(call.project_id)
    return NothingRead()


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ("UPDATE api_keys SET revoked_at = now()", 401, "key_unknown"),
        ("UPDATE projects SET revoked_at = now()", 401, "key_unknown"),
        ("UPDATE api_keys SET expires_at = now()", 401, "key_unknown"),
        ("UPDATE api_keys SET last_used_at = now()", 200, ""),
    ],
)
async def test_what_is_read_ahead_is_answered_once_the_key_is_known_to_be_good(
    settings: Settings, database: Database, change: str, status: int, code: str
) -> None:
    """A key that is revoked before it is looked up opens nothing, whatever was read meanwhile."""
    async with running_api(settings, [projects.routes, reading]) as api_client:
        _, key = await api_client.make_project()
        assert (await api_client.ask("GET", "/reads", key=key)).status == 200
        seen = len(began)
        async with database.session() as session:
            await session.execute(text("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE"))
            asking = asyncio.create_task(api_client.ask("GET", "/reads", key=key))
            await eventually(lambda: len(began) > seen)
            assert not asking.done()
            await session.execute(text(change))
        reply = await asking

    assert (reply.status, reply.code if code else "") == (status, code)
