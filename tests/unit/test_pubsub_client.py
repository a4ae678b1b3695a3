"""The client of Pub/Sub: what it says, how it fails, and how it shows who it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import serialization

from clients.pubsub import AUDIENCE, PubSubClient, PubSubFailure
from domain.addresses.messages import PublishedMessage, Topic
from infra.address_settings import METADATA, PubSubSettings
from sims.pubsub.broker import Broker
from sims.pubsub.scenario import Scenario
from sims.pubsub.server import PubSubSim, running_pubsub
from sims.pubsub.signing import Signer
from tests.support.pubsub import PROJECT, Publisher, delete, publisher
from tests.support.waiting import eventually

NAME = "swaps"
PATIENT = "patient"
"""A subscription whose messages do not come again by themselves, however slow the machine is."""


def settings(base: str, **changes: Any) -> PubSubSettings:
    """Settings that lead to this server."""
    return PubSubSettings(project=PROJECT, base_url=base, **changes)


@pytest.fixture
async def sim() -> AsyncIterator[PubSubSim]:
    """A stand-in that answers empty pulls at once."""
    async with running_pubsub(Broker(Scenario(wait_seconds=0))) as running:
        yield running


@pytest.fixture
async def publishing(sim: PubSubSim) -> AsyncIterator[Publisher]:
    """A publisher, and a subscription of one topic whose messages come again after a tenth of a second."""
    async with publisher(sim.base) as one:
        await one.subscribe(Topic.DELETE, NAME, ackDeadlineSeconds=0.1)
        yield one


async def test_messages_are_pulled_as_they_were_published(sim: PubSubSim, publishing: Publisher) -> None:
    """Their ids, their bytes, and when."""
    ids = await publishing.publish(Topic.DELETE, delete(1), b"\x00\xff")
    async with PubSubClient(settings(sim.base)) as pubsub:
        received = await pubsub.pull(NAME)

    assert [each.message.message_id for each in received] == ids
    assert [each.message.data for each in received] == [b'{"uprn": 1}', b"\x00\xff"]
    assert all(
        datetime.now(UTC) >= (each.message.published_at or datetime.max.replace(tzinfo=UTC)) for each in received
    )


async def test_what_is_given_back_comes_again_and_what_is_acknowledged_does_not(
    sim: PubSubSim, publishing: Publisher
) -> None:
    """At once, and the same message."""
    await publishing.subscribe(Topic.DELETE, PATIENT, ackDeadlineSeconds=600)
    ids = await publishing.publish(Topic.DELETE, delete(1), delete(2), delete(3))
    async with PubSubClient(settings(sim.base)) as pubsub:
        first = await pubsub.pull(PATIENT)
        await pubsub.acknowledge(PATIENT, [first[0].ack_id])
        await pubsub.make_available_for_next_pull(PATIENT, [first[1].ack_id])
        assert [each.message.message_id for each in await pubsub.pull(PATIENT)] == [ids[1]]


async def test_what_is_forgotten_comes_again(sim: PubSubSim, publishing: Publisher) -> None:
    """After its deadline, however often."""
    ids = await publishing.publish(Topic.DELETE, delete(1), delete(2))
    sim.broker.scenario = Scenario(wait_seconds=60)
    async with PubSubClient(settings(sim.base)) as pubsub:
        for _ in range(3):
            told = set[str]()
            while told != set(ids):
                told |= {each.message.message_id for each in await pubsub.pull(NAME)}


async def test_many_messages_are_published_in_several_calls(
    sim: PubSubSim, publishing: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order, and their ids are those under which they are delivered."""
    monkeypatch.setattr("clients.pubsub.PUBLISH_MAX", 2)
    payloads = [b'{"uprn": %d}' % uprn for uprn in range(1, 6)]
    async with PubSubClient(settings(sim.base)) as pubsub:
        await publishing.subscribe(Topic.DELETE, PATIENT, ackDeadlineSeconds=600)
        ids = await pubsub.publish(Topic.DELETE, payloads)
        received = {each.message.message_id: each.message.data for each in await pubsub.pull(PATIENT)}

    assert received == dict(zip(ids, payloads, strict=True))


async def test_a_publish_that_failed_is_not_repeated(sim: PubSubSim) -> None:
    """It might publish twice; the failure names the topic."""
    async with PubSubClient(settings(sim.base)) as pubsub:
        with pytest.raises(PubSubFailure, match="404 to publish of nowhere"):
            await pubsub.publish("nowhere", [b"{}"])


