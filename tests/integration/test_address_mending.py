"""Messages in quarantine are kept whole, mended, and taken into the log once."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlmodel import col, select

from domain.addresses.activity_models import IntakeMessageCounts
from domain.addresses.messages import PublishedMessage, Topic
from infra.database import Database
from infra.settings import Settings
from stores.addresses import cycle, inbox
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from stores.tables.addresses import AddressAction, AddressMessage, QuarantinedMessage
from tests.support.api import ApiClient, Reply, running_api
from tests.support.pubsub import create_update, delete, swap

pytestmark = pytest.mark.stack

SIGNED = {"who": "ann", "reason": "the publisher forgot a quote"}
LIMIT = 1024 * 1024
PUBLISHED = "2026-11-20T12:00:00Z"


@dataclass(frozen=True)
class QuarantineOperator:
    """The API as an operator uses it, the inbox and the log behind it."""

    api_client: ApiClient
    database: Database
    box: MessageLogAndQuarantineWriter

    async def add_to_quarantine(self, raw: bytes, msg_no: str = "1", topic: Topic = Topic.CREATE_UPDATE) -> int:
        """The id of a message that was just put into quarantine."""
        message = PublishedMessage(message_id=msg_no, data=raw, publish_time=PUBLISHED)
        assert await self.box.store_messages_or_quarantine_them(
            [DeliveredMessage(topic, message)]
        ) == IntakeMessageCounts(unreadable=1)
        async with self.database.session() as session:
            newest = select(QuarantinedMessage.id).order_by(col(QuarantinedMessage.id).desc()).limit(1)
            id_ = (await session.exec(newest)).one()
        assert id_ is not None
        return id_

    async def mend(self, id_: int, text: str, **changes: Any) -> Reply:
        """What an operator sends."""
        path = f"/v1/addresses/quarantine/{id_}/mend"
        body = io.BytesIO(json.dumps(SIGNED | {"text": text} | changes).encode())
        return await self.api_client.as_admin("POST", path, data=body, headers={"Content-Type": "application/json"})

    async def show(self, id_: int) -> dict[str, Any]:
        """A message in quarantine."""
        reply = await self.api_client.as_admin("GET", f"/v1/addresses/quarantine/{id_}")
        assert reply.status == 200
        shown: dict[str, Any] = reply.body
        return shown

    async def list_quarantine(self, **query: str) -> list[int]:
        """The ids of a list."""
        reply = await self.api_client.as_admin("GET", "/v1/addresses/quarantine", params=query)
        return [each["quarantine_id"] for each in reply.body["items"]]

    async def log(self) -> list[AddressMessage]:
        """What is in the log."""
        async with self.database.session() as session:
            return list(await session.exec(select(AddressMessage).order_by(col(AddressMessage.id))))

    async def actions(self) -> list[AddressAction]:
        """What was done, by whom."""
        async with self.database.session() as session:
            return list(await session.exec(select(AddressAction)))


@pytest.fixture
async def operator(settings: Settings, database: Database) -> AsyncIterator[QuarantineOperator]:
    """An API whose messages may have a megabyte."""
    addresses = settings.addresses.model_copy(update={"message_max_bytes": LIMIT})
    async with running_api(settings.model_copy(update={"addresses": addresses})) as api_client:
        yield QuarantineOperator(api_client, database, MessageLogAndQuarantineWriter(database, LIMIT))


async def test_a_mended_message_is_taken_into_the_log(operator: QuarantineOperator) -> None:
    """As a message of its topic, with the very text that was sent, and a trace of who mended what."""
    id_ = await operator.add_to_quarantine(b'{"uprn": 7, "address_id": 70, "record": {"a": 1.10}', "4711")
    text = '{"uprn": 7, "address_id": 70, "record": {"a": 1.10}}'

    reply = await operator.mend(id_, text)

    assert reply.status == 200
    assert (reply.body["payload"], reply.body["state"], reply.body["msg_no"]) == (text, "waiting", f"mended:{id_}")
    [row] = await operator.log()
    assert (row.id, row.topic, row.uprn_1, row.address_id) == (reply.body["message_id"], Topic.CREATE_UPDATE, 7, 70)
    assert row.published_at
    assert row.published_at.isoformat() == "2026-11-20T12:00:00+00:00"
    [action] = reply.body["actions"]
    said = f"{SIGNED['reason']} (quarantine {id_}, message 4711)"
    assert (action["who"], action["action"], action["reason"]) == ("ann", "mend", said)
    shown = await operator.show(id_)
    assert (shown["mended_as"], shown["mended_by"]) == (row.id, "ann")
    assert shown["mended_at"]
    assert (await operator.list_quarantine(), await operator.list_quarantine(mended="true")) == ([], [id_])
    figures = await operator.api_client.as_admin("GET", "/v1/addresses/figures")
    assert figures.body["quarantined"] == 0


async def test_a_message_is_mended_once(operator: QuarantineOperator) -> None:
    """However many operators send it at the same time; later ones get the id of the new message."""
    id_ = await operator.add_to_quarantine(b"?")
    text = json.dumps(create_update(7))

    replies = await asyncio.gather(*(operator.mend(id_, text) for _ in range(5)))
    late = await operator.mend(id_, json.dumps(create_update(8)))

    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409, 409]
    assert {reply.code for reply in [*replies, late] if reply.status != 200} == {"already_mended"}
    [row] = await operator.log()
    assert f"message {row.id} of the log" in late.body["detail"]
    assert len(await operator.actions()) == 1


async def test_a_late_delivery_of_what_was_mended_changes_nothing(operator: QuarantineOperator) -> None:
    """It is neither a second message nor mendable again, and a discard leaves it alone."""
    id_ = await operator.add_to_quarantine(b"?")
    await operator.mend(id_, json.dumps(create_update(7)))

    again = PublishedMessage(message_id="1", data=b"?", publish_time=PUBLISHED)
    await operator.box.store_messages_or_quarantine_them([DeliveredMessage(Topic.CREATE_UPDATE, again)])
    discarded = await operator.api_client.as_admin(
        "POST", "/v1/addresses/quarantine:discard", json=SIGNED | {"ids": [id_]}
    )

    assert discarded.body == {"discarded": 0}
    assert (
        await operator.list_quarantine(),
        await operator.list_quarantine(mended="true"),
        len(await operator.log()),
    ) == ([], [id_], 1)


@pytest.mark.parametrize(
    ("topic", "text", "reason"),
    [
        (Topic.DELETE, "", "The message is empty"),
        (Topic.DELETE, "{", "The message is no JSON"),
        (Topic.DELETE, '{"uprn": 0}', "uprn is 0. It must be a whole number"),
        (Topic.SWAP, json.dumps(swap(4, 4)), "uprn_1 and uprn_2 are both 4"),
        (Topic.CREATE_UPDATE, json.dumps(delete(4)), "address_id is not there"),
        (Topic.DELETE, r'{"uprn": 4, "x": "\u0000"}', "which no module can keep"),
        (Topic.DELETE, json.dumps({"uprn": 4, "x": "x" * LIMIT}), "At most 1,048,576 are allowed"),
    ],
)
async def test_what_still_cannot_be_read_is_refused(
    operator: QuarantineOperator, topic: Topic, text: str, reason: str
) -> None:
    """With the sentence of the reader, and nothing has changed: it may be tried again."""
    id_ = await operator.add_to_quarantine(b"?", topic=topic)

    reply = await operator.mend(id_, text)

    assert (reply.status, reply.code) == (422, "message_unreadable")
    assert reason in reply.body["detail"]
    assert (await operator.log(), await operator.actions(), await operator.list_quarantine()) == ([], [], [id_])
    good = swap(4, 5) if topic is Topic.SWAP else create_update(4) if topic is Topic.CREATE_UPDATE else delete(4)
    assert (await operator.mend(id_, json.dumps(good))).status == 200


async def test_an_event_that_was_taken_in_is_not_taken_in_again(operator: QuarantineOperator) -> None:
    """The publisher had sent it once more in the meantime: then this one is to be discarded."""
    id_ = await operator.add_to_quarantine(b"?", topic=Topic.SWAP)
    known = PublishedMessage(message_id="9", data=json.dumps(swap(1, 2, event_id="e")).encode(), publish_time=PUBLISHED)
    await operator.box.store_messages_or_quarantine_them([DeliveredMessage(Topic.SWAP, known)])

    reply = await operator.mend(id_, json.dumps(swap(1, 2, event_id="e")))

    assert (reply.status, reply.code) == (409, "event_already_received")
    assert "message number 9" in reply.body["detail"]
    assert (len(await operator.log()), await operator.list_quarantine()) == (1, [id_])


async def test_only_an_operator_with_a_name_mends(operator: QuarantineOperator) -> None:
    """A missing message is answered with 404."""
    id_ = await operator.add_to_quarantine(b"?")
    text = json.dumps(create_update(7))

    assert (await operator.mend(id_ + 1, text)).code == "not_found"
    assert (await operator.mend(id_, text, who=" ")).status == 422
    _, key = await operator.api_client.make_project()
    stranger = await operator.api_client.ask(
        "POST", f"/v1/addresses/quarantine/{id_}/mend", key=key, json=SIGNED | {"text": text}
    )
    assert (stranger.status, stranger.code) == (403, "admin_key_needed")
    assert await operator.log() == []


async def test_all_of_a_large_message_is_kept(operator: QuarantineOperator) -> None:
    """Its beginning is shown, without half a character; the rest has an address of its own."""
    raw = b"x" + "é".encode() * LIMIT
    id_ = await operator.add_to_quarantine(raw)

    shown = await operator.show(id_)
    whole = await operator.api_client.session.get(
        f"{operator.api_client.address}/v1/addresses/quarantine/{id_}/raw",
        headers={"Authorization": f"Bearer {operator.api_client.settings.api.admin_key.get_secret_value()}"},
    )

    assert (shown["raw_bytes"], shown["kept_bytes"], shown["truncated"]) == (len(raw), len(raw), True)
    assert base64.b64decode(shown["raw"]) == raw[:LIMIT]
    assert shown["text"] == raw[: LIMIT - 1].decode()
    assert await whole.read() == raw
    assert whole.headers["Content-Disposition"].startswith("attachment")


async def test_where_a_message_is_cut_that_is_told(operator: QuarantineOperator) -> None:
    """Beyond what Pub/Sub delivers."""
    raw = b"x" * (inbox.RAW_MAX_BYTES + 1)
    shown = await operator.show(await operator.add_to_quarantine(raw))

    assert (shown["raw_bytes"], shown["kept_bytes"], shown["truncated"]) == (len(raw), len(raw) - 1, True)
    short = await operator.show(await operator.add_to_quarantine(b"\xff", "2"))
    assert (short["kept_bytes"], short["truncated"], short["text"], short["raw"]) == (1, False, None, "/w==")


async def test_messages_without_a_number_are_kept_one_by_one(operator: QuarantineOperator) -> None:
    """Whatever was sent as a number: nothing that is refused is lost, and nothing holds up the others."""
    sent = [("", b"1"), ("", b"2"), ("", b"1"), ("a\0b", b"3"), ("\ud800", b"4"), ("x" * 65, b"5")]
    group = [DeliveredMessage(Topic.DELETE, PublishedMessage(message_id=msg_no, data=raw)) for msg_no, raw in sent]

    await operator.box.store_messages_or_quarantine_them(group)

    async with operator.database.session() as session:
        kept = (await session.exec(select(QuarantinedMessage.raw))).all()
    assert sorted(kept) == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_mended_message_is_not_taken_in_though_it_can_be_read_later(operator: QuarantineOperator) -> None:
    """As when the limit was raised meanwhile, and a subscription is set back: a second swap would undo the first."""
    large = json.dumps(swap(1, 2) | {"note": "x" * LIMIT}).encode()
    id_ = await operator.add_to_quarantine(large, topic=Topic.SWAP)
    assert (await operator.mend(id_, json.dumps(swap(1, 2)))).status == 200

    again = PublishedMessage(message_id="1", data=large, publish_time=PUBLISHED)
    box = MessageLogAndQuarantineWriter(operator.database, 2 * LIMIT)
    taken = await box.store_messages_or_quarantine_them([DeliveredMessage(Topic.SWAP, again)])

    assert taken == IntakeMessageCounts(repeated=1)
    assert [row.msg_no for row in await operator.log()] == [f"mended:{id_}"]


async def test_a_message_that_was_taken_in_after_all_is_not_mended(operator: QuarantineOperator) -> None:
    """It is in the log under its own number: only a discard is left."""
    large = json.dumps(swap(1, 2) | {"note": "x" * LIMIT}).encode()
    id_ = await operator.add_to_quarantine(large, topic=Topic.SWAP)
    again = PublishedMessage(message_id="1", data=large, publish_time=PUBLISHED)
    await MessageLogAndQuarantineWriter(operator.database, 2 * LIMIT).store_messages_or_quarantine_them(
        [DeliveredMessage(Topic.SWAP, again)]
    )

    reply = await operator.mend(id_, json.dumps(swap(1, 2)))

    assert (reply.status, reply.code) == (409, "event_already_received")
    assert "Message number 1 of this topic" in reply.body["detail"]
    assert ([row.msg_no for row in await operator.log()], await operator.list_quarantine()) == (["1"], [id_])


async def test_what_waits_in_quarantine_is_counted_by_an_index(database: Database) -> None:
    """Every few seconds, however many messages were mended or have long texts."""
    async with database.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {cycle._OTHER_COUNTS}"))

    assert "Index Only Scan using ix_addr_sync_quarantine_unmended" in plan
