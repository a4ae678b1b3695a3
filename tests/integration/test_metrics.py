"""Figures of webhooks, tasks, transactions and the object store; each system has its own beside its other tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from domain.webhooks import DeliveryState, DeliveryStateAfterAttempt
from infra.database import Database
from infra.objects import ObjectMissing, ObjectStore
from infra.secrets import SecretSealer
from infra.settings import Settings
from stores import webhooks
from tests.support.tasks import FAILED, SUCCESS, Tasks
from tests.support.waiting import eventually
from tests.support.webhooks import make_order, running_webhooks

pytestmark = pytest.mark.stack


class Growth:
    """How much samples of this process have grown since this was made.

    Args:
        samples: By a name of the test's own, the name of a sample and its labels.
    """

    def __init__(self, **samples: tuple[str, dict[str, str]]) -> None:
        self._samples = samples
        self._before = self._read()

    def measure(self) -> dict[str, float]:
        """Return the growth of each sample."""
        return {name: value - self._before[name] for name, value in self._read().items()}

    def _read(self) -> dict[str, float]:
        return {
            name: REGISTRY.get_sample_value(sample, labels) or 0.0 for name, (sample, labels) in self._samples.items()
        }


async def test_deliveries_are_counted_by_outcome(settings: Settings) -> None:
    """One that is accepted at its second attempt, and one that never is; each ends with one log line."""
    growth = Growth(
        accepted=("haulage_webhook_attempts_total", {"outcome": "2xx"}),
        refused=("haulage_webhook_attempts_total", {"outcome": "5xx"}),
        succeeded=("haulage_webhooks_ended_total", {"state": "succeeded"}),
        failed=("haulage_webhooks_ended_total", {"state": "failed"}),
        ages=("haulage_webhook_seconds_count", {"state": "failed"}),
    )
    with capture_logs() as logs:
        async with running_webhooks(settings, retry_pauses_seconds=[0.01]) as deliveries:
            good = await deliveries.send(deliveries.receiver.url(answers="500,200"))
            await deliveries.wait_for_state(good, "succeeded", attempts=2)
            bad = await deliveries.send(deliveries.receiver.url(answers="500"))
            await deliveries.wait_for_state(bad, "failed", attempts=2)

    assert growth.measure() == {"accepted": 1, "refused": 3, "succeeded": 1, "failed": 1, "ages": 1}
    ends = {line["delivery_id"]: line for line in logs if line["event"] == "webhook_ended"}
    assert ends.keys() == {good.delivery_id, bad.delivery_id}
    line = ends[bad.delivery_id]
    assert (line["state"], line["attempts"], line["project_id"]) == ("failed", 2, deliveries.project_id)
    assert line["seconds"] > 0


async def test_deliveries_that_wait_are_counted_with_their_age(settings: Settings) -> None:
    """Until they end."""
    async with running_webhooks(settings, retry_pauses_seconds=[3_600]) as deliveries:
        order = await deliveries.send(deliveries.receiver.url(answers="500,200"))
        await deliveries.wait_for_state(order, "pending", attempts=1)
        waiting = await webhooks.count_pending_deliveries(deliveries.services.database)
        await deliveries.redeliver(order)
        await deliveries.wait_for_state(order, "succeeded", attempts=2)
        done = await webhooks.count_pending_deliveries(deliveries.services.database)

    assert (waiting.count, done.count) == (1, 0)
    assert 0 < waiting.compute_age_of_oldest() < 600
    assert done.compute_age_of_oldest() == 0


async def test_a_delivery_that_is_sent_again_is_as_old_as_that(settings: Settings, database: Database) -> None:
    """And its receiver fails only once it does not accept the new attempts."""
    url = "http://127.0.0.1/"
    order = make_order(SecretSealer(settings.secrets), "prj_1", url)
    again = order.model_copy(update={"redelivery": True})
    failed_once = DeliveryStateAfterAttempt(number=1, status=500, pause_seconds=60)

    async def attempt(progress: DeliveryStateAfterAttempt) -> None:
        await webhooks.save_attempt_and_update_delivery(
            database, order.delivery_id, datetime.now(UTC), 0.1, progress, is_redelivery=False
        )

    await webhooks.insert_or_reset_delivery(database, order, url)
    await attempt(DeliveryStateAfterAttempt(state=DeliveryState.SUCCEEDED, number=1, status=200))
    async with database.connection() as connection:
        await connection.execute("UPDATE webhook_deliveries SET created_at = now() - interval '5 days'")
    await webhooks.insert_or_reset_delivery(database, again, url)
    assert (await webhooks.count_pending_deliveries(database)).compute_age_of_oldest() < 600
    assert await webhooks.list_receivers_of_unfinished_failing_deliveries(database) == []
    await attempt(failed_once)
    [failing] = await webhooks.list_receivers_of_unfinished_failing_deliveries(database)
    await webhooks.insert_or_reset_delivery(database, again, url)  # of one that has not ended
    assert await webhooks.list_receivers_of_unfinished_failing_deliveries(database) == [failing]
    assert failing.oldest_at > datetime.now(UTC) - timedelta(minutes=10)


async def test_tasks_are_counted_by_their_end(tasks: Tasks) -> None:
    """When they are archived; a request for due tasks is timed."""
    growth = Growth(
        success=("haulage_tasks_ended_total", {"state": "success"}),
        failed=("haulage_tasks_ended_total", {"state": "failed"}),
        durations=("haulage_task_seconds_count", {"state": "success"}),
    )
    holds = Growth(holds=("haulage_task_hold_seconds_count", {}))
    await tasks.register()
    await tasks.create_many(3, task_content="{}")
    with capture_logs() as logs:
        for number, held in enumerate(await tasks.hold(limit=3)):
            await tasks.set(held, FAILED if number == 0 else SUCCESS)
        expected = {"success": 2, "failed": 1, "durations": 2}
        await eventually(lambda: growth.measure() == expected)
        await eventually(lambda: sum(line.get("success", 0) for line in logs if line["event"] == "tasks_ended") == 2)

    assert holds.measure()["holds"] >= 1
    lines = [line for line in logs if line["event"] == "tasks_ended"]
    assert {(line["project_id"], line["type"]) for line in lines} == {(tasks.project_id, "video")}


async def test_transactions_are_timed_by_outcome(database: Database) -> None:
    """A statement that the server refuses counts as failed; an error of the caller's own does not."""
    growth = Growth(
        done=("haulage_database_seconds_count", {"outcome": "done"}),
        failed=("haulage_database_seconds_count", {"outcome": "failed"}),
    )
    async with database.session() as session:
        await session.execute(text("SELECT 1"))
    with pytest.raises(LookupError):
        async with database.connection():
            raise LookupError
    with pytest.raises(DBAPIError):
        async with database.session() as session:
            await session.execute(text("SELECT 1 / 0"))

    assert growth.measure() == {"done": 2, "failed": 1}


async def test_calls_of_the_store_are_timed_by_outcome(objects: ObjectStore) -> None:
    """A missing object is no failure of the store."""
    growth = Growth(
        put=("haulage_store_seconds_count", {"call": "put_object", "outcome": "done"}),
        read=("haulage_store_seconds_count", {"call": "read_object", "outcome": "done"}),
        missing=("haulage_store_seconds_count", {"call": "read_object", "outcome": "missing"}),
    )
    await objects.put("here", b"1")
    await objects.get("here")
    with pytest.raises(ObjectMissing):
        await objects.get("nowhere")

    assert growth.measure() == {"put": 1, "read": 1, "missing": 1}
