"""The stand-in over HTTP: Google's REST paths, and `/_sim/…` to order faults and look at counts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from sims.common import PageTable, add_lie, add_page, read_scenario
from sims.pubsub.broker import Broker, BrokerSubscription, MissingResource, Sent
from sims.pubsub.pushing import Pusher
from sims.pubsub.scenario import Scenario
from sims.pubsub.signing import Signer

HOST = "127.0.0.1"
BODY_MAX_BYTES = 64 * 1024 * 1024
DEADLINE_SECONDS = 10
PULL_MAX = 1_000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class PubSubSim:
    """A running stand-in."""

    broker: Broker
    signer: Signer
    pusher: Pusher
    base: str = ""

    @property
    def keys_url(self) -> str:
        """Where the public keys of its push tokens are."""
        return f"{self.base}/_sim/keys"


SIM = web.AppKey("sim", PubSubSim)


@asynccontextmanager
async def running_pubsub(broker: Broker | None = None, port: int = 0) -> AsyncIterator[PubSubSim]:
    """Serve on 127.0.0.1; port 0 picks a free one. The broker outlives it."""
    broker = broker or Broker()
    signer = Signer()
    sim = PubSubSim(broker, signer, Pusher(broker, signer))
    app = web.Application(client_max_size=BODY_MAX_BYTES)
    app[SIM] = sim
    app.router.add_put("/v1/{topic:projects/[^/]+/topics/[^/:]+}", _add_topic)
    app.router.add_put("/v1/{subscription:projects/[^/]+/subscriptions/[^/:]+}", _subscribe)
    app.router.add_post("/v1/{topic:projects/[^/]+/topics/[^/:]+}:publish", _publish)
    for verb, handler in (("pull", _pull), ("acknowledge", _acknowledge), ("modifyAckDeadline", _extend)):
        app.router.add_post(f"/v1/{{subscription:projects/[^/]+/subscriptions/[^/:]+}}:{verb}", _fallible(handler))
    app.router.add_put("/_sim/scenario", _set_scenario)
    app.router.add_get("/_sim/stats", _stats)
    app.router.add_get("/_sim/keys", _keys)
    text = "Stands in for Google Pub/Sub, which delivers messages that change addresses."
    add_page(app, "Pub/Sub", text, lambda: _describe(broker))
    add_lie(app, broker.set_lying)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        host, bound_port = runner.addresses[0][:2]
        sim.base = f"http://{host}:{bound_port}"
        yield sim
    finally:
        await sim.pusher.close()
        await runner.cleanup()


def _describe(broker: Broker) -> list[PageTable]:
    """Return the subscriptions for the page."""
    rows = [
        {"subscription": each.name, "waiting": each.waiting, "delivered": each.delivered, "acknowledged": each.acked}
        for each in broker.subscriptions.values()
    ]
    return [
        PageTable("Subscriptions", rows, "Publish: POST /v1/projects/PROJECT/topics/TOPIC:publish, as Google has it.")
    ]


def _fallible(handler: Handler) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        if request.app[SIM].broker.fails():
            return _build_error(503, "UNAVAILABLE", "ordered fault")
        try:
            return await handler(request)
        except MissingResource as missing:
            return _build_error(404, "NOT_FOUND", f"Resource not found (resource={missing}).")

    return handle


async def _add_topic(request: web.Request) -> web.Response:
    name = request.match_info["topic"]
    request.app[SIM].broker.add_topic(name)
    return _json({"name": name})


async def _subscribe(request: web.Request) -> web.Response:
    sim, wanted = request.app[SIM], await _body(request)
    push = wanted.get("pushConfig", {})
    subscription = BrokerSubscription(
        name=request.match_info["subscription"],
        topic=wanted["topic"],
        deadline_seconds=wanted.get("ackDeadlineSeconds", DEADLINE_SECONDS),
        endpoint=push.get("pushEndpoint", ""),
        push=push,
    )
    try:
        sim.broker.subscribe(subscription)
    except MissingResource as missing:
        return _build_error(404, "NOT_FOUND", f"Resource not found (resource={missing}).")
    if subscription.endpoint:
        sim.pusher.serve(subscription)
    return _json({"name": subscription.name, "topic": subscription.topic})


async def _publish(request: web.Request) -> web.Response:
    wanted = await _body(request)
    try:
        ids = request.app[SIM].broker.publish(request.match_info["topic"], wanted["messages"])
    except MissingResource as missing:
        return _build_error(404, "NOT_FOUND", f"Resource not found (resource={missing}).")
    return _json({"messageIds": ids})


async def _pull(request: web.Request) -> web.Response:
    broker, wanted = request.app[SIM].broker, await _body(request)
    subscription = broker.find(request.match_info["subscription"])
    taken = await broker.pull(subscription, min(PULL_MAX, wanted["maxMessages"]))
    return _json(
        {"receivedMessages": [{"ackId": ack_id, "message": _render_message(broker, sent)} for ack_id, sent in taken]}
    )


def _render_message(broker: Broker, sent: Sent) -> dict[str, Any]:
    is_spoiled = broker.scenario.rolls(broker.scenario.spoil, "spoil", sent.message_id)
    if broker.lies:
        return sent.to_json() | {"data": b64encode(sent.data.replace(b"Main", b"Side")).decode()}
    return sent.to_json() | ({"data": "*"} if is_spoiled else {})


async def _acknowledge(request: web.Request) -> web.Response:
    broker, wanted = request.app[SIM].broker, await _body(request)
    await broker.wait_while_acks_hang()
    broker.acknowledge(broker.find(request.match_info["subscription"]), wanted["ackIds"])
    return _json({})


async def _extend(request: web.Request) -> web.Response:
    broker, wanted = request.app[SIM].broker, await _body(request)
    subscription = broker.find(request.match_info["subscription"])
    broker.extend(subscription, wanted["ackIds"], wanted["ackDeadlineSeconds"])
    return _json({})


async def _set_scenario(request: web.Request) -> web.Response:
    request.app[SIM].broker.scenario = await read_scenario(request, Scenario)
    return _json({})


async def _stats(request: web.Request) -> web.Response:
    found = request.app[SIM].broker.subscriptions.values()
    figures = {
        each.name: {
            "waiting": each.waiting,
            "delivered": each.delivered,
            "acked": each.acked,
            "dropped_acks": each.dropped,
        }
        for each in found
    }
    return _json(figures)


async def _keys(request: web.Request) -> web.Response:
    return _json(request.app[SIM].signer.public_keys)


async def _body(request: web.Request) -> dict[str, Any]:
    return msgspec.json.decode(await request.read(), type=dict[str, Any])


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def _build_error(code: int, status: str, message: str) -> web.Response:
    body = {"error": {"code": code, "message": message, "status": status}}
    return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json")
