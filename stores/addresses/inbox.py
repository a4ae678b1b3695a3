"""The inbox: delivered messages become rows of the log, each once, however often it is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from domain.addresses import messages, ordering
from domain.addresses.activity_models import IntakeMessageCounts
from domain.addresses.messages import MSG_NO_MAX_CHARACTERS, PublishedMessage, Topic, UnreadableMessage
from infra import log, metrics
from infra.database import Database, Session, UtcTime
from stores.tables.addresses import QuarantinedMessage

RAW_MAX_BYTES: Final = 10 * 1024 * 1024
"""The kept part of an unreadable message: the largest that Pub/Sub delivers is kept whole."""
INTAKE_LOCK: Final = 0x4861756C61676502
"""The advisory lock of intake: ids grow in the order of commits, and the cycle goes by ids."""
KEY_MAX_CHARACTERS: Final = 64
WRITE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Messages that are written together: they are in memory several times, and a statement has at most 1 GB."""

# SQLSTATE classes: data exception, program limit exceeded.
_VALUE_ERRORS: Final = frozenset({"22", "54"})

_COLUMNS: Final = {
    "topic": Text,
    "msg_no": Text,
    "event_id": Text,
    "uprn_1": BigInteger,
    "uprn_2": BigInteger,
    "address_id": BigInteger,
    "payload": Text,
    "published_at": UtcTime,
}
_LOCK: Final = text("SELECT pg_advisory_xact_lock(:lock)")
_TAKE_IN: Final = text("""
    WITH incoming AS (
        SELECT * FROM unnest(
            :topic, :msg_no, :event_id, :uprn_1, :uprn_2, :address_id, :payload, :published_at
        ) WITH ORDINALITY
        AS each (topic, msg_no, event_id, uprn_1, uprn_2, address_id, payload, published_at, place)
    ), taken AS (
        INSERT INTO addr_sync_keys (topic, msg_no, event_id)
        SELECT topic, msg_no, event_id FROM incoming ORDER BY place
        ON CONFLICT DO NOTHING
        RETURNING topic, msg_no
    )
    INSERT INTO im_infi_addr_sync_log
        (topic, uprn_1, uprn_2, msg_no, payload, address_id, published_at, event_id, createdat)
    SELECT topic, uprn_1, uprn_2, msg_no, payload::json, address_id, published_at, event_id, statement_timestamp()
    FROM incoming JOIN taken USING (topic, msg_no)
    ORDER BY place
""").bindparams(*(bindparam(name, type_=ARRAY(kind)) for name, kind in _COLUMNS.items()))

_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """A message as it was delivered."""

    topic: Topic
    message: PublishedMessage
    refusal: str = ""
    """Why its envelope cannot be read; its data is then the envelope as it came."""


