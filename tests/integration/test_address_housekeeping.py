"""Housekeeping of addresses: what is kept for a time goes after it, and nothing else."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from temporalio.testing import ActivityEnvironment

from activities.addresses import activities
from activities.addresses.activities import AddressHousekeeping
from domain.addresses.messages import Topic
from infra.database import Database
from infra.settings import Settings
from services import services

pytestmark = pytest.mark.stack

KEPT_DAYS = 400
_KEPT = (
    ("im_infi_addr_sync_log_his", "id, uprn_1, archived_at", "n, n, at"),
    ("im_infi_addr_sync_log", "uprn_1, createdat", "n, at"),
    ("addr_sync_keys", "created_at", "at"),
    ("addr_sync_quarantine", "raw, raw_bytes, reason, created_at", "'', 0, '', at"),
)
_FILL = """
    INSERT INTO {table} (topic, msg_no, {columns})
    SELECT :topic, n::text, {values}
    FROM generate_series(1, 9) AS n, LATERAL (SELECT now() - n * interval '100 days' AS at) AS each
"""


async def list_remaining(database: Database, table: str) -> list[int]:
    """Whose rows are still there."""
    async with database.session() as session:
        found = await session.execute(text(f"SELECT msg_no::int FROM {table} ORDER BY 1"))  # noqa: S608 - names of ours
        return [row[0] for row in found]


async def test_history_keys_and_quarantine_end_and_the_log_does_not(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch; a message that is not done stays, however old it is."""
    monkeypatch.setattr(activities, "DELETE_BATCH", 2)
    async with database.session() as session:
        for table, columns, values in _KEPT:
            statement = _FILL.format(table=table, columns=columns, values=values)
            await session.execute(text(statement), {"topic": Topic.DELETE})
    kept = settings.addresses.model_copy(update={"kept_days": KEPT_DAYS})
    async with services.open_services(settings.model_copy(update={"addresses": kept})) as held:
        await ActivityEnvironment().run(AddressHousekeeping(held).delete_expired_rows_of_log)
        await ActivityEnvironment().run(AddressHousekeeping(held).delete_expired_rows_of_log)

    for table in ("im_infi_addr_sync_log_his", "addr_sync_keys", "addr_sync_quarantine"):
        assert await list_remaining(database, table) == [1, 2, 3]
    assert await list_remaining(database, "im_infi_addr_sync_log") == list(range(1, 10))
