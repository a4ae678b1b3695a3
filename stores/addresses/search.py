"""Search the log of messages and its history: by filter, by id, and by UPRN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import asyncpg

from domain.addresses.messages import MessageState, Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import WaitKind, WaitReason
from infra.database import Database
from stores.addresses.cycle import OWNED, WAITS_FOR_PAUSE
from stores.keyset import SqlOrderAndAfterCondition
from stores.tables.addresses import AddressMessage, ArchivedMessage

Position: TypeAlias = tuple[datetime, int]
_PLACE: Final = SqlOrderAndAfterCondition(("createdat", "id"))

LOG: Final = AddressMessage.__tablename__
HISTORY: Final = ArchivedMessage.__tablename__
SUPERSEDED_MAX: Final = 1_000
# proc_flag is null while a message waits, P while it is processed, N once it has failed, and Y when it is done.
IDLE_FAILED: Final = f"(proc_flag = 'N' AND (topic <> '{Topic.SWAP}' OR next_attempt_at IS NOT NULL))"
"""SQL: whether a message has failed and no cycle is processing it."""

_LISTED_COLUMNS: Final = ", ".join(
    (
        "id, topic, uprn_1, uprn_2, address_id, msg_no, event_id, proc_flag, retry_times, createdat, published_at",
        "proc_update_date, next_attempt_at, cycle_id, superseded_by, wait_reason::text, reason",
        *(f"{module}_ack, {module}_ack_date" for module in Module),
    )
)
_ALL_COLUMNS: Final = ", ".join((_LISTED_COLUMNS, "payload::text", *(f"{module}_stack_trace" for module in Module)))
# Every column that a condition on `gathered` uses: add_filter_conditions, _add_state_condition, and the order.
_FILTERED: Final = ", ".join(
    (
        "id, createdat, topic, uprn_1, uprn_2, proc_flag, retry_times, next_attempt_at, wait_reason",
        *(f"{module}_ack" for module in Module),
    )
)
_LIVE: Final = "NULL::timestamptz AS archived_at"
# One statement, one snapshot: a message that is being archived is in exactly one of the two tables.
_FIND_MESSAGE: Final = f"""
    SELECT {_ALL_COLUMNS}, {_LIVE} FROM {LOG} WHERE id = $1
    UNION ALL SELECT {_ALL_COLUMNS}, archived_at FROM {HISTORY} WHERE id = $1
    """  # noqa: S608 - constants only
# By UPRN, which is indexed.
_SUPERSEDED: Final = f"""
    SELECT id FROM {LOG} WHERE uprn_1 = $2 AND superseded_by = $1
    UNION ALL SELECT id FROM {HISTORY} WHERE uprn_1 = $2 AND superseded_by = $1 ORDER BY id LIMIT {SUPERSEDED_MAX}
    """  # noqa: S608 - constants only
_ACTIONS: Final = "SELECT done_at, who, action, reason FROM addr_audit WHERE log_id = $1 ORDER BY id"
_LATEST_MESSAGES: Final = """
    SELECT given.uprn, (
        SELECT max(each.id) FROM (
            SELECT id FROM im_infi_addr_sync_log WHERE uprn_1 = given.uprn AND topic <> $2
            UNION ALL SELECT id FROM im_infi_addr_sync_log_his WHERE uprn_1 = given.uprn AND topic <> $2
        ) AS each
    ) AS last, (
        SELECT max(each.id) FROM (
            SELECT id FROM im_infi_addr_sync_log
            WHERE uprn_1 = given.uprn AND (proc_flag IS NULL OR proc_flag <> 'Y')
            UNION ALL SELECT id FROM im_infi_addr_sync_log
            WHERE uprn_2 = given.uprn AND (proc_flag IS NULL OR proc_flag <> 'Y')
        ) AS each
    ) AS open
    FROM unnest($1::bigint[]) WITH ORDINALITY AS given (uprn, place) ORDER BY place
    """
_COPIED_COLUMNS: Final = (
    *("id", "topic", "msg_no", "event_id", "uprn_1", "uprn_2", "address_id", "proc_flag", "retry_times"),
    *("published_at", "next_attempt_at", "archived_at", "cycle_id", "superseded_by", "reason"),
)


@dataclass(frozen=True, slots=True)
class ModuleAcknowledgement:
    """The last answer of a module."""

    ack: str | None
    at: datetime | None
    trace: str | None
    """The error; omitted in lists."""


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message of the log or of its history."""

    id: int
    topic: str
    msg_no: str
    event_id: str | None
    uprn_1: int
    uprn_2: int | None
    address_id: int | None
    proc_flag: str | None
    retry_times: int
    published_at: datetime | None
    next_attempt_at: datetime | None
    archived_at: datetime | None
    cycle_id: str | None
    superseded_by: int | None
    reason: str | None
    created_at: datetime
    changed_at: datetime | None
    waits: WaitReason
    acks: Mapping[Module, ModuleAcknowledgement]
    payload: str | None = None
    """The published text; omitted in lists."""


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """An action of an operator on a message."""

    at: datetime
    who: str
    action: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class MessageSearchConditions:
    """Conditions on messages; None sets none."""

    topic: Topic | None = None
    uprn: int | None = None
    module: Module | None = None
    """The module in which it failed."""
    kind: WaitKind | None = None
    """Why it is not done."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    ids: Sequence[int] | None = None
    retries_from: int | None = None
    """The lowest number of failed cycles."""
    retries_below: int | None = None
    """The number of failed cycles that it must not reach."""


@dataclass(slots=True)
class WhereClauseWithValues:
    """SQL conditions and their values."""

    conditions: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add_condition(self, condition: str, *values: object) -> None:
        """Add a condition; `{}` is replaced by the placeholder of each value in turn."""
        self.conditions.append(condition.format(*(self.add_value_and_get_placeholder(value) for value in values)))

    def add_value_and_get_placeholder(self, value: object) -> str:
        """Add a value, and return its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}"

    @property
    def where_text(self) -> str:
        """All conditions, joined by AND."""
        return " AND ".join(self.conditions) or "true"


