"""Workers killed between two attempts, or during one: the receiver gets the event all the same."""

from __future__ import annotations

from typing import Any

import pytest

from dev.local import list_worker_names
from tests.support.caller import Caller, running_caller
from tests.support.deployment import Deployment
from tests.support.kills import Killer
from tests.support.waiting import eventually
from tests.support.webhooks import verify_message

TURNS_MAX = 4


@pytest.mark.parametrize(
    ("answers", "delay_ms", "booked", "attempts"),
    [pytest.param("500,200", 0, 1, 2, marks=pytest.mark.long), ("200", 8_000, 0, 1)],
    ids=["between attempts", "in an attempt"],
)
async def test_a_killed_worker_s_delivery_arrives(
    deployment: Deployment, killer: Killer, answers: str, delay_ms: int, booked: int, attempts: int
) -> None:
    """Another worker continues the attempts; one that was not saved is made again under the same id."""
    receiver = deployment.receiver
    async with running_caller(deployment) as caller:
        path = f"/v1/projects/{caller.project_id}/webhook-secrets"
        secret = (await (await caller.call("POST", path, 201, json={"overlap_seconds": 0})).json())["secret"]
        for turn in range(TURNS_MAX):
            tag = f"{caller.project_id}-{turn}"
            callback = receiver.url(tag=tag, answers=answers, delay_ms=delay_ms)
            task_id = await caller.start(f"{deployment.source}/rows?rows=100&seed=1", page_size=100, callback=callback)

            async def is_open(task_id: str = task_id, tag: str = tag) -> bool:
                delivery = await _delivery(caller, task_id)
                stands = (delivery.get("state"), delivery.get("attempts"))
                return stands == ("pending", booked) and len(receiver.list_received(tag)) == 1

            # Whichever of them has it.
            if await killer.try_kill(*list_worker_names(), under_way=is_open):
                break

        async def has_succeeded() -> bool:
            return bool((await _delivery(caller, task_id))["state"] == "succeeded")

        await eventually(has_succeeded)
        delivery = await _delivery(caller, task_id)

    messages = receiver.list_received(tag)
    killer.close(lost=max(0, 2 - len(messages)), doubled=max(0, len(messages) - 2))
    assert killer.record.kills == len(list_worker_names()), "each kill came when the delivery was made"
    assert delivery["attempts"] == attempts
    assert [message.headers["webhook-id"] for message in messages] == [delivery["delivery_id"]] * 2
    assert all(verify_message(message, secret) for message in messages)


async def _delivery(caller: Caller, task_id: str) -> dict[str, Any]:
    """Return the delivery of a download's end as the API lists it; nothing if there is none yet."""
    listed = await (await caller.call("GET", f"/v1/downloads/{task_id}/deliveries", 200)).json()
    return next(iter(listed["items"]), {})
