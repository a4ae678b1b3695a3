"""Requests in the style of various callers, and the payload of a callback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from infra.settings import Settings
from sims.receiver import Receiver, running_receiver
from tests.support.downloads import Downloads, running_downloads
from tests.support.waiting import eventually

ROWS = [{"id": 1}]

pytestmark = pytest.mark.stack


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of callbacks."""
    async with running_receiver() as running:
        yield running


@pytest.fixture
async def exports(settings: Settings, receiver: Receiver) -> AsyncIterator[Downloads]:
    """API and worker that others know under a name."""
    guard = settings.guard.model_copy(update={"allow": [receiver.base.removeprefix("http://")]})
    public = settings.api.model_copy(update={"public_base": "https://export.example.com/"})
    async with running_downloads(settings.model_copy(update={"guard": guard, "api": public})) as running:
        yield running


async def test_an_empty_callback_is_none(exports: Downloads, receiver: Receiver) -> None:
    """Many systems send an empty text for a missing value: the download is made, and no callback is sent."""
    reply = await exports.api_client.ask("POST", "/v1/downloads", key=exports.key, json={"data": ROWS, "callback": ""})
    assert reply.status == 202, reply.body
    assert (await exports.wait_for_end(reply.body["task_id"]))["state"] == "succeeded"
    assert receiver.messages == {}


async def test_an_operator_may_be_a_number(exports: Downloads) -> None:
    """It is kept as a text, and found by it."""
    reply = await exports.api_client.ask(
        "POST", "/v1/downloads", key=exports.key, json={"data": ROWS, "operator_id": 10086}
    )
    assert reply.status == 202, reply.body
    ended = await exports.wait_for_end(reply.body["task_id"])
    listed = await exports.api_client.ask("GET", "/v1/downloads?operator_id=10086", key=exports.key)
    assert ended["operator_id"] == "10086"
    assert [item["task_id"] for item in listed.body["items"]] == [ended["task_id"]]


@pytest.mark.parametrize("operator", [True, 1.5, [1]])
async def test_an_operator_is_nothing_else(exports: Downloads, operator: object) -> None:
    """What is neither text nor whole number is refused, with the field's name."""
    reply = await exports.api_client.ask(
        "POST", "/v1/downloads", key=exports.key, json={"data": ROWS, "operator_id": operator}
    )
    assert reply.status == 422
    assert reply.body["errors"][0]["path"] == "operator_id"


async def test_a_callback_tells_the_whole_address_of_the_file(exports: Downloads, receiver: Receiver) -> None:
    """The receiver may reach the API by no other name than that of HAULAGE_API__PUBLIC_BASE."""
    reply = await exports.api_client.ask(
        "POST", "/v1/downloads", key=exports.key, json={"data": ROWS, "callback": receiver.url(tag="told")}
    )
    task_id = reply.body["task_id"]
    [message] = await eventually(lambda: receiver.list_received("told"))
    told = json.loads(message.body)["data"]
    assert (told["task_id"], told["state"]) == (task_id, "succeeded")
    assert told["download_url"] == f"https://export.example.com/v1/downloads/{task_id}/file"
