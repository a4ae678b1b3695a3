"""Deliveries to a real receiver: signed, tried again, stopped by 410, made again, and never where they must not go."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from domain.webhooks import DeliveryState, DeliveryStateAfterAttempt
from infra.settings import Settings
from sims.source import running_source
from tests.support.pace import measure_pace
from tests.support.waiting import eventually
from tests.support.webhooks import DATA, TASK_ID, make_order, running_webhooks, start, verify_message
from workflows.webhooks import delivery

pytestmark = pytest.mark.stack

SHORT: dict[str, Any] = {"retry_pauses_seconds": [0.01, 0.02, 0.03]}
LONG: dict[str, Any] = {"retry_pauses_seconds": [3600.0]}
WAITING = 100


async def test_a_receiver_is_told_once_and_can_verify_it(settings: Settings) -> None:
    """The message has the standard's headers and body, and the list says that it arrived."""
    async with running_webhooks(settings, **LONG) as deliveries:
        secret = await deliveries.rotate(0)
        order = await deliveries.send(deliveries.receiver.url())
        shown = await deliveries.wait_for_state(order, "succeeded", 1)

        (message,) = deliveries.receiver.list_received()
    assert verify_message(message, secret) == {
        "type": "download.succeeded",
        "timestamp": order.event.timestamp.isoformat().replace("+00:00", "Z"),
        "data": DATA,
    }
    assert message.headers["content-type"] == "application/json"
    assert message.headers["webhook-id"] == order.delivery_id
    assert (shown["type"], shown["next_attempt_at"]) == ("download.succeeded", None)
    assert shown["receiver"] == deliveries.receiver.base.removeprefix("http://")
    (attempt,) = shown["last_attempts"]
    assert (attempt["status"], attempt["error"]) == (200, None)
    assert shown["created_at"] <= attempt["started_at"] <= shown["finished_at"]


async def test_a_failing_receiver_is_told_again_until_it_takes_it(settings: Settings) -> None:
    """Errors, broken connections and redirects are failures; each attempt has the same id and body, and is listed."""
    async with running_webhooks(settings, **SHORT) as deliveries, running_source() as elsewhere:
        secret = await deliveries.rotate(0)
        url = deliveries.receiver.url(
            answers="500,reset,302,204", location=elsewhere.url(rows=1), text="out of\x00order"
        )
        order = await deliveries.send(url)
        shown = await deliveries.wait_for_state(order, "succeeded", 4)

        messages = deliveries.receiver.list_received()
        assert elsewhere.counts.total() == 0
    assert len({(message.headers["webhook-id"], message.body) for message in messages}) == 1
    assert all(verify_message(message, secret)["data"] == DATA for message in messages)
    attempts = shown["last_attempts"][::-1]
    assert [attempt["status"] for attempt in attempts] == [500, None, 302, 204]
    assert "“out of order”" in attempts[0]["error"]
    assert "broke off" in attempts[1]["error"]
    assert "Redirects are not followed" in attempts[2]["error"]
    assert attempts[3]["error"] is None


async def test_when_the_ladder_ends_it_has_failed_and_can_be_made_again(settings: Settings) -> None:
    """Four answers of 503 end it; asked for again, it goes out with its old id and body."""
    async with running_webhooks(settings, **SHORT) as deliveries:
        secret = await deliveries.rotate(0)
        order = await deliveries.send(deliveries.receiver.url(answers="503,503,503,503,200"))
        failed = await deliveries.wait_for_state(order, "failed", 4)
        await deliveries.redeliver(order)
        await deliveries.wait_for_state(order, "succeeded", 5)

        messages = deliveries.receiver.list_received()
    assert failed["next_attempt_at"] is None
    assert [message.headers["webhook-id"] for message in messages] == [order.delivery_id] * 5
    assert {message.body for message in messages} == {order.event.body}
    assert verify_message(messages[-1], secret)["data"] == DATA


