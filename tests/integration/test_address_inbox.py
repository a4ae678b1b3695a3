"""The inbox on a real PostgreSQL: each message is a row once, whatever is delivered again, at once or much later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text
from sqlmodel import col, select

from domain.addresses import messages
from domain.addresses.activity_models import IntakeMessageCounts
from domain.addresses.messages import PublishedMessage, Topic
from infra.database import Database
from stores.addresses import delivery, inbox
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter
from stores.tables.addresses import AddressMessage, QuarantinedMessage, ReceivedMessageKeyRow
from tests.support.pubsub import create_update, delete, many, swap
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

LIMIT = 2 * 1024 * 1024
PUBLISHED = "2026-11-20T12:00:00.5Z"


def incoming(payload: Any, msg_no: str = "1", topic: Topic = Topic.CREATE_UPDATE) -> DeliveredMessage:
    """A message as it was delivered; bytes as they are."""
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return DeliveredMessage(topic, PublishedMessage(message_id=msg_no, data=raw, publish_time=PUBLISHED))


def build_messages(payloads: Sequence[Any], *, first: int = 1) -> list[DeliveredMessage]:
    """Messages under numbers of their own."""
    return [incoming(payload, str(number)) for number, payload in enumerate(payloads, first)]


@pytest.fixture
def box(database: Database) -> MessageLogAndQuarantineWriter:
    """An inbox over the test's own database."""
    return MessageLogAndQuarantineWriter(database, LIMIT)


async def rows(database: Database) -> list[AddressMessage]:
    """The log, in the order of its ids."""
    async with database.session() as session:
        return list(await session.exec(select(AddressMessage).order_by(col(AddressMessage.id))))


async def list_quarantine(database: Database) -> list[QuarantinedMessage]:
    """What could not be read."""
    async with database.session() as session:
        return list(await session.exec(select(QuarantinedMessage).order_by(col(QuarantinedMessage.id))))


async def test_a_message_becomes_a_row_with_all_that_it_says(
    database: Database, box: MessageLogAndQuarantineWriter
) -> None:
    """UPRNs, address, payload as it was sent, event and time; and nothing has happened to it yet."""
    taken = await box.store_messages_or_quarantine_them(
        [
            incoming({**swap(3, event_id="e1"), "uprn_2": "0004"}, "11", Topic.SWAP),
            incoming(b'{"record": {"b": 1.10, "a": "\xc3\xa9"}, "address_id": 9, "uprn": 5}', "12"),
            incoming(delete(6), "13", Topic.DELETE),
        ]
    )

    found = await rows(database)
    assert taken == IntakeMessageCounts(new=3)
    assert [(row.topic, row.msg_no, row.uprn_1, row.uprn_2, row.address_id, row.event_id) for row in found] == [
        (Topic.SWAP, "11", 3, 4, None, "e1"),
        (Topic.CREATE_UPDATE, "12", 5, None, 9, None),
        (Topic.DELETE, "13", 6, None, None, None),
    ]
    assert found[1].payload == {"record": {"b": 1.1, "a": "é"}, "address_id": 9, "uprn": 5}
    assert all(row.published_at and row.published_at.isoformat() == "2026-11-20T12:00:00.500000+00:00" for row in found)
    assert {(row.proc_flag, row.retry_times, row.im_ack, row.cycle_id) for row in found} == {(None, 0, None, None)}
    async with database.session() as session:
        kept = await session.scalar(text("SELECT payload::text FROM im_infi_addr_sync_log WHERE msg_no = '12'"))
    assert kept == '{"record": {"b": 1.10, "a": "é"}, "address_id": 9, "uprn": 5}'


async def test_ids_follow_the_order_of_delivery(database: Database, box: MessageLogAndQuarantineWriter) -> None:
    """Also of messages of different topics in one group."""
    group = [
        incoming(create_update(n), str(n)) if n % 2 else incoming(delete(n), str(n), Topic.DELETE)
        for n in range(1, 301)
    ]
    await box.store_messages_or_quarantine_them(group)

    assert [row.uprn_1 for row in await rows(database)] == list(range(1, 301))


