"""Mending: what an operator corrected in quarantine becomes a message of the log, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import defer
from sqlmodel import select

from domain.addresses.intake import Message
from domain.addresses.messages import Topic
from domain.faults import Conflict, Invalid, Missing
from infra.database import Database, Session
from stores.addresses import inbox
from stores.addresses.inbox import Inbox, Incoming, Readable
from stores.addresses.steering import By
from stores.tables.addresses import AddressAction, QuarantinedMessage

# A UPRN has few messages, and there is no index of numbers.
_ID: Final = text("SELECT id FROM im_infi_addr_sync_log WHERE uprn_1 = :uprn AND topic = :topic AND msg_no = :msg_no")
_NOW: Final = text("SELECT now()")
_SAME_EVENT: Final = text("SELECT msg_no FROM addr_sync_keys WHERE topic = :topic AND event_id = :event_id")


def mended_number(quarantine_id: int) -> str:
    """The number (`msg_no`) under which a mended message stands in the log."""
    return f"mended:{quarantine_id}"


@dataclass(frozen=True, slots=True)
class Mending:
    """A corrected text for a message in quarantine."""

    quarantine_id: int
    text: str
    by: By


async def mend(database: Database, box: Inbox, mending: Mending) -> int:
    """Take a corrected text into the log, mark the quarantined message as mended, and note who did it: all or nothing.

    Returns:
        The id of the new message in the log.

    Raises:
        Missing: There is no such message in quarantine.
        Conflict: It was mended before, or the event of the text was taken in under another number.
        Invalid: The text cannot be read either; the sentence is that of the reader.
    """
    try:
        async with database.session() as session:
            return await _mend(session, box, mending)
    except DBAPIError as error:
        if not inbox.is_about_values(error):
            raise
        raise _unreadable(inbox.refused_by_database(error)) from None


async def _mend(session: Session, box: Inbox, mending: Mending) -> int:
    # First the lock that all who take messages in hold, then the row: the same order for everybody.
    await inbox.lock(session)
    statement = (
        select(QuarantinedMessage)
        .where(QuarantinedMessage.id == mending.quarantine_id)
        .options(defer(QuarantinedMessage.raw))  # type: ignore[arg-type] # SQLModel shows columns as their values
        .with_for_update()
    )
    row = (await session.exec(statement)).one_or_none()
    if row is None:
        raise not_in_quarantine(mending.quarantine_id)
    if row.mended_as is not None:
        raise Conflict(
            "already_mended",
            f"Message {mending.quarantine_id} in quarantine was mended by {row.mended_by} before, and is message "
            f"{row.mended_as} of the log.",
            f"GET /v1/addresses/messages/{row.mended_as} tells what became of it.",
        )
    readable = _read(box, row, mending)
    if not await inbox.insert_new(session, [readable]):
        raise await _known(session, readable)
    log_id = await _id(session, readable)
    row.mended_at = (await session.execute(_NOW)).scalar_one()
    row.mended_by, row.mended_as = mending.by.who, log_id
    reason = f"{mending.by.reason} (quarantine {row.id}, message {row.msg_no})"
    done = AddressAction(who=mending.by.who, action="mend", log_id=log_id, reason=reason, done_at=row.mended_at)
    session.add_all([row, done])
    return log_id


def _read(box: Inbox, row: QuarantinedMessage, mending: Mending) -> Readable:
    message = Message(
        message_id=mended_number(mending.quarantine_id),
        data=mending.text.encode(),
        publish_time=row.published_at.isoformat() if row.published_at else "",
    )
    judged = box.judge(Incoming(Topic(row.topic), message))
    if not isinstance(judged, Readable):
        raise _unreadable(judged.reason)
    return judged


async def _id(session: Session, readable: Readable) -> int:
    topic, msg_no = readable.incoming.topic, readable.incoming.message.message_id
    named = {"uprn": readable.said.uprn_1, "topic": topic, "msg_no": msg_no}
    log_id: int = (await session.execute(_ID, named)).scalar_one()
    return log_id


async def _known(session: Session, readable: Readable) -> Conflict:
    topic, event_id = readable.incoming.topic, readable.said.event_id
    msg_no = (await session.execute(_SAME_EVENT, {"topic": topic, "event_id": event_id})).scalar_one_or_none()
    return Conflict(
        "event_known",
        f"The event {event_id!r} of this topic was taken in before, as message number {msg_no}.",
        "Discard this one. If it is another event, give it another event_id.",
        field="text",
    )


def not_in_quarantine(quarantine_id: int) -> Missing:
    """What is told of an id that names nothing in quarantine."""
    return Missing(
        "not_found",
        f"There is no message {quarantine_id} in quarantine.",
        "GET /v1/addresses/quarantine lists those that there are.",
    )


def _unreadable(reason: str) -> Invalid:
    return Invalid("message_unreadable", reason, "Correct the text and send it again.", field="text")