async def test_who_waits_for_the_next_attempt_is_woken(settings: Settings) -> None:
    """A redelivery does not wait for the pause of an hour, and begins the ladder anew."""
    async with running_webhooks(settings, **LONG) as deliveries:
        order = await deliveries.send(deliveries.receiver.url(answers="500,500,200"))
        waiting = await deliveries.wait_for_state(order, "pending", 1)
        await deliveries.redeliver(order)
        await deliveries.wait_for_state(order, "pending", 2)
        await deliveries.redeliver(order)
        await deliveries.wait_for_state(order, "succeeded", 3)

        assert len(deliveries.receiver.list_received()) == 3
    pause = _moment(waiting["next_attempt_at"]) - _moment(waiting["last_attempts"][0]["started_at"])
    assert 3600 <= pause.total_seconds() <= 3600 * 1.1 + 60


async def test_what_has_arrived_can_be_sent_again(settings: Settings) -> None:
    """A receiver that lost a message gets it once more, and once only."""
    async with running_webhooks(settings, **LONG) as deliveries:
        order = await deliveries.send(deliveries.receiver.url())
        await deliveries.wait_for_state(order, "succeeded", 1)
        await deliveries.redeliver(order)
        await deliveries.wait_for_state(order, "succeeded", 2)

        first, second = deliveries.receiver.list_received()
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)


async def test_gone_stops_this_and_later_deliveries_until_one_is_made_again(settings: Settings) -> None:
    """410 disables the address for its project; a redelivery that arrives opens it."""
    async with running_webhooks(settings, **SHORT) as deliveries:
        url = deliveries.receiver.url(answers="410,410,200")
        first = await deliveries.send(url)
        shown = await deliveries.wait_for_state(first, "disabled", 1)
        second = await deliveries.send(url)
        untried = await deliveries.wait_for_state(second, "disabled", 0)
        other = await deliveries.send(deliveries.receiver.url(tag="other"))
        await deliveries.wait_for_state(other, "succeeded", 1)

        await deliveries.redeliver(first)
        await deliveries.wait_for_state(first, "disabled", 2)
        await deliveries.redeliver(second)
        reopened = await deliveries.wait_for_state(second, "succeeded", 1)
        third = await deliveries.send(url)
        await deliveries.wait_for_state(third, "succeeded", 1)

        assert len(deliveries.receiver.list_received()) == 4
    assert "410" in shown["last_attempts"][0]["error"]
    # The second was never tried: only its reason says why.
    assert (untried["last_attempts"], reopened["reason"]) == ([], None)
    assert "answered 410 to this delivery or to an earlier one" in untried["reason"]


async def test_an_address_that_is_not_ours_to_call_is_not_called(settings: Settings) -> None:
    """A private address fails at once, with a sentence, and nothing arrives there."""
    async with running_webhooks(settings, **SHORT) as deliveries, running_source() as private:
        order = await deliveries.send(private.url(rows=1))
        shown = await deliveries.wait_for_state(order, "failed", 1)

        assert private.counts.total() == 0
    (attempt,) = shown["last_attempts"]
    assert attempt["status"] is None
    assert "not open" in attempt["error"]


async def test_a_slow_receiver_is_not_waited_for(settings: Settings) -> None:
    """What takes longer than it may is a failure like any other."""
    async with running_webhooks(settings, timeout_seconds=0.2, **LONG) as deliveries:
        order = await deliveries.send(deliveries.receiver.url(delay_ms=60_000))
        shown = await deliveries.wait_for_state(order, "pending", 1)

    assert "did not finish its answer within 0.2 seconds" in shown["last_attempts"][0]["error"]
    assert shown["last_attempts"][0]["duration_seconds"] < 30


async def test_a_receiver_that_answers_at_length_has_taken_it(settings: Settings) -> None:
    """A 2xx counts, whatever comes with it."""
    async with running_webhooks(settings, **LONG) as deliveries:
        order = await deliveries.send(deliveries.receiver.url(repeat=300_000, text="thanks! "))
        shown = await deliveries.wait_for_state(order, "succeeded", 1)

    assert shown["last_attempts"][0]["error"] is None


async def test_a_busy_receiver_sets_the_pause(settings: Settings) -> None:
    """Retry-After of a 429 puts the next attempt off."""
    async with running_webhooks(settings, **SHORT) as deliveries:
        order = await deliveries.send(deliveries.receiver.url(answers="429", retry_after="600"))
        shown = await deliveries.wait_for_state(order, "pending", 1)

    pause = _moment(shown["next_attempt_at"]) - _moment(shown["last_attempts"][0]["started_at"])
    assert 600 <= pause.total_seconds() < 660


