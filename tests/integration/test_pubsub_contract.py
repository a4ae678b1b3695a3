"""What we take for granted of Pub/Sub, shown on our stand-in and, where it is installed, on Google's own emulator."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from clients.pubsub import PubSubClient, ReceivedMessage
from dev.embedded.ports import reserve_ports
from domain.addresses.messages import Topic
from infra.address_settings import PubSubSettings
from sims.pubsub.server import running_pubsub
from tests.support.pubsub import PROJECT, Publisher, delete, publisher
from tests.support.selecting import mark_long_except
from tests.support.waiting import eventually

EMULATOR = Path("/usr/lib/google-cloud-sdk/platform/pubsub-emulator/bin/cloud-pubsub-emulator")
DEADLINE_SECONDS = 10
"""The shortest that Google allows."""

NAME = "contract"
SERVERS = ("stand-in", "emulator")


@asynccontextmanager
async def emulator(folder: Path) -> AsyncIterator[str]:
    """Google's emulator, for as long as the block lasts."""
    with reserve_ports({}) as ports:
        port = ports.reserve("pubsub")
    process = await asyncio.create_subprocess_exec(
        EMULATOR,
        "--host=127.0.0.1",
        f"--port={port}",
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        base = f"http://127.0.0.1:{port}"
        await eventually(lambda: _answers(base))
        yield base
    finally:
        # Its script starts Java as a child.
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _answers(base: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{base}/v1/projects/{PROJECT}/topics") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


@pytest.fixture(params=SERVERS)
async def base(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of one or the other."""
    if request.param == "stand-in":
        async with running_pubsub() as sim:
            yield sim.base
        return
    if not EMULATOR.exists() or shutil.which("java") is None:
        pytest.skip("Google's Pub/Sub emulator (google-cloud-cli-pubsub-emulator) is not installed")
    async with emulator(tmp_path) as address:
        yield address


@pytest.fixture
async def publishing(base: str) -> AsyncIterator[Publisher]:
    """A publisher, and a subscription of one topic."""
    async with publisher(base) as one:
        await one.subscribe(Topic.DELETE, NAME, ackDeadlineSeconds=DEADLINE_SECONDS)
        yield one


@pytest.fixture
async def pubsub(base: str) -> AsyncIterator[PubSubClient]:
    """Our client."""
    async with PubSubClient(PubSubSettings(project=PROJECT, base_url=base, timeout_seconds=5)) as client:
        yield client


async def test_a_message_comes_until_it_is_acknowledged(publishing: Publisher, pubsub: PubSubClient) -> None:
    """With the id that its publisher got, its bytes and its time; released, it comes again under that id."""
    ids = await publishing.publish(Topic.DELETE, delete(1), b"\x00\xff")
    received = {each.message.message_id: each for each in await _pull_messages(pubsub, 2)}
    assert received.keys() == set(ids)
    assert [received[each].message.data for each in ids] == [b'{"uprn": 1}', b"\x00\xff"]
    assert all(each.message.published_at for each in received.values())

    await pubsub.acknowledge(NAME, [received[ids[0]].ack_id])
    await pubsub.make_available_for_next_pull(NAME, [received[ids[1]].ack_id])
    (again,) = await _pull_messages(pubsub, 1)
    assert again.message.message_id == ids[1]
    await pubsub.acknowledge(NAME, [again.ack_id])
    assert await pubsub.pull(NAME) == []


async def _pull_messages(pubsub: PubSubClient, count: int) -> list[ReceivedMessage]:
    """Pull until this number of messages has arrived."""
    received: list[ReceivedMessage] = []

    async def enough() -> bool:
        received.extend(await pubsub.pull(NAME))
        return len(received) >= count

    await eventually(enough)
    return received


@pytest.mark.parametrize("base", mark_long_except(SERVERS, ["stand-in"]), indirect=True)
async def test_an_acknowledgement_may_be_repeated(publishing: Publisher, pubsub: PubSubClient) -> None:
    """One whose answer got lost is sent again, and does no harm."""
    await publishing.publish(Topic.DELETE, delete(1))
    (received,) = await _pull_messages(pubsub, 1)

    await pubsub.acknowledge(NAME, [received.ack_id])
    await pubsub.acknowledge(NAME, [received.ack_id])


async def test_a_push_is_wrapped_and_repeated_until_it_succeeds(publishing: Publisher) -> None:
    """The same id each time, base64 within JSON, and no more after a 204."""
    bodies: list[dict[str, dict[str, str]]] = []

    async def take(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.Response(status=500 if len(bodies) == 1 else 204)

    app = web.Application()
    app.router.add_post("/push", take)
    async with TestServer(app) as server:
        push = {"pushEndpoint": str(server.make_url("/push"))}
        await publishing.subscribe(Topic.SWAP, "pushed", ackDeadlineSeconds=DEADLINE_SECONDS, pushConfig=push)
        (published,) = await publishing.publish(Topic.SWAP, b"{}")
        await eventually(lambda: len(bodies) >= 2)

    assert {body["message"]["messageId"] for body in bodies} == {published}
    assert {body["message"]["data"] for body in bodies} == {"e30="}
    assert all(body["message"]["publishTime"] for body in bodies)