async def test_many_acknowledgements_go_out_in_several_calls(
    sim: PubSubSim, publishing: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has a limit, and none of the ids is left out."""
    monkeypatch.setattr("clients.pubsub.ACKS_MAX", 2)
    await publishing.subscribe(Topic.DELETE, PATIENT, ackDeadlineSeconds=600)
    await publishing.publish(Topic.DELETE, *(delete(uprn) for uprn in range(1, 6)))
    async with PubSubClient(settings(sim.base)) as pubsub:
        received = await pubsub.pull(PATIENT)
        calls = sim.broker.calls
        await pubsub.acknowledge(PATIENT, [each.ack_id for each in received])

    assert sim.broker.calls == calls + 3
    assert sim.broker.find(f"projects/{PROJECT}/subscriptions/{PATIENT}").waiting == 0


async def test_a_pull_without_messages_is_no_failure(sim: PubSubSim, publishing: Publisher) -> None:
    """Whether the server says so, or keeps us waiting longer than we like."""
    sim.broker.scenario = Scenario(wait_seconds=60)
    async with PubSubClient(settings(sim.base, timeout_seconds=0.1)) as pubsub:
        assert await pubsub.pull(NAME) == []


@pytest.mark.parametrize(
    ("base", "name", "sentence"),
    [
        ("", "nobody", "Pub/Sub answered 404 to pull of nobody in 'test-project': .*Resource not found"),
        ("http://127.0.0.1:9", NAME, "Pub/Sub at http://127.0.0.1:9 gave no answer to pull of swaps"),
    ],
)
async def test_a_failure_says_what_was_asked_of_whom(sim: PubSubSim, base: str, name: str, sentence: str) -> None:
    """Operators read it in the Temporal Web UI."""
    async with PubSubClient(settings(base or sim.base)) as pubsub:
        with pytest.raises(PubSubFailure, match=sentence):
            await pubsub.pull(name)


@pytest.mark.parametrize(
    "answer",
    [
        "<html>",
        '{"receivedMessages": 1}',
        '{"receivedMessages": [{"message": {"messageId": "1"}}, null]}',
        '{"receivedMessages": [{"ackId": 1}]}',
        '{"receivedMessages": ' + "[" * 5_000 + "]" * 5_000 + "}",
    ],
)
async def test_an_answer_that_is_none_is_a_failure(answer: str) -> None:
    """A proxy's page must not pass for an empty pull."""
    app = web.Application()

    async def say(_: web.Request) -> web.Response:
        return web.Response(text=answer)

    app.router.add_post("/{path:.*}", say)
    async with TestServer(app) as server, PubSubClient(settings(str(server.make_url("")))) as pubsub:
        with pytest.raises(PubSubFailure, match="cannot be read"):
            await pubsub.pull(NAME)


@asynccontextmanager
async def pulling(*pulled: Any) -> AsyncIterator[PubSubClient]:
    """A client of a server that answers each pull with these messages."""
    app = web.Application()

    async def pull(_: web.Request) -> web.Response:
        return web.Response(body=b'{"receivedMessages": [' + b",".join(map(_encode, pulled)) + b"]}")

    app.router.add_post("/{path:.*}", pull)
    async with TestServer(app) as server, PubSubClient(settings(str(server.make_url("")))) as pubsub:
        yield pubsub


def _encode(pulled: Any) -> bytes:
    return pulled if isinstance(pulled, bytes) else json.dumps(pulled).encode()


READABLE = [{"message": {"messageId": number, "data": "e30="}, "ackId": f"a{number}"} for number in "13"]


@pytest.mark.parametrize(
    ("unreadable", "kept"),
    [
        ({"message": {"messageId": "2", "data": "***"}, "ackId": "a2"}, ("2", b'{"messageId": "2", "data": "***"}')),
        ({"message": {"messageId": "2", "data": "e30"}, "ackId": "a2"}, ("2", b'{"messageId": "2", "data": "e30"}')),
        ({"message": {"messageId": 2}, "ackId": "a2"}, ("", b'{"messageId": 2}')),
        ({"message": {"messageId": "2", "publishTime": None}, "ackId": "a2"}, ("2", None)),
        ({"message": "text", "ackId": "a2"}, ("", b'"text"')),
        ({"ackId": "a2", "deliveryAttempt": 7, "other": 1}, ("", b'{"other":1}')),
        (b'{"ackId": "a2", "message": {"data": "\xff"}}', ("", b'{"data": "\xff"}')),
    ],
    ids=["no-base64", "cut-base64", "number-as-id", "null-as-time", "text-as-message", "no-message", "no-utf8"],
)
@pytest.mark.parametrize("is_alone", [False, True])
async def test_an_unreadable_envelope_is_kept_and_holds_nothing_up(
    unreadable: Any, kept: tuple[str, bytes | None], is_alone: bool
) -> None:
    """With its number where that can be read, its text, and why; beside others, and where nothing else was pulled."""
    async with pulling(*([] if is_alone else READABLE), unreadable) as pubsub:
        *others, last = await pubsub.pull(NAME)

    assert [(each.ack_id, each.message.data, each.refusal) for each in others] == (
        [] if is_alone else [("a1", b"{}", ""), ("a3", b"{}", "")]
    )
    assert (last.ack_id, last.message.message_id) == ("a2", kept[0])
    assert last.message.data == (kept[1] or last.message.data)
    assert "The envelope of the message cannot be read: " in last.refusal


@pytest.mark.parametrize("nameless", [{"message": {"messageId": "2", "data": "e30="}}, {"ackId": 2}, None])
async def test_what_cannot_be_acknowledged_is_left_to_its_deadline(nameless: Any) -> None:
    """It does not block the others, and is not stored."""
    async with pulling(READABLE[0], nameless, READABLE[1]) as pubsub:
        received = await pubsub.pull(NAME)

    assert [each.ack_id for each in received] == ["a1", "a3"]


async def test_an_unreadable_envelope_has_the_same_text_each_time(sim: PubSubSim) -> None:
    """What changes with each delivery is left out: by its text it is known again where it has no number."""
    texts = set()
    for attempt in (1, 2):
        async with pulling({"ackId": f"a{attempt}", "deliveryAttempt": attempt, "message": {"data": "*"}}) as pubsub:
            [received] = await pubsub.pull(NAME)
            texts.add(received.message.data)

    assert texts == {b'{"data": "*"}'}


@pytest.mark.parametrize(
    ("told", "moment"),
    [
        ("2026-11-20T12:00:00.123456789Z", datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)),
        ("2026-11-20T12:00:00", datetime(2026, 11, 20, 12, tzinfo=UTC)),
        ("yesterday", None),
        ("9999-12-31T23:59:59.999999999Z", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("", None),
    ],
)
def test_the_time_of_publishing_is_read_where_it_can_be(told: str, moment: datetime | None) -> None:
    """Nanoseconds included; what cannot be read, or no database can keep, holds nothing up."""
    assert PublishedMessage(publish_time=told).published_at == moment


@pytest.fixture
async def recording_server() -> AsyncIterator[tuple[str, list[str]]]:
    """A server that answers every pull with nothing, and what it was shown."""
    shown: list[str] = []

    async def pull(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    async def token(request: web.Request) -> web.Response:
        assert request.headers["Metadata-Flavor"] == "Google"
        return web.json_response({"access_token": f"token-{len(shown)}", "expires_in": 299 if not shown else 3_600})

    app = web.Application()
    app.router.add_post("/{path:.*}", pull)
    app.router.add_get("/token", token)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/"), shown


async def test_an_emulator_is_shown_nothing(recording_server: tuple[str, list[str]]) -> None:
    """Without authentication, no credential is sent."""
    base, shown = recording_server
    async with PubSubClient(settings(base)) as pubsub:
        await pubsub.pull(NAME)

    assert shown == [""]


def write_key(path: Path, signer: Signer, key_id: str) -> None:
    """Write a service account's key as Google makes it."""
    pem = signer.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_text(json.dumps({"client_email": "us@x", "private_key": pem.decode(), "private_key_id": key_id}))


async def test_a_service_account_signs_for_itself(recording_server: tuple[str, list[str]], tmp_path: Path) -> None:
    """One token serves many calls; it is good for Pub/Sub alone, and for an hour."""
    base, shown = recording_server
    signer, path = Signer(), tmp_path / "key.json"
    write_key(path, signer, "k1")
    async with PubSubClient(settings(base, key_file=str(path))) as pubsub:
        await asyncio.gather(pubsub.pull(NAME), pubsub.pull(NAME))

    assert len(set(shown)) == 1
    token = shown[0].removeprefix("Bearer ")
    claims = jwt.decode(token, signer.key.public_key(), algorithms=["RS256"], audience=AUDIENCE)
    assert jwt.get_unverified_header(token)["kid"] == "k1"
    assert (claims["iss"], claims["sub"], claims["exp"] - claims["iat"]) == ("us@x", "us@x", 3_600)


async def test_a_new_key_of_a_service_account_is_read_when_the_old_one_is_refused(tmp_path: Path) -> None:
    """Written into the same file it is used without a restart, and the pull that was refused succeeds."""
    signer, path = Signer(), tmp_path / "key.json"
    accepted, shown = {"k1"}, list[str]()

    async def pull(request: web.Request) -> web.Response:
        shown.append(jwt.get_unverified_header(request.headers["Authorization"].removeprefix("Bearer "))["kid"])
        return web.json_response({}, status=200 if shown[-1] in accepted else 401)

    app = web.Application()
    app.router.add_post("/{path:.*}", pull)
    write_key(path, signer, "k1")
    async with (
        TestServer(app) as server,
        PubSubClient(settings(str(server.make_url("")), key_file=str(path))) as pubsub,
    ):
        await pubsub.pull(NAME)
        write_key(path, signer, "k2")
        await pubsub.pull(NAME)
        accepted.symmetric_difference_update({"k1", "k2"})
        await pubsub.pull(NAME)
        await pubsub.pull(NAME)

    assert shown == ["k1", "k1", "k1", "k2", "k2"]


async def test_the_machine_s_token_is_renewed_before_it_ends(
    recording_server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends within five minutes is replaced, one that does not is kept."""
    base, shown = recording_server
    monkeypatch.setattr("clients.pubsub.METADATA_URL", f"{base}/token")
    async with PubSubClient(settings(base, key_file=METADATA)) as pubsub:
        for _ in range(3):
            await pubsub.pull(NAME)

    assert shown == ["Bearer token-0", "Bearer token-1", "Bearer token-1"]


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"client_email": "a", "private_key": "b"}'])
async def test_a_key_that_cannot_be_used_is_told(content: str | None, tmp_path: Path) -> None:
    """The sentence names the setting and what the file must hold, and nothing of what it holds."""
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content)
    async with PubSubClient(settings("http://127.0.0.1:9", key_file=str(path))) as pubsub:
        with pytest.raises(ConnectionError, match="KEY_FILE must name the JSON file that Google made"):
            await pubsub.pull(NAME)


async def test_a_machine_without_a_metadata_server_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside Google Cloud a key file is needed."""
    monkeypatch.setattr("clients.pubsub.METADATA_URL", "http://127.0.0.1:9/token")
    async with PubSubClient(settings("http://127.0.0.1:9", key_file=METADATA)) as pubsub:
        with pytest.raises(ConnectionError, match="name a key file in HAULAGE_ADDRESSES__PUBSUB__KEY_FILE"):
            await pubsub.pull(NAME)


async def test_more_than_fits_into_a_pull_is_a_failure_that_says_so(
    sim: PubSubSim, publishing: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer at a time are taken, and the failure is no reason to call Pub/Sub less often."""
    monkeypatch.setattr("clients.pubsub.ANSWER_MAX_BYTES", 1_000)
    await publishing.publish(Topic.DELETE, *(delete(uprn, note="x" * 200) for uprn in range(1, 6)))
    async with PubSubClient(settings(sim.base)) as pubsub:
        with pytest.raises(PubSubFailure, match="too_large") as raised:
            await pubsub.pull(NAME)
        received = await eventually(lambda: pubsub.pull(NAME, 1))

    assert (raised.value.is_too_large, raised.value.is_transient, len(received)) == (True, False, 1)


async def test_large_messages_are_published_in_several_calls(
    sim: PubSubSim, publishing: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has a limit of bytes; a message that is larger alone goes alone."""
    monkeypatch.setattr("clients.pubsub.PUBLISH_MAX_BYTES", 250, raising=False)
    publish, calls = sim.broker.publish, list[int]()

    def record_and_publish(topic: str, messages: Any) -> list[str]:
        calls.append(len(messages))
        return publish(topic, messages)

    monkeypatch.setattr(sim.broker, "publish", record_and_publish)
    payloads = [b'{"uprn": 1, "note": "%s"}' % (b"x" * size) for size in (80, 80, 80, 900, 1)]
    async with PubSubClient(settings(sim.base)) as pubsub:
        ids = await pubsub.publish(Topic.DELETE, payloads)

    assert (len(set(ids)), calls) == (5, [2, 1, 1, 1])
