"""Secrets of webhooks: created on demand, shown once, rotated with an overlap, and hidden from other projects."""

from __future__ import annotations

from typing import Any

import pytest
from sqlmodel import col, select
from standardwebhooks import WebhookVerificationError

from infra.settings import Settings
from stores.tables.shared import WebhookSecret
from tests.support.webhooks import TASK_ID, Webhooks, running_webhooks, verify_message

pytestmark = pytest.mark.stack


async def list_secrets(deliveries: Webhooks) -> list[dict[str, Any]]:
    """The secrets that the API lists."""
    path = f"/v1/projects/{deliveries.project_id}/webhook-secrets"
    reply = await deliveries.api_client.ask("GET", path, key=deliveries.key)
    assert reply.status == 200, reply.body
    secrets: list[dict[str, Any]] = reply.body["items"]
    return secrets


async def test_a_secret_is_shown_once_and_masked_ever_after(settings: Settings) -> None:
    """Only the response that created it shows it; a list masks secrets, and the database holds them sealed."""
    async with running_webhooks(settings) as deliveries:
        assert await list_secrets(deliveries) == []
        secret = await deliveries.rotate(3600)
        (entry,) = await list_secrets(deliveries)
        async with deliveries.services.database.session() as session:
            stored = (await session.exec(select(col(WebhookSecret.sealed)))).one()

    assert secret.startswith("whsec_")
    assert entry["masked"] == f"whsec_…{secret[-4:]}"
    assert entry["expires_at"] is None
    assert secret not in str(entry)
    assert secret.removeprefix("whsec_") not in stored


async def test_while_they_overlap_both_secrets_sign(settings: Settings) -> None:
    """Receivers can be changed one by one; when the overlap is over, only the new secret signs."""
    async with running_webhooks(settings) as deliveries:
        old = await deliveries.rotate(0)
        new = await deliveries.rotate(3600)
        await deliveries.wait_for_state(await deliveries.send(deliveries.receiver.url()), "succeeded", 1)
        newest = await deliveries.rotate(0)
        await deliveries.wait_for_state(await deliveries.send(deliveries.receiver.url()), "succeeded", 1)

        during, after = deliveries.receiver.list_received()
        listed = await list_secrets(deliveries)
    assert verify_message(during, old) == verify_message(during, new)
    assert verify_message(after, newest)["type"] == "download.succeeded"
    for ended in (old, new):
        with pytest.raises(WebhookVerificationError):
            verify_message(after, ended)
    assert [entry["masked"][-4:] for entry in listed] == [newest[-4:]]


async def test_secrets_cannot_pile_up(settings: Settings) -> None:
    """The sixth at a time is refused with a way out, and the way out works."""
    async with running_webhooks(settings) as deliveries:
        for _ in range(5):
            await deliveries.rotate(3600)
        path = f"/v1/projects/{deliveries.project_id}/webhook-secrets"
        refused = await deliveries.api_client.ask("POST", path, key=deliveries.key, json={"overlap_seconds": 3600})
        await deliveries.rotate(0)
        left = await list_secrets(deliveries)

    assert (refused.status, refused.code) == (409, "too_many_secrets")
    assert "`overlap_seconds` 0" in refused.body["detail"]
    assert len(left) == 1


async def test_an_overlap_never_lengthens_the_one_before(settings: Settings) -> None:
    """A secret that was to end soon still does."""
    async with running_webhooks(settings) as deliveries:
        await deliveries.rotate(0)
        await deliveries.rotate(60)
        ends = (await list_secrets(deliveries))[1]["expires_at"]
        await deliveries.rotate(3600)
        listed = await list_secrets(deliveries)

    assert len(listed) == 3
    assert listed[2]["expires_at"] == ends


async def test_a_revoked_project_gets_no_new_secret(settings: Settings) -> None:
    """What was ended stays so, also for the admin key; and a project that never was is not there."""
    async with running_webhooks(settings) as deliveries:
        await deliveries.api_client.as_admin("POST", f"/v1/projects/{deliveries.project_id}/revoke")
        path = f"/v1/projects/{deliveries.project_id}/webhook-secrets"
        refused = await deliveries.api_client.as_admin("POST", path, json={})
        unknown = await deliveries.api_client.as_admin("GET", "/v1/projects/prj_0000000000000000/webhook-secrets")

    assert (refused.status, refused.code) == (409, "project_revoked")
    assert (unknown.status, unknown.code) == (404, "not_found")


async def test_another_project_finds_no_delivery(settings: Settings) -> None:
    """Neither the list nor the redelivery of a foreign download is there, and nothing is sent."""
    async with running_webhooks(settings) as deliveries:
        order = await deliveries.send(deliveries.receiver.url())
        await deliveries.wait_for_state(order, "succeeded", 1)
        _, stranger = await deliveries.api_client.make_project("stranger")
        path = f"/v1/downloads/{TASK_ID}/deliveries"
        listed = await deliveries.api_client.ask("GET", path, key=stranger)
        again = await deliveries.api_client.ask("POST", f"{path}/{order.delivery_id}/redeliver", key=stranger)
        other_task = path.replace(TASK_ID, "dl_" + "1" * 24)
        misplaced = await deliveries.api_client.ask(
            "POST", f"{other_task}/{order.delivery_id}/redeliver", key=deliveries.key
        )

        assert len(deliveries.receiver.list_received()) == 1
    assert [(reply.status, reply.code) for reply in (listed, again, misplaced)] == [(404, "not_found")] * 3
