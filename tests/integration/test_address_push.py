"""Intake by push: only pushes that Pub/Sub signed are accepted, and answered when they are in the log."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlmodel import select

from api.addresses.inbox import PUSH_MAX_BYTES
from domain.addresses.messages import Topic
from infra.database import Database
from infra.settings import Settings
from sims.pubsub.broker import Broker
from sims.pubsub.scenario import Scenario
from sims.pubsub.server import PubSubSim, running_pubsub
from stores.addresses.inbox import MessageLogAndQuarantineWriter
from stores.tables.addresses import AddressMessage, QuarantinedMessage
from tests.support.api import ApiClient, Reply, running_api
from tests.support.pace import measure_pace
from tests.support.pubsub import create_update, many, publisher
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

AUDIENCE = "https://haulage.example.com"
EMAIL = "pusher@project.iam.gserviceaccount.com"
SECRET = "a-secret-of-ours-1"
TOPIC = Topic.CREATE_UPDATE


@dataclass(frozen=True)
class PushSetup:
    """An API that is pushed to, and who pushes."""

    api_client: ApiClient
    sim: PubSubSim

    def path(self, topic: str = TOPIC) -> str:
        """Where a topic is pushed to."""
        return f"/v1/addresses/events/{topic}"

    async def push(self, envelope: Any, *, topic: str = TOPIC, **options: Any) -> Reply:
        """One push, signed unless something else is shown."""
        shown = {"key": self.sim.signer.token(email=EMAIL, audience=AUDIENCE)}
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        body = io.BytesIO(json.dumps(envelope).encode())
        return await self.api_client.ask("POST", self.path(topic), data=body, headers=headers, **(shown | options))


def envelope(payload: Any, msg_no: str = "1", **fields: Any) -> dict[str, Any]:
    """What Pub/Sub sends; bytes as they are."""
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    message = {
        "data": b64encode(raw).decode(),
        "messageId": msg_no,
        "message_id": msg_no,
        "publishTime": "2026-11-20T12:00:00Z",
        "attributes": {"a": "b"},
        "orderingKey": "",
    }
    return {"message": message | fields, "subscription": "projects/p/subscriptions/s", "deliveryAttempt": 1}


@asynccontextmanager
async def running_push(settings: Settings, scenario: Scenario | None = None, **push: Any) -> AsyncIterator[PushSetup]:
    """The API, and a Pub/Sub whose signatures it knows."""
    async with running_pubsub(Broker(scenario)) as sim:
        agreed = {"audience": AUDIENCE, "email": EMAIL, "keys_url": sim.keys_url, "secret": SecretStr(SECRET), **push}
        addresses = settings.addresses.model_copy(
            update={"push": settings.addresses.push.model_copy(update=agreed), "message_max_bytes": 1024 * 1024}
        )
        guard = settings.guard.model_copy(update={"allow": [sim.base.removeprefix("http://")]})
        async with running_api(settings.model_copy(update={"addresses": addresses, "guard": guard})) as api_client:
            yield PushSetup(api_client, sim)


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[PushSetup]:
    """The usual one."""
    async with running_push(settings) as world:
        yield world


async def numbers(database: Database) -> list[str]:
    """What is in the log."""
    async with database.session() as session:
        return sorted(await session.exec(select(AddressMessage.msg_no)))


async def reasons(database: Database) -> list[str]:
    """Why messages are in quarantine."""
    async with database.session() as session:
        return list(await session.exec(select(QuarantinedMessage.reason)))


async def test_all_that_is_published_gets_into_the_log(settings: Settings, database: Database) -> None:
    """Shuffled, twice, with lost acknowledgements: Pub/Sub pushes until it gets a successful response."""
    scenario = Scenario(reorder=20, duplicate=0.2, drop_acks=0.2, delay_seconds=0.1, seed=6)
    async with running_push(settings, scenario) as world, publisher(world.sim.base) as publishing:
        push = {
            "pushEndpoint": world.api_client.address + world.path(),
            "oidcToken": {"serviceAccountEmail": EMAIL, "audience": AUDIENCE},
        }
        # Else a slow machine would answer each push after its deadline, and each would come again.
        await publishing.subscribe(TOPIC, "pushed", ackDeadlineSeconds=0.5 * measure_pace(), pushConfig=push)
        ids = await publishing.publish(TOPIC, *many(200), b"poison")
        (subscription,) = world.sim.broker.subscriptions.values()
        await eventually(lambda: subscription.waiting == 0)

        assert world.sim.pusher.answers.keys() == {204}
    assert await numbers(database) == ids[:-1]
    assert len(await reasons(database)) == 1


async def test_what_is_pushed_under_a_replaced_secret_comes_again(settings: Settings, database: Database) -> None:
    """Refused until the subscription's address has the new one; nothing is lost meanwhile."""
    async with running_push(settings) as world, publisher(world.sim.base) as publishing:
        address = world.api_client.address + world.path()
        push = {"pushEndpoint": f"{address}?token=the-secret-of-before"}
        await publishing.subscribe(TOPIC, "pushed", ackDeadlineSeconds=600, pushConfig=push)
        ids = await publishing.publish(TOPIC, *many(5))
        (subscription,) = world.sim.broker.subscriptions.values()
        await eventually(lambda: 401 in world.sim.pusher.answers)
        assert await numbers(database) == []
        subscription.endpoint = f"{address}?token={SECRET}"
        await eventually(lambda: subscription.waiting == 0)
    assert await numbers(database) == ids


