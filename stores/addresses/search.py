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
from stores.addresses.cycle import OWNED
from stores.shared.keyset import SqlKeyset
from stores.tables.addresses import AddressMessage, ArchivedMessage

Position: TypeAlias = tuple[datetime, int]
_PLACE: Final = SqlKeyset(("createdat", "id"))

LOG: Final = AddressMessage.__tablename__
HISTORY: Final = ArchivedMessage.__tablename__
SUPERSEDED_MAX: Final = 1_000
IDLE_FAILED: Final = f"(proc_flag = 'N' AND (topic <> '{Topic.SWAP}' OR next_attempt_at IS NOT NULL))"
"""Whether it has failed and no cycle has it, in SQL."""

_LISTED_COLUMNS: Final = ", ".join(
    (
        "id, topic, uprn_1, uprn_2, address_id, msg_no, event_id, proc_flag, retry_times, createdat, published_at",
        "proc_update_date, next_attempt_at, cycle_id, superseded_by, wait_reason::text, reason",
        *(f"{module}_ack, {module}_ack_date" for module in Module),
    )
)
_ALL_COLUMNS: Final = ", ".join((_LISTED_COLUMNS, "payload::text", *(f"{module}_stack_trace" for module in Module)))
_FILTERED: Final = ", ".join(
    (
        "id, createdat, topic, uprn_1, uprn_2, proc_flag, retry_times, next_attempt_at, wait_reason",
        *(f"{module}_ack" for module in Module),
    )
)
_LIVE: Final = "NULL::timestamptz AS archived_at"
# One statement sees one moment: a message that is archived meanwhile is in one of the two.
_FIND_MESSAGE: Final = f"""
    SELECT {_ALL_COLUMNS}, {_LIVE} FROM {LOG} WHERE id = $1
    UNION ALL SELECT {_ALL_COLUMNS}, archived_at FROM {HISTORY} WHERE id = $1
    """  # noqa: S608 - names of ours
# By UPRN, of which there are indexes.
_SUPERSEDED: Final = f"""
    SELECT id FROM {LOG} WHERE uprn_1 = $2 AND superseded_by = $1
    UNION ALL SELECT id FROM {HISTORY} WHERE uprn_1 = $2 AND superseded_by = $1 ORDER BY id LIMIT {SUPERSEDED_MAX}
    """  # noqa: S608 - names of ours
_ACTIONS: Final = "SELECT done_at, who, action, reason FROM addr_audit WHERE log_id = $1 ORDER BY id"


@dataclass(frozen=True, slots=True)
class ModuleAck:
    """What a module said last."""

    ack: str | None
    at: datetime | None
    trace: str | None
    """What went wrong there; lists leave it out."""


@dataclass(frozen=True, slots=True)
class FoundMessage:
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
    acks: Mapping[Module, ModuleAck]
    payload: str | None = None
    """The text that was published; lists leave it out."""


_COPIED_COLUMNS: Final = (
    *("id", "topic", "msg_no", "event_id", "uprn_1", "uprn_2", "address_id", "proc_flag", "retry_times"),
    *("published_at", "next_attempt_at", "archived_at", "cycle_id", "superseded_by", "reason"),
)


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """What an operator did to a message."""

    at: datetime
    who: str
    action: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages; None asks for nothing."""

    topic: Topic | None = None
    uprn: int | None = None
    module: Module | None = None
    """It failed there."""
    kind: WaitKind | None = None
    """Why it is not done."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    ids: Sequence[int] | None = None
    retries_from: int | None = None
    """It failed in so many cycles, or more."""
    retries_below: int | None = None
    """It failed in fewer."""


@dataclass(slots=True)
class WhereClause:
    """Conditions in SQL, and their values."""

    conditions: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add(self, condition: str, *values: object) -> None:
        """One more; `{}` stands for each value in turn."""
        self.conditions.append(condition.format(*(self.bound(value) for value in values)))

    def bound(self, value: object) -> str:
        """The name of one more value."""
        self.values.append(value)
        return f"${len(self.values)}"

    @property
    def text(self) -> str:
        """All of them."""
        return " AND ".join(self.conditions) or "true"


def add_filter(filter_: MessageFilter, where: WhereClause) -> None:
    """Add what a filter says."""
    if filter_.topic is not None:
        where.add("topic = {}", filter_.topic)
    if filter_.uprn is not None:
        where.add("(uprn_1 = {} OR uprn_2 = {})", filter_.uprn, filter_.uprn)
    if filter_.module is not None:
        where.add(f"{filter_.module}_ack = 'N'")
    if filter_.kind is not None:
        where.add("wait_reason ->> 'kind' = {}", filter_.kind)
    if filter_.created_after is not None:
        where.add("createdat >= {}", filter_.created_after)
    if filter_.created_before is not None:
        where.add("createdat < {}", filter_.created_before)
    if filter_.ids is not None:
        where.add("id = ANY({})", filter_.ids)
    if filter_.retries_from is not None:
        where.add("retry_times >= {}", filter_.retries_from)
    if filter_.retries_below is not None:
        where.add("retry_times < {}", filter_.retries_below)


@dataclass(frozen=True, slots=True)
class MessageSearch:
    """One page of what is looked for."""

    filter: MessageFilter
    limit: int
    retries: int
    """Failed cycles after which a message is given up."""
    state: MessageState | None = None
    in_history: bool = False
    after: Position | None = None
    """When and under which id the last message of the page before came."""


async def search_messages(database: Database, wanted: MessageSearch) -> list[FoundMessage]:
    """The newest of those that match."""
    text, values = build_search(wanted)
    async with database.connection() as connection:
        return [_build_found_message(row) for row in await connection.fetch(text, *values)]