def add_filter_conditions(filter_: MessageSearchConditions, where: WhereClauseWithValues) -> None:
    if filter_.topic is not None:
        where.add_condition("topic = {}", filter_.topic)
    if filter_.uprn is not None:
        where.add_condition("(uprn_1 = {} OR uprn_2 = {})", filter_.uprn, filter_.uprn)
    if filter_.module is not None:
        where.add_condition(f"{filter_.module}_ack = 'N'")
    if filter_.kind is not None:
        where.add_condition("wait_reason ->> 'kind' = {}", filter_.kind)
    if filter_.created_after is not None:
        where.add_condition("createdat >= {}", filter_.created_after)
    if filter_.created_before is not None:
        where.add_condition("createdat < {}", filter_.created_before)
    if filter_.ids is not None:
        where.add_condition("id = ANY({})", filter_.ids)
    if filter_.retries_from is not None:
        where.add_condition("retry_times >= {}", filter_.retries_from)
    if filter_.retries_below is not None:
        where.add_condition("retry_times < {}", filter_.retries_below)


@dataclass(frozen=True, slots=True)
class MessageSearch:
    """One page of a search."""

    filter: MessageSearchConditions
    limit: int
    retries: int
    """Failed cycles after which a message is given up."""
    state: MessageState | None = None
    in_history: bool = False
    after: Position | None = None
    """The receipt time and the id of the last message of the page before."""


async def search_messages(database: Database, query: MessageSearch) -> list[MessageRecord]:
    """Return a page of the messages that match, newest first."""
    text, values = build_search_query(query)
    async with database.connection() as connection:
        return [_build_message_record(row) for row in await connection.fetch(text, *values)]


def build_search_query(query: MessageSearch) -> tuple[str, Sequence[object]]:
    """Return the query and its values."""
    table, archived = (HISTORY, "archived_at") if query.in_history else (LOG, _LIVE)
    where = WhereClauseWithValues()
    selective = _build_condition_to_materialize_first(query, where)
    add_filter_conditions(query.filter, where)
    _add_state_condition(query, where)
    if query.after is not None:
        where.add_condition(_PLACE.format_after_condition("{}", "{}"), *query.after)
    limit, order = where.add_value_and_get_placeholder(query.limit), _PLACE.order_by
    if selective is None:
        text = f"SELECT {_LISTED_COLUMNS}, {archived} FROM {table} WHERE {where.where_text} {order} LIMIT {limit}"  # noqa: S608 - constants only
        return text, where.values
    text = f"""
        WITH {build_materialized_subquery(selective, table)}
        SELECT {_LISTED_COLUMNS}, {archived} FROM {table}
        WHERE id = ANY(ARRAY(SELECT id FROM gathered WHERE {where.where_text} {order} LIMIT {limit})) {order}
        """  # noqa: S608 - constants only
    return text, where.values