@dataclass(frozen=True, slots=True)
class ReadableMessage:
    """A message that can be processed, with its content."""

    incoming: DeliveredMessage
    content: messages.ChangeMessage

    @property
    def values_to_insert(self) -> tuple[str, str, str | None, int, int | None, int | None, str, datetime | None]:
        message, content = self.incoming.message, self.content
        return (
            self.incoming.topic,
            message.message_id,
            content.event_id,
            content.uprn_1,
            content.uprn_2,
            content.address_id,
            message.data.decode(),
            message.published_at,
        )


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that cannot be processed, with the reason."""

    incoming: DeliveredMessage
    reason: str


class MessageLogAndQuarantineWriter:
    """Writes delivered messages into the log or into quarantine."""

    def __init__(self, database: Database, message_max_bytes: int) -> None:
        self._database = database
        self._message_max_bytes = message_max_bytes

    async def store_messages_or_quarantine_them(self, delivered: Sequence[DeliveredMessage]) -> IntakeMessageCounts:
        """Write messages in one transaction, large ones in several; when this returns, each may be acknowledged."""
        # A message may be delivered twice in one batch, and an insert must not have a key twice.
        distinct: dict[tuple[Topic, str, str], DeliveredMessage] = {}
        for each in delivered:
            distinct.setdefault((each.topic, _get_message_id_or_digest(each.message), each.refusal), each)
        taken = IntakeMessageCounts(repeated=len(delivered) - len(distinct))
        for part in _split_by_size([*distinct.values()]):
            parsed = [self.parse_message(each) for each in part]
            taken = taken.add(await self._write_with_fallback_to_quarantine(parsed))
        for outcome, count in taken:
            metrics.ADDRESS_MESSAGES.labels(outcome).inc(count)
        return taken

    def parse_message(self, incoming: DeliveredMessage) -> ReadableMessage | RefusedMessage:
        """Read a message; one that cannot be processed is refused with the reason."""
        message = incoming.message
        if incoming.refusal:
            return RefusedMessage(incoming, incoming.refusal)
        try:
            if not 1 <= len(message.message_id) <= MSG_NO_MAX_CHARACTERS:
                raise UnreadableMessage(
                    f"The message's id has {len(message.message_id)} characters. "
                    f"It must have 1 to {MSG_NO_MAX_CHARACTERS}."
                )
            if len(message.data) > self._message_max_bytes:
                raise UnreadableMessage(
                    f"The message has {len(message.data):,} bytes. At most {self._message_max_bytes:,} are allowed "
                    "(HAULAGE_ADDRESSES__MESSAGE_MAX_BYTES)."
                )
            return ReadableMessage(incoming, messages.decode_message(incoming.topic, message.data))
        except UnreadableMessage as error:
            return RefusedMessage(incoming, error.reason)

    async def _write_with_fallback_to_quarantine(
        self, messages: Sequence[ReadableMessage | RefusedMessage]
    ) -> IntakeMessageCounts:
        """Write messages; those whose values PostgreSQL refuses go into quarantine, so that they do not block the
        others."""
        try:
            return await self._write_in_one_transaction(messages)
        except DBAPIError as error:
            if not are_values_refused_by_postgres(error):
                raise
            if len(messages) > 1:
                half = len(messages) // 2
                return (await self._write_with_fallback_to_quarantine(messages[:half])).add(
                    await self._write_with_fallback_to_quarantine(messages[half:])
                )
            reason = describe_refusal(error)
            return await self._write_in_one_transaction([RefusedMessage(each.incoming, reason) for each in messages])

    async def _write_in_one_transaction(
        self, messages: Sequence[ReadableMessage | RefusedMessage]
    ) -> IntakeMessageCounts:
        readable = [each for each in messages if isinstance(each, ReadableMessage)]
        unreadable = [each for each in messages if isinstance(each, RefusedMessage)]
        new = 0
        async with self._database.session() as session:
            if readable:
                await lock_intake_until_commit(session)
                new = await insert_messages_not_received_before(session, readable)
            if unreadable:
                put_away = insert(QuarantinedMessage).on_conflict_do_nothing()
                await session.execute(put_away, [_build_quarantine_row(each) for each in unreadable])
        for each in unreadable:
            _log.warning(
                "address_message_quarantined",
                topic=each.incoming.topic,
                msg_no=_build_msg_no_that_fits_index(each.incoming.message),
                reason=each.reason,
            )
        return IntakeMessageCounts(new=new, repeated=len(readable) - new, unreadable=len(unreadable))


def _split_by_size(delivered: Sequence[DeliveredMessage]) -> list[list[DeliveredMessage]]:
    """Split messages into parts that are written together; one message alone may be larger."""
    sizes = {place: len(each.message.data) for place, each in enumerate(delivered)}
    parts = ordering.split_by_size(range(len(delivered)), sizes, WRITE_MAX_BYTES)
    return [[delivered[place] for place in part] for part in parts]


async def lock_intake_until_commit(session: Session) -> None:
    """Exclude other intakes until the transaction ends."""
    await session.execute(_LOCK, {"lock": INTAKE_LOCK})


async def insert_messages_not_received_before(session: Session, readable: Sequence[ReadableMessage]) -> int:
    """Insert messages that were not received before, and return their number. Call `lock_intake_until_commit` first."""
    arrays = dict(
        zip(_COLUMNS, map(list, zip(*(each.values_to_insert for each in readable), strict=True)), strict=True)
    )
    return (await (await session.connection()).execute(_TAKE_IN, arrays)).rowcount


def describe_refusal(error: DBAPIError) -> str:
    """Describe why PostgreSQL refuses the values of a message."""
    return f"PostgreSQL does not take the message: {error.orig and error.orig.__cause__}."


def are_values_refused_by_postgres(error: DBAPIError) -> bool:
    """Whether PostgreSQL refuses the values of a message, rather than being unable to answer."""
    return str(getattr(error.orig, "sqlstate", ""))[:2] in _VALUE_ERRORS


def _build_quarantine_row(unreadable: RefusedMessage) -> dict[str, Any]:
    message = unreadable.incoming.message
    return {
        "topic": unreadable.incoming.topic,
        "msg_no": _build_msg_no_that_fits_index(message),
        "raw": message.data[:RAW_MAX_BYTES],
        "raw_bytes": len(message.data),
        "reason": unreadable.reason,
        "published_at": message.published_at,
    }


def _get_message_id_or_digest(message: PublishedMessage) -> str:
    """Return the id of a message, or a digest of its data if it has none."""
    return message.message_id or sha256(message.data).hexdigest()


def _build_msg_no_that_fits_index(message: PublishedMessage) -> str:
    """Return an id that fits an index and a text of PostgreSQL, whatever was sent as one."""
    identity = _get_message_id_or_digest(message)
    if len(identity) <= KEY_MAX_CHARACTERS and identity.isprintable():
        return identity
    return sha256(identity.encode(errors="surrogatepass")).hexdigest()