async def test_a_push_is_answered_when_it_is_in_the_log(
    world: PushSetup, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is acknowledged that could still be lost."""
    reply = await world.push(envelope(create_update(), "7"))
    assert (reply.status, reply.body) == (204, "")
    assert await numbers(database) == ["7"]

    async def fail(*_: Any) -> None:
        raise ConnectionError("the database is down")

    monkeypatch.setattr(MessageLogAndQuarantineWriter, "store_messages_or_quarantine_them", fail)
    reply = await world.push(envelope(create_update(), "8"))
    assert (reply.status, reply.code) == (503, "unavailable")


async def test_what_is_pushed_again_and_what_cannot_be_read_is_acknowledged(
    world: PushSetup, database: Database
) -> None:
    """To deliver it once more would not help; messages without data, or with too much of it, included."""
    large = envelope(b"x" * (1024 * 1024 + 1), "4")
    sent = [envelope(create_update()), envelope(create_update()), envelope(b"?", "2"), envelope(b"", "3"), large]
    bare = envelope(b"", "5")
    del bare["message"]["data"], bare["message"]["publishTime"]

    assert [(await world.push(each)).status for each in [*sent, bare]] == [204] * 6
    assert await numbers(database) == ["1"]
    assert [reason.partition(".")[0] for reason in await reasons(database)] == [
        "The message is no JSON: JSON is malformed: invalid character (byte 0)",
        "The message is empty",
        "The message has 1,048,577 bytes",
        "The message is empty",
    ]


async def test_fields_that_google_may_add_are_no_hindrance(world: PushSetup) -> None:
    """An unknown field must not stop the intake of everything."""
    reply = await world.push({**envelope(create_update(), "1", newField={"a": 1}), "another": []})

    assert reply.status == 204


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_request"),
        ({"message": {}}, 422, "invalid_request"),
        (envelope(b"", 5), 422, "invalid_request"),  # type: ignore[arg-type]
        (envelope(b"", "1", data="abc"), 422, "invalid_request"),
        (envelope(b"", "1", data="***"), 422, "invalid_request"),
        (envelope(b"", "1", data="-_-_"), 422, "invalid_request"),
        (envelope(b"", "1", data="e3\n0="), 422, "invalid_request"),
        (envelope(b"", "1", data="e30=e30="), 422, "invalid_request"),
        (envelope(b"x" * PUSH_MAX_BYTES), 413, "body_too_large"),
    ],
)
async def test_what_is_no_envelope_is_refused(
    world: PushSetup, database: Database, body: Any, status: int, code: str
) -> None:
    """It did not come from Pub/Sub, or an operator should see that it is not acknowledged."""
    reply = await world.push(body)

    assert (reply.status, reply.code) == (status, code)
    assert await numbers(database) == []


async def test_only_the_three_topics_are_there(world: PushSetup) -> None:
    """A subscription that pushes to the wrong address gets an error."""
    reply = await world.push(envelope(create_update()), topic="somethingElse")

    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize(
    "options",
    [
        {"key": None},
        {"key": "nonsense"},
        {"key": None, "headers": {"Authorization": f"Basic {SECRET}"}},
        {"key": None, "params": {"token": SECRET[:-1]}},
    ],
)
async def test_a_stranger_is_refused_before_anything_is_read(
    world: PushSetup, database: Database, options: Mapping[str, Any]
) -> None:
    """Whatever it sends; and the response does not say why."""
    good, bad = await world.push(envelope(create_update()), **options), await world.push({}, **options)

    assert {(reply.status, reply.code) for reply in (good, bad)} == {(401, "push_refused")}
    assert await numbers(database) == []


@pytest.mark.parametrize(
    "options",
    [
        {"key": "nonsense", "params": {"token": SECRET}},
        {"key": None, "headers": {"Authorization": "Basic bm9uOnNlbnNl"}, "params": {"token": SECRET}},
        {"key": None, "headers": {"Authorization": ""}, "params": {"token": SECRET}},
        {"key": SECRET, "params": {"token": "nonsense"}},
        {"params": {"token": "nonsense"}},
        {"params": {"token": SECRET}},
    ],
)
async def test_a_push_with_a_right_token_is_accepted_whatever_else_it_shows(
    world: PushSetup, database: Database, options: Mapping[str, Any]
) -> None:
    """Proxies on its way have credentials of their own, and a subscription that begins to sign keeps the secret."""
    reply = await world.push(envelope(create_update()), **options)

    assert reply.status == 204
    assert await numbers(database) == ["1"]


async def test_several_wrong_tokens_are_refused(world: PushSetup, database: Database) -> None:
    """Each of them is looked at, and none opens."""
    reply = await world.push(envelope(create_update()), key="nonsense", params=[("token", "one"), ("token", "other")])

    assert (reply.status, reply.code) == (401, "push_refused")
    assert await numbers(database) == []


async def test_the_secret_is_enough_while_keys_cannot_be_had(settings: Settings, database: Database) -> None:
    """An uncheckable token does not block a right one; alone it is answered by 503, so that the push comes again."""
    async with running_push(settings, keys_url="http://127.0.0.1:9/keys") as world:
        signed = {"key": world.sim.signer.token(email=EMAIL, audience=AUDIENCE)}
        beside = await world.push(envelope(create_update()), params={"token": SECRET}, **signed)
        alone = await world.push(envelope(create_update(), "2"), **signed)

    assert (beside.status, alone.status) == (204, 503)
    assert await numbers(database) == ["1"]


async def test_neither_a_project_s_key_nor_the_admin_s_is_a_pusher_s(world: PushSetup) -> None:
    """Each credential is valid for its own routes only."""
    _, key = await world.api_client.make_project()
    admin = world.api_client.settings.api.admin_key.get_secret_value()

    replies = [await world.push(envelope(create_update()), key=each) for each in (key, admin)]
    assert [reply.code for reply in replies] == ["push_refused"] * 2
    opened_by_secret = await world.api_client.ask("GET", "/v1/projects", key=SECRET)
    assert opened_by_secret.status == 401


@pytest.mark.parametrize("options", [{"key": SECRET}, {"key": None, "params": {"token": SECRET}}])
async def test_the_secret_opens_by_header_and_by_address(world: PushSetup, options: Mapping[str, Any]) -> None:
    """Pub/Sub cannot set a header, so its endpoint's address may hold the secret."""
    assert (await world.push(envelope(create_update()), **options)).status == 204


async def test_pushes_that_come_together_are_written_together(world: PushSetup, database: Database) -> None:
    """Hundreds at a time cost a few transactions."""
    sent = [world.push(envelope(payload, str(number))) for number, payload in enumerate(many(300))]

    assert {reply.status for reply in await asyncio.gather(*sent)} == {204}
    async with database.session() as session:
        transactions = await session.scalar(text("SELECT count(DISTINCT xmin::text) FROM im_infi_addr_sync_log"))
    assert len(await numbers(database)) == 300
    assert transactions < 100