def build_materialized_subquery(condition: str, table: str = LOG) -> str:
    """Return a subquery that materialises the messages that a simple condition selects, before other conditions apply.

    The failed messages, and those of a UPRN, are few. But PostgreSQL assumes them to be spread evenly over the log, and
    would rather read all messages of a topic, or the log from its end.
    """
    return f"gathered AS MATERIALIZED (SELECT {_FILTERED} FROM {table} WHERE {condition})"  # noqa: S608 - constants only


def _build_condition_to_materialize_first(query: MessageSearch, where: WhereClauseWithValues) -> str | None:
    """Return the condition to materialise first, if it selects few messages."""
    if query.filter.uprn is not None:
        uprn = where.add_value_and_get_placeholder(query.filter.uprn)
        return f"uprn_1 = {uprn} OR uprn_2 = {uprn}"
    if query.in_history:
        return None
    match query.state:
        case MessageState.PROCESSING:
            return "proc_flag IN ('P', 'N')"
        case MessageState.FAILED | MessageState.GIVEN_UP:
            return "proc_flag = 'N'"
        case MessageState.DONE:
            return "proc_flag = 'Y'"
        case MessageState.WAITING:
            return None if query.filter.kind is None else "proc_flag = 'N'"
        case None:
            has_failed = query.filter.module is not None or query.filter.kind is not None
            return "proc_flag IS NOT NULL" if has_failed else None


def _add_state_condition(query: MessageSearch, where: WhereClauseWithValues) -> None:
    match query.state:
        case MessageState.WAITING:
            where.add_condition(
                f"(proc_flag IS NULL OR ({IDLE_FAILED} AND {WAITS_FOR_PAUSE} AND retry_times < {{}}))", query.retries
            )
        case MessageState.PROCESSING:
            where.add_condition(OWNED)
        case MessageState.FAILED:
            where.add_condition(f"{IDLE_FAILED} AND NOT {WAITS_FOR_PAUSE} AND retry_times < {{}}", query.retries)
        case MessageState.GIVEN_UP:
            where.add_condition(f"{IDLE_FAILED} AND retry_times >= {{}}", query.retries)
        case MessageState.DONE:
            where.add_condition("proc_flag = 'Y'")


async def find_message(database: Database, message_id: int) -> MessageRecord | None:
    """Find a message in the log or in its history."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_FIND_MESSAGE, message_id)
    return None if row is None else _build_message_record(row)


async def list_superseded_ids(database: Database, message: MessageRecord) -> list[int]:
    """Return the ids of the messages that a createUpdate or delete superseded."""
    async with database.connection() as connection:
        return [row["id"] for row in await connection.fetch(_SUPERSEDED, message.id, message.uprn_1)]


async def list_operator_actions(database: Database, message_id: int) -> list[OperatorAction]:
    """Return the actions of operators on a message, oldest first."""
    async with database.connection() as connection:
        rows = await connection.fetch(_ACTIONS, message_id)
    return [OperatorAction(row["done_at"], row["who"], row["action"], row["reason"]) for row in rows]


def _build_message_record(row: asyncpg.Record) -> MessageRecord:
    known, written = dict(row), row["wait_reason"]
    return MessageRecord(
        **{name: known[name] for name in _COPIED_COLUMNS},
        created_at=known["createdat"],
        changed_at=known["proc_update_date"],
        waits=WaitReason() if written is None else WaitReason.model_validate_json(written),
        acks={
            module: ModuleAcknowledgement(
                known[f"{module}_ack"], known[f"{module}_ack_date"], known.get(f"{module}_stack_trace")
            )
            for module in Module
        },
        payload=known.get("payload"),
    )


@dataclass(frozen=True, slots=True)
class LastWriteAndUnfinishedIds:
    """The messages of a UPRN whose addresses differ between modules."""

    last: int | None
    """The newest createUpdate or delete of it: published again, it repairs the difference."""
    open: int | None
    """An unfinished message of it."""


async def find_latest_message_ids_of_uprns(database: Database, uprns: Sequence[int]) -> list[LastWriteAndUnfinishedIds]:
    """Return the latest messages of each UPRN, in the order of `uprns`."""
    async with database.connection() as connection:
        rows = await connection.fetch(_LATEST_MESSAGES, uprns, Topic.SWAP)
    return [LastWriteAndUnfinishedIds(row["last"], row["open"]) for row in rows]