async def test_the_workflow_says_how_it_stands(settings: Settings) -> None:
    """Query, search attributes and result agree with the list; the history holds neither URL nor secret."""
    async with running_webhooks(settings, **LONG) as deliveries:
        secret = await deliveries.rotate(0)
        order = make_order(
            deliveries.services.sealer, deliveries.project_id, deliveries.receiver.url(tag="planted-key")
        )
        handle = await start(deliveries.services.engine, order)
        result = await handle.result()
        asked = await handle.query(delivery.WebhookDelivery.status)
        history = (await handle.fetch_history()).to_json()

    assert result == asked == DeliveryStateAfterAttempt(state=DeliveryState.SUCCEEDED, number=1, status=200)
    assert "planted-key" not in history
    assert secret not in history


async def test_many_deliveries_at_once_all_arrive_once(settings: Settings) -> None:
    """A project's first deliveries make its secret together, and each of them is signed by it."""
    async with running_webhooks(settings, **SHORT) as deliveries:
        orders = await asyncio.gather(*(deliveries.send(deliveries.receiver.url()) for _ in range(30)))
        await eventually(lambda: len(deliveries.receiver.list_received()) == 30)
        for order in orders:
            await deliveries.wait_for_state(order, "succeeded", 1)
        reply = await deliveries.api_client.ask(
            "GET", f"/v1/projects/{deliveries.project_id}/webhook-secrets", key=deliveries.key
        )

        messages = deliveries.receiver.list_received()
    assert len(reply.body["items"]) == 1
    assert {message.headers["webhook-id"] for message in messages} == {order.delivery_id for order in orders}
    assert {message.headers["webhook-signature"].count("v1,") for message in messages} == {1}


@pytest.mark.long
async def test_a_project_s_slow_receivers_do_not_hold_up_another_project(settings: Settings) -> None:
    """Behind a hundred messages that take long, another project's one goes out as soon as an attempt ends."""
    async with running_webhooks(settings, **LONG) as deliveries:
        other, _ = await deliveries.api_client.make_project("other")
        # Less than an attempt may take, and long enough that a slow machine has all of them waiting meanwhile.
        slow = deliveries.receiver.url(tag="slow", delay_ms=min(15_000, round(3_000 * measure_pace())))
        sealer, engine, database = deliveries.services.sealer, deliveries.services.engine, deliveries.services.database
        await asyncio.gather(*(start(engine, make_order(sealer, other, slow)) for _ in range(WAITING)))

        async def all_wait() -> bool:
            async with database.connection() as connection:
                return bool(await connection.fetchval("SELECT count(*) = $1 FROM webhook_deliveries", WAITING))

        await eventually(all_wait)
        assert len(deliveries.receiver.list_received("slow")) < WAITING
        await deliveries.send(deliveries.receiver.url())
        await eventually(lambda: len(deliveries.receiver.list_received()) == 1)

        assert len(deliveries.receiver.list_received("slow")) < WAITING


async def test_deliveries_come_a_page_at_a_time(settings: Settings) -> None:
    """Newest first, and every one of them once."""
    async with running_webhooks(settings, **SHORT) as deliveries:
        orders = [await deliveries.send(deliveries.receiver.url()) for _ in range(3)]
        for order in orders:
            await deliveries.wait_for_state(order, "succeeded", 1)
        pages: list[Any] = []
        query: dict[str, str] | None = {}
        while query is not None:
            path = f"/v1/downloads/{TASK_ID}/deliveries"
            reply = await deliveries.api_client.ask("GET", path, key=deliveries.key, params={"limit": "2", **query})
            pages.append([each["delivery_id"] for each in reply.body["items"]])
            cursor = reply.body["next_cursor"]
            query = {"cursor": cursor} if cursor else None

    assert [len(page) for page in pages] == [2, 1]
    assert {each for page in pages for each in page} == {order.delivery_id for order in orders}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
