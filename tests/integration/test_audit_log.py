"""The filters of the audit log, and the indexes that answer them where it is long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from api.http.rates import LISTS_AT_ONCE_MAX
from infra.database import Database, Session
from stores import audit
from stores.audit import AuditFilter
from stores.tables.shared import AuditEntry
from tests.support.api import ApiClient
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

START = datetime(2026, 3, 1, tzinfo=UTC)
FILL = """
    INSERT INTO audit_log (happened_at, project_id, actor, action, path, request_id, status)
    SELECT $1::timestamptz + n * interval '1 minute', 'prj_' || n % 50, 'key ' || n % $3::int,
        'POST /v1/action/' || n % 60, '/v1/action', 'request-' || n, 200
    FROM generate_series(0, $2::int - 1) n
"""


async def fill(database: Database, rows: int, keys: int) -> None:
    """Actions of 50 projects, one a minute."""
    async with database.connection() as connection:
        await connection.execute(FILL, START, rows, keys)
        await connection.execute("ANALYZE audit_log")


async def list_requests(api_client: ApiClient, **filters: str) -> list[str]:
    """The request ids of the actions that filters find, as the admin."""
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in filters.items())
    reply = await api_client.as_admin("GET", f"/v1/audit?limit=100&{query}")
    assert reply.status == 200, reply.body
    return [each["request_id"] for each in reply.body["items"]]


async def test_actions_are_found_by_actor_action_and_time(api_client: ApiClient, database: Database) -> None:
    """Each alone and all together; the first moment is included, the last is not."""
    await fill(database, 1_000, 400)
    at = [(START + timedelta(minutes=n)).isoformat() for n in range(1_000)]
    assert await list_requests(api_client, actor="key 7", happened_before=at[999]) == [
        "request-807",
        "request-407",
        "request-7",
    ]
    assert await list_requests(api_client, happened_after=at[10], happened_before=at[13]) == [
        "request-12",
        "request-11",
        "request-10",
    ]
    found = await list_requests(
        api_client, action="POST /v1/action/7", actor="key 127", happened_after=at[100], happened_before=at[500]
    )
    assert found == ["request-127"]
    assert await list_requests(api_client, happened_after=at[999], actor="key 7") == []


async def test_a_time_that_ends_before_it_begins_is_refused(api_client: ApiClient) -> None:
    """The field is named."""
    query = f"happened_after={START:%Y-%m-%d}T00:00:00Z&happened_before=2020-01-01T00:00:00Z"
    reply = await api_client.as_admin("GET", f"/v1/audit?{query}")
    assert reply.status == 422
    assert "happened_" in str(reply.body["errors"])


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (AuditFilter(actor="key 7"), "ix_audit_log_actor_happened_at_id"),
        (AuditFilter(action="POST /v1/action/7"), "ix_audit_log_action_happened_at_id"),
        (AuditFilter(project_id="prj_7"), "ix_audit_log_project_id_happened_at_id"),
        (AuditFilter(happened_after=START, happened_before=START + timedelta(hours=1)), "ix_audit_log_happened_at_id"),
    ],
)
async def test_a_page_of_a_long_log_is_read_by_an_index(
    database: Database, filters: AuditFilter, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its order, so that a page costs its own rows alone; nothing is sorted."""
    await fill(database, 20_000, 40)
    async with database.session() as session:
        connection = await session.connection()
        statements: list[str] = []

        async def explain(statement: object) -> object:
            compiled = statement.compile(connection.sync_engine, compile_kwargs={"literal_binds": True})  # type: ignore[attr-defined]
            statements.append(str(compiled))
            raise LookupError

        monkeypatch.setattr(session, "exec", explain)
        with pytest.raises(LookupError):
            await audit.list_audit_entry_page_plus_one(session, filters, None, 50)
    async with database.connection() as plain:
        plan = "\n".join(row[0] for row in await plain.fetch(f"EXPLAIN {statements[0]}"))
    assert index in plan
    assert "Sort" not in plan


async def test_lists_of_one_project_leave_room_for_those_of_another(
    api_client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of them are read at a time; the others wait, and are answered as well."""
    greedy_id, greedy = await api_client.make_project()
    _, modest = await api_client.make_project("modest")
    may_end, begun = asyncio.Event(), []
    read = audit.list_audit_entry_page_plus_one

    async def read_slowly(session: Session, filters: AuditFilter, *place: Any) -> Sequence[AuditEntry]:
        rows = await read(session, filters, *place)
        await session.commit()
        if filters.project_id == greedy_id:
            begun.append(filters)
            await may_end.wait()
        return rows

    monkeypatch.setattr(audit, "list_audit_entry_page_plus_one", read_slowly)
    lists = [asyncio.create_task(api_client.ask("GET", "/v1/audit", key=greedy)) for _ in range(2 * LISTS_AT_ONCE_MAX)]
    await eventually(lambda: len(begun) >= LISTS_AT_ONCE_MAX)
    assert (await api_client.ask("GET", "/v1/audit", key=modest)).status == 200
    assert len(begun) == LISTS_AT_ONCE_MAX
    may_end.set()
    assert {reply.status for reply in await asyncio.gather(*lists)} == {200}