async def test_what_is_delivered_again_changes_nothing(database: Database, box: MessageLogAndQuarantineWriter) -> None:
    """In the same group, in the next, and in one that is mixed with new messages."""
    first = await box.store_messages_or_quarantine_them([*build_messages(many(3)), *build_messages(many(2))])
    second = await box.store_messages_or_quarantine_them(build_messages(many(3)))
    mixed = await box.store_messages_or_quarantine_them(build_messages(many(5)))

    assert (first, second, mixed) == (
        IntakeMessageCounts(new=3, repeated=2),
        IntakeMessageCounts(repeated=3),
        IntakeMessageCounts(new=2, repeated=3),
    )
    assert [row.msg_no for row in await rows(database)] == ["1", "2", "3", "4", "5"]


async def test_the_first_of_two_with_one_number_counts(database: Database, box: MessageLogAndQuarantineWriter) -> None:
    """If a number ever names two texts, the first one is in force."""
    await box.store_messages_or_quarantine_them([incoming(create_update(1)), incoming(create_update(2))])

    assert [row.uprn_1 for row in await rows(database)] == [1]


async def test_one_number_in_two_topics_is_two_messages(database: Database, box: MessageLogAndQuarantineWriter) -> None:
    """Pub/Sub's numbers are a topic's own."""
    taken = await box.store_messages_or_quarantine_them(
        [incoming(delete(1), "7", Topic.DELETE), incoming(create_update(1), "7")]
    )

    assert taken == IntakeMessageCounts(new=2)


async def test_what_was_archived_or_forgotten_is_not_taken_in_again(
    database: Database, box: MessageLogAndQuarantineWriter
) -> None:
    """The key outlives the row: a copy that comes after the move to the history, or after its end, finds it."""
    await box.store_messages_or_quarantine_them(build_messages(many(2)))
    async with database.session() as session:
        await session.execute(text("DELETE FROM im_infi_addr_sync_log"))

    assert await box.store_messages_or_quarantine_them(build_messages(many(2))) == IntakeMessageCounts(repeated=2)
    assert await rows(database) == []


async def test_one_event_under_two_numbers_is_one_message(
    database: Database, box: MessageLogAndQuarantineWriter
) -> None:
    """A publisher that repeats itself gets a new number each time; its event stays the same."""
    swaps = [incoming(swap(1, 2, event_id="e"), str(number), Topic.SWAP) for number in (1, 2)]
    together = await box.store_messages_or_quarantine_them(swaps)
    later = await box.store_messages_or_quarantine_them([incoming(swap(1, 2, event_id="e"), "3", Topic.SWAP)])
    elsewhere = await box.store_messages_or_quarantine_them([incoming(delete(1, event_id="e"), "4", Topic.DELETE)])
    without = await box.store_messages_or_quarantine_them(
        [incoming(swap(1, 2), str(number), Topic.SWAP) for number in (5, 6)]
    )

    assert (together, later) == (IntakeMessageCounts(new=1, repeated=1), IntakeMessageCounts(repeated=1))
    assert (elsewhere, without) == (IntakeMessageCounts(new=1), IntakeMessageCounts(new=2))


async def test_what_cannot_be_read_is_put_into_quarantine_once(
    database: Database, box: MessageLogAndQuarantineWriter
) -> None:
    """With its bytes and the reason; what came with it is taken in."""
    group = [incoming(create_update(1), "1"), incoming(b"\x00{", "2"), incoming(swap(4, 4), "3", Topic.SWAP)]
    first, again = (
        await box.store_messages_or_quarantine_them(group),
        await box.store_messages_or_quarantine_them(group),
    )

    kept = await list_quarantine(database)
    assert (first, again) == (IntakeMessageCounts(new=1, unreadable=2), IntakeMessageCounts(repeated=1, unreadable=2))
    assert [(each.topic, each.msg_no, each.raw, each.raw_bytes) for each in kept] == [
        (Topic.CREATE_UPDATE, "2", b"\x00{", 2),
        (Topic.SWAP, "3", b'{"uprn_1": 4, "uprn_2": 4}', 26),
    ]
    assert "no JSON" in kept[0].reason
    assert "two different addresses" in kept[1].reason


