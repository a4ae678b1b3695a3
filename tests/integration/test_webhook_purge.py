"""Deliveries that ended long ago are purged, and no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import col, select
from temporalio.testing import ActivityEnvironment

from activities import webhooks
from activities.webhooks import WebhookAndSharedRecordHousekeeping
from domain.webhooks import WebhookDeliveryInput
from infra.settings import Settings
from stores.audit import NewAuditEntry, add_audit_entry
from stores.projects import IdempotencyClaim, claim_idempotency_key
from stores.tables.shared import Delivery, DeliveryAttempt
from tests.support.webhooks import Webhooks, running_webhooks

pytestmark = pytest.mark.stack

_AGE_ACTION = "UPDATE audit_log SET happened_at = now() - $1::interval WHERE happened_at > now() - interval '1 hour'"
_AGE_CLAIM = (
    "UPDATE idempotency_keys SET created_at = now() - $1::interval WHERE created_at > now() - interval '1 hour'"
)

LONG: dict[str, Any] = {"retry_pauses_seconds": [3600.0], "kept_days": 7}


async def age_delivery(deliveries: Webhooks, order: WebhookDeliveryInput, days: float) -> None:
    """Put a delivery back in time."""
    moment = datetime.now(UTC) - timedelta(days=days)
    values = {"created_at": moment, "finished_at": moment}
    async with deliveries.services.database.session() as session:
        await session.exec(update(Delivery).where(col(Delivery.delivery_id) == order.delivery_id).values(**values))


async def purge(deliveries: Webhooks) -> int:
    """Run the activity."""
    return await ActivityEnvironment().run(
        WebhookAndSharedRecordHousekeeping(deliveries.services).purge_expired_deliveries
    )


async def test_what_ended_long_ago_goes_with_its_attempts(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch by batch; what ended lately stays, and so does what is still tried, however old it is."""
    monkeypatch.setattr(webhooks, "PURGE_BATCH", 2)
    async with running_webhooks(settings, **LONG) as deliveries:
        orders = [await deliveries.send(deliveries.receiver.url()) for _ in range(4)]
        trying = await deliveries.send(deliveries.receiver.url(tag="busy", answers="503"))
        for order in orders:
            await deliveries.wait_for_state(order, "succeeded", 1)
        await deliveries.wait_for_state(trying, "pending", 1)
        for order in orders[:3]:
            await age_delivery(deliveries, order, 7.01)
        await age_delivery(deliveries, orders[3], 6.99)
        long_ago = datetime.now(UTC) - timedelta(days=100)
        async with deliveries.services.database.session() as session:
            mine = col(Delivery.delivery_id) == trying.delivery_id
            await session.exec(update(Delivery).where(mine).values(created_at=long_ago))

        assert (await purge(deliveries), await purge(deliveries)) == (3, 0)

        async with deliveries.services.database.session() as session:
            left = (await session.exec(select(Delivery.delivery_id))).all()
            attempts = (await session.exec(select(DeliveryAttempt.delivery_id))).all()
    assert set(left) == set(attempts) == {orders[3].delivery_id, trying.delivery_id}


async def test_an_address_that_was_gone_long_ago_is_tried_again(settings: Settings) -> None:
    """A delivery that is no longer listed cannot be repeated, so its 410 is deleted with it."""
    async with running_webhooks(settings, **LONG) as deliveries:
        url = deliveries.receiver.url(answers="410,200")
        gone = await deliveries.send(url)
        await deliveries.wait_for_state(gone, "disabled", 1)
        await age_delivery(deliveries, gone, 8)

        assert await purge(deliveries) == 1

        await deliveries.wait_for_state(await deliveries.send(url), "succeeded", 1)


async def test_shared_records_go_when_their_time_is_over(settings: Settings) -> None:
    """Actions of the audit log and idempotency keys; what is younger stays."""
    async with running_webhooks(settings, **LONG) as deliveries:
        database = deliveries.services.database
        claim = IdempotencyClaim(b"print", "task")
        action = NewAuditEntry("prj", "admin", "POST /v1/projects", "/v1/projects", None, None, "request")
        async with database.connection() as connection:
            await connection.execute("DELETE FROM audit_log")
            for days in (400.01, 399.99):
                await add_audit_entry(database, action)
                await connection.execute(_AGE_ACTION, timedelta(days=days))
            for days in (30.01, 29.99):
                await claim_idempotency_key(database, "prj", f"key {days}", claim)
                await connection.execute(_AGE_CLAIM, timedelta(days=days))
        housekeeping = WebhookAndSharedRecordHousekeeping(deliveries.services)
        removed = [await ActivityEnvironment().run(housekeeping.purge_audit_log_and_idempotency_keys) for _ in range(2)]
        async with database.connection() as connection:
            left = [
                await connection.fetchval(f"SELECT count(*) FROM {table}")  # noqa: S608 - our own names
                for table in ("audit_log", "idempotency_keys")
            ]
    assert (removed, left) == ([2, 0], [1, 1])