def build_search(wanted: MessageSearch) -> tuple[str, Sequence[object]]:
    """The query and its values."""
    table, archived = (HISTORY, "archived_at") if wanted.in_history else (LOG, _LIVE)
    where = WhereClause()
    gate = _build_gate(wanted, where)
    add_filter(wanted.filter, where)
    _add_state(wanted, where)
    if wanted.after is not None:
        where.add(_PLACE.format_behind("{}", "{}"), *wanted.after)
    limit, order = where.bound(wanted.limit), _PLACE.order_by
    if gate is None:
        text = f"SELECT {_LISTED_COLUMNS}, {archived} FROM {table} WHERE {where.text} {order} LIMIT {limit}"  # noqa: S608 - names of ours
        return text, where.values
    text = f"""
        WITH {build_gathered(gate, table)}
        SELECT {_LISTED_COLUMNS}, {archived} FROM {table}
        WHERE id = ANY(ARRAY(SELECT id FROM gathered WHERE {where.text} {order} LIMIT {limit})) {order}
        """  # noqa: S608 - names of ours
    return text, where.values


def build_gathered(gate: str, table: str = LOG) -> str:
    """What a simple condition lets through, before anything else is asked of it.

    What is begun, and what a UPRN has, is little. But PostgreSQL takes it to be spread evenly over the log, and would
    rather read all messages of a topic, or the log from its end.
    """
    return f"gathered AS MATERIALIZED (SELECT {_FILTERED} FROM {table} WHERE {gate})"  # noqa: S608 - names of ours


def _build_gate(wanted: MessageSearch, where: WhereClause) -> str | None:
    """What is gathered first, if that is little."""
    if wanted.filter.uprn is not None:
        uprn = where.bound(wanted.filter.uprn)
        return f"uprn_1 = {uprn} OR uprn_2 = {uprn}"
    if wanted.in_history:
        return None
    match wanted.state:
        case MessageState.PROCESSING:
            return "proc_flag IN ('P', 'N')"
        case MessageState.FAILED | MessageState.GIVEN_UP:
            return "proc_flag = 'N'"
        case MessageState.DONE:
            return "proc_flag = 'Y'"
        case MessageState.WAITING:
            return None
        case None:
            has_failed = wanted.filter.module is not None or wanted.filter.kind is not None
            return "proc_flag IS NOT NULL" if has_failed else None


def _add_state(wanted: MessageSearch, where: WhereClause) -> None:
    match wanted.state:
        case MessageState.WAITING:
            where.add("proc_flag IS NULL")
        case MessageState.PROCESSING:
            where.add(OWNED)
        case MessageState.FAILED:
            where.add(f"{IDLE_FAILED} AND retry_times < {{}}", wanted.retries)
        case MessageState.GIVEN_UP:
            where.add(f"{IDLE_FAILED} AND retry_times >= {{}}", wanted.retries)
        case MessageState.DONE:
            where.add("proc_flag = 'Y'")


async def find_message(database: Database, message_id: int) -> FoundMessage | None:
    """One message, wherever it is."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_FIND_MESSAGE, message_id)
    return None if row is None else _build_found_message(row)


async def list_superseded(database: Database, message: FoundMessage) -> list[int]:
    """The ids of those that a message of one UPRN made needless."""
    async with database.connection() as connection:
        return [row["id"] for row in await connection.fetch(_SUPERSEDED, message.id, message.uprn_1)]


async def list_actions(database: Database, message_id: int) -> list[OperatorAction]:
    """What operators did to it, in order."""
    async with database.connection() as connection:
        rows = await connection.fetch(_ACTIONS, message_id)
    return [OperatorAction(row["done_at"], row["who"], row["action"], row["reason"]) for row in rows]


def _build_found_message(row: asyncpg.Record) -> FoundMessage:
    known, written = dict(row), row["wait_reason"]
    return FoundMessage(
        **{name: known[name] for name in _COPIED_COLUMNS},
        created_at=known["createdat"],
        changed_at=known["proc_update_date"],
        waits=WaitReason() if written is None else WaitReason.model_validate_json(written),
        acks={
            module: ModuleAck(known[f"{module}_ack"], known[f"{module}_ack_date"], known.get(f"{module}_stack_trace"))
            for module in Module
        },
        payload=known.get("payload"),
    )


_LATEST_MESSAGES: Final = """
    SELECT told.uprn, (
        SELECT max(each.id) FROM (
            SELECT id FROM im_infi_addr_sync_log WHERE uprn_1 = told.uprn AND topic <> $2
            UNION ALL SELECT id FROM im_infi_addr_sync_log_his WHERE uprn_1 = told.uprn AND topic <> $2
        ) AS each
    ) AS last, (
        SELECT max(each.id) FROM (
            SELECT id FROM im_infi_addr_sync_log
            WHERE uprn_1 = told.uprn AND (proc_flag IS NULL OR proc_flag <> 'Y')
            UNION ALL SELECT id FROM im_infi_addr_sync_log
            WHERE uprn_2 = told.uprn AND (proc_flag IS NULL OR proc_flag <> 'Y')
        ) AS each
    ) AS open
    FROM unnest($1::bigint[]) WITH ORDINALITY AS told (uprn, place) ORDER BY place
    """


@dataclass(frozen=True, slots=True)
class LatestMessages:
    """What the log knows of a UPRN that modules have differently."""

    last: int | None
    """The newest createUpdate or delete of it: sent again, it mends it."""
    open: int | None
    """A message of it that is not done."""


async def find_latest_messages(database: Database, uprns: Sequence[int]) -> list[LatestMessages]:
    """What the log knows of each of these UPRNs, in their order."""
    async with database.connection() as connection:
        rows = await connection.fetch(_LATEST_MESSAGES, uprns, Topic.SWAP)
    return [LatestMessages(row["last"], row["open"]) for row in rows]