async def test_an_envelope_that_cannot_be_read_is_put_into_quarantine(
    database: Database, box: MessageLogAndQuarantineWriter
) -> None:
    """With its own text and reason; the same message in a good envelope, beside it or later, is taken in."""
    spoiled = DeliveredMessage(
        Topic.DELETE, PublishedMessage(message_id="1", data=b'{"data": "*"}'), "The envelope cannot be read."
    )
    together = await box.store_messages_or_quarantine_them([spoiled, incoming(delete(1), "1", Topic.DELETE), spoiled])
    again = await box.store_messages_or_quarantine_them([spoiled])

    (kept,) = await list_quarantine(database)
    assert (kept.msg_no, kept.raw, kept.reason) == ("1", b'{"data": "*"}', "The envelope cannot be read.")
    assert [row.msg_no for row in await rows(database)] == ["1"]
    assert (together, again) == (
        IntakeMessageCounts(new=1, repeated=1, unreadable=1),
        IntakeMessageCounts(unreadable=1),
    )


async def test_of_a_message_that_is_too_large_the_first_megabyte_is_kept(
    database: Database, box: MessageLogAndQuarantineWriter
) -> None:
    """And how large it was."""
    raw = b'{"uprn": 1, "x": "' + b"x" * LIMIT + b'"}'
    await box.store_messages_or_quarantine_them([incoming(raw, "1", Topic.DELETE)])

    (kept,) = await list_quarantine(database)
    assert (kept.raw, kept.raw_bytes) == (raw[: inbox.RAW_MAX_BYTES], len(raw))
    assert f"{len(raw):,} bytes. At most {LIMIT:,} are allowed (HAULAGE_ADDRESSES__MESSAGE_MAX_BYTES)" in kept.reason


@pytest.mark.parametrize("msg_no", ["", "1" * 33, "9" * 5_000, "\ud800" * 100])
async def test_a_number_that_fits_no_column_is_unreadable(
    database: Database, box: MessageLogAndQuarantineWriter, msg_no: str
) -> None:
    """A long id is replaced by a digest, and recognised again."""
    await box.store_messages_or_quarantine_them([incoming(delete(1), msg_no, Topic.DELETE)])
    await box.store_messages_or_quarantine_them([incoming(delete(1), msg_no, Topic.DELETE)])

    (kept,) = await list_quarantine(database)
    assert f"The message's id has {len(msg_no)} characters" in kept.reason
    assert len(kept.msg_no) <= inbox.KEY_MAX_CHARACTERS


