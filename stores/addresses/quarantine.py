"""The quarantine: messages that could not be read, kept as they came, until they are mended or discarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import defer
from sqlmodel import col, func, select

from domain.addresses.messages import MSG_NO_MAX_CHARACTERS, PublishedMessage, Topic
from domain.faults import Conflict, Invalid, Missing
from infra.database import Database, Session
from stores import keyset
from stores.addresses import inbox
from stores.addresses.actions import ActorWithReason
from stores.addresses.inbox import DeliveredMessage, MessageLogAndQuarantineWriter, ReadableMessage
from stores.tables.addresses import AddressAction, QuarantinedMessage


@dataclass(frozen=True, slots=True)
class QuarantinedMessageAndTextStart:
    """A message in quarantine, with the beginning of its text."""

    message: QuarantinedMessage
    """Without `raw`, which may be long."""

    kept_bytes: int
    """The length of the kept text."""

    raw: bytes
    """The first of these bytes."""


async def list_quarantine_page_plus_one(
    database: Database, topic: Topic | None, *, is_mended: bool, after: tuple[datetime, int] | None, limit: int
) -> Sequence[QuarantinedMessage]:
    """List mended or unmended messages without their texts, newest first, one more than a page."""
    mended = col(QuarantinedMessage.mended_as)
    statement = (
        select(QuarantinedMessage)
        .options(defer(QuarantinedMessage.raw))  # type: ignore[arg-type] # SQLModel shows columns as their values
        .where(mended.is_not(None) if is_mended else mended.is_(None))
    )
    if topic is not None:
        statement = statement.where(QuarantinedMessage.topic == topic)
    place = (QuarantinedMessage.created_at, QuarantinedMessage.id)
    async with database.session() as session:
        return (await session.exec(keyset.select_page_plus_one(statement, place, after, limit))).all()


async def find_quarantined_text(
    database: Database, quarantine_id: int, max_bytes: int
) -> QuarantinedMessageAndTextStart | None:
    """Return a message and the first bytes of its text."""
    raw = col(QuarantinedMessage.raw)
    statement = (
        select(QuarantinedMessage, func.octet_length(raw), func.substr(raw, 1, max_bytes))
        .options(defer(QuarantinedMessage.raw))  # type: ignore[arg-type] # SQLModel shows columns as their values
        .where(QuarantinedMessage.id == quarantine_id)
    )
    async with database.session() as session:
        found = (await session.exec(statement)).one_or_none()
    return None if found is None else QuarantinedMessageAndTextStart(*found)


# By UPRN, which has few messages: there is no index on `msg_no`.
_FIND_LOG_ID: Final = text(
    "SELECT id FROM im_infi_addr_sync_log WHERE uprn_1 = :uprn AND topic = :topic AND msg_no = :msg_no"
)
_NOW: Final = text("SELECT now()")
_REMEMBER: Final = text("INSERT INTO addr_sync_keys (topic, msg_no) VALUES (:topic, :msg_no) ON CONFLICT DO NOTHING")
_SAME_EVENT: Final = text("SELECT msg_no FROM addr_sync_keys WHERE topic = :topic AND event_id = :event_id")


def build_mended_msg_no(quarantine_id: int) -> str:
    """Return the number (`msg_no`) of a mended message in the log."""
    return f"mended:{quarantine_id}"


@dataclass(frozen=True, slots=True)
class MessageCorrection:
    """A corrected text for a message in quarantine."""

    quarantine_id: int
    text: str
    actor: ActorWithReason


async def mend_and_get_new_id(
    database: Database, inbox_: MessageLogAndQuarantineWriter, correction: MessageCorrection
) -> int:
    """Insert a corrected text into the log and mark the quarantined message as mended, in one transaction.

    Returns:
        The id of the new message in the log.

    Raises:
        Missing: There is no such message in quarantine.
        Conflict: It was mended before, it was received in a form that can be read, or the event of the text was
            received under another number.
        Invalid: The text cannot be read either; the sentence is that of the reader.
    """
    try:
        async with database.session() as session:
            return await _replace_quarantined_by_corrected_message(session, inbox_, correction)
    except DBAPIError as error:
        if not inbox.are_values_refused_by_postgres(error):
            raise
        raise _build_unreadable_fault(inbox.describe_refusal(error)) from None


async def _replace_quarantined_by_corrected_message(
    session: Session, inbox_: MessageLogAndQuarantineWriter, correction: MessageCorrection
) -> int:
    # The lock of intake before the row, as everywhere, so that there is no deadlock.
    await inbox.lock_intake_until_commit(session)
    statement = (
        select(QuarantinedMessage)
        .where(QuarantinedMessage.id == correction.quarantine_id)
        .options(defer(QuarantinedMessage.raw))  # type: ignore[arg-type] # SQLModel shows columns as their values
        .with_for_update()
    )
    row = (await session.exec(statement)).one_or_none()
    if row is None:
        raise build_not_in_quarantine_fault(correction.quarantine_id)
    if row.mended_as is not None:
        raise Conflict(
            "already_mended",
            f"Message {correction.quarantine_id} in quarantine was mended by {row.mended_by} before, and is message "
            f"{row.mended_as} of the log.",
            f"GET /v1/addresses/messages/{row.mended_as} shows what became of it.",
        )
    readable = _parse_correction(inbox_, row, correction)
    await _remember_original_or_refuse_if_received(session, row)
    if not await inbox.insert_messages_not_received_before(session, [readable]):
        raise await _build_event_already_received_fault(session, readable)
    log_id = await _find_log_id(session, readable)
    row.mended_at = (await session.execute(_NOW)).scalar_one()
    row.mended_by, row.mended_as = correction.actor.who, log_id
    reason = f"{correction.actor.reason} (quarantine {row.id}, message {row.msg_no})"
    done = AddressAction(who=correction.actor.who, action="mend", log_id=log_id, reason=reason, done_at=row.mended_at)
    session.add_all([row, done])
    return log_id


async def _remember_original_or_refuse_if_received(session: Session, row: QuarantinedMessage) -> None:
    """Have a later delivery of the original recognised, though it may be readable then, as after changed settings."""
    if len(row.msg_no) > MSG_NO_MAX_CHARACTERS:
        # A number that the log cannot have.
        return
    key = {"topic": row.topic, "msg_no": row.msg_no}
    if not (await (await session.connection()).execute(_REMEMBER, key)).rowcount:
        raise Conflict(
            "event_already_received",
            f"Message number {row.msg_no} of this topic was delivered again and could be read then: it is in the log "
            "or its history.",
            "Discard this one. If it said something else, publish that as a new message.",
        )


def _parse_correction(
    inbox_: MessageLogAndQuarantineWriter, row: QuarantinedMessage, correction: MessageCorrection
) -> ReadableMessage:
    message = PublishedMessage(
        message_id=build_mended_msg_no(correction.quarantine_id),
        data=correction.text.encode(),
        publish_time=row.published_at.isoformat() if row.published_at else "",
    )
    judged = inbox_.parse_message(DeliveredMessage(Topic(row.topic), message))
    if not isinstance(judged, ReadableMessage):
        raise _build_unreadable_fault(judged.reason)
    return judged


async def _find_log_id(session: Session, readable: ReadableMessage) -> int:
    topic, msg_no = readable.incoming.topic, readable.incoming.message.message_id
    named = {"uprn": readable.content.uprn_1, "topic": topic, "msg_no": msg_no}
    log_id: int = (await session.execute(_FIND_LOG_ID, named)).scalar_one()
    return log_id


async def _build_event_already_received_fault(session: Session, readable: ReadableMessage) -> Conflict:
    topic, event_id = readable.incoming.topic, readable.content.event_id
    msg_no = (await session.execute(_SAME_EVENT, {"topic": topic, "event_id": event_id})).scalar_one_or_none()
    return Conflict(
        "event_already_received",
        f"The event {event_id!r} of this topic was taken in before, as message number {msg_no}.",
        "Discard this one. If it is another event, give it another event_id.",
        field="text",
    )


def build_not_in_quarantine_fault(quarantine_id: int) -> Missing:
    return Missing(
        "not_found",
        f"There is no message {quarantine_id} in quarantine.",
        "GET /v1/addresses/quarantine lists those that there are.",
    )


def _build_unreadable_fault(reason: str) -> Invalid:
    return Invalid("message_unreadable", reason, "Correct the text and send it again.", field="text")


# Only the audit remains of discarded messages. Mended ones stay until retention, as the origin of the log's message.
_DISCARD: Final = """
    WITH gone AS (
        DELETE FROM addr_sync_quarantine WHERE id = ANY($1::bigint[]) AND mended_as IS NULL RETURNING topic, msg_no
    )
    INSERT INTO addr_audit (who, action, reason)
    SELECT $2, 'discard', format('%s (%s, message %s)', $3::text, topic, msg_no) FROM gone RETURNING id
    """


async def delete_from_quarantine_with_audit_entry(
    database: Database, ids: Sequence[int], actor: ActorWithReason
) -> int:
    """Delete messages from quarantine, and return their number."""
    async with database.connection() as connection:
        return len(await connection.fetch(_DISCARD, ids, actor.who, actor.reason))
