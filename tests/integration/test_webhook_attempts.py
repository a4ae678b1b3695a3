"""What attempts that cross leave of a delivery, and what a 410 means for other deliveries to the same address."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from domain.webhooks import DeliveryState, DeliveryStateAfterAttempt, WebhookDeliveryInput
from infra.database import Database
from infra.secrets import SecretSealer
from infra.settings import Settings
from stores import webhooks
from stores.tables.shared import Delivery
from tests.support.webhooks import make_order, running_webhooks

URL = "http://127.0.0.1/"
ARRIVED = DeliveryStateAfterAttempt(state=DeliveryState.SUCCEEDED, number=1, status=200)
GONE = DeliveryStateAfterAttempt(state=DeliveryState.DISABLED, number=1, status=410)
ENDED = DeliveryStateAfterAttempt(state=DeliveryState.FAILED, number=1, status=500)
UNANSWERED = DeliveryStateAfterAttempt(number=1, status=500, pause_seconds=60)


async def save(
    database: Database, order: WebhookDeliveryInput, progress: DeliveryStateAfterAttempt, seconds: float = 0
) -> None:
    """Save an attempt that began so long after now."""
    began = datetime.now(UTC) + timedelta(seconds=seconds)
    await webhooks.save_attempt_and_update_delivery(
        database, order.delivery_id, began, 0.1, progress, is_redelivery=False
    )


@pytest.mark.parametrize("saved", [(0, 5), (5, 0)], ids=["in order", "late"])
async def test_an_attempt_that_was_taken_for_lost_changes_nothing_later(
    settings: Settings, database: Database, saved: tuple[int, int]
) -> None:
    """Its worker was cut off, and the attempt that replaced it arrived: whichever is saved last, it has arrived."""
    order = make_order(SecretSealer(settings.secrets), "prj_1", URL)
    await webhooks.insert_or_reset_delivery(database, order, URL)
    for seconds in saved:
        await save(database, order, ARRIVED if seconds else UNANSWERED, seconds)

    async with database.session() as session:
        found = await session.get_one(Delivery, order.delivery_id)
    assert (found.state, found.next_attempt_at, found.attempts) == (DeliveryState.SUCCEEDED, None, 2)
    assert found.finished_at is not None


async def test_a_delivery_that_ended_as_disabled_is_not_pending_after_a_late_attempt(
    settings: Settings, database: Database
) -> None:
    """The attempt that replaced it met a disabled address, and posted nothing: none follows."""
    sealer = SecretSealer(settings.secrets)
    order, other = (make_order(sealer, "prj_1", URL) for _ in range(2))
    for each in (order, other):
        await webhooks.insert_or_reset_delivery(database, each, URL)
    await save(database, other, GONE)
    await webhooks.load_delivery_to_attempt(database, order.delivery_id, is_redelivery=False)
    await save(database, order, UNANSWERED)

    async with database.session() as session:
        found = await session.get_one(Delivery, order.delivery_id)
    assert (found.state, found.next_attempt_at, found.attempts) == (DeliveryState.DISABLED, None, 1)


@pytest.mark.parametrize("outcome", [None, ENDED], ids=["under way", "failed"])
async def test_an_address_stays_disabled_unless_a_redelivery_arrives(
    settings: Settings, database: Database, outcome: DeliveryStateAfterAttempt | None
) -> None:
    """A redelivery of the one delivery that was answered 410 opens the address by its success alone."""
    sealer = SecretSealer(settings.secrets)
    first, later = (make_order(sealer, "prj_1", URL) for _ in range(2))
    await webhooks.insert_or_reset_delivery(database, first, URL)
    await save(database, first, GONE)
    await webhooks.insert_or_reset_delivery(database, first.model_copy(update={"redelivery": True}), URL)
    if outcome is not None:
        await save(database, first, outcome)

    assert await webhooks.insert_or_reset_delivery(database, later, URL) is DeliveryState.DISABLED


@pytest.mark.stack
async def test_gone_ends_a_delivery_that_waits_for_its_next_attempt(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is posted to the address; a user may have it sent all the same."""
    load, begun, is_gone = webhooks.load_delivery_to_attempt, Counter[str](), asyncio.Event()

    async def load_again_once_gone(database: Database, delivery_id: str, *, is_redelivery: bool) -> Delivery:
        # However long the other delivery takes: the pause does not end before its 410.
        begun[delivery_id] += 1
        if begun[delivery_id] > 1:
            await is_gone.wait()
        return await load(database, delivery_id, is_redelivery=is_redelivery)

    monkeypatch.setattr(webhooks, "load_delivery_to_attempt", load_again_once_gone)
    async with running_webhooks(settings, retry_pauses_seconds=[1.0]) as deliveries:
        url = deliveries.receiver.url(answers="500,410,200")
        waiting = await deliveries.send(url)
        await deliveries.wait_for_state(waiting, "pending", 1)
        gone = await deliveries.send(url)
        await deliveries.wait_for_state(gone, "disabled", 1)
        is_gone.set()
        shown = await deliveries.wait_for_state(waiting, "disabled", 1)
        received = len(deliveries.receiver.list_received())
        await deliveries.redeliver(waiting)
        await deliveries.wait_for_state(waiting, "succeeded", 2)

    assert received == 2
    assert shown["next_attempt_at"] is None