async def test_what_postgresql_refuses_does_not_hold_up_the_rest(
    database: Database, box: MessageLogAndQuarantineWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should our reading ever let something through, it is found by halves and put away."""
    monkeypatch.setattr(messages, "_NUL", b"never found")
    nul = {**create_update(100), "uprn": 100, "event_id": "\0"}
    group = [*build_messages(many(5)), incoming(nul, "100"), *build_messages(many(5, first=6), first=6)]

    taken = await box.store_messages_or_quarantine_them(group)

    assert taken == IntakeMessageCounts(new=10, unreadable=1)
    assert [row.uprn_1 for row in await rows(database)] == list(range(1, 11))
    (kept,) = await list_quarantine(database)
    assert (kept.msg_no, kept.reason) == (
        "100",
        'PostgreSQL does not take the message: invalid byte sequence for encoding "UTF8": 0x00.',
    )


async def test_those_who_take_in_at_once_take_in_once(database: Database) -> None:
    """Many replicas with overlapping deliveries in different orders: no deadlock, every message once."""
    groups = [build_messages(many(40))[start:] + build_messages(many(40))[:start] for start in range(0, 40, 5)]
    groups += [list(reversed(group)) for group in groups]

    taken = await asyncio.gather(
        *(MessageLogAndQuarantineWriter(database, LIMIT).store_messages_or_quarantine_them(group) for group in groups)
    )

    assert sum(each.new for each in taken) == 40
    assert sum(each.repeated for each in taken) == 40 * len(groups) - 40
    assert sorted(int(row.msg_no) for row in await rows(database)) == list(range(1, 41))


async def test_no_id_appears_below_one_that_was_seen(database: Database, box: MessageLogAndQuarantineWriter) -> None:
    """A cycle goes by ids, so that a later commit must not bring a lower one."""
    async with database.session() as holder:
        # Like an intake that is slow to commit.
        await holder.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": inbox.INTAKE_LOCK})
        other = asyncio.create_task(box.store_messages_or_quarantine_them(build_messages(many(1, first=2), first=2)))
        await eventually(lambda: _is_waiting(database))
        await holder.execute(
            text(
                "INSERT INTO im_infi_addr_sync_log (topic, uprn_1, msg_no) VALUES "
                "('createUpdateInfinityAddress', 1, '1')"
            )
        )
    await other

    assert [row.uprn_1 for row in await rows(database)] == [1, 2]


async def _is_waiting(database: Database) -> bool:
    """Whether a session waits for an advisory lock."""
    async with database.session() as session:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return bool(await session.scalar(text(waiting)))


async def test_keys_say_when_they_were_made(database: Database, box: MessageLogAndQuarantineWriter) -> None:
    """Housekeeping goes by that."""
    await box.store_messages_or_quarantine_them([incoming(delete(1, event_id="e"), "1", Topic.DELETE)])

    async with database.session() as session:
        key = (await session.exec(select(ReceivedMessageKeyRow))).one()
        now = await session.scalar(text("SELECT now()"))
    assert (key.topic, key.msg_no, key.event_id) == (Topic.DELETE, "1", "e")
    assert key.created_at <= now


async def test_large_messages_are_written_a_few_at_a_time(
    database: Database, box: MessageLogAndQuarantineWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement takes so much only, and all of it is in memory; the order stays."""
    monkeypatch.setattr(inbox, "WRITE_MAX_BYTES", 1_000, raising=False)
    insert, written = inbox.insert_messages_not_received_before, []

    async def record_and_insert(session: Any, readable: Sequence[inbox.ReadableMessage]) -> int:
        written.append(len(readable))
        return await insert(session, readable)

    monkeypatch.setattr(inbox, "insert_messages_not_received_before", record_and_insert)
    taken = await box.store_messages_or_quarantine_them(
        build_messages([create_update(n, note="x" * size) for n, size in enumerate((300, 300, 300, 5_000, 1), 1)])
    )

    assert taken == IntakeMessageCounts(new=5)
    assert [row.uprn_1 for row in await rows(database)] == [1, 2, 3, 4, 5]
    assert written == [2, 1, 1, 1]


async def test_a_swap_is_loaded_whatever_the_first_of_two_equal_keys_says(
    database: Database, box: MessageLogAndQuarantineWriter
) -> None:
    """The last one counts; PostgreSQL reads both, and cannot decode a NUL."""
    twice = rb'{"uprn_1": 1, "uprn_2": 2, "delete_after": true, "note": "\u0000", "note": ""}'
    taken = await box.store_messages_or_quarantine_them([incoming(twice, topic=Topic.SWAP)])
    (row,) = await rows(database)
    async with database.connection() as connection:
        unsure = """UPDATE im_infi_addr_sync_log SET proc_flag = 'Y', wait_reason = '{"unsure": ["ed"]}'"""
        await connection.execute(unsure)
    assert row.id is not None

    (loaded,) = await delivery.load_unconfirmed_messages(database, [row.id])

    assert taken == IntakeMessageCounts(new=1)
    assert loaded.message.operation.delete_after
