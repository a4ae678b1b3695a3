"""The breaker of the client of Pub/Sub."""

from __future__ import annotations

import asyncio

import pytest

import clients.pubsub
from clients.pubsub import PubSubClient, PubSubCredentials, PubSubFailure
from infra.address_settings import PubSubSettings
from tests.support.pubsub import PROJECT


async def test_a_trial_that_is_cancelled_while_it_waits_for_its_token_is_left_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was sent: Pub/Sub would get no call for as long as the breaker stays open."""
    monkeypatch.setattr(clients.pubsub, "BREAKER_FAILURES", 1)
    monkeypatch.setattr(clients.pubsub, "BREAKER_SECONDS", 0.3)
    async with PubSubClient(PubSubSettings(project=PROJECT, base_url="http://127.0.0.1:1")) as pubsub:
        with pytest.raises(PubSubFailure, match="gave no answer"):
            await pubsub.pull("swaps")
        await asyncio.sleep(0.5)
        with monkeypatch.context() as patch:
            patch.setattr(PubSubCredentials, "get_token", lambda *_: asyncio.Event().wait())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pubsub.pull("swaps"), 0.05)
        with pytest.raises(PubSubFailure, match="gave no answer"):
            await pubsub.pull("swaps")
