"""Deliveries to be recorded: one of each way that they can take."""

from __future__ import annotations

from collections.abc import Mapping

from domain import webhooks
from domain.webhooks import WebhookDeliveryInput
from infra.secrets import SecretSealer
from tests.replay.recorder import Recorder
from tests.support.waiting import eventually
from tests.support.webhooks import make_order, start
from workflows.webhooks.delivery import WebhookDelivery

VARIABLES: Mapping[str, str] = {"HAULAGE_WEBHOOKS__RETRY_PAUSES_SECONDS": "[0.1, 0.2]"}
# What the receiver answers, by the name of the history that it gives.
ANSWERS = {
    "succeeded": "200",
    "retried": "500,200",
    "failed": "500",
    "disabled": "410",
}


async def record(recorder: Recorder) -> None:
    """Deliver in every way and keep the histories."""
    for name, answers in ANSWERS.items():
        order = _order(recorder, recorder.receiver.url(tag=name, answers=answers))
        await _deliver(recorder, order, name)
    gone = recorder.receiver.url(tag="disabled", answers=ANSWERS["disabled"])
    await _deliver(recorder, _order(recorder, gone), "disabled-before")
    await _wake(recorder)


async def _deliver(recorder: Recorder, order: WebhookDeliveryInput, name: str) -> None:
    await (await start(recorder.engine, order)).result()
    await recorder.keep(_id(order), WebhookDelivery.__name__, name)


async def _wake(recorder: Recorder) -> None:
    """Ask for a redelivery while the receiver's own Retry-After is waited for."""
    url = recorder.receiver.url(tag="woken", answers="429,200", retry_after="3600")
    order = _order(recorder, url)
    handle = await start(recorder.engine, order)

    async def pausing() -> bool:
        return (await handle.query(WebhookDelivery.status)).pause_seconds is not None

    await eventually(pausing)
    await handle.signal(WebhookDelivery.redeliver)
    await handle.result()
    await recorder.keep(_id(order), WebhookDelivery.__name__, "woken", run_id=handle.first_execution_run_id)
    await recorder.keep(_id(order), WebhookDelivery.__name__, "redelivered")


def _order(recorder: Recorder, url: str) -> WebhookDeliveryInput:
    return make_order(SecretSealer(recorder.running.settings.secrets), recorder.project_id, url)


def _id(order: WebhookDeliveryInput) -> str:
    return webhooks.build_delivery_workflow_id(order.project_id, order.delivery_id)
